//! PyTorch's Gloo as a contender: one `python -m tributary.peers.gloo` on every host of a star.

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Stdio};
use std::time::Duration;

use serde::Deserialize;
use tributary_testbed::Star;

use super::density::Density;
use crate::cluster::{Interrupt, Process};
use crate::failure::Failure;
use crate::program::Program;

/// Importing PyTorch on every host of a busy machine takes a while.
const JOIN_TIMEOUT: Duration = Duration::from_secs(120);
/// For one run of collectives, also with heavy loss.
const RUN_TIMEOUT: Duration = Duration::from_secs(300);
const RENDEZVOUS_PORT: u16 = 29500;

/// Gloo ranks that wait for work.
pub struct Gloo {
    ranks: Vec<(Process, ChildStdin)>,
    /// PyTorch's version.
    pub version: String,
}

/// What one rank measured; the names are those of its JSON.
#[derive(Clone, Debug, Deserialize)]
pub struct RankReport {
    /// Median completion time.
    pub seconds: f64,
    /// CPU time of the rank's process during the collectives.
    pub cpu_seconds: f64,
    /// TCP segments that its host sent again during the collectives.
    pub retransmissions: u64,
}

#[derive(Deserialize)]
struct Joined {
    torch: String,
}

/// The interpreter that has the package: the one that started this program, else the environment's, else the system's.
pub fn default_python(program: &Program) -> PathBuf {
    if let [python, module, ..] = program.words()
        && module == OsStr::new("-m")
    {
        return python.into();
    }
    match std::env::var_os("VIRTUAL_ENV") {
        Some(environment) => Path::new(&environment).join("bin/python"),
        None => "python3".into(),
    }
}

impl Gloo {
    /// Starts a rank on each of the first `world_size` hosts and waits until all have joined.
    pub fn join(star: &Star, world_size: usize, python: &Path, interrupt: &Interrupt) -> Result<Gloo, Failure> {
        let rendezvous = format!("{}:{RENDEZVOUS_PORT}", star.host_addr(0));
        let mut ranks = Vec::new();
        for rank in 0..world_size {
            let mut command = star.host(rank).command(python)?;
            command
                .args([
                    "-m",
                    "tributary.peers.gloo",
                    "--rank",
                    &rank.to_string(),
                    "--world-size",
                    &world_size.to_string(),
                ])
                .args(["--rendezvous", &rendezvous, "--interface", star.host_device()])
                .stdin(Stdio::piped());
            let mut process = Process::spawn("Gloo", command, interrupt)?;
            let input = process.take_input().ok_or_else(|| Failure::new("Gloo was started without an input"))?;
            ranks.push((process, input));
        }
        let mut version = String::new();
        for (process, _) in &mut ranks {
            let joined: Joined = parse(&process.next_line(JOIN_TIMEOUT)?)?;
            version = joined.torch;
        }
        Ok(Gloo { ranks, version })
    }

    /// One run of collectives, back to back, of a tensor of this many elements, or of this share of them.
    pub fn run(&mut self, elements: usize, iters: u32, density: Option<Density>) -> Result<Vec<RankReport>, Failure> {
        let density = density.map_or(String::new(), |density| format!(" {density}"));
        for (_, input) in &mut self.ranks {
            // If the rank has ended, reading from it below tells why.
            let _ = writeln!(input, "{elements} {iters}{density}");
        }
        self.ranks.iter_mut().map(|(process, _)| parse(&process.next_line(RUN_TIMEOUT)?)).collect()
    }
}

fn parse<'a, T: Deserialize<'a>>(line: &'a str) -> Result<T, Failure> {
    serde_json::from_str(line).map_err(|error| Failure::new(format!("Gloo said '{line}': {error}")))
}

//! PyTorch's Gloo as a contender, or our backend in its place: a `python -m tributary.peers.gloo` on every host of a star.

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Stdio};
use std::time::Duration;

use serde::Deserialize;
use tributary_testbed::Star;

use super::contender::Density;
use crate::cluster::{Interrupt, Process};
use crate::failure::Failure;
use crate::program::Program;

/// Importing PyTorch on every host of a busy machine takes a while.
const JOIN_TIMEOUT: Duration = Duration::from_secs(120);
/// For one run of collectives, also with heavy loss.
const RUN_TIMEOUT: Duration = Duration::from_secs(300);
/// Where the first ranks meet; others meet at the ports behind.
const RENDEZVOUS_PORT: u16 = 29500;

/// PyTorch's backend, and the switches that it is told of.
#[derive(Clone, Debug)]
pub struct Backend {
    /// The word in `init_process_group`.
    pub name: &'static str,
    /// Distinguishes the ranks of one star that meet.
    pub number: u16,
    /// "HOST:PORT" of each switch.
    pub switches: Vec<String>,
    /// Ranks on each host.
    pub ranks_per_host: u16,
}

/// Ranks that wait for work.
pub struct Gloo {
    backend: &'static str,
    ranks: Vec<(Process, ChildStdin)>,
    per_host: usize,
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
    /// Starts ranks on each of the first `hosts`, and waits until all have joined.
    pub fn join(
        star: &Star,
        hosts: usize,
        backend: &Backend,
        python: &Path,
        interrupt: &Interrupt,
    ) -> Result<Gloo, Failure> {
        let rendezvous = format!("{}:{}", star.host_addr(0), RENDEZVOUS_PORT + backend.number);
        let mut ranks = Vec::new();
        let per_host = usize::from(backend.ranks_per_host);
        let world_size = hosts * per_host;
        for rank in 0..world_size {
            let mut command = star.host(rank / per_host).command(python)?;
            command
                .args([
                    "-m",
                    "tributary.peers.gloo",
                    "--rank",
                    &rank.to_string(),
                    "--world-size",
                    &world_size.to_string(),
                ])
                .args(["--rendezvous", &rendezvous, "--interface", star.host_device(), "--backend", backend.name])
                .stdin(Stdio::piped());
            if !backend.switches.is_empty() {
                command.env("TRIBUTARY_SWITCH", backend.switches.join(","));
            }
            let mut process = Process::spawn(backend.name, command, interrupt)?;
            let input = process.take_input().ok_or_else(|| Failure::new("a rank was started without an input"))?;
            ranks.push((process, input));
        }
        let mut version = String::new();
        for (process, _) in &mut ranks {
            let joined: Joined = parse(backend.name, &process.next_line(JOIN_TIMEOUT)?)?;
            version = joined.torch;
        }
        Ok(Gloo { backend: backend.name, ranks, per_host, version })
    }

    /// One run of collectives of a tensor of this many elements, or of this share of them; ranks meet before large ones.
    pub fn run(&mut self, elements: usize, iters: u32, density: Option<Density>) -> Result<Vec<RankReport>, Failure> {
        let density = density.map_or(String::new(), |density| format!(" {density}"));
        for (_, input) in &mut self.ranks {
            // If the rank has ended, reading from it below tells why.
            let _ = writeln!(input, "{elements} {iters}{density}");
        }
        let (backend, ranks) = (self.backend, &mut self.ranks);
        let report = |(process, _): &mut (Process, _)| parse(backend, &process.next_line(RUN_TIMEOUT)?);
        let mut reports: Vec<RankReport> = ranks.iter_mut().map(report).collect::<Result<_, _>>()?;
        // All ranks of a host count the segments of the host.
        let others = reports.iter_mut().enumerate().filter(|(rank, _)| rank % self.per_host != 0);
        others.for_each(|(_, report)| report.retransmissions = 0);
        Ok(reports)
    }
}

fn parse<'a, T: Deserialize<'a>>(backend: &str, line: &'a str) -> Result<T, Failure> {
    serde_json::from_str(line).map_err(|error| Failure::new(format!("a rank of {backend} said '{line}': {error}")))
}

//! `tributary lab fabric`: a whole fabric of switches and hosts on this machine, or the commands for real machines.
//!
//! `cluster.rs` builds the fabric of namespaces and processes, `collective.rs` lets its hosts sum, `report.rs` shows the
//! results, and `print.rs` prints the commands for real machines. Each of the processes runs
//! `tributary switch --fabric` (`switch.rs`).

mod cluster;
mod collective;
mod plan;
mod print;
mod report;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tributary_control::fabric::{FabricFile, FabricLayout};
use tributary_numeric::DType;
use tributary_proto::contract::options::name_and_value;
use tributary_proto::contract::protocol::{Placement, Protocol};
use tributary_proto::protocols;
use tributary_proto::switch_options::{self, SwitchOptionError};

use crate::cluster::Interrupt;
use crate::commands::collective::{design, dtype, options_help, protocols_help};
use crate::failure::Failure;
use crate::flags::parse_timeout;
use crate::output;
use crate::program::Program;

pub use cluster::FabricCluster;
use plan::{Kill, Plan, Stream};

/// The protocol of a job that names none.
const PROTOCOL: &str = "canary";

const EXAMPLES: &str = "\
Examples:
  tributary lab fabric examples/fabric.toml         start it, say where everything is, until Ctrl-C
  tributary lab fabric examples/fabric.toml --allreduce 1000000
  tributary lab fabric examples/fabric.toml --allreduce 90000 --traffic host3:host7:150Mbit/s:spine0
  tributary lab fabric examples/fabric.toml --allreduce 4000000 --kill spine0:500ms  nobody notices
  tributary lab fabric examples/fabric.toml --allreduce 4000000 --kill leaf1:500ms   all ranks fail
  tributary lab fabric examples/fabric.toml --allreduce 4000000 --protocol switchml --trees 2
  tributary lab fabric examples/fabric.toml --run 'ip netns exec $NS_host0 ping -c 1 10.77.128.1'
  tributary lab fabric fabric.toml --print          the command for each machine of a real one

Every switch is a process of its own in a network namespace, with a port on each of its cables: an
egress queue that drops and marks, and leaves at the port's rate. Needs root and iproute2. With
--run the command finds each node's namespace in $NS_<node>, and the switches' control addresses
from inside $NS_control. docs/fabric.md has the file's keys.";

/// The flags of `tributary lab fabric`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The fabric's file
    #[arg(value_name = "FILE.toml")]
    pub file: PathBuf,
    /// An option of every switch, in place of the file's: what docs/protocols says of `[switches.PROTOCOL]`
    #[arg(long = "switch-option", value_name = "PROTOCOL.NAME=VALUE", value_parser = switch_option)]
    pub switch_options: Vec<String>,
    /// Print the commands that start it on real machines, and start nothing
    #[arg(long, conflicts_with_all = ["run", "allreduce", "json"])]
    pub print: bool,
    /// Run a shell command while the fabric is up, then end with its exit code
    #[arg(long, value_name = "COMMAND", conflicts_with = "allreduce")]
    pub run: Option<String>,
    /// Let the hosts sum arrays of N made-up elements, check the sum, show what happened, and end
    #[arg(long, value_name = "N")]
    pub allreduce: Option<usize>,
    #[arg(long, value_name = "NAME", default_value = PROTOCOL, requires = "allreduce", help = protocols_help())]
    pub protocol: String,
    #[arg(long = "option", value_name = "NAME=VALUE", value_parser = name_and_value, requires = "allreduce", help = options_help())]
    pub options: Vec<(String, String)>,
    #[arg(long, value_name = "DESIGN", value_parser = design::parse, requires = "allreduce", help = design::help())]
    pub design: Option<&'static str>,
    /// Aggregation trees, of protocols whose trees are planned [default: as many as are of use, at most 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64), requires = "allreduce")]
    pub trees: Option<u16>,
    /// Element type: what the protocol can sum of f64 | f32 | f16 | bf16 | i64 | i32 | i16 | i8 | u8
    #[arg(long, value_name = "TYPE", default_value = "f32", value_parser = dtype, requires = "allreduce")]
    pub dtype: DType,
    /// Sum the same array K times; times are medians
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..), requires = "allreduce")]
    pub iters: u32,
    /// Time after which a sum is given up
    #[arg(long, value_name = "TIME", default_value = "60 s", value_parser = parse_timeout, requires = "allreduce")]
    pub timeout: Duration,
    /// Other traffic meanwhile, over one switch if VIA is given; its hosts do not sum
    #[arg(long, value_name = "FROM:TO:RATE[:VIA]", value_parser = plan::parse_stream, requires = "allreduce")]
    pub traffic: Vec<Stream>,
    /// Kill a switch (SIGKILL) this long after the hosts have begun; start it again after BACK, if it is given
    #[arg(long, value_name = "SWITCH:TIME[:BACK]", value_parser = plan::parse_kill, requires = "allreduce")]
    pub kill: Option<Kill>,
    /// Print JSON: one object when ready, and one at the end
    #[arg(long)]
    pub json: bool,
}

/// Builds the fabric, runs the plan, and takes the fabric down.
pub fn run(args: Args, program: &Program) -> Result<(), Failure> {
    let file = ChosenFile { path: args.file.clone(), switch_options: args.switch_options.clone() };
    let fabric = Arc::new(file.read()?);
    if args.print {
        return Ok(output::line(&print::commands(&fabric, &file))?);
    }
    let plan = args.allreduce.map(|elements| Plan::new(&args, elements, &fabric)).transpose()?;
    let interrupt = Interrupt::on_signals()?;
    let progress = progress();
    progress.set_message(format!("starting {} switches in namespaces", fabric.cabling.switches));
    let mut cluster = FabricCluster::open(program, Arc::clone(&fabric), file, &interrupt)?;
    progress.set_message("waiting until the switches receive from each other");
    cluster.wait_ready()?;
    cluster.start_servers()?;
    let outcome = match (&args.run, plan) {
        (Some(command), _) => {
            progress.finish_and_clear();
            run_command(&cluster, command)
        }
        (None, Some(plan)) => {
            progress.set_message(plan.sentence());
            let report = collective::run(&mut cluster, &plan)?;
            progress.finish_and_clear();
            match args.json {
                true => output::json(&report)?,
                false => output::line(&report.render())?,
            }
            report.error().map_or(Ok(()), |error| Err(Failure::new(error)))
        }
        (None, None) => {
            progress.finish_and_clear();
            match args.json {
                true => output::json(&cluster.describe())?,
                false => output::line(&cluster.describe().render())?,
            }
            cluster.wait_for_the_end(&interrupt)
        }
    };
    cluster.close()?;
    outcome
}

/// A fabric's file, and the options of switches in flags, which replace the file's.
#[derive(Clone)]
pub struct ChosenFile {
    /// The file's path.
    pub path: PathBuf,
    /// The options, as in the flags.
    pub switch_options: Vec<String>,
}

impl ChosenFile {
    /// Reads and checks it.
    pub fn read(&self) -> Result<FabricLayout, Failure> {
        let path = self.path.display();
        let text = std::fs::read_to_string(&self.path);
        let text = text.map_err(|error| Failure::usage(format!("cannot read '{path}': {error}")))?;
        let mut given = switch_options::Given::new();
        for option in &self.switch_options {
            switch_options::add(&mut given, option).map_err(Failure::usage)?;
        }
        FabricFile::parse_with(&text, &given).map_err(|error| Failure::usage(format!("'{path}': {error}")))
    }

    /// The flags with which another command makes the same choice.
    pub fn flags(&self) -> Vec<OsString> {
        let options = self.switch_options.iter().flat_map(|option| ["--switch-option".into(), option.into()]);
        ["--fabric".into(), self.path.clone().into_os_string()].into_iter().chain(options).collect()
    }
}

/// Checks that a flag has the form of an option of switches.
pub fn switch_option(text: &str) -> Result<String, SwitchOptionError> {
    switch_options::add(&mut switch_options::Given::new(), text).map(|()| text.to_owned())
}

fn run_command(cluster: &FabricCluster, command: &str) -> Result<(), Failure> {
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).envs(cluster.namespaces());
    let status = shell.status()?;
    match status.success() {
        true => Ok(()),
        false => Err(Failure::new(format!("the command failed ({status})"))),
    }
}

fn progress() -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {elapsed} {msg}").expect("a right template");
    let progress = ProgressBar::new_spinner().with_style(style);
    progress.enable_steady_tick(Duration::from_millis(100));
    progress
}

/// The protocol of this name, if switches of a fabric sum for it: all switches on the way, or those of its trees.
fn protocol(name: &str) -> Result<&'static Protocol, Failure> {
    let fit = || protocols::ALL.iter().copied().filter(|protocol| protocol.placement != Placement::Hosts);
    fit().find(|protocol| protocol.name == name).ok_or_else(|| {
        let known: Vec<&str> = fit().map(|protocol| protocol.name).collect();
        Failure::usage(format!("'{name}' does not sum in a fabric of switches; these do: {}", known.join(", ")))
    })
}

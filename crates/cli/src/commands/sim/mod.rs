//! `tributary sim`: the protocols' own machines on simulated networks.

mod cluster;
mod explore;
mod run;
mod swarm;
mod sweep;
mod topology;
mod trace;

use crate::failure::Failure;
use crate::program::Program;

const EXAMPLES: &str = "\
Examples:
  tributary sim run experiments/first.toml
  tributary sim run FILE.toml --seed 7 --out results --plot
  tributary sim run FILE.toml --html page.html        links over time, in a browser
  tributary sim run FILE.toml --json | jq .jobs[0].goodput_gbps
  tributary sim sweep experiments/sweep-trees.toml --out trees
  tributary sim sweep FILE.toml --on 10.0.0.1:8786    on the workers of a Dask cluster
  tributary sim swarm --seeds 0..10000
  tributary sim swarm --seeds 17..18 --show           the scenario of seed 17 as a file
  tributary sim explore --protocol NAME --losses 1 --duplicates 1
  tributary sim trace --swarm 17 --node 'switch 0'
  tributary sim trace FILE.toml --pcapng run.pcapng   for Wireshark
  tributary sim topology fat.topo --svg fat.svg       htsim's fat tree as a table and a picture

A file describes network, jobs, background traffic and faults; docs/simulator-reference.md
explains every key, and docs/experiment.toml is a file with all of them. The same file and the
same seed give the same packets on every machine: the last line but one of a report is the hash of
all of them.";

/// The flags of `tributary sim`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Run one experiment and report what it found
    Run(run::Args),
    /// Run a file with every combination of some values and seeds, on all cores or a cluster; goes on where it was stopped
    Sweep(sweep::Args),
    /// Run random scenarios with faults: nothing wrong may come out, and everything must end
    Swarm(swarm::Args),
    /// Go through all states of a small scenario: every order of packets, losses and timers, not only random ones
    Explore(Box<explore::Args>),
    /// Show what happens in an experiment, packet by packet
    Trace(trace::Args),
    /// Read and draw a network: of an experiment, or of GraphML, htsim, HPCC's ns-3 or ASTRA-sim
    Topology(topology::Args),
}

impl Args {
    /// True if a script reads our output.
    pub fn json(&self) -> bool {
        match &self.command {
            Command::Run(args) => args.json,
            Command::Sweep(args) => args.json,
            Command::Swarm(args) => args.json,
            Command::Explore(args) => args.json,
            Command::Trace(_) | Command::Topology(_) => false,
        }
    }
}

/// Carries the subcommand out.
pub fn run(args: Args, program: &Program) -> Result<(), Failure> {
    match args.command {
        Command::Run(args) => run::run(args, program),
        Command::Sweep(args) => sweep::run(args, program),
        Command::Swarm(args) => swarm::run(args),
        Command::Explore(args) => explore::run(*args),
        Command::Trace(args) => trace::run(args),
        Command::Topology(args) => topology::run(args),
    }
}

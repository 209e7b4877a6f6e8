//! `tributary lab`: experiments with real packets, mostly on one machine over network namespaces with shaped links.

pub mod bench;
mod fair;
mod star;
pub mod traffic;

use super::{collective, demo, fabric};
use crate::failure::Failure;
use crate::program::Program;

/// The flags of `tributary lab`.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Watch a switch and four workers sum real tensors
    Demo(demo::Args),
    /// Start a whole fabric of switches and hosts on this machine, or print the commands for real ones
    Fabric(fabric::Args),
    /// Measure ours against host-based all-reduce over the same links
    Bench(bench::Args),
    /// Run any program on every host of a star of shaped links, with a switch in the middle
    Star(star::Args),
    /// Load a fabric's links with packets that its switches only forward
    Traffic(traffic::Args),
    /// Compare the shares that a job and a flow under DCTCP get of one cable
    Fair(fair::Args),
    /// Be one worker of a job: sum an array with the other workers, for one of them
    Reduce(collective::ReduceArgs),
    /// Be one worker of a job: get one worker's array, bit for bit
    Broadcast(collective::BroadcastArgs),
}

impl Args {
    /// True if a script reads the output.
    pub fn json(&self) -> bool {
        match &self.command {
            Command::Demo(args) => args.json,
            Command::Fabric(args) => args.json,
            Command::Bench(args) => args.json,
            Command::Star(_) => false,
            Command::Traffic(args) => args.json,
            Command::Fair(args) => args.json,
            Command::Reduce(args) => args.member.json,
            Command::Broadcast(args) => args.member.json,
        }
    }
}

/// Runs the experiment.
pub fn run(args: Args, program: &Program) -> Result<(), Failure> {
    match args.command {
        Command::Demo(args) => demo::run(args, program),
        Command::Fabric(args) => fabric::run(args, program),
        Command::Bench(args) => bench::run(args, program),
        Command::Star(args) => star::run(&args, program),
        Command::Traffic(args) => traffic::run(args),
        Command::Fair(args) => fair::run(args, program),
        Command::Reduce(args) => collective::reduce(args),
        Command::Broadcast(args) => collective::broadcast(args),
    }
}

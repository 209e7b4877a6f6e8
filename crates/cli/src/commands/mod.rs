//! The subcommands: one line each here, one file or folder each beside this one.

mod act;
mod collective;
mod demo;
mod doctor;
mod fabric;
mod lab;
mod manual;
mod operator;
mod plan;
mod ps;
mod reproduce;
mod sim;
mod status;
mod switch;
mod top;

use crate::failure::Failure;
use crate::log::LogArgs;
use crate::program::Program;

const EXAMPLES: &str = "\
Examples:
  One machine, three terminals: a switch and a job of two workers.
    tributary switch
    tributary allreduce --switch 127.0.0.1 --job hello --rank 0 --world-size 2 --elements 1000000
    tributary allreduce --switch 127.0.0.1 --job hello --rank 1 --world-size 2 --elements 1000000

  See it work on its own:              tributary lab demo
  Many switches on this machine:       tributary lab fabric examples/fabric.toml --allreduce 1000000
  A thousand hosts, simulated:         tributary sim run experiments/workload-w.toml
  Would it help my training:           tributary plan --hosts 8 --model resnet-50 --compute '120 ms'
  Who uses the switch, what is stuck:  tributary status --switch 10.0.0.1
  Which ranks are slow, live:          tributary top --switch 10.0.0.1
  What is wrong with this machine:     tributary doctor --switch 10.0.0.1
  Act on a switch, with a token:       tributary drain --switch 10.0.0.1
    and: cordon, uncordon, job end, member evict, client ban, client unban

Quantities have units: --timeout 30s, --memory 256MiB, --rate '1 Gbit/s', --loss 0.1%.
Errors are one sentence on stderr. Exit codes: 0 done, 1 failed, 2 called wrongly.
`tributary completions SHELL` and `tributary man DIR` write completions and manual pages.
TRIBUTARY_SWITCH stands for --switch; TRIBUTARY_LOG=debug shows the log of any command, with
TRIBUTARY_LOG_FORMAT=json as objects.";

/// Sums tensors inside the network instead of at the hosts.
#[derive(clap::Parser)]
#[command(name = "tributary", version = tributary_sim::Program::BUILD, after_help = EXAMPLES, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(clap::Subcommand)]
pub enum Command {
    /// Serve as an aggregation switch for many jobs at once, until SIGTERM or Ctrl-C
    Switch(switch::Args),
    /// Offer this host as a parameter server to a switch's jobs, until SIGTERM or Ctrl-C
    Ps(ps::Args),
    /// Be one worker of a job: sum an array with the other workers
    Allreduce(collective::AllreduceArgs),
    /// Check, compile and time your own operators
    Operator(operator::Args),
    /// Show a switch's jobs: members, slots, memory, packets, drops, and who is missing
    Status(status::Args),
    /// Watch a switch's jobs live: which are stalled, which ranks they wait for, which ranks are slow
    Top(top::Args),
    /// Find out what is wrong with this machine or the path to a switch, and how to fix it
    Doctor(doctor::Args),
    /// Repeat published experiments, and see both results side by side
    Reproduce(reproduce::Args),
    /// Ask what a training step would take on a network that you do not have, under each protocol
    Plan(plan::Args),
    /// Run protocols on simulated networks of any size
    Sim(sim::Args),
    /// Experiment with real packets: the demo, fabrics on this machine, benchmarks, shaped links, other collectives
    Lab(lab::Args),
    /// End a job of a switch, as its operator
    #[command(hide = true)]
    Job(act::JobArgs),
    /// Evict a member of a job, as an operator of the switch
    #[command(hide = true)]
    Member(act::MemberArgs),
    /// Ban a client from a switch, as its operator
    #[command(hide = true)]
    Client(act::ClientArgs),
    /// Let no new job begin at a switch, as its operator; running jobs go on
    #[command(hide = true)]
    Cordon(act::CordonArgs),
    /// Let jobs begin again at a switch
    #[command(hide = true)]
    Uncordon(act::CordonArgs),
    /// Let no new job begin at a switch, and wait until the last one has ended, however long that takes
    #[command(hide = true)]
    Drain(act::CordonArgs),
    /// Print the script that completes this program's commands and flags in a shell
    #[command(hide = true)]
    Completions(manual::CompletionsArgs),
    /// Write manual pages, one for each command
    #[command(hide = true)]
    Man(manual::ManArgs),
}

impl Command {
    /// True if a script reads our output.
    pub fn json(&self) -> bool {
        match self {
            Command::Switch(args) => args.json,
            Command::Ps(args) => args.json,
            Command::Allreduce(args) => args.member.json,
            Command::Status(args) => args.json,
            Command::Top(args) => args.json,
            Command::Doctor(args) => args.json,
            Command::Job(args) => args.json(),
            Command::Member(args) => args.json(),
            Command::Client(args) => args.json(),
            Command::Cordon(args) | Command::Uncordon(args) | Command::Drain(args) => args.json(),
            Command::Operator(_) | Command::Completions(_) | Command::Man(_) => false,
            Command::Reproduce(args) => args.json,
            Command::Plan(args) => args.json,
            Command::Sim(args) => args.json(),
            Command::Lab(args) => args.json(),
        }
    }

    /// The log's level and format.
    pub fn log(&self) -> Result<LogArgs, Failure> {
        match self {
            Command::Switch(args) => Ok(args.log.clone()),
            Command::Ps(args) => Ok(args.log.clone()),
            _ => LogArgs::of_environment(),
        }
    }

    /// Carries the command out.
    pub fn run(self, program: &Program) -> Result<(), Failure> {
        match self {
            Command::Switch(args) => switch::run(args, program),
            Command::Ps(args) => ps::run(args),
            Command::Allreduce(args) => collective::allreduce(args),
            Command::Operator(args) => operator::run(args),
            Command::Status(args) => status::run(args),
            Command::Top(args) => top::run(args),
            Command::Doctor(args) => doctor::run(args),
            Command::Reproduce(args) => reproduce::run(args, program),
            Command::Plan(args) => plan::run(args, program),
            Command::Sim(args) => sim::run(args, program),
            Command::Lab(args) => lab::run(args, program),
            Command::Job(args) => act::job(args),
            Command::Member(args) => act::member(args),
            Command::Client(args) => act::client(args),
            Command::Cordon(args) => act::cordon(&args, true),
            Command::Uncordon(args) => act::cordon(&args, false),
            Command::Drain(args) => act::drain(&args),
            Command::Completions(args) => manual::completions(&args),
            Command::Man(args) => manual::man(&args),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// Where the width is not known, longer lines are broken once more, in the middle of a sentence.
    #[test]
    fn the_lines_below_the_flags_fit_into_100_columns() {
        let mut open = vec![Cli::command()];
        while let Some(command) = open.pop() {
            let below = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            for line in below.lines() {
                assert!(line.chars().count() <= 100, "tributary {}: {line}", command.get_name());
            }
            open.extend(command.get_subcommands().cloned());
        }
    }
}

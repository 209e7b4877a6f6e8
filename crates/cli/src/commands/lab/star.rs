//! `tributary lab star`: any program on every host of a star of shaped links, with a switch in the middle.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use tributary_control::quantity::{DataRate, Share};
use tributary_testbed::{Faults, Shaping, Star, StarOptions};

use crate::cluster::{Cluster, Hosts, Interrupt, Process};
use crate::failure::Failure;
use crate::flags;
use crate::output;
use crate::program::Program;

/// The port of the rendezvous at rank 0's host.
const RENDEZVOUS_PORT: u16 = 29_500;

const EXAMPLES: &str = "\
Examples:
  tributary lab star --hosts 8 --rate 1Gbit/s -- python examples/ddp.py
  tributary lab star --loss 1% -- python examples/ddp.py --backend gloo

Hosts are network namespaces: needs root, iproute2 and nftables. Every host runs the command once,
as torchrun would with one process a host: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT
are set, and TRIBUTARY_SWITCH, GLOO_SOCKET_IFNAME and OMP_NUM_THREADS (1, where you have none).
The switch serves any operators that the command brings.
Prints what rank 0 prints, at the end; if a rank fails, its last error.";

/// The flags of `tributary lab star`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Hosts around the switch
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=200))]
    pub hosts: u16,
    /// Rate of each link, each way
    #[arg(long, value_name = "RATE", default_value = "1 Gbit/s")]
    pub rate: DataRate,
    /// Share of packets that each link loses, in each direction
    #[arg(long, value_name = "SHARE", default_value = "0 %")]
    pub loss: Share,
    /// Threads of the switch
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub shards: u16,
    /// Time after which the command is stopped
    #[arg(long, value_name = "TIME", default_value = "600 s", value_parser = flags::parse_timeout)]
    pub timeout: Duration,
    /// The command, after `--`
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Builds the star, runs the command, and prints rank 0's output.
pub fn run(args: &Args, program: &Program) -> Result<(), Failure> {
    let interrupt = Interrupt::on_signals()?;
    let star = Star::build(StarOptions {
        faults: Faults::loss(args.loss.percent()),
        ..StarOptions::new(usize::from(args.hosts), Shaping::gbps(args.rate.gbps())?)
    })?;
    // The programs are the user's own, and nobody else reaches this switch.
    let flags = ["--cores", &args.shards.to_string(), "--operators", "any"].map(str::to_owned);
    let mut cluster = Cluster::open_with(program, Hosts::Star(star), &flags, &interrupt)?;
    let deadline = Instant::now() + args.timeout;
    let switch = cluster.switch_addr().to_string();
    let star = cluster.hosts_mut().star_mut().expect("the hosts are a star");
    let ranks = (0..args.hosts).map(|rank| start(star, args, rank, &switch, &interrupt));
    // If one fails, dropping the remaining ranks ends them too.
    let ranks = ranks.collect::<Result<Vec<_>, _>>()?;
    let said = ranks.into_iter().map(|rank| rank.finish(deadline)).collect::<Result<Vec<_>, _>>()?;
    for line in said.into_iter().next().unwrap_or_default() {
        output::line(&line)?;
    }
    cluster.close()
}

fn start(star: &Star, args: &Args, rank: u16, switch: &str, interrupt: &Interrupt) -> Result<Process, Failure> {
    let mut command = star.host(usize::from(rank)).command(&args.command[0])?;
    command
        .args(&args.command[1..])
        .env("RANK", rank.to_string())
        .env("LOCAL_RANK", "0")
        .env("WORLD_SIZE", args.hosts.to_string())
        .env("MASTER_ADDR", star.host_addr(0).to_string())
        .env("MASTER_PORT", RENDEZVOUS_PORT.to_string())
        .env("TRIBUTARY_SWITCH", switch)
        .env("GLOO_SOCKET_IFNAME", star.host_device());
    if std::env::var_os("OMP_NUM_THREADS").is_none() {
        command.env("OMP_NUM_THREADS", "1");
    }
    Process::spawn(format!("rank {rank}"), command, interrupt)
}

//! `tributary lab bench`: ours, our ring and PyTorch's Gloo over the same links, in one run.
//!
//! `plan.rs` says what is measured, `promise.rs` what links allow, and `contender.rs` which ways to sum; `measure.rs` measures
//! on one star after the other. `gloo.rs` is the peer. `report.rs` is the output for people and scripts: each contender's
//! figures are in `line.rs`, and `crossing.rs` says where two lines cross. `tenants` is another bench: two jobs that share a
//! switch's memory.

mod contender;
mod crossing;
mod gloo;
mod line;
mod machine;
mod measure;
mod plan;
mod promise;
mod report;
mod tenants;

use std::path::PathBuf;

use clap::ArgGroup;
use tributary_control::quantity::{Bytes, Share};
use tributary_numeric::DType;
use tributary_proto::contract::protocol::Protocol;

use crate::cluster::Interrupt;
use crate::failure::Failure;
use crate::output;
use crate::program::Program;

use crate::commands::collective::{self, MAX_CORES, design};
use contender::Density;
use plan::{Plan, Rate};

const EXAMPLES: &str = "\
Examples:
  tributary lab bench                                    most of docs/performance.md, some minutes
  tributary lab bench --hosts 4 --rate 1Gbit/s,10Gbit/s  two stars of four hosts
  tributary lab bench --hosts 8 --loss 0%,0.1%,1%        how loss stretches the completion time
  tributary lab bench --hosts 4 --dtype f32,bf16         what half the bytes an element give
  tributary lab bench --hosts 4 --numbers float,fixed    float sums beside fixed point
  tributary lab bench --hosts 4 --design single,multi:4  one buffer for a block's packets, or four
  tributary lab bench --hosts 2 --rate unshaped --cores 1,2   one thread a worker, or two
  tributary lab bench --sparse 0.01,0.1,0.4              sparse tensors beside dense ones
  tributary lab bench --hosts 4 --servers 1 --protocol NAME   these alone, and a parameter server
  tributary lab bench --hosts 4 --one-word --spare 1     PyTorch, and a switch on a spare host
  tributary lab bench --spare 1 --spare-rate 2Gbit/s     the same, with a link twice as fast
  tributary lab bench --hosts 2,4 --one-word --ranks-per-host 2   hosts whose ranks share their link
  tributary lab bench --hosts 2 --one-word-and-switch --ranks-per-host 2   the same, and a switch
  tributary lab bench --tenants                          two jobs share a switch's memory
  tributary lab bench --quick                            tiny tensors: that it runs, not how fast

Needs root (network namespaces), iproute2 and nftables. Gloo comes with PyTorch: make torch, or
pip install torch.

Every link is shaped in both directions by a token bucket that counts Ethernet frames (1,514 bytes
for a full packet). Goodput is bits of tensor over the median completion time at the slowest
worker, of collectives back to back (PyTorch's ranks meet before each of 1 MiB or more); runs of
the contenders take turns. CPU s/GB is the CPU time of all processes, switch included, for each
10^9 bytes of tensor. Gloo's retransmissions are TCP segments. With --sparse goodput is that of the
dense tensor of the same size, and 1 KiB is such a tensor's. Links of the hosts that --servers adds
are shaped as the workers' are, and their processes count. 'x plan' is the completion time over
that of the plan of where to sum, which knows the links' rates, and of processors nothing.

With --tenants job A has four ranks, the first of them behind a link of a quarter of the rate, and
job B four ranks that are well and begin later. The switch holds 1.25 times the packets that a
path holds, as the round trip of small sums on idle links says, and at least 32; each way to share
it takes turns. BLOCKS are those for which each job had memory while both ran, as samples of the
switch's status show; a job with slots of its own has all of them. No other flags than --rate,
--size or --elements, --iters (of B), --repetitions, --aggregators, --mtu, --quick and --json.";

/// The flags of `tributary lab bench`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES, group(ArgGroup::new("words").args(["one_word", "one_word_and_switch"]).multiple(true)))]
pub struct Args {
    /// Hosts around the switch [default: 4,8]
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(2..=64))]
    pub hosts: Vec<u16>,
    /// Rates of the links, or 'unshaped' [default: 1 Gbit/s]
    #[arg(long, value_name = "RATE,...", value_delimiter = ',', value_parser = plan::parse_rate)]
    pub rate: Vec<Rate>,
    /// Shares of packets that each link loses, in each direction [default: 0 %]
    #[arg(long, value_name = "SHARE,...", value_delimiter = ',', value_parser = plan::parse_loss)]
    pub loss: Vec<Share>,
    /// Bytes of float32 in the tensor [default: 25 MB]
    #[arg(long, value_name = "BYTES", conflicts_with = "elements", value_parser = plan::parse_size)]
    pub size: Option<Bytes>,
    /// Elements of float32 in the tensor
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub elements: Option<u32>,
    /// Collectives in one run of a contender; their median counts [default: 5]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..))]
    pub iters: Option<u32>,
    /// Runs of each contender, taking turns; their median counts [default: 3]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..))]
    pub repetitions: Option<u32>,
    /// Element types, each summed with as many elements: f32, bf16 and f16 as protocols can [default: f32]
    #[arg(long, value_name = "TYPE,...", value_delimiter = ',', value_parser = plan::parse_dtype)]
    pub dtype: Vec<DType>,
    /// What the protocols that leave the choice sum floats as, float, fixed, int8 or thc4 [default: float]
    #[arg(long, value_name = "KIND,...", value_delimiter = ',', value_parser = plan::parse_numbers)]
    pub numbers: Vec<&'static str>,
    #[arg(long, value_name = "DESIGN,...", value_delimiter = ',', value_parser = design::parse, help = design::help_of_several())]
    pub design: Vec<&'static str>,
    /// Threads of each worker, each with a socket, for protocols that divide their slots among them [default: 1]
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=MAX_CORES))]
    pub cores: Vec<u16>,
    /// Sum sparse tensors, to which ranks bring these shares of the elements, beside dense ones: with protocols that can, and Gloo
    #[arg(long, value_name = "DENSITY,...", value_delimiter = ',', conflicts_with_all = ["dtype", "numbers", "design", "cores"], value_parser = Density::parse)]
    pub sparse: Vec<Density>,
    /// Measure two jobs on one switch, one with a slow rank, under each way to share the switch's memory
    #[arg(long, conflicts_with_all = ["hosts", "loss", "dtype", "numbers", "cores", "sparse", "protocol", "servers", "shards", "python", "no_gloo"])]
    pub tenants: bool,
    /// With --tenants: blocks that the switch holds [default: 1.25 times the packets that a path holds, 32 at least]
    #[arg(long, value_name = "N", requires = "tenants", value_parser = clap::value_parser!(u32).range(32..=1 << 20))]
    pub aggregators: Option<u32>,
    /// The protocols that take turns [default: those that need one switch and the workers alone]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = collective::protocol)]
    pub protocol: Vec<&'static Protocol>,
    /// Hosts beside those of --hosts, each with a parameter server (tributary ps) for the protocols that use one
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=16))]
    pub servers: u16,
    /// Measure PyTorch with one word changed, which chooses where to sum, beside Gloo
    #[arg(long, conflicts_with_all = ["sparse", "tenants", "no_gloo"])]
    pub one_word: bool,
    /// The same, told of the switch in the middle of the star
    #[arg(long, conflicts_with_all = ["sparse", "tenants", "no_gloo"])]
    pub one_word_and_switch: bool,
    /// The same, with this many hosts beside the others that run a switch each
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=16), conflicts_with_all = ["sparse", "tenants", "no_gloo"])]
    pub spare: u16,
    /// Rate of the links of the hosts that --spare adds [default: that of the others]
    #[arg(long, value_name = "RATE", requires = "spare", value_parser = plan::parse_rate)]
    pub spare_rate: Option<Rate>,
    /// With --one-word or --one-word-and-switch: PyTorch's ranks on each host
    #[arg(long, value_name = "N", default_value_t = 1, requires = "words", conflicts_with = "protocol", value_parser = clap::value_parser!(u16).range(1..=16))]
    pub ranks_per_host: u16,
    /// Threads of the switch
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub shards: u16,
    /// Bytes of the longest IP packet
    #[arg(long, value_name = "BYTES", default_value_t = 1500, value_parser = clap::value_parser!(u16).range(576..=9000))]
    pub mtu: u16,
    /// Tiny tensors and one repetition: shows that it runs, not how fast
    #[arg(long)]
    pub quick: bool,
    /// The Python that has PyTorch [default: the one that runs this program, or python3]
    #[arg(long, value_name = "PATH")]
    pub python: Option<PathBuf>,
    /// Leave Gloo out
    #[arg(long)]
    pub no_gloo: bool,
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub json: bool,
}

/// Runs the bench.
pub fn run(args: Args, program: &Program) -> Result<(), Failure> {
    tributary_testbed::requirements()?;
    let interrupt = Interrupt::on_signals()?;
    if args.tenants {
        return tenants::run(&args, program, &interrupt);
    }
    let peer = (!args.no_gloo).then(|| args.python.clone().unwrap_or_else(|| gloo::default_python(program)));
    let report = measure::run(&Plan::new(&args), program, peer.as_deref(), &interrupt)?;
    match args.json {
        true => output::json(&report)?,
        false => output::line(&report.render())?,
    }
    Ok(())
}

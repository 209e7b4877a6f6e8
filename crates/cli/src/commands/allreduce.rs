//! `tributary allreduce`: one worker, from a shell.

use std::path::PathBuf;

use tributary_numeric::{DType, ReduceOp};
use tributary_proto::registry::Protocol;

use crate::address::parse_switch;
use crate::failure::Failure;

/// The flags of `tributary allreduce`.
#[derive(clap::Args)]
pub struct Args {
    /// The switch; port 17777 where none is given
    #[arg(long, value_name = "ADDR:PORT", env = "TRIBUTARY_SWITCH", value_parser = parse_switch)]
    pub switch: String,
    /// The job's name, the same on every rank
    #[arg(long, value_name = "NAME")]
    pub job: String,
    /// This worker, 0 to N - 1
    #[arg(long, value_name = "R")]
    pub rank: u16,
    /// Number of workers
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1023))]
    pub world: u16,
    /// The array to sum
    #[arg(long, value_name = "FILE.npy", conflicts_with = "elements", required_unless_present = "elements")]
    pub input: Option<PathBuf>,
    /// Make up an array of N elements, other values on every rank, and check the sum
    #[arg(long, value_name = "N")]
    pub elements: Option<usize>,
    /// Where to write the result; shape, order and type are the input's
    #[arg(long, value_name = "FILE.npy")]
    pub output: Option<PathBuf>,
    /// Element type, f32 | f16 | bf16 | i32 [default: the input's, or f32]
    #[arg(long, value_name = "TYPE", value_parser = dtype)]
    pub dtype: Option<DType>,
    /// How elements become one, sum | avg
    #[arg(long, value_name = "OP", default_value = "sum", value_parser = reduce_op)]
    pub op: ReduceOp,
    /// Sum the same array K times; times are medians
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub iters: u32,
    /// Seconds until the other workers, or a result, are given up
    #[arg(long, value_name = "S", default_value_t = 30.0)]
    pub timeout: f64,
    /// Who sums, switchml (the switch) | ring (the hosts)
    #[arg(long, value_name = "NAME", default_value = "switchml", value_parser = protocol)]
    pub protocol: Protocol,
    /// Print one JSON object as the last line
    #[arg(long)]
    pub json: bool,
}

/// Joins, sums, writes, reports.
pub fn run(_args: Args) -> Result<(), Failure> {
    Err(Failure::new("allreduce is not built yet"))
}

fn dtype(text: &str) -> Result<DType, String> {
    DType::from_name(text).ok_or_else(|| one_of(DType::ALL.map(DType::name)))
}

fn reduce_op(text: &str) -> Result<ReduceOp, String> {
    ReduceOp::from_name(text).ok_or_else(|| one_of(ReduceOp::ALL.map(ReduceOp::name)))
}

fn protocol(text: &str) -> Result<Protocol, String> {
    Protocol::from_name(text).ok_or_else(|| one_of(Protocol::ALL.map(Protocol::name)))
}

fn one_of<const N: usize>(names: [&str; N]) -> String {
    format!("it is one of {}", names.join(", "))
}

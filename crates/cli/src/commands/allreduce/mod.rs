//! `tributary allreduce`: one worker, from a shell.

mod made_up;
mod report;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use tributary_net::group::{ConnectOptions, Group};
use tributary_numeric::{DType, Element, ReduceOp};
use tributary_proto::registry::Protocol;

use crate::address::parse_switch;
use crate::failure::Failure;
use crate::npy::{Array, Data, Destination, Header};
use crate::output;
use crate::stage::cpu;

use report::{Report, median};

const EXAMPLES: &str = "\
Examples:
  export TRIBUTARY_SWITCH=10.0.0.1
  Sum four files; every rank gets the same sum, bit for bit:
    tributary allreduce --job sum --rank 0 --world 4 --input mine.npy --output sum.npy
  Measure, with data that checks itself:
    tributary allreduce --job speed --rank 0 --world 4 --elements 6553600 --iters 20
  The same, summed by the hosts:
    tributary allreduce --job speed --rank 0 --world 4 --elements 6553600 --protocol ring

All ranks need the same --job, --world, --op, --protocol, number of elements and type. Element i
in C order is added to element i in C order, whatever the files' orders. The output has the
input's shape, order and type. --dtype converts floats before they are summed and back
afterwards; bf16 in a file is two raw bytes (V2), as numpy with ml_dtypes writes it.

With --json the last line is one object: protocol, job, rank, world, elements, dtype, op, iters,
seconds (median), goodput_gbps (bits of tensor over seconds), ate_per_s, packets_sent,
retransmissions, in_network (fraction), elements_per_packet, cpu_seconds (of the collectives),
checked.";

/// The flags of `tributary allreduce`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES, group = clap::ArgGroup::new("data").required(true).args(["input", "elements"]))]
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
    #[arg(long, value_name = "FILE.npy")]
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
    #[arg(long, value_name = "S", default_value = "30", value_parser = parse_seconds)]
    pub timeout: Duration,
    /// Who sums, switchml (the switch) | canary (the switches of a fabric) | ring (the hosts)
    #[arg(long, value_name = "NAME", default_value = "switchml", value_parser = protocol)]
    pub protocol: Protocol,
    /// Print one JSON object as the last line
    #[arg(long)]
    pub json: bool,
}

/// Joins, sums, writes, reports.
pub fn run(args: Args) -> Result<(), Failure> {
    if args.rank >= args.world {
        let highest = args.world - 1;
        return Err(Failure::usage(format!("rank {} is not in 0 to {highest} (--world {})", args.rank, args.world)));
    }
    // All that can be wrong here is found before other ranks wait for this one.
    let array = load(&args)?;
    let destination = args.output.as_deref().map(Destination::open).transpose()?;
    let group = Group::connect(&options(&args))?;
    let cpu_start = cpu::own_seconds();
    let (result, seconds) = sum(&group, &array.data, &args)?;
    let cpu_seconds = cpu::own_seconds() - cpu_start;
    let stats = group.stats()?;
    let elements_per_packet = group.info().elements_per_packet;
    group.close();

    let checked = args.input.is_none();
    if checked {
        let in_network = args.protocol.aggregates_in_switch() || args.protocol.every_hop();
        let roundings = if in_network { 1 } else { args.world };
        let expected = made_up::Expected { world: args.world, op: args.op, roundings };
        expected.check(&result).map_err(Failure::new)?;
    }
    let (elements, dtype) = (result.len(), result.dtype());
    if let Some(destination) = destination {
        destination.write(&Array { header: array.header, data: result })?;
    }
    let report = Report {
        protocol: args.protocol.name(),
        rank: args.rank,
        world: args.world,
        elements,
        dtype: dtype.name(),
        op: args.op.name(),
        iters: args.iters as usize,
        seconds,
        goodput_gbps: (elements * dtype.size() * 8) as f64 / seconds / 1e9,
        ate_per_s: elements as f64 / seconds,
        packets_sent: stats.host.packets_sent,
        retransmissions: stats.host.retransmissions,
        in_network: stats.in_network(),
        elements_per_packet,
        cpu_seconds,
        checked,
        job: args.job,
    };
    match args.json {
        true => output::json(&report)?,
        false => output::line(&report.table())?,
    }
    Ok(())
}

fn load(args: &Args) -> Result<Array, Failure> {
    match (&args.input, args.elements) {
        (Some(path), _) => Ok(Array::read(path, args.dtype)?),
        (None, elements) => {
            let (dtype, elements) = (args.dtype.unwrap_or(DType::F32), elements.unwrap_or(0));
            let data = made_up::array(dtype, args.rank, elements);
            Ok(Array { header: Header::vector(dtype, elements), data })
        }
    }
}

fn options(args: &Args) -> ConnectOptions {
    ConnectOptions {
        switch: args.switch.clone(),
        job: args.job.clone(),
        rank: args.rank,
        world: args.world,
        timeout: args.timeout,
        protocol: args.protocol,
        elements_per_packet: None,
        slots: None,
    }
}

/// Sums the data as often as asked for; the result and the median time in seconds.
fn sum(group: &Group, data: &Data, args: &Args) -> Result<(Data, f64), Failure> {
    let progress = progress(args.iters);
    let result = match data {
        Data::F32(input) => repeat(group, input, args, &progress).map(|(sum, times)| (Data::F32(sum), times)),
        Data::F16(input) => repeat(group, input, args, &progress).map(|(sum, times)| (Data::F16(sum), times)),
        Data::BF16(input) => repeat(group, input, args, &progress).map(|(sum, times)| (Data::BF16(sum), times)),
        Data::I32(input) => repeat(group, input, args, &progress).map(|(sum, times)| (Data::I32(sum), times)),
    };
    progress.finish_and_clear();
    result.map(|(data, times)| (data, median(times)))
}

fn repeat<T: Element>(
    group: &Group,
    input: &[T],
    args: &Args,
    progress: &ProgressBar,
) -> Result<(Vec<T>, Vec<Duration>), Failure> {
    let mut output = vec![T::default(); input.len()];
    let mut times = Vec::with_capacity(args.iters as usize);
    for _ in 0..args.iters {
        let start = Instant::now();
        group.allreduce(input, &mut output, args.op, args.timeout)?;
        times.push(start.elapsed());
        progress.inc(1);
    }
    Ok((output, times))
}

/// A bar on a terminal; nothing where there is no terminal, or nothing to wait for.
fn progress(iters: u32) -> ProgressBar {
    if iters == 1 {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} collectives, {per_sec}, {eta} left");
    ProgressBar::new(iters.into()).with_style(style.expect("the template is right"))
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()) {
        Some(duration) if !duration.is_zero() => Ok(duration),
        _ => Err("it is a number of seconds above 0, for example 30 or 0.5".to_string()),
    }
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

//! `tributary allreduce`, `tributary lab reduce` and `tributary lab broadcast`: one worker, from a shell.
//!
//! `member.rs` has the flags that they share, `protocol.rs` and `design.rs` the flags that choose a protocol.
//! `made_up.rs` makes data that can be checked, `expected.rs` checks it, and `sparse.rs` does the same at some indices
//! only. `watch.rs` reports meanwhile, and `report.rs` at the end.

mod custom;
pub mod design;
mod expected;
mod made_up;
mod member;
mod protocol;
mod report;
mod sparse;
mod watch;

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use tributary_net::group::Group;
use tributary_numeric::{DType, ReduceOp};
use tributary_proto::contract::ids::Rank;
use tributary_proto::contract::tensor::Spec;

use crate::cluster::cpu;
use crate::failure::Failure;
use crate::npy::{Array, Data, Destination, Stored, each};
use crate::output;

use expected::Expected;
use made_up::Plan;
use member::{ChosenOp, Member, chosen_op, reduce_op};
pub use member::{MAX_CORES, dtype};
pub use protocol::{options_help, protocol, protocols_help, read_options};
use report::{Measured, Report, median};
use sparse::Drawn;
pub use watch::{Sample, unix_seconds};

const ALLREDUCE_HELP: &str = "\
Examples:
  export TRIBUTARY_SWITCH=10.0.0.1
  Sum four files; every rank gets the same sum, bit for bit:
    tributary allreduce --job s --rank 0 --world-size 4 --input mine.npy --output sum.npy
  Measure, with data that checks itself:
    tributary allreduce --job speed --rank 0 --world-size 4 --elements 6553600 --iters 20
  The same, summed by the hosts:
    tributary allreduce --job speed --rank 0 --world-size 4 --elements 6553600 --protocol ring

All ranks need the same --job, --world-size, --op, --protocol, number of elements and type.
Element i in C order is added to element i in C order, whatever the files' orders. The output has
the input's shape, order and type. --dtype converts floats before they are summed and back
afterwards; bf16 in a file is two raw bytes (V2), as numpy with ml_dtypes writes it.

Integers wrap, and their averages round towards zero. Floats are summed as floats; where a protocol
has the option numbers, numbers=fixed sums them in 32-bit fixed point, and int8 or thc4 as codes of
8 or 4 bits. canary always uses fixed point, and so sums and averages f32, f16, bf16 and i32 only.
Where a protocol has the option reproducible, sums with it have the same bits in every run over the
same tree of switches, and the report says of which order.

With --sparse each rank brings elements that it draws, the same ones whenever it draws with the
same --seed, and the result has those that any rank brought. Goodput stays bits of the whole
tensor over the time. Extra traffic are the elements that this rank's switch sent on, again after
a loss or because they had collided in its table, over those of the result. With --json also:
density, seed, elements_brought, elements_of_result, extra_traffic.

With --json the last line is one object: collective, protocol, job, rank, world_size, elements,
dtype, op, iters, seconds (median), goodput_gbps (bits of tensor over seconds), ate_per_s,
packets_sent, retransmissions, in_network (fraction), blocks_at_hosts, order (of the sum, as a
hash, where there is one), contributed (fraction of the ranks that averages are over, where they
may lack some), elements_per_packet, slots, cpu_seconds (of the collectives), checked.";

const REDUCE_HELP: &str = "\
Examples:
  export TRIBUTARY_SWITCH=10.0.0.1
  Sum four files for rank 2, which alone writes the sum; the others give no --output:
    tributary lab reduce --root 2 --job s --rank 2 --world-size 4 --input mine.npy --output sum.npy
    tributary lab reduce --root 2 --job s --rank 0 --world-size 4 --input mine.npy
  Over a fabric, where no sum comes back to the others, with data that the root checks:
    tributary lab reduce --root 2 --job s --rank 0 --world-size 4 --elements 9000 --protocol canary

All ranks need the same --root, and whatever `tributary allreduce` needs: where ranks
differ, all fail at once with who brings what. Under switchml and ring the sum still travels to
every rank, which ignores it. With --json: as `tributary allreduce`, and root.";

const BROADCAST_HELP: &str = "\
Examples:
  export TRIBUTARY_SWITCH=10.0.0.1
  Bring rank 0's file to all; the others' say shape and type only:
  tributary lab broadcast --root 0 --job w --rank 0 --world-size 4 --input mine.npy
  tributary lab broadcast --root 0 --job w --rank 1 --world-size 4 --input old.npy --output new.npy
  Over a fabric, with data that every other rank checks:
  tributary lab broadcast --root 0 --job w --rank 0 --world-size 4 --elements 9000 --protocol canary

All ranks need the same --root, --job, --world-size, --protocol and number of bytes: where ranks
differ, all fail at once. Every bit arrives as it was, infinities included. Under canary the root
sends each word once, and the others headers; under switchml and ring the others send zeros, which
are added. With --json: as `tributary allreduce`, with root and without op.";

/// The flags of `tributary allreduce`.
#[derive(clap::Args)]
#[command(after_help = ALLREDUCE_HELP)]
pub struct AllreduceArgs {
    #[command(flatten)]
    pub member: Member,
    /// How elements become one, sum | avg | min | max | prod, and for integers band | bor | bxor; or a custom operator, as
    /// `tributary operator --help` has it
    #[arg(long, value_name = "OP|FILE", default_value = "sum", value_parser = chosen_op)]
    pub op: ChosenOp,
    #[arg(long, value_name = "DENSITY", conflicts_with_all = ["input", "output"], value_parser = parse_density, help = sparse::help())]
    pub sparse: Option<f64>,
    /// Draw other elements than with another seed, the same on every rank
    #[arg(long, value_name = "SEED", requires = "sparse", default_value_t = 0)]
    pub seed: u64,
}

/// The flags of `tributary lab reduce`.
#[derive(clap::Args)]
#[command(after_help = REDUCE_HELP)]
pub struct ReduceArgs {
    /// The worker that the sum is for, the same on every rank
    #[arg(long, value_name = "R")]
    pub root: u16,
    #[command(flatten)]
    pub member: Member,
    /// How elements become one, sum | avg | min | max | prod, and for integers band | bor | bxor
    #[arg(long, value_name = "OP", default_value = "sum", value_parser = reduce_op)]
    pub op: ReduceOp,
}

/// The flags of `tributary lab broadcast`.
#[derive(clap::Args)]
#[command(after_help = BROADCAST_HELP)]
pub struct BroadcastArgs {
    /// The worker whose array it is, the same on every rank
    #[arg(long, value_name = "R")]
    pub root: u16,
    #[command(flatten)]
    pub member: Member,
}

/// The collective of the workers.
#[derive(Clone, Copy)]
enum Work {
    Allreduce(ReduceOp),
    Reduce(ReduceOp, u16),
    Broadcast(u16),
}

impl Work {
    fn name(self) -> &'static str {
        match self {
            Work::Allreduce(_) => "allreduce",
            Work::Reduce(..) => "reduce",
            Work::Broadcast(_) => "broadcast",
        }
    }

    fn op(self) -> Option<ReduceOp> {
        match self {
            Work::Allreduce(op) | Work::Reduce(op, _) => Some(op),
            Work::Broadcast(_) => None,
        }
    }

    fn root(self) -> Option<u16> {
        match self {
            Work::Allreduce(_) => None,
            Work::Reduce(_, root) | Work::Broadcast(root) => Some(root),
        }
    }

    /// For which collective arrays are made up.
    fn plan(self, world_size: u16) -> Plan {
        Plan { world_size, op: self.op().unwrap_or(ReduceOp::Sum) }
    }

    /// The collective, as the protocol knows it.
    fn spec(self, elements: usize, dtype: DType) -> Spec {
        let elements = elements as u32;
        match self {
            Work::Allreduce(op) => Spec::allreduce(elements, dtype, op),
            Work::Reduce(op, root) => Spec::reduce(elements, dtype, op, Rank(root)),
            Work::Broadcast(root) => Spec::broadcast(elements, Rank(root)),
        }
    }

    /// Runs one collective; `output` holds the worker's own array before it, and the result afterwards.
    fn once<T: Stored>(
        self,
        group: &Group,
        input: &[T],
        output: &mut [T],
        timeout: Duration,
    ) -> Result<(), tributary_net::group::GroupError> {
        match self {
            Work::Allreduce(op) => group.allreduce(input, output, op, timeout),
            Work::Reduce(op, root) => group.reduce(input, output, op, root, timeout),
            Work::Broadcast(root) => group.broadcast(output, root, timeout),
        }
    }
}

/// `tributary allreduce`.
pub fn allreduce(AllreduceArgs { member, op, sparse, seed }: AllreduceArgs) -> Result<(), Failure> {
    match (op, sparse) {
        (ChosenOp::Known(op), Some(density)) => sparse::run(&member, op, Drawn { density, seed }),
        (ChosenOp::Known(op), None) => run(member, Work::Allreduce(op)),
        (ChosenOp::Custom(path), None) => custom::run(&member, &path),
        (ChosenOp::Custom(_), Some(_)) => {
            Err(Failure::usage("custom operators are for dense arrays: leave --sparse out"))
        }
    }
}

/// Reads the share of elements that a rank brings.
pub fn parse_density(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(density) if density > 0.0 && density <= 1.0 => Ok(density),
        _ => Err("it is a share of the elements above 0 and up to 1, for example 0.01".to_owned()),
    }
}

/// `tributary lab reduce`.
pub fn reduce(ReduceArgs { root, member, op }: ReduceArgs) -> Result<(), Failure> {
    member.check_rank("--root", root)?;
    if member.output.is_some() && member.rank != root {
        let sentence = format!("--output is for rank {root} (--root): rank {} gets no result to write", member.rank);
        return Err(Failure::usage(sentence));
    }
    run(member, Work::Reduce(op, root))
}

/// `tributary lab broadcast`.
pub fn broadcast(BroadcastArgs { root, member }: BroadcastArgs) -> Result<(), Failure> {
    member.check_rank("--root", root)?;
    run(member, Work::Broadcast(root))
}

/// Joins, works, writes, reports.
fn run(member: Member, work: Work) -> Result<(), Failure> {
    member.check_rank("rank", member.rank)?;
    // Everything that can be wrong here is found before other ranks wait for this one.
    let array = member.load(&work.plan(member.world_size))?;
    let spec = work.spec(array.data.len(), array.data.dtype());
    (member.protocol.check)(&spec, &member.protocol_options()?).map_err(Failure::usage)?;
    let destination = member.output.as_deref().map(Destination::open).transpose()?;
    let group = Group::connect(&member.options()?)?;
    let cpu_start = cpu::own_seconds();
    let every = member.watch;
    let worked = watch::watched(&group, every, || work_on(&group, &array.data, &member, work));
    if worked.is_err() && group.peer_lost() {
        // The others know it too, and need nothing from this rank any more.
        group.abandon();
        return worked.map(drop);
    }
    let (result, seconds) = worked?;
    let cpu_seconds = cpu::own_seconds() - cpu_start;
    let measured = Measured::of(&group, &member, seconds, cpu_seconds)?;
    group.close();

    let checked = member.input.is_none() && check(&member, work, &result)?;
    let tensor = (result.len(), result.dtype());
    if let Some(destination) = destination {
        destination.write(&Array { header: array.header, data: result })?;
    }
    let report = Report::of(&member, work, tensor, &measured);
    let report = Report { checked, ..report };
    match member.json {
        true => output::json(&report)?,
        false => output::line(&report.table())?,
    }
    Ok(())
}

/// Compares the result of made-up data with the right one; false on ranks that get no result.
fn check(member: &Member, work: Work, result: &Data) -> Result<bool, Failure> {
    let plan = work.plan(member.world_size);
    let is_root = work.root() == Some(member.rank);
    match work {
        Work::Reduce(..) if !is_root => return Ok(false),
        Work::Broadcast(_) if is_root => return Ok(false),
        Work::Allreduce(_) | Work::Reduce(..) => {
            let options = member.protocol_options()?;
            Expected::of(plan, member.protocol, &options).check(result).map_err(Failure::new)?;
        }
        Work::Broadcast(root) => made_up::check_copy(&plan, root, result).map_err(Failure::new)?,
    }
    Ok(true)
}

/// Repeats the collective as often as asked; returns the result and the median time in seconds.
fn work_on(group: &Group, data: &Data, member: &Member, work: Work) -> Result<(Data, f64), Failure> {
    let progress = progress(member.iters);
    let result = each!(data, input => {
        repeat(group, input, member, work, &progress).map(|(output, times)| (Stored::wrap(output), times))
    });
    progress.finish_and_clear();
    result.map(|(data, times)| (data, median(times)))
}

fn repeat<T: Stored>(
    group: &Group,
    input: &[T],
    member: &Member,
    work: Work,
    progress: &ProgressBar,
) -> Result<(Vec<T>, Vec<Duration>), Failure> {
    let mut output = input.to_vec();
    let mut times = Vec::with_capacity(member.iters as usize);
    for _ in 0..member.iters {
        let start = Instant::now();
        work.once(group, input, &mut output, member.timeout)?;
        times.push(start.elapsed());
        progress.inc(1);
    }
    Ok((output, times))
}

/// A progress bar on a terminal; hidden if there is no terminal, or only one collective.
fn progress(iters: u32) -> ProgressBar {
    if iters == 1 {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} collectives, {per_sec}, {eta} left");
    ProgressBar::new(iters.into()).with_style(style.expect("the template is right"))
}

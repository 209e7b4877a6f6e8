//! `tributary allreduce --sparse`: elements made up at some indices, and checked at all indices that any rank brings.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tributary_net::client;
use tributary_net::group::{ConnectOptions, Group};
use tributary_numeric::{DType, ReduceOp};
use tributary_proto::contract::metric::MetricValue;
use tributary_proto::contract::options::Options;
use tributary_proto::contract::tensor::Spec;
use tributary_proto::protocols;

use super::expected::Expected;
use super::made_up::{self, Plan, Sample};
use super::member::Member;
use super::report::{Measured, Report, SparseReport, median};
use super::{Work, progress};
use crate::cluster::cpu;
use crate::failure::Failure;
use crate::flags::resolve;
use crate::npy::{Data, of_type};
use crate::output;

/// The help of `--sparse`.
pub fn help() -> String {
    format!(
        "Bring this share of the elements only, above 0 and up to 1, drawn on each rank: with --protocol {}",
        able()
    )
}

/// The names of the protocols that have jobs of sparse tensors.
fn able() -> String {
    let able = protocols::ALL.iter().filter(|protocol| protocol.options.sparse.is_some());
    able.map(|protocol| protocol.name).collect::<Vec<_>>().join(" or ")
}

/// The name of the switches' count of elements that they have sent.
const ELEMENTS_OUT: &str = "elements_out";
/// How long a switch may take to account for what it has sent, and how often it is asked.
const ACCOUNT_TIMEOUT: Duration = Duration::from_secs(2);
const ACCOUNT_INTERVAL: Duration = Duration::from_millis(20);

/// How ranks draw their indices.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drawn {
    /// The share of the tensor's elements that a rank brings.
    pub density: f64,
    /// The seed: other seeds draw other indices.
    pub seed: u64,
}

impl Drawn {
    /// True if a rank brings an element: drawn for each element independently, and the same on all ranks.
    fn has(&self, rank: u16, index: usize) -> bool {
        let random = made_up::random(rank, index) ^ made_up::random(0, self.seed as usize);
        // Hashed once more, so that it does not depend on the value.
        let random = made_up::random(0, random as usize);
        // 53 bits fill a double.
        ((random >> 11) as f64) < self.density * (1u64 << 53) as f64
    }

    fn indices(&self, rank: u16, size: usize) -> Vec<i64> {
        (0..size).filter(|&index| self.has(rank, index)).map(|index| index as i64).collect()
    }

    fn density_ppm(&self) -> u64 {
        (self.density * 1e6).round() as u64
    }
}

/// The result of the collectives.
struct Outcome {
    indices: Vec<u32>,
    values: Data,
    brought: usize,
    seconds: f64,
}

/// Joins a job of sparse tensors, works, checks, reports.
pub fn run(member: &Member, op: ReduceOp, drawn: Drawn) -> Result<(), Failure> {
    member.check_rank("rank", member.rank)?;
    let (dtype, size) = (member.dtype.unwrap_or(DType::F32), member.elements.unwrap_or(0));
    let options = options(member, &drawn)?;
    let elements = u32::try_from(size).map_err(|_| Failure::usage(format!("--elements {size} is too many")))?;
    member.protocol.check_sparse(&Spec::allreduce(elements, dtype, op), &options).map_err(Failure::usage)?;
    let group = Group::connect(&ConnectOptions { options: options.clone(), ..member.options()? })?;
    let plan = Plan { world_size: member.world_size, op };
    let cpu_start = cpu::own_seconds();
    let outcome = repeat_as(dtype, &group, member, &plan, &drawn, size)?;
    let cpu_seconds = cpu::own_seconds() - cpu_start;
    let measured = Measured::of(&group, member, outcome.seconds, cpu_seconds)?;
    let extra_traffic = extra_traffic(member, outcome.indices.len());
    group.close();

    check(&Expected::of(plan, member.protocol, &options), &drawn, size, &outcome)?;
    let sparse = SparseReport {
        density: drawn.density,
        seed: drawn.seed,
        elements_brought: outcome.brought,
        elements_of_result: outcome.indices.len(),
        extra_traffic,
    };
    let report = Report::of(member, Work::Allreduce(op), (size, dtype), &measured);
    let report = Report { sparse: Some(sparse), checked: true, ..report };
    match member.json {
        true => output::json(&report)?,
        false => output::line(&report.table())?,
    }
    Ok(())
}

/// The chosen options, and those that a job of sparse tensors needs in addition.
fn options(member: &Member, drawn: &Drawn) -> Result<Options, Failure> {
    let given: BTreeMap<String, String> = member.chosen().into_iter().collect();
    let options = &member.protocol.options;
    let needed = options.of_sparse(&given, Some(drawn.density_ppm())).ok_or_else(|| {
        let name = member.protocol.name;
        Failure::usage(format!("--sparse: {name} sums no sparse tensors; take --protocol {}", able()))
    })?;
    options.read(&needed).map_err(|error| Failure::usage(error.to_string()))
}

fn repeat_as(
    dtype: DType,
    group: &Group,
    member: &Member,
    plan: &Plan,
    drawn: &Drawn,
    size: usize,
) -> Result<Outcome, Failure> {
    let indices = drawn.indices(member.rank, size);
    let found;
    let values = of_type!(dtype, {
        let (sum_indices, sums, seconds) = repeat(group, member, plan, &indices, size)?;
        found = (sum_indices, seconds);
        sums
    });
    Ok(Outcome { indices: found.0, values, brought: indices.len(), seconds: found.1 })
}

/// Repeats the allreduce as often as asked; returns the last result and the median time in seconds.
fn repeat<T: Sample>(
    group: &Group,
    member: &Member,
    plan: &Plan,
    indices: &[i64],
    size: usize,
) -> Result<(Vec<u32>, Vec<T>, f64), Failure> {
    let values: Vec<T> = indices.iter().map(|&index| T::made_up(plan, member.rank, index as usize)).collect();
    let progress = progress(member.iters);
    let (mut sum, mut times) = ((Vec::new(), Vec::new()), Vec::with_capacity(member.iters as usize));
    for _ in 0..member.iters {
        let start = Instant::now();
        sum = group.allreduce_sparse(indices, &values, size, plan.op, member.timeout)?;
        times.push(start.elapsed());
        progress.inc(1);
    }
    progress.finish_and_clear();
    Ok((sum.0, sum.1, median(times)))
}

/// Compares a result with the elements of the ranks that bring each index.
fn check(expected: &Expected, drawn: &Drawn, size: usize, outcome: &Outcome) -> Result<(), Failure> {
    let world_size = expected.plan.world_size;
    let ranks_at = |index: usize| (0..world_size).filter(move |&rank| drawn.has(rank, index));
    let union = (0..size).filter(|&index| ranks_at(index).next().is_some()).map(|index| index as u32);
    let union: Vec<u32> = union.collect();
    let indices = &outcome.indices;
    if let Some(at) = (0..union.len().max(indices.len())).find(|&at| union.get(at) != indices.get(at)) {
        let word = |index: Option<&u32>| index.map_or("missing".to_owned(), u32::to_string);
        let (is, should) = (word(indices.get(at)), word(union.get(at)));
        return Err(Failure::new(format!("the result is wrong: index number {at} is {is} and should be {should}")));
    }
    let at_position = |position: usize| (indices[position] as usize, ranks_at(indices[position] as usize));
    expected.check_at(&outcome.values, at_position).map_err(Failure::new)
}

/// How many elements this worker's switch has sent for each element of a result, less 1; `None` if the switch does not
/// tell. It has sent each result at least once, so an account that says less is of a moment ago: then it is asked again.
fn extra_traffic(member: &Member, elements_of_result: usize) -> Option<f64> {
    let needed = elements_of_result as f64 * f64::from(member.iters);
    let deadline = Instant::now() + ACCOUNT_TIMEOUT;
    loop {
        let sent = elements_sent(member)?;
        if sent >= needed {
            return (needed > 0.0).then(|| sent / needed - 1.0);
        }
        if Instant::now() >= deadline {
            return None;
        }
        std::thread::sleep(ACCOUNT_INTERVAL);
    }
}

/// How many elements this worker's switch has sent for the job, by its last account.
fn elements_sent(member: &Member) -> Option<f64> {
    let status = client::status(resolve(&member.switch).ok()?).ok()?;
    let job = status.jobs.iter().find(|job| job.name == member.job)?;
    let out = job.metrics.iter().find(|metric| metric.name == ELEMENTS_OUT)?;
    Some(MetricValue::from(out.value).as_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWN: Drawn = Drawn { density: 0.1, seed: 7 };

    fn outcome(world_size: u16, size: usize) -> (Expected, Outcome) {
        let plan = Plan { world_size, op: ReduceOp::Sum };
        let mut sums = BTreeMap::new();
        for (rank, index) in
            (0..world_size).flat_map(|rank| DRAWN.indices(rank, size).into_iter().map(move |i| (rank, i)))
        {
            let sum = sums.entry(index as u32).or_insert(0i32);
            *sum = sum.wrapping_add(i32::made_up(&plan, rank, index as usize));
        }
        let (indices, values) = sums.into_iter().unzip();
        let numbers = tributary_proto::contract::numbers::Numbers::Float;
        let expected = Expected { plan, numbers, quorum: None, rounds_once: true };
        (expected, Outcome { indices, values: Data::I32(values), brought: 0, seconds: 1.0 })
    }

    #[test]
    fn about_the_requested_share_is_drawn_and_each_seed_and_rank_draws_other_indices() {
        let indices = DRAWN.indices(0, 100_000);
        assert!((9_500..10_500).contains(&indices.len()), "{}", indices.len());
        assert_ne!(indices, DRAWN.indices(1, 100_000));
        assert_ne!(indices, Drawn { seed: 8, ..DRAWN }.indices(0, 100_000));
        assert_eq!(Drawn { density: 1.0, seed: 0 }.indices(3, 100).len(), 100);
        assert_eq!(DRAWN.density_ppm(), 100_000);
    }

    #[test]
    fn the_right_result_passes_and_a_missing_or_foreign_element_or_a_wrong_value_does_not() {
        let (expected, right) = outcome(3, 1_000);
        assert!(check(&expected, &DRAWN, 1_000, &right).is_ok());
        let wrong = |change: &dyn Fn(&mut Outcome)| {
            let (expected, mut outcome) = outcome(3, 1_000);
            change(&mut outcome);
            check(&expected, &DRAWN, 1_000, &outcome).is_err()
        };
        let Data::I32(values) = right.values else { panic!("integers") };
        assert!(wrong(&|outcome| outcome.indices.truncate(outcome.indices.len() - 1)));
        assert!(wrong(&|outcome| outcome.indices[4] += 1));
        for at in [0, values.len() - 1] {
            let mut values = values.clone();
            values[at] ^= 1;
            assert!(wrong(&|outcome| outcome.values = Data::I32(values.clone())));
        }
    }
}

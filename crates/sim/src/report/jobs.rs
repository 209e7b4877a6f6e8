//! Jobs in a report.

use serde::Serialize;
use tributary_proto::contract::custom_op::CustomOp as _;
use tributary_proto::contract::drop_reason::DropCounters;
use tributary_proto::contract::host::HostStats;
use tributary_proto::contract::protocol::Placement;
use tributary_proto::contract::time::Time;

use super::switches::{self, MetricReport};
use super::training::{self, LifetimeReport};
use super::{BottleneckReport, Samples};
use crate::cores::operators::OperatorCycles;
use crate::engine::{CustomOp, Data, Iteration, Job, JobIndex, PlannedTree, Simulation, SwitchMetrics};

/// One job.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobReport {
    /// Its name.
    pub name: String,
    /// Its protocol.
    pub protocol: &'static str,
    /// Its ranks.
    pub ranks: usize,
    /// The ranks' hosts, rank by rank.
    pub hosts: Vec<u32>,
    /// How many hosts sum for the job instead of switches; `None` if switches or a ring sum.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub servers: Option<usize>,
    /// The job's custom operator, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operator: Option<OperatorReport>,
    /// Bytes of the job's tensor; of a training step's, the longest.
    pub tensor_bytes: u64,
    /// The pool's size.
    pub slots: u16,
    /// When the job arrived and left, if it is a job that comes and goes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lifetime: Option<LifetimeReport>,
    /// True if every switch on a packet's path sums, without a planned tree.
    #[serde(skip)]
    pub sums_every_hop: bool,
    /// Its planned trees.
    pub trees: Vec<TreeReport>,
    /// How many collectives it has.
    pub collectives: u32,
    /// How many of them every rank has completed.
    pub completed: usize,
    /// True if every rank completed every collective and every sum is proven.
    pub complete: bool,
    /// The collectives that have begun.
    pub iterations: Vec<IterationReport>,
    /// The median time of the completed collectives in seconds.
    pub seconds: Option<f64>,
    /// The mean of these times: for iterations of a training, the average completion time.
    pub mean_seconds: Option<f64>,
    /// Tensor bits divided by the median; `None` for a job of a training step, whose tensors differ.
    pub goodput_gbps: Option<f64>,
    /// Packets that its hosts sent.
    pub packets_sent: u64,
    /// Packets that were sent again, for whatever reason.
    pub retransmissions: u64,
    /// Of these, packets of blocks that all ranks sent again: issued again, or with another scale.
    pub reissued: u64,
    /// Share of blocks that were summed in the network.
    pub in_network: Option<f64>,
    /// Share of the ranks whose data is in the results, if results may lack ranks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contributed: Option<f64>,
    /// Slots that switches held for it, from its first submission to its last completion, if the file asks for samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots_in_use: Option<SlotsReport>,
    /// What its hosts waited for, if the file asks for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bottlenecks: Option<BottleneckReport>,
    /// Packets that its hosts dropped, by reason.
    pub drops: Vec<(&'static str, u64)>,
    /// Packets that its programs in switches dropped, by reason.
    pub switch_drops: Vec<(&'static str, u64)>,
    /// The metrics that only its protocol has, in switches.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub switch_metrics: Vec<MetricReport>,
    /// Why and in which switch its custom operator has failed, if it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// Why it can no longer finish, if it cannot: what it has lost, and which results are missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stuck: Option<String>,
    /// Results that do not contain every contribution exactly once.
    pub wrong_sums: usize,
    /// The errors, a sentence each.
    pub errors: Vec<String>,
}

/// A job's custom operator.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OperatorReport {
    /// Its name.
    pub name: String,
    /// The hash of its module.
    pub sha256: String,
    /// The kind of its elements.
    pub element: String,
    /// The data that it combined.
    pub data: Data,
    /// Its cycles, if switches have cores; marked as estimated if they were not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cycles: Option<OperatorCycles>,
}

impl OperatorReport {
    fn of(op: &CustomOp) -> OperatorReport {
        OperatorReport {
            name: op.operator.name().to_owned(),
            sha256: op.operator.hash().to_string(),
            element: op.operator.element().to_string(),
            data: op.data,
            cycles: op.cycles,
        }
    }
}

/// How many slots with incomplete sums of a job there were over time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SlotsReport {
    /// On average.
    pub mean: f64,
    /// The most in any sample.
    pub most: f64,
}

impl JobReport {
    /// True if its times depend on estimated cycles of its custom operator.
    pub fn has_estimates(&self) -> bool {
        self.operator.as_ref().and_then(|op| op.cycles).is_some_and(|cycles| cycles.estimated)
    }

    /// How many slots switches held for it while it ran, according to samples.
    pub(super) fn slots_in_use(&self, samples: &Samples, job: JobIndex) -> Option<SlotsReport> {
        let from = self.iterations.first()?.start;
        let to = self.iterations.last().and_then(|last| last.end).unwrap_or(f64::INFINITY);
        let slots: Vec<f64> = samples
            .slots_in_use_by(job)
            .filter(|(time, _)| (from..=to).contains(&time.as_secs_f64()))
            .map(|(_, slots)| slots)
            .collect();
        let most = slots.iter().copied().reduce(f64::max)?;
        Some(SlotsReport { mean: slots.iter().sum::<f64>() / slots.len() as f64, most })
    }
}

/// One collective.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct IterationReport {
    /// The first rank's submission, in seconds.
    pub start: f64,
    /// The last rank's completion.
    pub end: Option<f64>,
    /// Ranks that completed it.
    pub completed: u32,
}

impl IterationReport {
    /// The report of a collective, if it has begun.
    fn of(iteration: &Iteration, per_host: usize) -> Option<IterationReport> {
        let (start, end) = (iteration.start?.as_secs_f64(), iteration.end.map(Time::as_secs_f64));
        Some(IterationReport { start, end, completed: iteration.completed * per_host as u32 })
    }
}

/// The report of a job at present.
pub(super) fn report(simulation: &Simulation, job: &Job, metrics: &[SwitchMetrics]) -> JobReport {
    let endpoints = simulation
        .traffic
        .endpoints
        .iter()
        .filter(|endpoint| std::ptr::eq(simulation.traffic.jobs.get(endpoint.job), job));
    let mut total = HostStats::default();
    let mut drops = DropCounters::default();
    for endpoint in endpoints {
        let stats = endpoint.machine.stats();
        total.packets_sent += stats.packets_sent;
        total.retransmissions += stats.retransmissions;
        total.reissued += stats.reissued;
        total.blocks_in_network += stats.blocks_in_network;
        total.blocks_at_hosts += stats.blocks_at_hosts;
        total.ranks_in_sums += stats.ranks_in_sums;
        total.ranks_of_sums += stats.ranks_of_sums;
        drops.add(&stats.drops);
    }
    let collectives = job.collectives();
    let durations = durations(job, &collectives);
    let (completed, median) = (durations.len(), durations.get(durations.len() / 2).copied());
    let mean = (completed > 0).then(|| durations.iter().sum::<f64>() / completed as f64);
    let tensor_bytes = u64::from(job.plan.spec.elements) * job.plan.spec.dtype.size() as u64;
    let (per_host, blocks) = (usize::from(job.host_ranks.ranks), total.blocks_in_network + total.blocks_at_hosts);
    JobReport {
        name: job.plan.name.clone(),
        protocol: job.plan.protocol.name,
        ranks: job.ranks(),
        hosts: (0..job.ranks()).map(|rank| job.plan.members[rank / per_host].0).collect(),
        servers: (!job.servers.is_empty()).then_some(job.servers.len()),
        operator: job.plan.custom_op.as_ref().map(OperatorReport::of),
        tensor_bytes,
        slots: job.plan.slots,
        lifetime: training::lifetime(job),
        sums_every_hop: job.plan.protocol.placement == Placement::EveryHop,
        trees: TreeReport::all(simulation, job),
        collectives: collectives.len() as u32,
        completed,
        complete: job.is_complete() && job.errors.is_empty(),
        iterations: collectives.iter().filter_map(|iteration| IterationReport::of(iteration, per_host)).collect(),
        seconds: median,
        mean_seconds: mean,
        goodput_gbps: goodput_gbps(job, tensor_bytes, median),
        packets_sent: total.packets_sent,
        retransmissions: total.retransmissions,
        reissued: total.reissued,
        in_network: (blocks > 0).then(|| total.blocks_in_network as f64 / blocks as f64),
        contributed: total.contributed(),
        slots_in_use: None,
        bottlenecks: None,
        drops: by_name(&drops),
        switch_drops: by_name(&simulation.drops_in_switches(job)),
        switch_metrics: switches::of_job(metrics, job.index),
        fault: job.failed.as_ref().map(|failure| format!("switch {}: {}", failure.switch, failure.why)),
        stuck: stuck(job, &collectives),
        wrong_sums: job.errors.iter().filter(|error| error.kind.is_wrong_sum()).count(),
        errors: job.errors.iter().map(|error| job.sentence(error)).collect(),
    }
}

/// A planned tree, from its ranks' hosts to its root.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TreeReport {
    /// The switch at its root; if all ranks are below a lower switch than the file names, that one.
    pub root: String,
    /// Each sender and the switch that sums what it sends, up to the root.
    pub edges: Vec<(String, String)>,
}

impl TreeReport {
    fn all(simulation: &Simulation, job: &Job) -> Vec<TreeReport> {
        let name = |node| simulation.graph().name(node);
        let report = |tree: &PlannedTree| TreeReport {
            root: name(tree.root),
            edges: tree.edges.iter().map(|&(child, parent)| (name(child), name(parent))).collect(),
        };
        simulation.trees(job).iter().map(report).collect()
    }

    /// The roots of several trees, for people.
    pub fn roots(trees: &[TreeReport]) -> String {
        trees.iter().map(|tree| &tree.root[..]).collect::<Vec<_>>().join(", ")
    }
}

/// The bits of a collective in a second. The collectives of a training step differ, and have no goodput together.
fn goodput_gbps(job: &Job, bytes: u64, seconds: Option<f64>) -> Option<f64> {
    seconds
        .filter(|_| job.plan.operations.is_empty() || job.host_ranks.is_several())
        .map(|seconds| bytes as f64 * 8e-9 / seconds)
}

/// Seconds of the collectives that every rank has completed, the shortest first.
fn durations(job: &Job, collectives: &[Iteration]) -> Vec<f64> {
    let ranks = job.plan.members.len() as u32;
    let completed = collectives.iter().filter(|iteration| iteration.completed == ranks);
    let mut seconds: Vec<f64> =
        completed.filter_map(|iteration| Some(iteration.end?.since(iteration.start?).as_secs_f64())).collect();
    seconds.sort_by(f64::total_cmp);
    seconds
}

/// The reasons that occurred.
fn by_name(drops: &DropCounters) -> Vec<(&'static str, u64)> {
    drops.iter().filter(|&(_, count)| count > 0).map(|(reason, count)| (reason.name(), count)).collect()
}

/// What a job that gave up has lost, and what it lacks because of that.
fn stuck(job: &Job, collectives: &[Iteration]) -> Option<String> {
    let (loss, _) = (job.losses.first()?, job.gave_up?);
    let per_host = u32::from(job.host_ranks.ranks);
    let ranks = job.plan.members.len() as u32;
    let completed = collectives.iter().filter(|iteration| iteration.completed == ranks).count();
    let open = collectives.iter().find(|iteration| iteration.completed < ranks)?;
    let at = loss.time.as_secs_f64() * 1e6;
    let consequence =
        loss.consequence.as_deref().map_or(String::new(), |consequence| format!(", so that {consequence}"));
    Some(format!(
        "can no longer finish: {} at {at:.3} us and does not come back{consequence}; it has completed {completed} of its \
         {} collectives, and {} of its {} ranks lack the result of the next one",
        loss.what,
        collectives.len(),
        (ranks - open.completed) * per_host,
        ranks * per_host
    ))
}

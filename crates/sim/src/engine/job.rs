//! A job in the network: which hosts take part, what they reduce, and the results.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use tributary_proto::contract::custom_op::CustomOp as _;
use tributary_proto::contract::drop_reason::DropCounters;
use tributary_proto::contract::host::HostEvent;
use tributary_proto::contract::ids::{JobKey, NodeId, Rank, ServerId};
use tributary_proto::contract::sum_tree::SumTree;
use tributary_proto::contract::tensor::Tensor;
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::tensors::{CheckedBytes, FingerprintTensor, Roster, SparseDraw, SparseFingerprint, Verification};

use super::custom_op::{Contributions, CustomOp, Data};
use super::faults::{Failure, Loss};
use super::host_memory::HostRanks;
use super::records::{Iteration, JobError, JobErrorKind, JobIndex, JobLifetime, JobPlan, Sparse};

/// How members send to the switches that sum for them.
#[derive(Clone, Debug, Default)]
pub struct FirstHops {
    /// The switch next to each rank's host; where hosts have several cables, tree after tree.
    pub switches: Vec<NodeId>,
    /// The NICs that lead there, in the same order; empty if no host of the job has several.
    pub nics: Vec<u16>,
}

/// A job in the network.
pub struct Job {
    /// The job's plan.
    pub plan: JobPlan,
    /// The key that its members and switches share.
    pub key: JobKey,
    /// The hosts in the order of ranks; then the hosts of servers that are not ranks.
    pub members: Vec<NodeId>,
    /// Its collectives so far.
    pub iterations: Vec<Iteration>,
    /// The errors so far.
    pub errors: Vec<JobError>,
    /// What the job needs and has lost for good, the first loss first.
    pub losses: Vec<Loss>,
    /// When the first rank gave up because of a loss.
    pub gave_up: Option<Time>,
    /// Why its custom operator has failed, once its ranks know.
    pub failed: Option<Failure>,
    /// The hosts that sum for it instead of switches, by number; the ranks' hosts if servers are colocated.
    pub servers: Vec<NodeId>,
    /// For each rank, how late it submits; empty if no rank is late.
    pub late: Vec<Span>,
    /// The ranks on each of its hosts, which a member stands for.
    pub host_ranks: HostRanks,
    /// When it arrived and left, if it is a job that comes and goes.
    pub lifetime: Option<JobLifetime>,
    /// Its packets that programs in switches dropped, in switches that have forgotten it.
    pub switch_drops: DropCounters,
    first_hops: FirstHops,
    ranks: Vec<u16>,
    roster: Arc<Roster>,
    /// The trees along which its blocks may be combined, if a custom operator combines them.
    pub(super) sum_trees: Vec<SumTree>,
    /// The ranks' contributions to the last collectives, if tensors are sparse.
    drawn: BTreeMap<u32, Arc<SparseDraw>>,
    /// The expected results of the last collectives, if a custom operator combines them.
    expected: BTreeMap<u32, Arc<[Vec<u8>]>>,
    pub(crate) index: JobIndex,
}

const NO_RANK: u16 = u16::MAX;
/// For how many collectives inputs or results are cached: ranks are within a few collectives of each other.
const CACHED: usize = 3;

impl Job {
    /// A job before its start.
    pub fn new(index: JobIndex, plan: JobPlan, key: JobKey, hosts: u32, first_hops: FirstHops) -> Job {
        let mut ranks = vec![NO_RANK; hosts as usize];
        for (rank, member) in plan.members.iter().enumerate() {
            ranks[member.index()] = rank as u16;
        }
        Job {
            key,
            members: plan.members.clone(),
            iterations: vec![Iteration::default(); plan.iterations as usize],
            errors: Vec::new(),
            losses: Vec::new(),
            failed: None,
            gave_up: None,
            servers: Vec::new(),
            late: Vec::new(),
            host_ranks: HostRanks::default(),
            lifetime: None,
            switch_drops: DropCounters::default(),
            first_hops,
            ranks,
            roster: Roster::new(plan.members.len() as u16),
            sum_trees: Vec::new(),
            drawn: BTreeMap::new(),
            expected: BTreeMap::new(),
            index,
            plan,
        }
    }

    /// Sets the hosts that serve it. Servers that are not ranks contribute nothing, and are members after the ranks.
    pub fn set_servers(&mut self, servers: Vec<NodeId>) {
        for &server in &servers {
            if self.rank_of(server).is_none() {
                self.ranks[server.index()] = self.members.len() as u16;
                self.members.push(server);
            }
        }
        self.servers = servers;
    }

    /// The number of the server on a host, if there is one.
    pub fn server_on(&self, host: NodeId) -> Option<ServerId> {
        let world_size = self.plan.members.len() as u16;
        let member = self.rank_of(host)?.0;
        let first = if self.members.len() > self.plan.members.len() { world_size } else { 0 };
        member.checked_sub(first).filter(|&server| usize::from(server) < self.servers.len()).map(ServerId)
    }

    /// How late a rank submits.
    pub fn lateness(&self, rank: Rank) -> Span {
        self.late.get(rank.index()).copied().unwrap_or_default()
    }

    /// The switch that a rank sends its contributions to a tree to.
    #[inline]
    pub fn first_switch(&self, rank: Rank, tree: usize) -> NodeId {
        let FirstHops { switches, nics } = &self.first_hops;
        switches[if nics.is_empty() { rank.index() } else { tree * self.plan.members.len() + rank.index() }]
    }

    /// The NIC that leads there; `None` if no host of the job has several.
    pub fn first_nic(&self, rank: Rank, tree: usize) -> Option<u16> {
        self.first_hops.nics.get(tree * self.plan.members.len() + rank.index()).copied()
    }

    /// The rank of a host, if it is a member.
    pub fn rank_of(&self, host: NodeId) -> Option<Rank> {
        self.ranks.get(host.index()).copied().filter(|&rank| rank != NO_RANK).map(Rank)
    }

    /// A rank's tensor of a collective, which begins now.
    pub fn tensor(&mut self, rank: Rank, iteration: u32, now: Time) -> Box<dyn Tensor> {
        self.iterations[iteration as usize].start.get_or_insert(now);
        let collective = u64::from(self.index.0) << 32 | u64::from(iteration);
        if let Some(sparse) = self.plan.sparse.clone() {
            return Box::new(SparseFingerprint::new(self.draw(iteration, collective, &sparse), rank.0));
        }
        match &self.plan.custom_op {
            Some(op) if op.data == Data::Real => Box::new(self.real(op.clone(), rank, iteration, collective)),
            _ => Box::new(self.dense(rank, iteration, collective)),
        }
    }

    /// Real elements, with the result that the same module computes from all ranks' elements.
    fn real(&mut self, op: CustomOp, rank: Rank, iteration: u32, collective: u64) -> CheckedBytes {
        let (spec, world_size) = (self.plan.spec, self.plan.members.len() as u16);
        let contributions = Contributions { operator: &op.operator, spec, world_size, collective };
        let expected = cached(&mut self.expected, iteration, || contributions.results(&self.sum_trees));
        CheckedBytes::new(spec, rank, contributions.by(rank.0), expected)
    }

    fn dense(&self, rank: Rank, iteration: u32, collective: u64) -> FingerprintTensor {
        let tensor = FingerprintTensor::new(self.plan.spec_of(iteration), self.roster.clone(), rank.0, collective);
        let JobPlan { protocol, options, members, magnitudes, .. } = &self.plan;
        let tensor = if magnitudes.is_steady() { tensor.steady() } else { tensor };
        match protocol.options.quorum(options, members.len() as u16) {
            Some(least) => tensor.allow_partial(least),
            None => tensor,
        }
    }

    /// The ranks' contributions to a sparse collective.
    fn draw(&mut self, iteration: u32, collective: u64, sparse: &Sparse) -> Arc<SparseDraw> {
        let (spec, world_size) = (self.plan.spec, self.plan.members.len() as u16);
        cached(&mut self.drawn, iteration, || match sparse {
            Sparse::Drawn(density_ppm) => SparseDraw::new(spec, world_size, collective, *density_ppm),
            Sparse::Recorded(indices) => SparseDraw::of_indices(spec, collective, indices.to_vec()),
        })
    }

    /// Records an event of a rank's machine. `done`: when the ranks of its host have the result, if it brings one.
    pub fn handle_event(&mut self, rank: Rank, event: HostEvent, now: Time, done: Time) {
        let (op, error) = match event {
            HostEvent::Failed { op, .. } if self.failed.is_some() => (op, Some(JobErrorKind::OperatorFailed)),
            HostEvent::Failed { op, error, .. } => (op, Some(JobErrorKind::CollectiveFailed(error))),
            HostEvent::Done { op, tensor } => {
                let (verification, digest) = outcome(&*tensor);
                let (first, other) = *self.iterations[op.0 as usize].first.get_or_insert((rank, digest));
                let differs = (other != digest).then_some(JobErrorKind::ResultsDiffer(first));
                (op, if verification.is_complete() { differs } else { Some(JobErrorKind::WrongSum(verification)) })
            }
        };
        let iteration = op.0 as u32;
        if let Some(kind) = error {
            self.errors.push(JobError { time: now, rank, iteration, kind });
            return;
        }
        let state = &mut self.iterations[iteration as usize];
        state.completed += 1;
        state.end = state.end.max(Some(done));
    }

    /// A sentence about one of its errors that names the rank, the time and the error.
    pub fn sentence(&self, error: &JobError) -> String {
        let what = match &error.kind {
            JobErrorKind::CollectiveFailed(why) => why.to_string(),
            JobErrorKind::OperatorFailed => {
                self.failed.as_ref().map_or_else(String::new, |Failure { switch, why, .. }| {
                    format!("{why}, at switch {switch}; the job is over")
                })
            }
            JobErrorKind::ResultsDiffer(other) => format!("wrong result: it is not that of rank {other}"),
            JobErrorKind::WrongSum(sum) => {
                let (faulty, missing) = (sum.faulty.len(), sum.missing.len());
                match self.plan.custom_op.as_ref().filter(|op| op.data == Data::Real) {
                    None => format!(
                        "wrong sum: {} elements are proven, {faulty} ranges are faulty, {missing} are missing",
                        sum.verified
                    ),
                    Some(op) => format!(
                        "wrong result: {} bytes are what {} makes of all ranks' elements at home, {faulty} ranges are \
                         not, {missing} are missing",
                        sum.verified,
                        op.operator.name()
                    ),
                }
            }
        };
        let at = error.time.as_secs_f64() * 1e6;
        let host = self.members.get(error.rank.index()).map_or(0, |host| host.0);
        let (rank, collective) = (error.rank.0 * self.host_ranks.ranks, error.iteration / self.host_ranks.fragments);
        format!("rank {rank} (host {host}) in collective {collective} at {at:.3} us: {what}")
    }

    /// How many ranks it has, on all hosts.
    pub fn ranks(&self) -> usize {
        self.plan.members.len() * usize::from(self.host_ranks.ranks)
    }

    /// Its collectives so far: those whose fragments are operations, as wholes.
    pub fn collectives(&self) -> Vec<Iteration> {
        let whole = |fragments: &[Iteration]| Iteration {
            start: fragments.iter().filter_map(|fragment| fragment.start).min(),
            end: fragments.iter().filter_map(|fragment| fragment.end).max(),
            completed: fragments.iter().map(|fragment| fragment.completed).min().unwrap_or(0),
            first: None,
        };
        self.iterations.chunks(self.host_ranks.fragments as usize).map(whole).collect()
    }

    /// True if every rank has completed every collective.
    pub fn is_complete(&self) -> bool {
        let world_size = self.plan.members.len() as u32;
        self.iterations.iter().all(|iteration| iteration.completed == world_size)
    }
}

/// The entry of a collective, created if it does not exist; the oldest entries are dropped.
fn cached<T: ?Sized>(known: &mut BTreeMap<u32, Arc<T>>, iteration: u32, make: impl FnOnce() -> Arc<T>) -> Arc<T> {
    let entry = Arc::clone(known.entry(iteration).or_insert_with(make));
    while known.len() > CACHED {
        known.pop_first();
    }
    entry
}

/// The verification of a completed tensor, and a hash of its result if results may lack ranks.
fn outcome(tensor: &dyn Any) -> (Verification, u64) {
    if let Some(dense) = tensor.downcast_ref::<FingerprintTensor>() {
        return (dense.verification(), dense.digest());
    }
    let sparse = tensor.downcast_ref().map(SparseFingerprint::verification);
    let checked = || tensor.downcast_ref().map(CheckedBytes::verification);
    (sparse.or_else(checked).expect("the tensor that was submitted"), 0)
}

/// All jobs of a run.
#[derive(Default)]
pub struct Jobs(Vec<Job>);

impl Jobs {
    /// The index of the next job.
    pub fn next_index(&self) -> JobIndex {
        JobIndex(self.0.len() as u16)
    }

    /// Adds a job, whose index is `next_index`.
    pub fn push(&mut self, job: Job) {
        self.0.push(job);
    }

    /// One job.
    pub fn get(&self, index: JobIndex) -> &Job {
        &self.0[usize::from(index.0)]
    }

    /// One job.
    pub fn get_mut(&mut self, index: JobIndex) -> &mut Job {
        &mut self.0[usize::from(index.0)]
    }

    /// Takes over the state of the jobs in another partition.
    pub(super) fn absorb(&mut self, other: Jobs) {
        for (ours, theirs) in self.0.iter_mut().zip(other.0) {
            let mut differing = Vec::new();
            for (number, (ours, theirs)) in ours.iterations.iter_mut().zip(theirs.iterations).enumerate() {
                if let (Some((first, digest)), Some((rank, other))) = (ours.first, theirs.first)
                    && digest != other
                {
                    let (time, iteration) = (theirs.end.unwrap_or_default(), number as u32);
                    differing.push(JobError { time, rank, iteration, kind: JobErrorKind::ResultsDiffer(first) });
                }
                ours.first = ours.first.or(theirs.first);
                ours.start = ours.start.into_iter().chain(theirs.start).min();
                ours.end = ours.end.max(theirs.end);
                ours.completed += theirs.completed;
            }
            ours.errors.extend(theirs.errors.into_iter().chain(differing));
            ours.switch_drops.add(&theirs.switch_drops);
            // All partitions know all losses.
            ours.gave_up = ours.gave_up.into_iter().chain(theirs.gave_up).min();
            ours.errors.sort_by_key(|error| (error.time, error.rank));
        }
    }

    /// All jobs, mutable.
    pub fn all_mut(&mut self) -> impl Iterator<Item = &mut Job> {
        self.0.iter_mut()
    }

    /// All jobs.
    pub fn all(&self) -> &[Job] {
        &self.0
    }
}

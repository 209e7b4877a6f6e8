//! Jobs: which hosts take part, what they reduce, and the results.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use tributary_proto::contract::drop_reason::DropCounters;
use tributary_proto::contract::host::HostEvent;
use tributary_proto::contract::ids::{JobKey, NodeId, Rank, ServerId};
use tributary_proto::contract::options::Options;
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::contract::sum_tree::SumTree;
use tributary_proto::contract::tensor::{Spec, Tensor};
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::contract::values::Values;
use tributary_proto::tensors::{CheckedBytes, FingerprintTensor, Roster, SparseDraw, SparseFingerprint, Verification};

use super::cluster::Stay;
use super::complaints::{Complaint, Wrong};
use super::failed::Failure;
use super::losses::Loss;
use super::own::{Brought, Data, Own};

/// A job's number in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobIndex(pub u16);

impl JobIndex {
    /// The bit that tells jobs from flows in [`crate::net::Packet::flow`].
    const BIT: u32 = 1 << 31;

    /// What packets of the job carry as their flow.
    pub fn flow(self) -> u32 {
        JobIndex::BIT | u32::from(self.0)
    }

    /// The job of a packet's flow, if it is one.
    pub fn of_flow(flow: u32) -> Option<JobIndex> {
        (flow & JobIndex::BIT != 0).then_some(JobIndex(flow as u16))
    }
}

/// What is asked of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct JobPlan {
    /// The name in reports.
    pub name: String,
    /// How it reduces.
    pub protocol: &'static Protocol,
    /// The hosts, by rank.
    pub members: Vec<NodeId>,
    /// The tensor of each collective.
    pub spec: Spec,
    /// Elements of a million that each rank brings about, of sparse tensors.
    pub density_ppm: Option<u32>,
    /// The operator of its own, if it has one: its options name it.
    pub own: Option<Own>,
    /// Collectives, one after the other.
    pub iterations: u32,
    /// When ranks submit the first one.
    pub start: Time,
    /// Time between a collective's end at a rank and its next submission there.
    pub compute: Span,
    /// The protocol's options.
    pub options: Options,
    /// Elements of a packet.
    pub elements_per_packet: u16,
    /// Pool size over all trees.
    pub slots: u16,
    /// The switches at the top of its trees, by number; blocks go round robin over them.
    pub roots: Vec<u32>,
    /// Retransmission timers of its hosts.
    pub timers: tributary_proto::contract::config::TimerConfig,
    /// A collective fails after so long.
    pub timeout: Option<Span>,
}

impl JobPlan {
    /// What its machines keep and combine.
    pub fn values(&self) -> Values {
        self.own.as_ref().map_or(Values::Fingerprint, Own::values)
    }
}

/// One collective of a job.
#[derive(Clone, Debug, Default)]
pub struct Iteration {
    /// The first submission.
    pub start: Option<Time>,
    /// The last completion so far.
    pub end: Option<Time>,
    /// Ranks that have completed.
    pub completed: u32,
    /// The first rank that has, and a hash of its results, where those may lack ranks.
    pub first: Option<(Rank, u64)>,
}

/// A job under way.
pub struct Job {
    /// What is asked of it.
    pub plan: JobPlan,
    /// What its members and switches share.
    pub key: JobKey,
    /// The hosts, by rank; then those of its servers that are no ranks.
    pub members: Vec<NodeId>,
    /// Its collectives so far.
    pub iterations: Vec<Iteration>,
    /// What went wrong.
    pub complaints: Vec<Complaint>,
    /// What it needs and will not have again, from the first on.
    pub losses: Vec<Loss>,
    /// When the first rank gave up for want of that.
    pub gave_up: Option<Time>,
    /// Why its own operator can combine no more, once its ranks were told.
    pub failed: Option<Failure>,
    /// The hosts that sum for it instead of switches, by number; those of the ranks, where servers are colocated.
    pub servers: Vec<NodeId>,
    /// By rank, how late it submits; none is where this is empty.
    pub late: Vec<Span>,
    /// When it came and went, if it is one of those that do.
    pub stay: Option<Stay>,
    /// Its packets that were of no use to programs in switches that have forgotten it.
    pub switch_drops: DropCounters,
    first_switches: Vec<NodeId>,
    ranks: Vec<u16>,
    roster: Arc<Roster>,
    /// The trees that its blocks may be combined along, where its own operator combines them.
    pub(super) sum_trees: Vec<SumTree>,
    /// What ranks bring to the last collectives, where tensors are sparse.
    drawn: BTreeMap<u32, Arc<SparseDraw>>,
    /// What becomes of the last collectives, where the job's own operator combines them.
    expected: BTreeMap<u32, Arc<[Vec<u8>]>>,
    pub(crate) index: JobIndex,
}

const NO_RANK: u16 = u16::MAX;
/// Collectives of which is kept what ranks bring or get: ranks begin one within a few of each other.
const KEPT: usize = 3;

impl Job {
    /// A job before its start. `first_switches` are those that its members send to, by rank.
    pub fn new(index: JobIndex, plan: JobPlan, key: JobKey, hosts: u32, first_switches: Vec<NodeId>) -> Job {
        let mut ranks = vec![NO_RANK; hosts as usize];
        for (rank, member) in plan.members.iter().enumerate() {
            ranks[member.index()] = rank as u16;
        }
        Job {
            key,
            members: plan.members.clone(),
            iterations: vec![Iteration::default(); plan.iterations as usize],
            complaints: Vec::new(),
            losses: Vec::new(),
            failed: None,
            gave_up: None,
            servers: Vec::new(),
            late: Vec::new(),
            stay: None,
            switch_drops: DropCounters::default(),
            first_switches,
            ranks,
            roster: Roster::new(plan.members.len() as u16),
            sum_trees: Vec::new(),
            drawn: BTreeMap::new(),
            expected: BTreeMap::new(),
            index,
            plan,
        }
    }

    /// Names the hosts that serve it. Those that are no ranks bring nothing, and are members behind the ranks.
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
        let world = self.plan.members.len() as u16;
        let member = self.rank_of(host)?.0;
        let first = if self.members.len() > self.plan.members.len() { world } else { 0 };
        member.checked_sub(first).filter(|&server| usize::from(server) < self.servers.len()).map(ServerId)
    }

    /// How late a rank submits.
    pub fn lateness(&self, rank: Rank) -> Span {
        self.late.get(rank.index()).copied().unwrap_or_default()
    }

    /// The switch that a rank sends its contributions to.
    pub fn first_switch(&self, rank: Rank) -> NodeId {
        self.first_switches[rank.index()]
    }

    /// The rank of a host, if it is a member.
    pub fn rank_of(&self, host: NodeId) -> Option<Rank> {
        self.ranks.get(host.index()).copied().filter(|&rank| rank != NO_RANK).map(Rank)
    }

    /// A rank's part in a collective, which begins now.
    pub fn tensor(&mut self, rank: Rank, iteration: u32, now: Time) -> Box<dyn Tensor> {
        self.iterations[iteration as usize].start.get_or_insert(now);
        let collective = u64::from(self.index.0) << 32 | u64::from(iteration);
        match (&self.plan.own, self.plan.density_ppm) {
            (Some(own), None) if own.data == Data::Real => {
                Box::new(self.real(own.clone(), rank, iteration, collective))
            }
            (_, None) => Box::new(self.dense(rank, collective)),
            (_, Some(ppm)) => Box::new(SparseFingerprint::new(self.draw(iteration, collective, ppm), rank.0)),
        }
    }

    /// Real elements, and what the same module makes of all ranks' at home.
    fn real(&mut self, own: Own, rank: Rank, iteration: u32, collective: u64) -> CheckedBytes {
        let (spec, world) = (self.plan.spec, self.plan.members.len() as u16);
        let brought = Brought { operator: &own.operator, spec, world, collective };
        let expected = kept(&mut self.expected, iteration, || brought.results(&self.sum_trees));
        CheckedBytes::new(spec, rank, brought.by(rank.0), expected)
    }

    fn dense(&self, rank: Rank, collective: u64) -> FingerprintTensor {
        let tensor = FingerprintTensor::new(self.plan.spec, self.roster.clone(), rank.0, collective);
        let JobPlan { protocol, options, members, .. } = &self.plan;
        match protocol.options.quorum(options, members.len() as u16) {
            Some(least) => tensor.in_part(least),
            None => tensor,
        }
    }

    /// What ranks bring to a sparse collective.
    fn draw(&mut self, iteration: u32, collective: u64, density_ppm: u32) -> Arc<SparseDraw> {
        let (spec, world) = (self.plan.spec, self.plan.members.len() as u16);
        kept(&mut self.drawn, iteration, || SparseDraw::new(spec, world, collective, density_ppm))
    }

    /// What a rank's machine says.
    pub fn hear(&mut self, rank: Rank, event: HostEvent, now: Time) {
        let (op, what) = match event {
            HostEvent::Failed { op, .. } if self.failed.is_some() => (op, Some(Wrong::Over)),
            HostEvent::Failed { op, error, .. } => (op, Some(Wrong::Failed(error))),
            HostEvent::Done { op, tensor } => {
                let (verification, digest) = outcome(&*tensor);
                let (first, other) = *self.iterations[op.0 as usize].first.get_or_insert((rank, digest));
                let differs = (other != digest).then_some(Wrong::Differs(first));
                (op, if verification.is_complete() { differs } else { Some(Wrong::Sum(verification)) })
            }
        };
        let iteration = op.0 as u32;
        if let Some(what) = what {
            self.complaints.push(Complaint { time: now, rank, iteration, what });
            return;
        }
        let state = &mut self.iterations[iteration as usize];
        state.completed += 1;
        state.end = Some(now);
    }

    /// Every rank has completed every collective.
    pub fn is_complete(&self) -> bool {
        let world = self.plan.members.len() as u32;
        self.iterations.iter().all(|iteration| iteration.completed == world)
    }
}

/// What is known of a collective, made where it is not; that of the oldest ones goes.
fn kept<T: ?Sized>(known: &mut BTreeMap<u32, Arc<T>>, iteration: u32, make: impl FnOnce() -> Arc<T>) -> Arc<T> {
    let of_this = Arc::clone(known.entry(iteration).or_insert_with(make));
    while known.len() > KEPT {
        known.pop_first();
    }
    of_this
}

/// What a tensor says when its collective is over, and a hash of a result that may lack ranks.
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

    /// Takes over what another part of the network heard of them.
    pub(super) fn absorb(&mut self, other: Jobs) {
        for (own, theirs) in self.0.iter_mut().zip(other.0) {
            let mut apart = Vec::new();
            for (number, (own, theirs)) in own.iterations.iter_mut().zip(theirs.iterations).enumerate() {
                if let (Some((first, digest)), Some((rank, other))) = (own.first, theirs.first)
                    && digest != other
                {
                    let (time, iteration) = (theirs.end.unwrap_or_default(), number as u32);
                    apart.push(Complaint { time, rank, iteration, what: Wrong::Differs(first) });
                }
                own.first = own.first.or(theirs.first);
                own.start = own.start.into_iter().chain(theirs.start).min();
                own.end = own.end.max(theirs.end);
                own.completed += theirs.completed;
            }
            own.complaints.extend(theirs.complaints.into_iter().chain(apart));
            own.switch_drops.add(&theirs.switch_drops);
            // Losses are known to all parts.
            own.gave_up = own.gave_up.into_iter().chain(theirs.gave_up).min();
            own.complaints.sort_by_key(|complaint| (complaint.time, complaint.rank));
        }
    }

    /// All of them, to be changed.
    pub fn all_mut(&mut self) -> impl Iterator<Item = &mut Job> {
        self.0.iter_mut()
    }

    /// All of them.
    pub fn all(&self) -> &[Job] {
        &self.0
    }
}

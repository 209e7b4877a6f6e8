//! Jobs: who takes part, what they reduce, and what came of it.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use tributary_proto::contract::host::{CollectiveError, HostEvent};
use tributary_proto::contract::ids::{JobKey, NodeId, Rank, ServerId};
use tributary_proto::contract::options::Options;
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::contract::tensor::{Spec, Tensor};
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::tensors::{FingerprintTensor, Roster, SparseDraw, SparseFingerprint, Verification};

use super::losses::Loss;

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

/// One collective of a job.
#[derive(Clone, Debug, Default)]
pub struct Iteration {
    /// The first submission.
    pub start: Option<Time>,
    /// The last completion so far.
    pub end: Option<Time>,
    /// Ranks that have completed.
    pub completed: u32,
}

/// What must not happen.
#[derive(Clone, Debug, PartialEq)]
pub enum Wrong {
    /// A sum that is not every contribution exactly once.
    Sum(Verification),
    /// A collective that failed.
    Failed(CollectiveError),
}

/// Where and when it happened.
#[derive(Clone, Debug, PartialEq)]
pub struct Complaint {
    /// When.
    pub time: Time,
    /// Whose.
    pub rank: Rank,
    /// Which collective.
    pub iteration: u32,
    /// What.
    pub what: Wrong,
}

impl Complaint {
    /// Whose it is, when, and what.
    pub fn sentence(&self, job: &Job) -> String {
        let what = match &self.what {
            Wrong::Failed(error) => error.to_string(),
            Wrong::Sum(sum) => format!(
                "wrong sum: {} elements are proven, {} ranges are faulty, {} are missing",
                sum.verified,
                sum.faulty.len(),
                sum.missing.len()
            ),
        };
        let at = self.time.as_secs_f64() * 1e6;
        let host = job.members.get(self.rank.index()).map_or(0, |host| host.0);
        format!("rank {} (host {host}) in collective {} at {at:.3} us: {what}", self.rank, self.iteration)
    }
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
    /// The hosts that sum for it instead of switches, by number; those of the ranks, where servers are colocated.
    pub servers: Vec<NodeId>,
    /// By rank, how late it submits; none is where this is empty.
    pub late: Vec<Span>,
    first_switches: Vec<NodeId>,
    ranks: Vec<u16>,
    roster: Arc<Roster>,
    /// What ranks bring to the last collectives, where tensors are sparse.
    drawn: BTreeMap<u32, Arc<SparseDraw>>,
    pub(crate) index: JobIndex,
}

const NO_RANK: u16 = u16::MAX;

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
            gave_up: None,
            servers: Vec::new(),
            late: Vec::new(),
            first_switches,
            ranks,
            roster: Roster::new(plan.members.len() as u16),
            drawn: BTreeMap::new(),
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
        match self.plan.density_ppm {
            None => Box::new(FingerprintTensor::new(self.plan.spec, self.roster.clone(), rank.0, collective)),
            Some(ppm) => Box::new(SparseFingerprint::new(self.draw(iteration, collective, ppm), rank.0)),
        }
    }

    /// What ranks bring to a sparse collective: ranks begin one within a few of each other.
    fn draw(&mut self, iteration: u32, collective: u64, density_ppm: u32) -> Arc<SparseDraw> {
        const KEPT: usize = 3;
        let (spec, world) = (self.plan.spec, self.plan.members.len() as u16);
        let draw = self.drawn.entry(iteration).or_insert_with(|| SparseDraw::new(spec, world, collective, density_ppm));
        let draw = Arc::clone(draw);
        while self.drawn.len() > KEPT {
            self.drawn.pop_first();
        }
        draw
    }

    /// What a rank's machine says.
    pub fn hear(&mut self, rank: Rank, event: HostEvent, now: Time) {
        let (op, what) = match event {
            HostEvent::Failed { op, error, .. } => (op, Some(Wrong::Failed(error))),
            HostEvent::Done { op, tensor } => {
                let tensor: Box<dyn Any> = tensor;
                let verification = match tensor.downcast::<FingerprintTensor>() {
                    Ok(dense) => dense.verification(),
                    Err(other) => {
                        other.downcast::<SparseFingerprint>().expect("the tensor that was submitted").verification()
                    }
                };
                (op, (!verification.is_complete()).then_some(Wrong::Sum(verification)))
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
            for (own, theirs) in own.iterations.iter_mut().zip(theirs.iterations) {
                own.start = own.start.into_iter().chain(theirs.start).min();
                own.end = own.end.max(theirs.end);
                own.completed += theirs.completed;
            }
            own.complaints.extend(theirs.complaints);
            // Losses are known to all parts.
            own.gave_up = own.gave_up.into_iter().chain(theirs.gave_up).min();
            own.complaints.sort_by_key(|complaint| (complaint.time, complaint.rank));
        }
    }

    /// All jobs, by index.
    pub fn all(&self) -> &[Job] {
        &self.0
    }
}

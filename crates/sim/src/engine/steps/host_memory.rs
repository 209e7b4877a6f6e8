//! Several ranks on a host: they sum in the host's memory, and one of them, the leader, is the host's member of the job.
//!
//! As on a real host, a collective is cut into fragments. Each fragment of every rank crosses the memory to the leader,
//! which submits their sum as an operation of the job; the result crosses the memory back to the ranks. A fragment
//! crosses while others are in the network. The memory is a link each way, which all jobs of the host share.

use tributary_proto::contract::ids::{NodeId, Rank};
use tributary_proto::contract::tensor::{Primitive, Spec};
use tributary_proto::contract::time::Time;

use crate::engine::job::Job;
use crate::engine::records::{EndpointId, Iteration, JobIndex};
use crate::engine::simulation::Simulation;
use crate::events::{EventId, EventKind};
use crate::topology::Rate;

/// Bytes of a fragment, as real hosts cut it.
const FRAGMENT_BYTES: u64 = 2 << 20;

/// A job's ranks on each of its hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostRanks {
    /// How many there are.
    pub ranks: u16,
    /// The fragments of a collective.
    pub fragments: u32,
}

impl Default for HostRanks {
    fn default() -> HostRanks {
        HostRanks { ranks: 1, fragments: 1 }
    }
}

impl HostRanks {
    /// True if ranks share a host's memory.
    pub fn is_several(&self) -> bool {
        self.ranks > 1
    }

    /// The fragments of a collective, at least one.
    pub fn cut(spec: &Spec) -> Vec<Spec> {
        let largest = (FRAGMENT_BYTES / spec.dtype.size() as u64) as u32;
        let starts = (0..spec.elements.max(1)).step_by(largest as usize);
        starts.map(|start| Spec { elements: (spec.elements - start).min(largest), ..*spec }).collect()
    }

    /// Bytes of a fragment that cross the memory of a member's host to its leader.
    fn bytes_up(&self, spec: &Spec, member: Rank) -> u64 {
        match spec.primitive {
            Primitive::Allreduce | Primitive::Reduce(_) => u64::from(self.ranks) * bytes(spec),
            Primitive::Broadcast(root) if root == member => bytes(spec),
            Primitive::Broadcast(_) => 0,
        }
    }

    /// Bytes of a result that cross it back.
    fn bytes_down(&self, spec: &Spec, member: Rank) -> u64 {
        match spec.primitive {
            Primitive::Allreduce | Primitive::Broadcast(_) => u64::from(self.ranks) * bytes(spec),
            Primitive::Reduce(root) if root == member => bytes(spec),
            Primitive::Reduce(_) => 0,
        }
    }
}

fn bytes(spec: &Spec) -> u64 {
    u64::from(spec.elements) * spec.dtype.size() as u64
}

/// The memory of a host, as a link to leaders and one from them.
#[derive(Clone, Debug)]
pub struct HostMemory {
    rate: Rate,
    /// When each has carried everything so far.
    up_free: Time,
    down_free: Time,
    /// The endpoints whose next fragment is on its way to the leader.
    crossing: Vec<EndpointId>,
}

impl HostMemory {
    /// A memory at rest.
    pub fn new(rate: Rate) -> HostMemory {
        HostMemory { rate, up_free: Time::ZERO, down_free: Time::ZERO, crossing: Vec::new() }
    }

    fn carry_up(&mut self, now: Time, bytes: u64) -> Time {
        self.up_free = self.up_free.max(now) + self.rate.time_of(bytes);
        self.up_free
    }

    /// A member's result of an operation has come from the network: when the ranks of its host have it.
    pub fn carry_down(&mut self, now: Time, job: &Job, operation: u32, member: Rank) -> Time {
        let bytes = job.host_ranks.bytes_down(&job.plan.spec_of(operation), member);
        self.down_free = self.down_free.max(now) + self.rate.time_of(bytes);
        self.down_free
    }
}

impl Job {
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
}

impl Simulation {
    /// Gives every host a memory.
    pub fn set_host_memory(&mut self, rate: Rate) {
        self.hosts.iter_mut().for_each(|host| host.memory = Some(Box::new(HostMemory::new(rate))));
    }

    /// Puts several ranks on each host of a job that is just installed, whose operations are the fragments of its
    /// collectives.
    pub fn set_host_ranks(&mut self, job: JobIndex, ranks: HostRanks) {
        let start = self.traffic.jobs.get(job).plan.start;
        self.traffic.jobs.get_mut(job).host_ranks = ranks;
        for (number, endpoint) in self.traffic.endpoints.iter().enumerate() {
            if endpoint.job == job && endpoint.open && self.fabric.owns(endpoint.host) {
                self.fabric.queue.push(start, EventId::new(EventKind::Submit, number as u32));
            }
        }
    }

    /// True if the leader has the sum of its host's ranks, and may submit it. If not, the ranks bring the first fragment of
    /// a collective now.
    pub(crate) fn has_come_to_leader(&mut self, id: EndpointId) -> bool {
        let endpoint = &self.traffic.endpoints[id.0 as usize];
        let (host, submitted) = (endpoint.host, endpoint.submitted);
        let job = self.traffic.jobs.get_mut(endpoint.job);
        if !job.host_ranks.is_several() {
            return true;
        }
        let memory = self.hosts[host.index()].memory.as_mut().expect("a host with several ranks has memory");
        if let Some(at) = memory.crossing.iter().position(|&crossing| crossing == id) {
            memory.crossing.swap_remove(at);
            return true;
        }
        job.iterations[submitted as usize].start.get_or_insert(self.fabric.now);
        self.bring(id, host);
        false
    }

    /// The next fragment of a collective follows the one that the leader has submitted.
    pub(crate) fn bring_next(&mut self, id: EndpointId) {
        let endpoint = &self.traffic.endpoints[id.0 as usize];
        let ranks = self.traffic.jobs.get(endpoint.job).host_ranks;
        if ranks.is_several() && !endpoint.submitted.is_multiple_of(ranks.fragments) {
            self.bring(id, endpoint.host);
        }
    }

    fn bring(&mut self, id: EndpointId, host: NodeId) {
        let endpoint = &self.traffic.endpoints[id.0 as usize];
        let job = self.traffic.jobs.get(endpoint.job);
        let memory = self.hosts[host.index()].memory.as_mut().expect("a host with several ranks has memory");
        let bytes = job.host_ranks.bytes_up(&job.plan.spec_of(endpoint.submitted), endpoint.rank);
        memory.crossing.push(id);
        let at = memory.carry_up(self.fabric.now, bytes);
        self.fabric.queue.push(at, EventId::new(EventKind::Submit, id.0));
    }
}

//! Several ranks on a host: they sum in the host's memory, and one of them, the leader, is the host's member of the job.
//!
//! As on a real host, a collective is cut into fragments. Each fragment of every rank crosses the memory to the leader,
//! which submits their sum as an operation of the job; the result crosses the memory back to the ranks. A fragment
//! crosses while others are in the network. The memory is a link each way, which all jobs of the host share.

use tributary_proto::contract::ids::Rank;
use tributary_proto::contract::tensor::{Primitive, Spec};
use tributary_proto::contract::time::Time;

use super::records::EndpointId;
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
    pub(super) fn bytes_up(&self, spec: &Spec, member: Rank) -> u64 {
        match spec.primitive {
            Primitive::Allreduce | Primitive::Reduce(_) => u64::from(self.ranks) * bytes(spec),
            Primitive::Broadcast(root) if root == member => bytes(spec),
            Primitive::Broadcast(_) => 0,
        }
    }

    /// Bytes of a result that cross it back.
    pub(super) fn bytes_down(&self, spec: &Spec, member: Rank) -> u64 {
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
    pub(super) crossing: Vec<EndpointId>,
}

impl HostMemory {
    /// A memory at rest.
    pub fn new(rate: Rate) -> HostMemory {
        HostMemory { rate, up_free: Time::ZERO, down_free: Time::ZERO, crossing: Vec::new() }
    }

    /// Ranks bring a fragment: when their leader has its sum.
    pub(super) fn carry_up(&mut self, now: Time, bytes: u64) -> Time {
        self.up_free = self.up_free.max(now) + self.rate.time_of(bytes);
        self.up_free
    }

    /// A result has come from the network: when the ranks of its host have it.
    pub(super) fn carry_down(&mut self, now: Time, bytes: u64) -> Time {
        self.down_free = self.down_free.max(now) + self.rate.time_of(bytes);
        self.down_free
    }
}

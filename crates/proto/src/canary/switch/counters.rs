//! The counters of a switch, the names of its figures, and its work for simulators of a switch's cores.

use super::CanarySwitch;
use super::array::BlockId;
use crate::canary::wire::{Header, Kind};
use crate::contract::ids::{JobId, PortId};
use crate::contract::state::exclude_from_state;
use crate::contract::wire::u16;
use crate::contract::work::{Claim, Instrumented, Work};

/// Counters of all jobs together.
#[derive(Clone, Copy, Default)]
pub struct Counters {
    pub collisions: u64,
    pub stragglers: u64,
    pub flushed_late: u64,
    pub flushed_full: u64,
    pub restorations: u64,
    pub expired: u64,
    pub work: Work,
}

exclude_from_state!(Counters);

/// Counters of one job.
#[derive(Clone, Copy, Default, Hash)]
pub struct JobCounters {
    pub blocks_completed: u64,
    pub contributions: u64,
    pub collisions: u64,
    pub stragglers: u64,
}

impl Instrumented for CanarySwitch {
    /// A packet that uses an entry claims that entry for itself; other packets claim nothing.
    fn claim(&mut self, _ingress: PortId, packet: &[u8]) -> Claim {
        let (Ok(kind), Ok(header)) = (Kind::of(packet), Header::parse(packet)) else { return Claim::nothing(0) };
        let job = JobId(u16(packet, 6));
        let index = self.array.index_of(BlockId { job, attempt: header.attempt, id: header.id });
        match kind {
            Kind::Reduce if !header.bypass => Claim::buffer(index.into()),
            Kind::Broadcast | Kind::Failure if header.multicast => Claim::buffer(index.into()),
            _ => Claim::nothing(index.into()),
        }
    }

    fn take_work(&mut self) -> Work {
        std::mem::take(&mut self.counters.work)
    }
}

/// Names and descriptions of the figures.
pub mod figures {
    use crate::contract::metric::Metric;

    pub fn collisions(count: u64) -> Metric {
        Metric::counter("collisions", count, "Packets that found their descriptor taken by another block.")
    }

    pub fn stragglers(count: u64) -> Metric {
        Metric::counter("stragglers", count, "Contributions that came when their partial sum had left.")
    }
}

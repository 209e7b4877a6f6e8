//! What a job occupies in a switch, in bytes, before it is made.

use tributary_proto::contract::config::JobConfig;
use tributary_proto::contract::ids::{JobId, JobKey};
use tributary_proto::protocols::Protocol;

/// Most elements that one packet carries: a UDP datagram over IPv4 or IPv6 holds them with every header.
pub const MAX_ELEMENTS_PER_PACKET: u16 = 16_128;

/// The sizes of a job that its memory follows from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobShape {
    /// What the switch runs for it.
    pub protocol: Protocol,
    /// Slots over all shards.
    pub slots: u16,
    /// Elements of four bytes per slot.
    pub elements_per_packet: u16,
    /// Ranks of the whole job.
    pub world: u16,
    /// Workers and switches directly below this switch.
    pub children: u16,
    /// Switches directly below this switch, and the one above.
    pub neighbours: u16,
    /// Independent parts of the switch.
    pub shards: u16,
}

impl JobShape {
    /// Versions of each slot: the working copy and the shadow copy (SwitchML §4.5).
    const VERSIONS: u64 = 2;
    /// Counters, block number, exponent, length and allocator slack of one version of a slot.
    const SLOT_BYTES: u64 = 128;
    /// One member in the tables of one shard: its port, address, sign of life, questions and place in the multicast group.
    const MEMBER_BYTES: u64 = 256;
    /// One neighbouring switch in the tables of one shard: what it last said, its address.
    const NEIGHBOUR_BYTES: u64 = 512;
    /// One rank in the tables of one shard.
    const RANK_BYTES: u64 = 2;
    /// A job in the tables of one shard, without slots and members.
    const JOB_BYTES: u64 = 4_096;

    /// The job that has this shape.
    pub(crate) fn config(&self, job: JobId, key: JobKey) -> JobConfig {
        let JobShape { slots, elements_per_packet, world, shards, .. } = *self;
        JobConfig { job, key, world, slots, elements_per_packet, shards }
    }

    /// Bytes that the job occupies in the whole switch, rounded up rather than down.
    pub fn bytes(&self) -> u64 {
        let in_a_shard = JobShape::JOB_BYTES
            + u64::from(self.children) * JobShape::MEMBER_BYTES
            + u64::from(self.neighbours) * JobShape::NEIGHBOUR_BYTES
            + u64::from(self.world) * JobShape::RANK_BYTES;
        let tables = u64::from(self.shards) * in_a_shard;
        if !self.protocol.aggregates_in_switch() {
            return tables;
        }
        // Two bitmaps a version: who contributed, and room for who has the result.
        let bitmaps = 2 * 8 * u64::from(self.children.div_ceil(64));
        let version = 4 * u64::from(self.elements_per_packet) + bitmaps + JobShape::SLOT_BYTES;
        tables + u64::from(self.slots) * JobShape::VERSIONS * version
    }
}

/// A number of bytes as people read it.
pub(crate) struct Bytes(pub u64);

impl std::fmt::Display for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            0..1_024 => write!(f, "{} bytes", self.0),
            1_024..1_048_576 => write!(f, "{:.1} KiB", self.0 as f64 / 1_024.0),
            1_048_576..1_073_741_824 => write!(f, "{:.1} MiB", self.0 as f64 / 1_048_576.0),
            _ => write!(f, "{:.1} GiB", self.0 as f64 / 1_073_741_824.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(protocol: Protocol, slots: u16) -> JobShape {
        JobShape { protocol, slots, elements_per_packet: 360, world: 4, children: 4, neighbours: 0, shards: 1 }
    }

    #[test]
    fn a_job_is_charged_two_versions_of_every_slot() {
        let job = JobShape { elements_per_packet: 256, shards: 2, ..shape(Protocol::SwitchMl, 64) };
        let values = 64 * 2 * 256 * 4;
        assert!(job.bytes() > values && job.bytes() < 2 * values, "{}", job.bytes());
        let twice = JobShape { slots: 128, ..job };
        assert!(twice.bytes() - job.bytes() > values);
    }

    #[test]
    fn a_job_that_only_needs_forwarding_is_charged_no_slots() {
        let job = shape(Protocol::Ring, 512);
        assert_eq!(job.bytes(), JobShape { slots: 8, ..job }.bytes());
    }
}

//! Who owns which slot, and which block goes where: arithmetic that hosts and switches share.

use std::ops::Range;

use crate::contract::config::JobConfig;
use crate::contract::ids::ShardId;

/// The slots of one shard.
pub fn slots_of(job: &JobConfig, shard: ShardId) -> Range<u16> {
    let at = |shard: u32| (shard * u32::from(job.slots) / u32::from(job.shards)) as u16;
    at(u32::from(shard.0))..at(u32::from(shard.0) + 1)
}

/// The shard that owns a slot.
pub fn shard_of(job: &JobConfig, idx: u16) -> ShardId {
    ShardId((u32::from(idx) * u32::from(job.shards) / u32::from(job.slots)) as u16)
}

/// The tree of a job, or the shard of its switch, that owns what a packet names as its slot; `None` if that is no slot of the
/// job.
pub fn tree_of(job: &JobConfig, slot: Option<u32>) -> Option<ShardId> {
    let slot = slot.and_then(|slot| u16::try_from(slot).ok()).filter(|&slot| slot < job.slots)?;
    Some(shard_of(job, slot))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::ids::{JobId, JobKey};

    #[test]
    fn every_slot_has_one_shard() {
        for (slots, shards) in [(1, 1), (8, 1), (8, 2), (12, 3), (512, 16), (65_535, 1), (65_520, 16)] {
            let job = JobConfig {
                job: JobId(1),
                key: JobKey(2),
                protocol: 1,
                world: 4,
                slots,
                elements_per_packet: 64,
                shards,
                levels: false,
                options: Default::default(),
            };
            let mut next = 0;
            for shard in (0..shards).map(ShardId) {
                let range = slots_of(&job, shard);
                assert_eq!(range.start, next);
                assert!(range.clone().all(|idx| shard_of(&job, idx) == shard), "{slots} slots, {shards} shards");
                next = range.end;
            }
            assert_eq!(next, slots);
        }
    }
}

//! Which tree owns which slot: arithmetic that hosts and switches share.

use std::ops::Range;

use crate::contract::config::JobConfig;
use crate::contract::ids::TreeId;

/// The slots of one tree.
pub fn slots_of(job: &JobConfig, tree: TreeId) -> Range<u16> {
    let at = |tree: u32| (tree * u32::from(job.slots) / u32::from(job.trees)) as u16;
    at(u32::from(tree.0))..at(u32::from(tree.0) + 1)
}

/// The tree that owns a slot.
pub fn tree_of_slot(job: &JobConfig, idx: u16) -> TreeId {
    tree_at(idx, job.slots, job.trees)
}

/// The same of a job of this many slots and trees.
pub fn tree_at(idx: u16, slots: u16, trees: u16) -> TreeId {
    TreeId((u32::from(idx) * u32::from(trees) / u32::from(slots)) as u16)
}

/// The tree that owns the slot that a packet names; `None` if the job has no such slot.
pub fn tree_of(job: &JobConfig, slot: Option<u32>) -> Option<TreeId> {
    let slot = slot.and_then(|slot| u16::try_from(slot).ok()).filter(|&slot| slot < job.slots)?;
    Some(tree_of_slot(job, slot))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::ids::{JobId, JobKey};

    #[test]
    fn every_slot_has_one_tree() {
        for (slots, trees) in [(1, 1), (8, 1), (8, 2), (12, 3), (512, 16), (65_535, 1), (65_520, 16)] {
            let job = JobConfig {
                job: JobId(1),
                key: JobKey(2),
                protocol: 1,
                world_size: 4,
                slots,
                elements_per_packet: 64,
                trees,
                levels: false,
                options: Default::default(),
            };
            let mut next = 0;
            for tree in (0..trees).map(TreeId) {
                let range = slots_of(&job, tree);
                assert_eq!(range.start, next);
                assert!(range.clone().all(|idx| tree_of_slot(&job, idx) == tree), "{slots} slots, {trees} trees");
                next = range.end;
            }
            assert_eq!(next, slots);
        }
    }
}

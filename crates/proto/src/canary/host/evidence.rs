//! Whether a contribution to an issue was lost. The leader infers it from the ranks that have asked for the sum, and
//! from the proofs of the contributions that came.
//!
//! A rank asks a timeout after it has contributed. So a contribution was lost if a rank that has asked is among those
//! whose contribution is missing. Ranks that have not asked may be late.

use super::CanaryHost;
use super::steps::Step;
use crate::canary::wire::{RankProof, proof};
use crate::contract::ids::Rank;

/// The most ranks that have not asked whose subsets are all compared with what is missing.
const MAX_SILENT: usize = 8;

impl CanaryHost {
    /// True if the contribution of a rank that has asked is missing. `asker` is the last rank that asked. The answer is
    /// exact where only the asker's contribution is missing, and where at most `MAX_SILENT` ranks have not asked. Where
    /// it cannot be told, the answer is false.
    pub(super) fn has_lost(&self, step: Step, asker: Rank) -> bool {
        let Some(lead) = self.leads.get(step.position, step.phase) else { return false };
        let others = self.world_size() - 1;
        let (missing, silent) = (others - lead.counter, others - lead.requested.len());
        if missing == 0 || missing > silent {
            return missing > 0;
        }
        let (id, attempt) = (self.steps.id(step), lead.attempt);
        let lacks = proof(self.others_proof, id, attempt).wrapping_sub(lead.contributors);
        if missing == 1 && proof(RankProof::of(asker), id, attempt) == lacks {
            return true;
        }
        if usize::from(silent) > MAX_SILENT {
            return false;
        }
        let silent: Vec<RankProof> =
            self.others().filter(|&rank| !lead.requested.contains(rank)).map(RankProof::of).collect();
        let sum_of = |subset: u32| {
            let chosen = silent.iter().enumerate().filter(|&(index, _)| subset >> index & 1 != 0);
            proof(chosen.map(|(_, &rank_proof)| rank_proof).sum(), id, attempt)
        };
        let may_be_late = |subset: u32| subset.count_ones() == u32::from(missing) && sum_of(subset) == lacks;
        !(0..1u32 << silent.len()).any(may_be_late)
    }
}

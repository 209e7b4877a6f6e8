//! Whether something of an issue is lost, from what its leader knows: who has asked, and the proofs of what has come.
//!
//! Who asks has contributed, a timeout before. So an issue is lost as soon as one that has asked is among those whose
//! contribution is missing. Those who have not asked may be late.

use super::CanaryHost;
use super::steps::Step;
use crate::canary::wire::{RankProof, proof};
use crate::contract::ids::Rank;

/// Ranks that have not asked, at most, of which all subsets are compared with what is missing.
const FEW: usize = 8;

impl CanaryHost {
    /// True if a contribution of somebody who has asked is missing. `asker` is the last who has. Exact where one
    /// contribution is missing and it is the asker's, or where few have not asked; false where nobody can tell.
    pub(super) fn has_lost(&self, step: Step, asker: Rank) -> bool {
        let Some(lead) = self.leads.get(step.place, step.phase) else { return false };
        let others = self.world() - 1;
        let (missing, silent) = (others - lead.counter, others - lead.asked.len());
        if missing == 0 || missing > silent {
            return missing > 0;
        }
        let (id, attempt) = (self.steps.id(step), lead.attempt);
        let lacks = proof(self.others_proof, id, attempt).wrapping_sub(lead.contributors);
        if missing == 1 && proof(RankProof::of(asker), id, attempt) == lacks {
            return true;
        }
        if usize::from(silent) > FEW {
            return false;
        }
        let silent: Vec<RankProof> =
            self.others().filter(|&rank| !lead.asked.contains(rank)).map(RankProof::of).collect();
        let sum_of = |subset: u32| {
            let chosen = silent.iter().enumerate().filter(|&(index, _)| subset >> index & 1 != 0);
            proof(chosen.map(|(_, &part)| part).sum(), id, attempt)
        };
        let may_be_late = |subset: u32| subset.count_ones() == u32::from(missing) && sum_of(subset) == lacks;
        !(0..1u32 << silent.len()).any(may_be_late)
    }
}

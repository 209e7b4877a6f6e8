//! The three algorithms as a rank's steps: which rank sends what to which, and how received chunks are merged.
//!
//! If the number of ranks is not a power of two, a rank beyond the largest power of two hands its chunks to a partner
//! before the doubling, and gets the result from the partner afterwards.

use std::ops::Range;

use super::Algorithm;
use crate::contract::ids::Rank;

/// What a rank sends in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum What {
    /// All chunks that it holds.
    All,
    /// One chunk.
    Chunk(u16),
    /// All chunks that it holds but one.
    AllBut(u16),
}

/// What a rank does with the chunks that come in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Merge {
    /// Combines them with the chunks of the same number that it holds.
    Combine,
    /// Combines the contributions of all ranks to its own chunk, and finishes the sum. From then on it holds that chunk
    /// alone.
    Own,
    /// Adds them to the chunks that it holds: they are finished.
    Gather,
}

/// One step of one rank. All ranks number steps alike.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Step {
    /// The step's number.
    pub label: u8,
    /// The receivers, and what each gets.
    pub sends: Vec<(Rank, What)>,
    /// The ranks whose messages the step waits for.
    pub from: Vec<Rank>,
    /// What the rank does with those messages.
    pub merge: Merge,
    /// After the step the rank holds sums over all ranks, which are not finished yet.
    pub completes: bool,
}

impl Step {
    /// True if the rank holds sums over all ranks after the step, and made them itself.
    pub fn is_result(&self) -> bool {
        self.completes || self.merge == Merge::Own
    }
}

/// What a rank does in one collective.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Plan {
    /// How many chunks the indices are cut into.
    pub chunks: u16,
    /// The steps, in their order.
    pub steps: Vec<Step>,
}

/// The ranks of the largest power of two that is not above the world size, and its logarithm.
fn doubling(world_size: u16) -> (u16, u8) {
    let log2 = world_size.ilog2() as u8;
    (1 << log2, log2)
}

impl Plan {
    /// The plan of one rank.
    pub fn new(algorithm: Algorithm, me: Rank, world_size: u16) -> Plan {
        match algorithm {
            _ if world_size == 1 => Plan { chunks: 1, steps: Vec::new() },
            Algorithm::RecursiveDouble => Plan { chunks: 1, steps: doubled(me.0, world_size, 0, Merge::Combine) },
            Algorithm::SplitAllgather | Algorithm::DenseSplitAllgather => {
                // Each rank begins with the next rank, so that no rank gets all first packets.
                let others = || (1..world_size).map(|distance| (me.0 + distance) % world_size);
                let scatter = Step {
                    label: 0,
                    sends: others().map(|to| (Rank(to), What::Chunk(to))).collect(),
                    from: others().map(Rank).collect(),
                    merge: Merge::Own,
                    completes: false,
                };
                let gather = doubled(me.0, world_size, 1, Merge::Gather);
                Plan { chunks: world_size, steps: std::iter::once(scatter).chain(gather).collect() }
            }
        }
    }

    /// The indices of a chunk of a tensor with this many elements.
    pub fn range(&self, chunk: u16, elements: u32) -> Range<u32> {
        let bound = |chunk: u16| (u64::from(chunk) * u64::from(elements) / u64::from(self.chunks)) as u32;
        bound(chunk)..bound(chunk + 1)
    }

    /// The step in which a message with this label comes from a rank.
    pub fn step_of(&self, from: Rank, label: u8) -> Option<&Step> {
        self.steps.iter().find(|step| step.label == label && step.from.contains(&from))
    }
}

/// Recursive doubling, with the extra steps for ranks beyond a power of two; labels begin with `first`.
fn doubled(me: u16, world_size: u16, first: u8, merge: Merge) -> Vec<Step> {
    let (half, log2) = doubling(world_size);
    let last = first + log2 + 1;
    let step = |label, sends: Option<(u16, What)>, from: Option<u16>, merge, completes| Step {
        label,
        sends: sends.map(|(to, what)| (Rank(to), what)).into_iter().collect(),
        from: from.map(Rank).into_iter().collect(),
        merge,
        completes,
    };
    if me >= half {
        let partner = me - half;
        let given = step(first, Some((partner, What::All)), None, merge, false);
        return vec![given, step(last, None, Some(partner), Merge::Gather, false)];
    }
    let extra = (me + half < world_size).then_some(me + half);
    let mut steps = Vec::new();
    steps.extend(extra.map(|extra| step(first, None, Some(extra), merge, false)));
    for bit in 0..log2 {
        let partner = me ^ 1 << bit;
        let completes = merge == Merge::Combine && bit + 1 == log2;
        steps.push(step(first + 1 + bit, Some((partner, What::All)), Some(partner), merge, completes));
    }
    steps.extend(extra.map(|extra| {
        let what = if merge == Merge::Gather { What::AllBut(extra) } else { What::All };
        step(last, Some((extra, what)), None, Merge::Gather, false)
    }));
    steps
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    const ALGORITHMS: [Algorithm; 2] = [Algorithm::RecursiveDouble, Algorithm::SplitAllgather];

    /// The ranks that have contributed to each chunk that a rank holds.
    type Holdings = BTreeMap<u16, BTreeSet<u16>>;

    /// What each rank holds at the end, where messages are sets of contributors.
    fn run(algorithm: Algorithm, world_size: u16) -> Vec<Holdings> {
        let plans: Vec<Plan> = (0..world_size).map(|me| Plan::new(algorithm, Rank(me), world_size)).collect();
        let start = |me: u16| (0..plans[0].chunks).map(|chunk| (chunk, BTreeSet::from([me]))).collect();
        let mut holdings: Vec<Holdings> = (0..world_size).map(start).collect();
        for label in 0..20 {
            let before = holdings.clone();
            for (me, plan) in plans.iter().enumerate() {
                let Some(step) = plan.steps.iter().find(|step| step.label == label) else { continue };
                if step.merge == Merge::Own {
                    holdings[me].retain(|&chunk, _| usize::from(chunk) == me);
                }
                for from in &step.from {
                    let theirs = plans[from.index()].steps.iter().find(|step| step.label == label).unwrap();
                    let (_, what) = theirs.sends.iter().find(|(to, _)| to.index() == me).expect("it is sent");
                    for (&chunk, ranks) in &before[from.index()] {
                        let goes = match *what {
                            What::All => true,
                            What::Chunk(one) => chunk == one,
                            What::AllBut(one) => chunk != one,
                        };
                        if goes && step.merge == Merge::Gather {
                            holdings[me].insert(chunk, ranks.clone());
                        } else if goes {
                            holdings[me].entry(chunk).or_default().extend(ranks);
                        }
                    }
                }
            }
        }
        holdings
    }

    #[test]
    fn every_rank_holds_every_chunk_of_all_ranks_at_the_end() {
        for world_size in [1, 2, 3, 4, 5, 7, 8, 9, 31, 32, 33] {
            for algorithm in ALGORITHMS {
                let all: BTreeSet<u16> = (0..world_size).collect();
                for (me, holdings) in run(algorithm, world_size).iter().enumerate() {
                    let chunks = Plan::new(algorithm, Rank(me as u16), world_size).chunks;
                    assert_eq!(holdings.len(), usize::from(chunks), "rank {me} of {world_size}, {algorithm:?}");
                    assert!(holdings.values().all(|ranks| *ranks == all), "rank {me} of {world_size}, {algorithm:?}");
                }
            }
        }
    }

    #[test]
    fn whoever_waits_for_a_message_is_sent_it() {
        for world_size in [2, 3, 6, 8, 13] {
            for algorithm in ALGORITHMS {
                let plans: Vec<Plan> = (0..world_size).map(|me| Plan::new(algorithm, Rank(me), world_size)).collect();
                for (me, plan) in plans.iter().enumerate() {
                    for step in &plan.steps {
                        for (to, _) in &step.sends {
                            let waits = plans[to.index()].step_of(Rank(me as u16), step.label).is_some();
                            assert!(waits, "rank {to} of {world_size} does not wait for {me} in {algorithm:?}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn chunks_cover_the_indices_in_order() {
        let plan = Plan::new(Algorithm::SplitAllgather, Rank(0), 7);
        for elements in [0, 1, 6, 7, 8, 1000, u32::MAX] {
            let ranges: Vec<_> = (0..7).map(|chunk| plan.range(chunk, elements)).collect();
            assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start));
            assert_eq!((ranges[0].start, ranges[6].end), (0, elements));
        }
    }
}

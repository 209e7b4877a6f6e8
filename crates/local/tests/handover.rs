//! All orders of steps of small groups: no rank reads what another one writes, and none waits forever.
//!
//! A rank may be killed at any point, which is a run in which it takes no further step: so what holds in every state
//! holds for those that survive.

use std::cell::RefCell;
use std::collections::HashSet;

use tributary_local::handover::{ChunkKind, Counters, Handover, Next, Stage, has_reached};

/// What lies in a share of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Cell {
    Nothing,
    Torn,
    Contribution(u32),
    Result(u32),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Ready,
    /// In the middle of its work on a chunk.
    Works(Stage, u32),
    /// Until another rank has counted so far.
    Sleeps(usize, Stage, u32),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Rank {
    handover: Handover,
    phase: Phase,
}

/// A group: its ranks, their counters, and a cell for each share of each of their slots.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Group {
    ranks: Vec<Rank>,
    counters: Vec<[u32; 3]>,
    cells: Vec<Vec<Vec<Cell>>>,
}

struct View<'a>(&'a RefCell<Vec<[u32; 3]>>, usize);

impl Counters for View<'_> {
    fn load(&self, rank: usize, stage: Stage) -> u32 {
        self.0.borrow()[rank][stage as usize]
    }

    fn publish(&self, stage: Stage, count: u32) {
        self.0.borrow_mut()[self.1][stage as usize] = count;
    }
}

/// What to explore: what each chunk is, and how many slots there are in truth.
struct Scenario<'a> {
    kinds: &'a [ChunkKind],
    slots: u32,
}

impl Scenario<'_> {
    fn begin(&self, ranks: usize, believed: u32) -> Group {
        let rank = Rank { handover: Handover::new(ranks, believed), phase: Phase::Ready };
        let slot = vec![Cell::Nothing; ranks];
        Group {
            ranks: vec![rank; ranks],
            counters: vec![[0; 3]; ranks],
            cells: vec![vec![slot; self.slots as usize]; ranks],
        }
    }

    /// The state after this rank's next step; `None` if it has none. Fails where a rank reads what it must not.
    fn step(&self, group: &Group, me: usize) -> Result<Option<Group>, String> {
        let mut after = group.clone();
        match group.ranks[me].phase {
            Phase::Works(stage, chunk) => {
                self.check_reads(group, me, stage, chunk)?;
                self.write(&mut after, me, stage, chunk, true);
                let counters = RefCell::new(std::mem::take(&mut after.counters));
                after.ranks[me].handover.finish(&View(&counters, me), stage);
                after.counters = counters.into_inner();
                after.ranks[me].phase = Phase::Ready;
            }
            Phase::Sleeps(rank, stage, count) if !has_reached(group.counters[rank][stage as usize], count) => {
                return Ok(None);
            }
            Phase::Sleeps(..) => after.ranks[me].phase = Phase::Ready,
            Phase::Ready => {
                let counters = RefCell::new(group.counters.clone());
                let kind = |chunk: u32| self.kinds[chunk as usize];
                let next = group.ranks[me].handover.next(&View(&counters, me), self.kinds.len() as u32, kind);
                after.ranks[me].phase = match next {
                    Next::Idle => return Ok(None),
                    Next::Wait { stage, count, ranks } => Phase::Sleeps(ranks.trailing_zeros() as usize, stage, count),
                    Next::Work(stage, chunk) => {
                        self.check_reads(group, me, stage, chunk)?;
                        self.write(&mut after, me, stage, chunk, false);
                        Phase::Works(stage, chunk)
                    }
                };
            }
        }
        Ok(Some(after))
    }

    fn check_reads(&self, group: &Group, me: usize, stage: Stage, chunk: u32) -> Result<(), String> {
        let shares = self.kinds[chunk as usize].shares;
        let slot = (chunk % self.slots) as usize;
        for other in (0..group.ranks.len()).filter(|&other| other != me) {
            let (cell, expected) = match stage {
                Stage::CopyIn => continue,
                Stage::Reduce if shares => (group.cells[other][slot][me], Cell::Contribution(chunk)),
                Stage::Reduce => continue,
                Stage::CopyOut if shares => (group.cells[other][slot][other], Cell::Result(chunk)),
                Stage::CopyOut => (group.cells[other][slot][me], Cell::Contribution(chunk)),
            };
            if cell != expected {
                return Err(format!("rank {me} reads {cell:?} of rank {other}, not {expected:?}"));
            }
        }
        Ok(())
    }

    fn write(&self, group: &mut Group, me: usize, stage: Stage, chunk: u32, is_done: bool) {
        let shares = self.kinds[chunk as usize].shares;
        let slot = &mut group.cells[me][(chunk % self.slots) as usize];
        let put = |cell: &mut Cell, value| *cell = if is_done { value } else { Cell::Torn };
        match stage {
            Stage::CopyIn => {
                let written = slot.iter_mut().enumerate().filter(|(share, _)| !shares || *share != me);
                written.for_each(|(_, cell)| put(cell, Cell::Contribution(chunk)));
            }
            Stage::Reduce if shares => put(&mut slot[me], Cell::Result(chunk)),
            Stage::Reduce | Stage::CopyOut => {}
        }
    }

    /// Visits every state; returns how many there are.
    fn explore(&self, ranks: usize, believed: u32) -> Result<usize, String> {
        let mut seen = HashSet::new();
        let mut open = vec![self.begin(ranks, believed)];
        while let Some(group) = open.pop() {
            if !seen.insert(group.clone()) {
                continue;
            }
            let mut moves = 0;
            for rank in 0..ranks {
                if let Some(after) = self.step(&group, rank)? {
                    moves += 1;
                    open.push(after);
                }
            }
            let all = [self.kinds.len() as u32; 3];
            if moves == 0 && group.counters.iter().any(|counts| *counts != all) {
                return Err(format!("every rank waits: {group:?}"));
            }
        }
        Ok(seen.len())
    }
}

/// Chunks of a large collective, of one whose results are made of contributions, and of a large one again.
fn kinds(large: usize) -> Vec<ChunkKind> {
    let chunk = |shares, opens| ChunkKind { shares, opens };
    let first = (0..large).map(|index| chunk(true, index == 0));
    first.chain([chunk(false, true), chunk(false, false), chunk(true, true)]).collect()
}

#[test]
fn no_order_of_steps_reads_what_is_being_written_and_none_ends_in_a_wait() {
    for (ranks, slots, large) in [(2, 1, 2), (2, 2, 3), (2, 4, 3), (3, 1, 1), (3, 2, 1)] {
        let kinds = kinds(large);
        let states = Scenario { kinds: &kinds, slots }.explore(ranks, slots).unwrap();
        assert!(states > 100, "{states} states are not all");
    }
}

#[test]
fn the_exploration_finds_a_rank_that_takes_a_slot_too_early() {
    let kinds = kinds(3);
    let error = Scenario { kinds: &kinds, slots: 2 }.explore(2, 3).unwrap_err();
    assert!(error.contains("reads"), "{error}");
}

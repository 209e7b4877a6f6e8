//! Hardware loops: two of them, the first one inner. Going back costs no cycle.

use crate::hart::Core;
use crate::instruction::LoopSetting;
use crate::pipeline::{Slot, Why};

/// Both loops.
#[derive(Clone, Debug, Default)]
pub struct Loops([Loop; 2]);

/// A loop from its start to its last instruction, which is at its end.
#[derive(Clone, Copy, Debug, Default)]
struct Loop {
    start: u32,
    end: u32,
    /// How many rounds are left, this one included.
    count: u32,
}

impl Loops {
    /// The address of the instruction that follows the one at `pc`, if that one does not jump.
    pub fn next(&mut self, pc: u32) -> u32 {
        for Loop { start, end, count } in &mut self.0 {
            if *end == pc && *count > 0 {
                *count -= 1;
                if *count > 0 {
                    return *start;
                }
            }
        }
        pc.wrapping_add(4)
    }
}

impl Core {
    /// Carries out one of the instructions `lp.*`.
    pub(super) fn set_loop(&mut self, pc: u32, number: usize, set: LoopSetting) {
        if let LoopSetting::Count { rs1 } | LoopSetting::Setup { rs1, .. } = set {
            self.pipeline.wait_for(&[Slot::integer(rs1)]);
        }
        let rounds = |rs1| self.integer(rs1);
        let Loop { start, end, count } = self.loops.0[number];
        let from = |offset: u32| pc.wrapping_add(offset);
        self.loops.0[number] = match set {
            LoopSetting::Start { offset } => Loop { start: from(offset), end, count },
            LoopSetting::End { offset } => Loop { start, end: from(offset), count },
            LoopSetting::Count { rs1 } => Loop { start, end, count: rounds(rs1) },
            LoopSetting::CountImmediate { count } => Loop { start, end, count },
            LoopSetting::Setup { rs1, end } => Loop { start: from(4), end: from(end), count: rounds(rs1) },
            LoopSetting::SetupImmediate { count, end } => Loop { start: from(4), end: from(end), count },
        };
        self.pipeline.pass(self.pipeline.timing.alu, Why::Multicycle);
    }
}

//! Status registers (of the FPU, and counters), and the two hardware loops, of which the first is the inner one. Going back costs
//! no cycle.

use crate::float::Flags;
use crate::hart::Core;
use crate::instruction::{CsrOp, CsrSource, LoopSetting, Register};
use crate::pipeline::{Slot, Why};

/// Numbers from the architecture's manual.
const FFLAGS: u16 = 0x001;
const FRM: u16 = 0x002;
const FCSR: u16 = 0x003;
const HART_ID: u16 = 0xf14;

impl Core {
    /// Reads and changes a status register; `None` if there is no such register or it cannot be changed.
    pub(super) fn access_csr(&mut self, op: CsrOp, rd: Register, source: CsrSource, csr: u16) -> Option<()> {
        let (operand, changes) = match source {
            CsrSource::Register(rs1) => (self.wait_for_integer(rs1), rs1 != 0 || op == CsrOp::Write),
            CsrSource::Immediate(value) => (value, value != 0 || op == CsrOp::Write),
        };
        let old = self.read_csr(csr)?;
        let new = match op {
            CsrOp::Write => operand,
            CsrOp::Set => old | operand,
            CsrOp::Clear => old & !operand,
        };
        if changes {
            self.write_csr(csr, new)?;
        }
        let timing = &self.pipeline.timing;
        let cycles = if is_counter(csr) { timing.csr_counter } else { timing.csr };
        self.finish_integer_after(rd, old, cycles);
        Some(())
    }

    fn read_csr(&self, csr: u16) -> Option<u32> {
        let counts = self.counts();
        let value = match csr {
            FFLAGS => u64::from(self.flags.0),
            FRM => u64::from(self.rounding),
            FCSR => u64::from(u32::from(self.rounding) << 5 | self.flags.0),
            0xb00 | 0xc00 => counts.cycles,
            0xb02 | 0xc02 => counts.instructions,
            0xb80 | 0xc80 => counts.cycles >> 32,
            0xb82 | 0xc82 => counts.instructions >> 32,
            HART_ID => 0,
            _ => return None,
        };
        Some(value as u32)
    }

    fn write_csr(&mut self, csr: u16, value: u32) -> Option<()> {
        match csr {
            FFLAGS => self.flags = Flags(value & 31),
            FRM => self.rounding = (value & 7) as u8,
            FCSR => (self.flags, self.rounding) = (Flags(value & 31), (value >> 5 & 7) as u8),
            _ => return None,
        }
        Some(())
    }
}

fn is_counter(csr: u16) -> bool {
    matches!(csr & 0xf7f, 0xb00 | 0xb02 | 0xc00 | 0xc02)
}

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

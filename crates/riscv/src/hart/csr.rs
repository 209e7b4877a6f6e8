//! Status registers: of the FPU, and counters.

use crate::float::Flags;
use crate::hart::Core;
use crate::instruction::{CsrOp, CsrSource, Register};

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

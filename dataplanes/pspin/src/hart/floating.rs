//! Instructions of the FPU, and how long others wait for it.

use crate::float::{self, Flags, Rounding};
use crate::hart::Core;
use crate::instruction::{FloatCompare, FloatOp, Instruction, Register};
use crate::pipeline::{Slot, Why};

/// The rounding mode in an instruction that means `frm`.
const DYNAMIC: u8 = 7;

impl Core {
    /// Carries out an instruction of the FPU; the error is an unknown rounding mode.
    pub(super) fn execute_float(&mut self, what: Instruction) -> Result<(), u8> {
        let latency = self.pipeline.timing.float_other_latency;
        match what {
            Instruction::Float { op, rd, rs1, rs2, rounding } => self.float_operation(op, rd, rs1, rs2, rounding)?,
            Instruction::PackedHalves { rd, rs1, rs2 } => {
                self.nearest_even(DYNAMIC)?;
                self.wait_for_floats(&[rs1, rs2, rd]);
                let result = float::add_halves(self.float(rs1), self.float(rs2));
                self.finish_float(rd, result, self.pipeline.timing.float_latency);
            }
            Instruction::Fused { negate_product, negate_addend, rd, rs1, rs2, rs3, rounding } => {
                self.nearest_even(rounding)?;
                self.wait_for_floats(&[rs1, rs2, rs3, rd]);
                let negated = |bits: u32, negate: bool| if negate { float::with_sign(bits, !bits) } else { bits };
                let a = negated(self.float(rs1), negate_product);
                let addend = negated(self.float(rs3), negate_addend);
                let result = float::fused(a, self.float(rs2), addend);
                self.finish_float(rd, result, self.pipeline.timing.float_latency);
            }
            Instruction::FloatCompare { op, rd, rs1, rs2 } => {
                self.wait_for_floats(&[rs1, rs2]);
                let compare = match op {
                    FloatCompare::Equal => float::equal,
                    FloatCompare::Less => float::less,
                    FloatCompare::LessOrEqual => float::less_or_equal,
                };
                let result = compare(self.float(rs1), self.float(rs2));
                self.finish_float_to_integer(rd, result);
            }
            Instruction::FloatToInt { signed, rd, rs1, rounding } => {
                let rounding = self.rounding_mode(rounding)?;
                self.wait_for_floats(&[rs1]);
                let convert = if signed { float::to_i32 } else { float::to_u32 };
                self.finish_float_to_integer(rd, convert(self.float(rs1), rounding));
            }
            Instruction::IntToFloat { signed, rd, rs1, rounding } => {
                self.nearest_even(rounding)?;
                self.wait_for_floats(&[rd]);
                let convert = if signed { float::from_i32 } else { float::from_u32 };
                let result = convert(self.wait_for_integer(rs1));
                self.finish_float(rd, result, latency);
            }
            Instruction::FloatToBits { rd, rs1 } => {
                self.wait_for_floats(&[rs1]);
                self.finish_float_to_integer(rd, (self.float(rs1), Flags::NONE));
            }
            Instruction::BitsToFloat { rd, rs1 } => {
                self.wait_for_floats(&[rd]);
                let bits = self.wait_for_integer(rs1);
                self.finish_float(rd, (bits, Flags::NONE), latency);
            }
            Instruction::FloatClass { rd, rs1 } => {
                self.wait_for_floats(&[rs1]);
                self.finish_float_to_integer(rd, (float::class(self.float(rs1)), Flags::NONE));
            }
            _ => unreachable!("the others are carried out elsewhere: {what:?}"),
        }
        Ok(())
    }

    fn float_operation(&mut self, op: FloatOp, rd: u8, rs1: u8, rs2: u8, rounding: u8) -> Result<(), u8> {
        let rounds = matches!(op, FloatOp::Add | FloatOp::Sub | FloatOp::Mul | FloatOp::Div | FloatOp::Sqrt);
        if rounds {
            self.nearest_even(rounding)?;
        }
        let second = if op == FloatOp::Sqrt { rs1 } else { rs2 };
        self.wait_for_floats(&[rs1, second, rd]);
        let (a, b) = (self.float(rs1), self.float(rs2));
        let timing = &self.pipeline.timing;
        let (adds, others, divides) = (timing.float_latency, timing.float_other_latency, timing.float_div_latency);
        let (result, latency) = match op {
            FloatOp::Add => (float::add(a, b), adds),
            FloatOp::Sub => (float::sub(a, b), adds),
            FloatOp::Mul => (float::mul(a, b), adds),
            FloatOp::Div => (float::div(a, b), divides),
            FloatOp::Sqrt => (float::sqrt(a), divides),
            FloatOp::Min => (float::min(a, b), others),
            FloatOp::Max => (float::max(a, b), others),
            FloatOp::Sign => ((float::with_sign(a, b), Flags::NONE), others),
            FloatOp::SignNegated => ((float::with_sign(a, !b), Flags::NONE), others),
            FloatOp::SignXor => ((float::with_sign(a, a ^ b), Flags::NONE), others),
        };
        self.finish_float(rd, result, latency);
        if matches!(op, FloatOp::Div | FloatOp::Sqrt) {
            self.pipeline.occupy_fpu(divides);
        }
        Ok(())
    }

    /// Waits for the FPU, for operands, and for a register that must be written before it can be written again.
    fn wait_for_floats(&mut self, registers: &[Register]) {
        self.pipeline.wait_for_fpu();
        for &register in registers {
            self.pipeline.wait_for(&[Slot::float(register)]);
        }
    }

    fn finish_float(&mut self, rd: Register, (bits, flags): float::Result, latency: u64) {
        self.pipeline.pass(self.pipeline.timing.float, Why::Multicycle);
        self.flags = self.flags | flags;
        self.set_float(rd, bits);
        self.pipeline.computed(Slot::float(rd), latency);
    }

    fn finish_float_to_integer(&mut self, rd: Register, (value, flags): float::Result) {
        self.pipeline.pass(self.pipeline.timing.float, Why::Multicycle);
        self.flags = self.flags | flags;
        self.set_integer(rd, value);
        self.pipeline.computed(Slot::integer(rd), self.pipeline.timing.float_other_latency);
    }

    fn rounding_mode(&self, mode: u8) -> Result<Rounding, u8> {
        let mode = if mode == DYNAMIC { self.rounding } else { mode };
        Rounding::new(mode).ok_or(mode)
    }

    fn nearest_even(&self, mode: u8) -> Result<(), u8> {
        let mode = if mode == DYNAMIC { self.rounding } else { mode };
        if Rounding::new(mode) == Some(Rounding::NearestEven) { Ok(()) } else { Err(mode) }
    }
}

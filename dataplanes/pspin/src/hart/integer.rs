//! Arithmetic on integers, also packed ones.

use crate::hart::Core;
use crate::instruction::{Alu, Instruction, Multiply, Operand, Register};
use crate::pipeline::{Slot, Why};

impl Core {
    /// Carries out an instruction if it is an integer instruction.
    pub(super) fn execute_integer(&mut self, what: Instruction, pc: u32) -> bool {
        match what {
            Instruction::Lui { rd, imm } => self.finish_integer(rd, imm),
            Instruction::Auipc { rd, imm } => self.finish_integer(rd, pc.wrapping_add(imm)),
            Instruction::Alu { op, rd, rs1, operand } => {
                let a = self.wait_for_integer(rs1);
                let b = match operand {
                    Operand::Register(rs2) => self.wait_for_integer(rs2),
                    Operand::Immediate(imm) => imm as u32,
                };
                self.finish_integer(rd, alu(op, a, b));
            }
            Instruction::Multiply { op, rd, rs1, rs2 } => {
                let (a, b) = (self.wait_for_integer(rs1), self.wait_for_integer(rs2));
                let cycles = self.multiply_cycles(op, b);
                self.finish_integer_after(rd, multiply(op, a, b), cycles);
            }
            Instruction::Accumulate { subtract, rd, rs1, rs2 } => {
                let (a, b) = (self.wait_for_integer(rs1), self.wait_for_integer(rs2));
                let (sum, product) = (self.wait_for_integer(rd), a.wrapping_mul(b));
                let value = if subtract { sum.wrapping_sub(product) } else { sum.wrapping_add(product) };
                self.finish_integer(rd, value);
            }
            Instruction::Packed { subtract, lane_bits, rd, rs1, rs2 } => {
                let (a, b) = (self.wait_for_integer(rs1), self.wait_for_integer(rs2));
                self.finish_integer(rd, packed(subtract, lane_bits, a, b));
            }
            _ => return false,
        }
        true
    }

    /// The value of an integer register, once it is available.
    pub(super) fn wait_for_integer(&mut self, register: Register) -> u32 {
        self.pipeline.wait_for(&[Slot::integer(register)]);
        self.integer(register)
    }

    fn finish_integer(&mut self, rd: Register, value: u32) {
        self.finish_integer_after(rd, value, self.pipeline.timing.alu);
    }

    /// Ends an instruction that took `cycles` cycles, and writes its result.
    pub(super) fn finish_integer_after(&mut self, rd: Register, value: u32, cycles: u64) {
        self.pipeline.pass(cycles, Why::Multicycle);
        self.set_integer(rd, value);
        self.pipeline.written(Slot::integer(rd));
    }

    /// A division takes a cycle for each bit by which the divisor has to be shifted to the left.
    fn multiply_cycles(&self, op: Multiply, divisor: u32) -> u64 {
        let timing = &self.pipeline.timing;
        match op {
            Multiply::Mul => timing.mul,
            Multiply::MulHigh | Multiply::MulHighSignedUnsigned | Multiply::MulHighUnsigned => timing.mulh,
            Multiply::DivUnsigned | Multiply::RemUnsigned => timing.div + u64::from(divisor.leading_zeros()),
            Multiply::Div | Multiply::Rem => timing.div + u64::from((divisor as i32).unsigned_abs().leading_zeros()),
        }
    }
}

fn alu(op: Alu, a: u32, b: u32) -> u32 {
    let (x, y) = (a as i32, b as i32);
    match op {
        Alu::Add => a.wrapping_add(b),
        Alu::Sub => a.wrapping_sub(b),
        Alu::ShiftLeft => a << (b & 31),
        Alu::Less => u32::from(x < y),
        Alu::LessUnsigned => u32::from(a < b),
        Alu::Xor => a ^ b,
        Alu::ShiftRight => a >> (b & 31),
        Alu::ShiftRightSigned => (x >> (b & 31)) as u32,
        Alu::Or => a | b,
        Alu::And => a & b,
        Alu::Min => x.min(y) as u32,
        Alu::MinUnsigned => a.min(b),
        Alu::Max => x.max(y) as u32,
        Alu::MaxUnsigned => a.max(b),
    }
}

fn multiply(op: Multiply, a: u32, b: u32) -> u32 {
    let (x, y) = (a as i32, b as i32);
    match op {
        Multiply::Mul => a.wrapping_mul(b),
        Multiply::MulHigh => ((i64::from(x) * i64::from(y)) >> 32) as u32,
        Multiply::MulHighSignedUnsigned => ((i64::from(x) * i64::from(b)) >> 32) as u32,
        Multiply::MulHighUnsigned => ((u64::from(a) * u64::from(b)) >> 32) as u32,
        Multiply::Div if b == 0 => u32::MAX,
        Multiply::Div => x.wrapping_div(y) as u32,
        Multiply::DivUnsigned => a.checked_div(b).unwrap_or(u32::MAX),
        Multiply::Rem if b == 0 => a,
        Multiply::Rem => x.wrapping_rem(y) as u32,
        Multiply::RemUnsigned => a.checked_rem(b).unwrap_or(a),
    }
}

/// Adds or subtracts lanes, without carries between them.
fn packed(subtract: bool, lane_bits: u8, a: u32, b: u32) -> u32 {
    let mask = (1u32 << lane_bits) - 1;
    let lane = |at: u32| {
        let (x, y) = (a >> at & mask, b >> at & mask);
        (if subtract { x.wrapping_sub(y) } else { x.wrapping_add(y) } & mask) << at
    };
    (0..32).step_by(usize::from(lane_bits)).fold(0, |word, at| word | lane(at))
}

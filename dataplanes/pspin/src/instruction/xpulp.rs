//! From a word to an instruction: the part of Xpulp that handlers use, as RI5CY's manual encodes it ("PULP ALU
//! Extensions" and on).

use super::word::{Word, load_width, store_width};
use super::{Alu, Instruction, LoopSetting, Mode, Operand};

/// The instruction of a word with an opcode of Xpulp.
pub fn decode(word: Word) -> Option<Instruction> {
    match (word.opcode(), word.funct3()) {
        (0x0b, 7) => load_by_register(word, Mode::PostRegister(word.rs2())),
        (0x0b, funct3) => {
            let (width, signed) = load_width(funct3)?;
            let mode = Mode::PostOffset(word.i_imm());
            Some(Instruction::Load { width, signed, rd: word.rd(), rs1: word.rs1(), mode })
        }
        (0x2b, 4..) => store_by_register(word, Mode::PostRegister(word.rd())),
        (0x2b, funct3) => {
            let (width, mode) = (store_width(funct3)?, Mode::PostOffset(word.s_imm()));
            Some(Instruction::Store { width, rs1: word.rs1(), rs2: word.rs2(), mode })
        }
        (0x57, _) => packed(word),
        _ => hardware_loop(word),
    }
}

/// A load whose offset is a register: `funct7` has the meaning of a plain load's `funct3`.
pub fn load_by_register(word: Word, mode: Mode) -> Option<Instruction> {
    let funct3 = match word.funct7() {
        0x00 => 0,
        0x08 => 1,
        0x10 => 2,
        0x20 => 4,
        0x28 => 5,
        _ => return None,
    };
    let (width, signed) = load_width(funct3)?;
    Some(Instruction::Load { width, signed, rd: word.rd(), rs1: word.rs1(), mode })
}

/// A store whose offset is a register, in the place of `rd`.
pub fn store_by_register(word: Word, mode: Mode) -> Option<Instruction> {
    let width = store_width(word.funct3().checked_sub(4)?)?;
    (word.funct7() == 0).then_some(Instruction::Store { width, rs1: word.rs1(), rs2: word.rs2(), mode })
}

/// Xpulp's arithmetic among RV32I's opcodes.
pub fn register(word: Word) -> Option<Instruction> {
    let (rd, rs1, rs2) = (word.rd(), word.rs1(), word.rs2());
    let op = match (word.funct7(), word.funct3()) {
        (0x21, 0) => return Some(Instruction::Accumulate { subtract: false, rd, rs1, rs2 }),
        (0x21, 1) => return Some(Instruction::Accumulate { subtract: true, rd, rs1, rs2 }),
        // Vectors of small floats have these opcodes too: `vfadd.h`.
        (0x41, 2) => return Some(Instruction::PackedHalves { rd, rs1, rs2 }),
        (0x02, 4) => Alu::Min,
        (0x02, 5) => Alu::MinUnsigned,
        (0x02, 6) => Alu::Max,
        (0x02, 7) => Alu::MaxUnsigned,
        _ => return None,
    };
    Some(Instruction::Alu { op, rd, rs1, operand: Operand::Register(rs2) })
}

fn packed(word: Word) -> Option<Instruction> {
    let subtract = match word.funct7() {
        0x00 => false,
        0x04 => true,
        _ => return None,
    };
    let lane_bits = match word.funct3() {
        0 => 16,
        1 => 8,
        _ => return None,
    };
    Some(Instruction::Packed { subtract, lane_bits, rd: word.rd(), rs1: word.rs1(), rs2: word.rs2() })
}

fn hardware_loop(word: Word) -> Option<Instruction> {
    let (rs1, long, short) = (word.rs1(), word.bits(20, 12), u32::from(word.rs1()));
    let set = match word.funct3() {
        0 => LoopSetting::Start { offset: long << 1 },
        1 => LoopSetting::End { offset: long << 1 },
        2 => LoopSetting::Count { rs1 },
        3 => LoopSetting::CountImmediate { count: long },
        4 => LoopSetting::Setup { rs1, end: long << 1 },
        5 => LoopSetting::SetupImmediate { count: long, end: short << 1 },
        _ => return None,
    };
    let number = usize::from(word.rd());
    (number < 2).then_some(Instruction::Loop { number, set })
}

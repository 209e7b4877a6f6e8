//! From a word to an instruction: the extension F.

use super::fields::Word;
use super::{FloatCompare, FloatOp, Instruction};

/// The instruction of a word with an opcode of F.
pub fn decode(word: Word) -> Option<Instruction> {
    let (rd, rs1, rs2) = (word.rd(), word.rs1(), word.rs2());
    match word.opcode() {
        0x07 if word.funct3() == 2 => Some(Instruction::LoadFloat { rd, rs1, offset: word.i_imm() }),
        0x27 if word.funct3() == 2 => Some(Instruction::StoreFloat { rs1, rs2, offset: word.s_imm() }),
        0x43 => fused(word, false, false),
        0x47 => fused(word, false, true),
        0x4b => fused(word, true, false),
        0x4f => fused(word, true, true),
        0x53 => arithmetic(word),
        _ => None,
    }
}

fn fused(word: Word, negate_product: bool, negate_addend: bool) -> Option<Instruction> {
    let is_single = word.bits(25, 2) == 0;
    is_single.then_some(Instruction::Fused {
        negate_product,
        negate_addend,
        rd: word.rd(),
        rs1: word.rs1(),
        rs2: word.rs2(),
        rs3: word.rs3(),
        rounding: word.funct3() as u8,
    })
}

fn arithmetic(word: Word) -> Option<Instruction> {
    let (rd, rs1, rs2, rounding) = (word.rd(), word.rs1(), word.rs2(), word.funct3() as u8);
    let op = match (word.funct7(), word.funct3(), rs2) {
        (0x00, _, _) => FloatOp::Add,
        (0x04, _, _) => FloatOp::Sub,
        (0x08, _, _) => FloatOp::Mul,
        (0x0c, _, _) => FloatOp::Div,
        (0x2c, _, 0) => FloatOp::Sqrt,
        (0x10, 0, _) => FloatOp::Sign,
        (0x10, 1, _) => FloatOp::SignNegated,
        (0x10, 2, _) => FloatOp::SignXor,
        (0x14, 0, _) => FloatOp::Min,
        (0x14, 1, _) => FloatOp::Max,
        (0x50, funct3, _) => return compare(word, funct3),
        (0x60, _, 0 | 1) => return Some(Instruction::FloatToInt { signed: rs2 == 0, rd, rs1, rounding }),
        (0x68, _, 0 | 1) => return Some(Instruction::IntToFloat { signed: rs2 == 0, rd, rs1, rounding }),
        (0x70, 0, 0) => return Some(Instruction::FloatToBits { rd, rs1 }),
        (0x70, 1, 0) => return Some(Instruction::FloatClass { rd, rs1 }),
        (0x78, 0, 0) => return Some(Instruction::BitsToFloat { rd, rs1 }),
        _ => return None,
    };
    Some(Instruction::Float { op, rd, rs1, rs2, rounding })
}

fn compare(word: Word, funct3: u32) -> Option<Instruction> {
    let op = match funct3 {
        0 => FloatCompare::LessOrEqual,
        1 => FloatCompare::Less,
        2 => FloatCompare::Equal,
        _ => return None,
    };
    Some(Instruction::FloatCompare { op, rd: word.rd(), rs1: word.rs1(), rs2: word.rs2() })
}

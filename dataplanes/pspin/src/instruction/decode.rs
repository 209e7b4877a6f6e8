//! From a word to an instruction: RV32I, M, F and Zicsr. Xpulp has a file of its own.

use super::word::{Word, load_width, store_width};
use super::{Alu, Condition, CsrOp, CsrSource, FloatCompare, FloatOp, Instruction, Mode, Multiply, Operand, xpulp};

/// The instruction of a word; `None` if this core has no such instruction.
pub fn decode(word: u32) -> Option<Instruction> {
    let word = Word(word);
    let (rd, rs1) = (word.rd(), word.rs1());
    match word.opcode() {
        0x37 => Some(Instruction::Lui { rd, imm: word.u_imm() }),
        0x17 => Some(Instruction::Auipc { rd, imm: word.u_imm() }),
        0x6f => Some(Instruction::Jal { rd, offset: word.j_imm() }),
        0x67 if word.funct3() == 0 => Some(Instruction::Jalr { rd, rs1, offset: word.i_imm() }),
        0x63 => branch(word),
        0x03 => load(word),
        0x23 => store(word),
        0x13 => immediate(word),
        0x33 => register(word),
        0x0f => Some(Instruction::Fence),
        0x73 => system(word),
        0x07 | 0x27 | 0x43 | 0x47 | 0x4b | 0x4f | 0x53 => float(word),
        0x0b | 0x2b | 0x57 | 0x7b => xpulp::decode(word),
        _ => None,
    }
}

fn branch(word: Word) -> Option<Instruction> {
    let condition = match word.funct3() {
        0 => Condition::Equal,
        1 => Condition::NotEqual,
        4 => Condition::Less,
        5 => Condition::NotLess,
        6 => Condition::LessUnsigned,
        7 => Condition::NotLessUnsigned,
        _ => return None,
    };
    Some(Instruction::Branch { condition, rs1: word.rs1(), rs2: word.rs2(), offset: word.b_imm() })
}

fn load(word: Word) -> Option<Instruction> {
    if word.funct3() == 7 {
        return xpulp::load_by_register(word, Mode::Register(word.rs2()));
    }
    let (width, signed) = load_width(word.funct3())?;
    Some(Instruction::Load { width, signed, rd: word.rd(), rs1: word.rs1(), mode: Mode::Offset(word.i_imm()) })
}

fn store(word: Word) -> Option<Instruction> {
    if word.funct3() >= 4 {
        return xpulp::store_by_register(word, Mode::Register(word.rd()));
    }
    let width = store_width(word.funct3())?;
    Some(Instruction::Store { width, rs1: word.rs1(), rs2: word.rs2(), mode: Mode::Offset(word.s_imm()) })
}

fn immediate(word: Word) -> Option<Instruction> {
    let (op, imm) = match (word.funct3(), word.funct7()) {
        (0, _) => (Alu::Add, word.i_imm()),
        (2, _) => (Alu::Less, word.i_imm()),
        (3, _) => (Alu::LessUnsigned, word.i_imm()),
        (4, _) => (Alu::Xor, word.i_imm()),
        (6, _) => (Alu::Or, word.i_imm()),
        (7, _) => (Alu::And, word.i_imm()),
        (1, 0) => (Alu::ShiftLeft, i32::from(word.rs2())),
        (5, 0) => (Alu::ShiftRight, i32::from(word.rs2())),
        (5, 0x20) => (Alu::ShiftRightSigned, i32::from(word.rs2())),
        _ => return None,
    };
    Some(Instruction::Alu { op, rd: word.rd(), rs1: word.rs1(), operand: Operand::Immediate(imm) })
}

fn register(word: Word) -> Option<Instruction> {
    let op = match (word.funct7(), word.funct3()) {
        (1, funct3) => return Some(multiply(word, funct3)),
        (0, 0) => Alu::Add,
        (0x20, 0) => Alu::Sub,
        (0, 1) => Alu::ShiftLeft,
        (0, 2) => Alu::Less,
        (0, 3) => Alu::LessUnsigned,
        (0, 4) => Alu::Xor,
        (0, 5) => Alu::ShiftRight,
        (0x20, 5) => Alu::ShiftRightSigned,
        (0, 6) => Alu::Or,
        (0, 7) => Alu::And,
        _ => return xpulp::register(word),
    };
    Some(Instruction::Alu { op, rd: word.rd(), rs1: word.rs1(), operand: Operand::Register(word.rs2()) })
}

fn multiply(word: Word, funct3: u32) -> Instruction {
    let op = match funct3 {
        0 => Multiply::Mul,
        1 => Multiply::MulHigh,
        2 => Multiply::MulHighSignedUnsigned,
        3 => Multiply::MulHighUnsigned,
        4 => Multiply::Div,
        5 => Multiply::DivUnsigned,
        6 => Multiply::Rem,
        _ => Multiply::RemUnsigned,
    };
    Instruction::Multiply { op, rd: word.rd(), rs1: word.rs1(), rs2: word.rs2() }
}

fn system(word: Word) -> Option<Instruction> {
    let op = match word.funct3() {
        0 if word.0 == 0x73 => return Some(Instruction::Ecall),
        0 if word.0 == 0x0010_0073 => return Some(Instruction::Ebreak),
        1 | 5 => CsrOp::Write,
        2 | 6 => CsrOp::Set,
        3 | 7 => CsrOp::Clear,
        _ => return None,
    };
    let source = match word.funct3() {
        1..=3 => CsrSource::Register(word.rs1()),
        _ => CsrSource::Immediate(u32::from(word.rs1())),
    };
    Some(Instruction::Csr { op, rd: word.rd(), source, csr: word.bits(20, 12) as u16 })
}

fn float(word: Word) -> Option<Instruction> {
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

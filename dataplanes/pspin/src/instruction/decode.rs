//! From a word to an instruction: RV32I, M, F and Zicsr. Xpulp has a file of its own.

use super::{
    Alu, Condition, CsrOp, CsrSource, FloatCompare, FloatOp, Instruction, Mode, Multiply, Operand, Register, Width,
    xpulp,
};

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

/// The width in a load's `funct3`, and whether the load is signed.
pub fn load_width(funct3: u32) -> Option<(Width, bool)> {
    match funct3 {
        0 => Some((Width::Byte, true)),
        1 => Some((Width::Half, true)),
        2 => Some((Width::Word, true)),
        4 => Some((Width::Byte, false)),
        5 => Some((Width::Half, false)),
        _ => None,
    }
}

/// The width in the two low bits of a store's `funct3`.
pub fn store_width(funct3: u32) -> Option<Width> {
    [Width::Byte, Width::Half, Width::Word].get(funct3 as usize).copied()
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

/// The word of an instruction.
#[derive(Clone, Copy)]
pub struct Word(pub u32);

impl Word {
    /// `width` bits from `low` on.
    pub fn bits(self, low: u32, count: u32) -> u32 {
        self.0 >> low & ((1 << count) - 1)
    }

    pub fn opcode(self) -> u32 {
        self.bits(0, 7)
    }

    pub fn rd(self) -> Register {
        self.bits(7, 5) as Register
    }

    pub fn rs1(self) -> Register {
        self.bits(15, 5) as Register
    }

    pub fn rs2(self) -> Register {
        self.bits(20, 5) as Register
    }

    pub fn rs3(self) -> Register {
        self.bits(27, 5) as Register
    }

    pub fn funct3(self) -> u32 {
        self.bits(12, 3)
    }

    pub fn funct7(self) -> u32 {
        self.bits(25, 7)
    }

    /// The twelve bits at the top, signed.
    pub fn i_imm(self) -> i32 {
        self.0 as i32 >> 20
    }

    /// The offset of a store, signed.
    pub fn s_imm(self) -> i32 {
        (self.0 as i32 >> 25) << 5 | self.bits(7, 5) as i32
    }

    /// The offset of a branch, signed, in bytes.
    pub fn b_imm(self) -> i32 {
        let low = self.bits(8, 4) << 1 | self.bits(25, 6) << 5 | self.bits(7, 1) << 11;
        (self.0 as i32 >> 31) << 12 | low as i32
    }

    /// The upper twenty bits, in their place.
    pub fn u_imm(self) -> u32 {
        self.0 & 0xffff_f000
    }

    /// The offset of a jump, signed, in bytes.
    pub fn j_imm(self) -> i32 {
        let low = self.bits(21, 10) << 1 | self.bits(20, 1) << 11 | self.bits(12, 8) << 12;
        (self.0 as i32 >> 31) << 20 | low as i32
    }
}

/// The instruction of a word with an opcode of F.
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

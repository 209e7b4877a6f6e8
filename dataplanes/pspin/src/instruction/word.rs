//! The fields of an instruction's word, in which all instruction formats agree.

use super::{Register, Width};

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

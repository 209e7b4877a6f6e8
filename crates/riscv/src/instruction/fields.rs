//! The fields of an instruction's word, by their names in the architecture's manual.

use super::Register;

/// The word of an instruction.
#[derive(Clone, Copy)]
pub struct Word(pub u32);

impl Word {
    /// So many bits from `low` on.
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

//! Instructions as values: their meaning, without their effect.

mod decode;
mod word;
mod xpulp;

pub use decode::decode;

/// The number of a register, 0 to 31: an integer or float register, depending on the instruction.
pub type Register = u8;

/// An instruction of RV32IMF, of Zicsr, of Xpulp, or of Xpulp's vectors of small floats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields have the names of the architecture's manual")]
pub enum Instruction {
    Lui {
        rd: Register,
        imm: u32,
    },
    Auipc {
        rd: Register,
        imm: u32,
    },
    Jal {
        rd: Register,
        offset: i32,
    },
    Jalr {
        rd: Register,
        rs1: Register,
        offset: i32,
    },
    Branch {
        condition: Condition,
        rs1: Register,
        rs2: Register,
        offset: i32,
    },
    Load {
        width: Width,
        signed: bool,
        rd: Register,
        rs1: Register,
        mode: Mode,
    },
    Store {
        width: Width,
        rs1: Register,
        rs2: Register,
        mode: Mode,
    },
    LoadFloat {
        rd: Register,
        rs1: Register,
        offset: i32,
    },
    StoreFloat {
        rs1: Register,
        rs2: Register,
        offset: i32,
    },
    Alu {
        op: Alu,
        rd: Register,
        rs1: Register,
        operand: Operand,
    },
    Multiply {
        op: Multiply,
        rd: Register,
        rs1: Register,
        rs2: Register,
    },
    /// `p.mac`, `p.msu`: rd += rs1 * rs2, or -=.
    Accumulate {
        subtract: bool,
        rd: Register,
        rs1: Register,
        rs2: Register,
    },
    /// `pv.add`, `pv.sub`: on lanes of this many bits.
    Packed {
        subtract: bool,
        lane_bits: u8,
        rd: Register,
        rs1: Register,
        rs2: Register,
    },
    /// `vfadd.h`: two binary16 in each register of the FPU.
    PackedHalves {
        rd: Register,
        rs1: Register,
        rs2: Register,
    },
    Loop {
        number: usize,
        set: LoopSetting,
    },
    Csr {
        op: CsrOp,
        rd: Register,
        source: CsrSource,
        csr: u16,
    },
    Fence,
    Ecall,
    Ebreak,
    Float {
        op: FloatOp,
        rd: Register,
        rs1: Register,
        rs2: Register,
        rounding: u8,
    },
    /// rd = ±(rs1 * rs2) ± rs3, rounded once.
    Fused {
        negate_product: bool,
        negate_addend: bool,
        rd: Register,
        rs1: Register,
        rs2: Register,
        rs3: Register,
        rounding: u8,
    },
    FloatCompare {
        op: FloatCompare,
        rd: Register,
        rs1: Register,
        rs2: Register,
    },
    FloatToInt {
        signed: bool,
        rd: Register,
        rs1: Register,
        rounding: u8,
    },
    IntToFloat {
        signed: bool,
        rd: Register,
        rs1: Register,
        rounding: u8,
    },
    FloatToBits {
        rd: Register,
        rs1: Register,
    },
    BitsToFloat {
        rd: Register,
        rs1: Register,
    },
    FloatClass {
        rd: Register,
        rs1: Register,
    },
}

/// When a branch is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "they are what they are called")]
pub enum Condition {
    Equal,
    NotEqual,
    Less,
    NotLess,
    LessUnsigned,
    NotLessUnsigned,
}

/// How much memory is accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "they are what they are called")]
pub enum Width {
    Byte = 1,
    Half = 2,
    Word = 4,
}

/// The address of an access, and the change of the base register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// At base + offset.
    Offset(i32),
    /// At base + register (Xpulp).
    Register(Register),
    /// At base, which then grows by this (Xpulp).
    PostOffset(i32),
    /// At base, which then grows by a register (Xpulp).
    PostRegister(Register),
}

/// Integer arithmetic of one cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "they are what they are called")]
pub enum Alu {
    Add,
    Sub,
    ShiftLeft,
    Less,
    LessUnsigned,
    Xor,
    ShiftRight,
    ShiftRightSigned,
    Or,
    And,
    Min,
    MinUnsigned,
    Max,
    MaxUnsigned,
}

/// The second operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "they are what they are called")]
pub enum Operand {
    Register(Register),
    Immediate(i32),
}

/// The extension M.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "they are what they are called")]
pub enum Multiply {
    Mul,
    MulHigh,
    MulHighSignedUnsigned,
    MulHighUnsigned,
    Div,
    DivUnsigned,
    Rem,
    RemUnsigned,
}

/// A setting of a hardware loop. A loop's end is the address of its last instruction, as in RI5CY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "offsets are from the instruction, in bytes")]
pub enum LoopSetting {
    Start {
        offset: u32,
    },
    End {
        offset: u32,
    },
    Count {
        rs1: Register,
    },
    CountImmediate {
        count: u32,
    },
    /// All three settings; the start is the next instruction.
    Setup {
        rs1: Register,
        end: u32,
    },
    SetupImmediate {
        count: u32,
        end: u32,
    },
}

/// The change of a status register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "they are what they are called")]
pub enum CsrOp {
    Write,
    Set,
    Clear,
}

/// The operand of the change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "they are what they are called")]
pub enum CsrSource {
    Register(Register),
    Immediate(u32),
}

/// Operations from floats to floats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "they are what they are called")]
pub enum FloatOp {
    Add,
    Sub,
    Mul,
    Div,
    Sqrt,
    Sign,
    SignNegated,
    SignXor,
    Min,
    Max,
}

/// Comparisons of floats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "they are what they are called")]
pub enum FloatCompare {
    Equal,
    Less,
    LessOrEqual,
}

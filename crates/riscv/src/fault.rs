//! Why a program cannot go on: every reason is a type, so that a driver can tell them apart.

use thiserror::Error;

/// An access to memory that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("nothing is at {address:#010x} ({bytes} bytes)")]
pub struct OutOfBounds {
    /// The first byte.
    pub address: u32,
    /// How many.
    pub bytes: u32,
}

/// Why a core stopped in the middle of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Fault {
    /// A load or store went where no memory is.
    #[error("the instruction at {pc:#010x} accesses memory: {what}")]
    Access {
        /// The instruction.
        pc: u32,
        /// Where it went.
        what: OutOfBounds,
    },
    /// The next instruction is where no memory is, or not at a multiple of four.
    #[error("no instruction can be fetched from {pc:#010x}")]
    Fetch {
        /// Where.
        pc: u32,
    },
    /// A word that is no instruction which this core has.
    #[error("{word:#010x} at {pc:#010x} is no instruction of this core")]
    Illegal {
        /// Where.
        pc: u32,
        /// The word.
        word: u32,
    },
    /// Arithmetic in a rounding mode other than to nearest, ties to even.
    #[error("the instruction at {pc:#010x} wants rounding mode {mode}, and only 0 (to nearest even) is there")]
    Rounding {
        /// The instruction.
        pc: u32,
        /// The mode.
        mode: u8,
    },
    /// The program has run for longer than it was given.
    #[error("the program ran for more than {limit} cycles")]
    CycleLimit {
        /// Cycles that it was given.
        limit: u64,
    },
}

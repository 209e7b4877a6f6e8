//! Why a program cannot go on: each reason is a type, so that drivers can tell them apart.

use thiserror::Error;

/// An access outside of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("nothing is at {address:#010x} ({bytes} bytes)")]
pub struct OutOfBounds {
    /// The address of the first byte.
    pub address: u32,
    /// How many bytes.
    pub bytes: u32,
}

/// Why a core stopped in the middle of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Fault {
    /// A load or store outside of memory.
    #[error("the instruction at {pc:#010x} accesses memory: {what}")]
    Access {
        /// The instruction's address.
        pc: u32,
        /// The access.
        what: OutOfBounds,
    },
    /// The next instruction is outside of memory, or not at a multiple of four.
    #[error("no instruction can be fetched from {pc:#010x}")]
    Fetch {
        /// The address.
        pc: u32,
    },
    /// A word that is not an instruction of this core.
    #[error("{word:#010x} at {pc:#010x} is not an instruction of this core")]
    Illegal {
        /// The address.
        pc: u32,
        /// The word.
        word: u32,
    },
    /// Arithmetic in a rounding mode other than to nearest, ties to even.
    #[error("the instruction at {pc:#010x} wants rounding mode {mode}, and only 0 (to nearest even) is there")]
    Rounding {
        /// The instruction's address.
        pc: u32,
        /// The mode.
        mode: u8,
    },
    /// The program has run for longer than it was given.
    #[error("the program ran for more than {limit} cycles")]
    CycleLimit {
        /// How many cycles it was given.
        limit: u64,
    },
}

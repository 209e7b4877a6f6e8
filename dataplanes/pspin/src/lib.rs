//! A PsPIN switch: handlers in C (`handlers/`), a simulator that runs them instruction by instruction and counts cycles, and
//! the cycles of operators that people write ([`operators`]). The tables of cycles that come out, `experiments/pspin-cycles.csv`
//! and `experiments/operator-cycles.csv`, are all that the network simulator reads.
//!
//! Start with [`Unit`]: it loads a [`Program`] (an ELF file of `handlers/bin`), calls one of its functions as the switch's
//! scheduler would, and returns what the function sent and what it cost. Below it are a [`Core`] (RV32IMF, Zicsr, and the
//! instructions of Xpulp that handlers use, with RI5CY's encodings), a [`Memory`], and a [`Timing`] table, which is CV32E40P's
//! manual as a structure. A [`Cluster`] has several cores on one memory, which run handlers at the same time and wait for each
//! other's locks. The core owns no clock and does no I/O: it runs until something must be done outside, and says what
//! ([`Stop`]).
//!
//! The architecture's state is right after every instruction. Time is a model: one instruction at a time goes through a
//! pipeline that stalls for the reasons that [`Stalls`] names; instruction memory and L1 answer in one cycle, and no two cores
//! compete for a bank. `dataplanes/pspin/README.md` has the table with its sources, and the costs of handlers.
#![forbid(unsafe_code)]

mod cluster;
mod fault;
mod float;
mod hart;
pub mod instruction;
mod memory;
pub mod operators;
mod pipeline;
mod program;
mod timing;
mod unit;

pub use cluster::{Call, Cluster, Ran};
pub use fault::{Fault, OutOfBounds};
pub use hart::{Core, Stop};
pub use memory::Memory;
pub use program::{NotAProgram, Program, Segment};
pub use timing::{Counts, Stalls, Timing};
pub use unit::{CallError, Command, CommandKind, Unit, map};

//! What every class of instructions does, and what it costs.

mod asm;
mod floats;
mod integers;
mod memory;
mod timing;
mod xpulp;

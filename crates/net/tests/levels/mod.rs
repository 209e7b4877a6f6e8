//! Switches in levels, each a whole switch of this process: workers name the switch of their rack, and that is all.

mod deaths;
mod differences;
pub mod setup;
mod sums;

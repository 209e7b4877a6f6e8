//! The tests of the crate are one program, so that it is linked once.

mod collectives;
mod deaths;
mod faults;
mod handover;
mod hosts;
mod ranks;
mod schedules;

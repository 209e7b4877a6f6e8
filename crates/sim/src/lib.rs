//! The virtual driver: a deterministic packet-level simulator that runs the protocols' own machines.
//!
//! Start with [`events`], what happens next.

pub mod events;

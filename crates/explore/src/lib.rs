//! Exhaustive exploration: every order of events of a small system, not only those that seeds draw.
//!
//! A system is a few hosts and switches that run a protocol's own machines, and a network that consists only of the
//! packets in flight: any of them may arrive next, be lost or arrive twice, and any timer may expire. [`explore`] goes
//! through all states that can be reached within [`Bounds`], the nearest first. In each it checks that no rank got a
//! wrong sum or a failure, and that the run ends once faults cease. `crates/explore/README.md` says what is abstracted.
//!
//! `state` is a state of the system and its steps, `step` a step with its text form, `machine` one machine and `input`
//! the effect of an input on it, `topology` the network, `fingerprint` the way to tell states apart, `search` the
//! search through them, and `trace` a replayed run in words.

mod bounds;
mod fingerprint;
mod input;
mod machine;
mod search;
mod state;
mod step;
mod topology;
mod trace;

pub use bounds::{Bounds, BoundsError};
pub use search::{Counterexample, Exploration, Found, Progress, explore};
pub use step::Step;
pub use trace::{Replay, ReplayError, replay};

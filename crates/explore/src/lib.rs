//! Exhaustive exploration: every order of events of a small world, not only those that seeds draw.
//!
//! A world is a few hosts and switches that run a protocol's own machines, and a network that consists only of the
//! packets under way: any of them may arrive next, be lost or arrive twice, and any timer may run out. [`explore`] goes
//! through all states that can be reached within [`Bounds`], the nearest first. In each it checks that no rank was told
//! a wrong sum or a failure, and that the run ends once faults cease. `docs/exploration.md` says what is abstracted.
//!
//! [`world`] is a state and its steps, [`turn`] the effect of an input on one machine, [`site`] the connections,
//! [`fingerprint`] the way to tell states apart, [`search`] the search through them, and [`story`] a step in words.

pub mod body;
pub mod bounds;
pub mod fingerprint;
pub mod flight;
pub mod search;
pub mod site;
pub mod story;
pub mod turn;
pub mod world;

pub use bounds::{Bounds, BoundsError};
pub use search::{Counterexample, Exploration, Found, Progress, explore};
pub use story::{Replay, ReplayError, replay};
pub use world::Step;

//! What goes wrong, and when.

mod trouble;

pub use trouble::{Fate, LinkTrouble, TroubleSpec};

//! `tributary reproduce`: the published results beside ours.
//!
//! Start with [`catalogue`], the experiment files (`experiments/*.toml`) that the program carries with it. Each names
//! the published values, the rule by which ours are compared with them, and the parameters of one kind of
//! [`Experiment`], which measures ([`Findings`]) and knows no published value. Each paper has a folder here with its
//! own kinds. [`judge`] compares findings with published values. Nothing is tuned to agree: a row that differs stays,
//! with the cause that the run has measured.

mod catalogue;
mod finding;
mod fitted;
mod goodput;
mod judge;
mod memory;
mod paper;
mod parallel;

mod canary;
mod flare;
mod pa_atp;
mod panama;
mod switchml;

pub use catalogue::{Change, Entry, catalogue, find};
pub use finding::{Figure, Finding, Findings, Series};
pub use fitted::{Elsewhere, Fitted, Other};
pub use judge::{Basis, Outcome, Published, Row, Rule, Tally, Verdict};
pub use memory::Memory;
pub use paper::Experiment;
pub use parallel::Watch;

/// Why an experiment could not be run, in one sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReproduceError {
    /// The file describes none.
    #[error("{0}")]
    Bad(String),
    /// A simulated job did something that it must not: our bug.
    #[error("the simulation of {what} went wrong: {why}")]
    Wrong {
        /// Which run.
        what: String,
        /// What happened there.
        why: String,
    },
    /// Somebody asked to stop.
    #[error("stopped before the experiment was complete")]
    Stopped,
}

/// What a run of an experiment needs besides its file.
pub struct Context<'a> {
    /// Every point at which chance plays a part is run with so many seeds, from 1.
    pub seeds: u64,
    /// Who watches.
    pub watch: &'a Watch<'a>,
    /// What the runs before it found.
    pub memory: &'a Memory,
}

//! `tributary reproduce`: the published results beside ours.
//!
//! Start with [`catalogue`], the experiment files (`experiments/*.toml`) that are part of the program. Each names the
//! published values, the rule by which ours are compared with them, and the parameters of one kind of [`Experiment`],
//! which measures ([`Findings`]) and knows no published value. Each paper has a folder here with its own kinds.
//! [`judge`] compares findings with published values. Nothing is tuned to agree: a row that differs stays, with the
//! cause that the run has measured.

mod catalogue;
mod finding;
mod goodput;
mod judge;
mod memory;
mod paper;
mod parallel;
mod settings;

mod canary;
mod flare;
mod pa_atp;
mod panama;
mod switchml;

pub use catalogue::{Change, Entry, catalogue, find};
pub use finding::{Figure, Finding, Findings, Series};
pub use judge::{Basis, Outcome, Published, Row, Rule, Tally, Verdict};
pub use memory::Memory;
pub use paper::Experiment;
pub use parallel::Watch;
pub use settings::{Elsewhere, Other, Setting};

/// Why an experiment could not be run, in one sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReproduceError {
    /// The file describes no experiment.
    #[error("{0}")]
    Bad(String),
    /// A simulated job did something wrong: an error of ours.
    #[error("the simulation of {what} went wrong: {why}")]
    Wrong {
        /// The run.
        what: String,
        /// The error.
        why: String,
    },
    /// The run was stopped.
    #[error("stopped before the experiment was complete")]
    Stopped,
}

/// What a run of an experiment needs besides its file.
pub struct Context<'a> {
    /// How many seeds, from 1, each point that depends on chance is run with.
    pub seeds: u64,
    /// The watch.
    pub watch: &'a Watch<'a>,
    /// The results of earlier runs.
    pub memory: &'a Memory,
}

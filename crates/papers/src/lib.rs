//! `tributary reproduce`: published results, run again on the simulator and compared.
//!
//! Each paper has a folder: `experiments/*.toml`, one file for each figure or table; the Rust code of the experiments
//! that only this paper needs; tests; and `README.md`, every row with its verdict. To read Canary's figure 8, open
//! `src/canary`.
//!
//! An experiment file names the published values, the rule by which ours are compared with them, and the parameters of
//! one kind of [`Experiment`]. The experiment measures ([`Findings`]) without knowing the published values; [`Outcome`]
//! then judges the findings. Nothing is tuned to agree: a row that differs stays, with the cause that the run measured.
//!
//! ```
//! use std::sync::atomic::AtomicBool;
//! use tributary_papers::{Memory, Verdict, Watch, find};
//!
//! let entry = find("switchml-s7").expect("it is in the catalogue");
//! let stop = AtomicBool::new(false);
//! let outcome = entry.run(true, 1, &Watch::silent(&stop), &Memory::default())?;
//! assert!(outcome.rows.iter().all(|row| row.verdict == Verdict::Agrees));
//! # Ok::<(), tributary_papers::ReproduceError>(())
//! ```

mod catalogue;
mod finding;
mod goodput;
mod judge;
mod memory;
mod paper;
mod parallel;
mod row;

mod canary;
mod flare;
mod pa_atp;
mod panama;
mod switchml;
mod thc;

pub use catalogue::{Entry, Takes, catalogue, find};
pub use finding::{Figure, Finding, Findings, Series};
pub use judge::{Basis, Fault, Point, Published, Rule, Verdict};
pub use memory::Memory;
pub use paper::{Change, Experiment, Other, Setting};
pub use parallel::Watch;
pub use row::{Elsewhere, Outcome, Row, Tally};

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

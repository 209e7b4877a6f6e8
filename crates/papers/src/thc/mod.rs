//! THC's evaluation (Li et al., NSDI 2024), as far as it can be run without its text, its GPUs and its models: the tables of
//! levels that its authors publish with their code, the error of sums over workers, and the time of a round over bandwidth.

mod nmse;
mod round;
mod tables;

use crate::paper::{Paper, embedded, read};

/// THC's files, and the kinds of experiments that only they have.
pub static PAPER: Paper = Paper {
    bases: &[],
    files: embedded! {
        "thc-tables"
        "thc-nmse"
        "thc-round"
    },
    kinds: &[("level_tables", read::<tables::Tables>), ("nmse", read::<nmse::Nmse>), ("round", read::<round::Round>)],
};

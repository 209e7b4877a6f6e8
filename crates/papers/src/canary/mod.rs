//! Canary's evaluation (De Sensi et al., 2023): its experiments, on the fat trees of its simulations.

mod descriptors;
#[cfg(test)]
mod tests;

use crate::paper::{Paper, embedded, read};

/// Canary's files, and the kinds of experiments that only they have.
pub static PAPER: Paper = Paper {
    bases: embedded! {
        "canary-base"
    },
    files: embedded! {
        "canary-fig2"
        "canary-fig6"
        "canary-fig7a"
        "canary-fig7b"
        "canary-fig8"
        "canary-fig9"
        "canary-fig10"
        "canary-fig11"
        "canary-windows"
        "canary-collisions"
        "canary-timeouts"
        "canary-s322"
        "canary-s42"
    },
    kinds: &[("descriptors", read::<descriptors::Descriptors>)],
};

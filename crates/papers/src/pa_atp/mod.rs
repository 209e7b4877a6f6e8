//! PA-ATP's evaluation (2024): worked examples on the machines, the model of section III-C, and iterations of training
//! jobs in the simulator.

mod compare;
mod examples;
mod lines;
mod model;
mod star;
#[cfg(test)]
mod tests;

use crate::paper::{Paper, embedded, read};

/// PA-ATP's files, and the kinds of experiments that only they have.
pub static PAPER: Paper = Paper {
    bases: embedded! {
        "pa-atp-base"
        "pa-atp-testbed-base"
    },
    files: embedded! {
        "pa-atp-fig1"
        "pa-atp-fig2"
        "pa-atp-fig3"
        "pa-atp-fig4"
        "pa-atp-fig5"
        "pa-atp-fig6"
        "pa-atp-sawtooth"
        "pa-atp-gack"
        "pa-atp-idle"
        "pa-atp-fig8"
        "pa-atp-fig9"
        "pa-atp-fig10"
        "pa-atp-fig11"
        "pa-atp-fig12"
        "pa-atp-fig13"
        "pa-atp-fig14"
        "pa-atp-fig15"
        "pa-atp-fairness"
        "pa-atp-background"
    },
    kinds: &[
        ("lines", read::<lines::Lines>),
        ("rounds", read::<examples::Rounds>),
        ("cuts", read::<examples::Cuts>),
        ("edges", read::<examples::Edges>),
        ("model", read::<model::Model>),
        ("acknowledgements", read::<examples::Acknowledgements>),
        ("sawtooth", read::<model::Sawtooth>),
    ],
};

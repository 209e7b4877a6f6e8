//! PANAMA's evaluation (Gebara et al., MLSys 2021): its experiments, and the arithmetic of its hardware.

mod hardware;
mod machines;
mod mix;
mod shares;
mod speedup;
mod trees;

use crate::paper::{Paper, embedded, read};

/// PANAMA's files, and the kinds of experiments that only they have.
pub static PAPER: Paper = Paper {
    bases: embedded! {
        "panama-hardware-base"
        "panama-fig8-base"
    },
    files: embedded! {
        "panama-fig1"
        "panama-s41"
        "panama-fig6a"
        "panama-fig8a"
        "panama-fig8b"
        "panama-fig8c"
        "panama-fig9"
        "panama-fig10"
        "panama-fig10-live"
        "panama-table2"
        "panama-rtl"
        "panama-appA"
    },
    kinds: &[
        ("speedup", read::<speedup::Speedup>),
        ("turns", read::<machines::Turns>),
        ("accelerator", read::<machines::Accelerator>),
        ("shares", read::<shares::Shares>),
        ("trees", read::<trees::Trees>),
        ("mix", read::<mix::Mix>),
        ("hardware", read::<hardware::Hardware>),
        ("rtl", read::<hardware::Rtl>),
    ],
};

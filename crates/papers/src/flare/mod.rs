//! Flare's evaluation (De Sensi et al., SC 2021): worked examples and promises on the machines and on
//! the processor of a switch, and traffic in the simulator.

mod bandwidth;
mod bench;
mod network;
mod packets;
mod promises;
mod queues;
mod service;
mod sparse;
mod sums;
#[cfg(test)]
mod tests;
mod timelines;
mod traffic;

use crate::paper::{Paper, embedded, read};

/// Flare's files, and the kinds of experiments that only they have.
pub static PAPER: Paper = Paper {
    bases: &[],
    files: embedded! {
        "flare-s1"
        "flare-s3-area"
        "flare-table1"
        "flare-fig4"
        "flare-fig5"
        "flare-eq1-2"
        "flare-little"
        "flare-s6-cycles"
        "flare-fig6"
        "flare-fig7"
        "flare-fig8"
        "flare-fig9"
        "flare-fig10"
        "flare-s64"
        "flare-fig11-size"
        "flare-fig11-cold"
        "flare-fig11-types"
        "flare-scaling"
        "flare-fig12"
        "flare-fig13"
        "flare-fig14-bw"
        "flare-fig14-mem"
        "flare-fig14-traffic"
        "flare-fig15"
        "flare-repro"
    },
    kinds: &[
        ("packets", read::<packets::Packets>),
        ("features", read::<promises::Features>),
        ("bits", read::<promises::Bits>),
        ("queues", read::<queues::Queues>),
        ("handlers", read::<timelines::Timeline>),
        ("buffers", read::<queues::Buffers>),
        ("service", read::<service::Service>),
        ("working_memory", read::<service::WorkingMemory>),
        ("area", read::<sums::Area>),
        ("cycles", read::<sums::Cycles>),
        ("bandwidth", read::<bandwidth::Bandwidth>),
        ("sparse_blocks", read::<sparse::Sparse>),
        ("traffic", read::<traffic::Traffic>),
    ],
};

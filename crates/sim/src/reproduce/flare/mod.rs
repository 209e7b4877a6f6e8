//! Flare's evaluation (De Sensi et al., SC 2021): worked examples and promises on the machines and on
//! the processor of a switch, and traffic in the simulator.

mod bench;
mod buffers;
mod memory;
mod packets;
mod promises;
mod queues;
mod service;
#[cfg(test)]
mod tests;
mod timelines;
mod traffic;
mod world;

use super::paper::{Paper, embedded, read};

/// Its files, and the kinds that only they have.
pub static PAPER: Paper = Paper {
    bases: &[],
    files: embedded! {
        "flare-s1"
        "flare-table1"
        "flare-fig4"
        "flare-fig5"
        "flare-eq1-2"
        "flare-little"
        "flare-fig6"
        "flare-fig8"
        "flare-fig9"
        "flare-fig12"
        "flare-fig15"
        "flare-repro"
    },
    kinds: &[
        ("packets", read::<packets::Packets>),
        ("features", read::<promises::Features>),
        ("bits", read::<promises::Bits>),
        ("queues", read::<queues::Queues>),
        ("handlers", read::<timelines::Timeline>),
        ("buffers", read::<buffers::Buffers>),
        ("service", read::<service::Service>),
        ("working_memory", read::<memory::WorkingMemory>),
        ("traffic", read::<traffic::Traffic>),
    ],
};

//! SwitchML's evaluation (Sapio et al., NSDI 2021): its experiments, on the rack of its testbed.

mod batches;
mod bench;
mod conversion;
mod example;
mod loss;
mod payload;
mod pool;
mod rack;
mod replay;
mod scaling;
mod theorem;
mod training;
mod volume;

use tributary_proto::contract::protocol::Protocol;
use tributary_proto::protocols;

use crate::ReproduceError;
use crate::paper::{Paper, embedded, read};

/// SwitchML's files, and the kinds of experiments that only they have.
pub static PAPER: Paper = Paper {
    bases: embedded! { "switchml-batches-base" },
    files: embedded! {
        "switchml-s3"
        "switchml-table2"
        "switchml-fig3"
        "switchml-fig4"
        "switchml-fig5"
        "switchml-payload"
        "switchml-fig6"
        "switchml-fig7"
        "switchml-fig9"
        "switchml-fig11"
        "switchml-fig2-12"
        "switchml-theorem1"
        "switchml-s7"
        "switchml-appA"
    },
    kinds: &[
        ("volume", read::<volume::Volume>),
        ("payload", read::<payload::Payload>),
        ("replay", read::<replay::Replay>),
        ("batches", read::<batches::Batches>),
        ("scaling", read::<scaling::Scaling>),
        ("loss", read::<loss::Loss>),
        ("timeline", read::<loss::Timeline>),
        ("pool", read::<pool::Pool>),
        ("conversion", read::<conversion::Conversion>),
        ("training", read::<training::Training>),
        ("theorem", read::<theorem::Theorem>),
        ("example", read::<example::Example>),
        ("levels", read::<example::Levels>),
    ],
};

/// The ring, with which the paper compares.
fn ring() -> Result<&'static Protocol, ReproduceError> {
    protocols::named("ring").ok_or_else(|| ReproduceError::Bad("this build has no ring to compare with".into()))
}

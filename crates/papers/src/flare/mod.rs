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
        ("handlers", read::<bench::Timeline>),
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

/// The rows of the processor's experiments: which must agree, and which are known to differ.
#[cfg(test)]
mod tests {
    use crate::{Memory, Outcome, Verdict, Watch, find};
    use std::sync::atomic::AtomicBool;

    fn outcome(id: &str) -> Outcome {
        let stop = AtomicBool::new(false);
        let watch = Watch::silent(&stop);
        let outcome = find(id).unwrap().run(false, 3, &watch, &Memory::default()).unwrap();
        for row in &outcome.rows {
            let (ours, published) = (row.ours_text(), row.published_text());
            let cause = row.cause.as_deref().unwrap_or_default();
            println!("{id} {}: {published}, ours {ours}: {:?} {cause}", row.published.key, row.verdict);
        }
        outcome.notes.iter().for_each(|note| println!("  {note}"));
        outcome
    }

    /// The keys of the rows that do not agree.
    fn others(id: &str) -> Vec<String> {
        let rows = outcome(id).rows;
        rows.into_iter().filter(|row| row.verdict != Verdict::Agrees).map(|row| row.published.key).collect()
    }

    #[test]
    fn worked_examples_come_out_event_by_event() {
        for id in ["flare-fig4", "flare-fig6", "flare-fig8", "flare-fig9"] {
            assert_eq!(others(id), [""; 0], "{id}");
        }
    }

    #[test]
    fn figure_5_has_its_queues_and_equation_1_counts_bursts_that_are_not_at_one_time() {
        assert_eq!(others("flare-fig5"), ["b-packets"]);
    }

    #[test]
    fn areas_fit_more_clusters_and_words_take_four_cycles_and_floats_a_little_more() {
        assert_eq!(others("flare-s3-area"), ["clusters", "cores"]);
        assert_eq!(others("flare-s6-cycles"), ["xpulp-f32-element", "xpulp-f32-packet"]);
    }

    #[test]
    fn equation_2_is_right_with_c_plus_1_and_only_for_equal_gaps_and_as_many_packets_as_cores() {
        let known = [
            "contended-service",
            "many-service",
            "full-rate",
            "full-service",
            "full-64-service",
            "spread-service",
            "burst-packets",
        ];
        assert_eq!(others("flare-eq1-2"), known);
    }

    #[test]
    fn the_working_memory_follows_from_the_measured_latency() {
        assert_eq!(others("flare-little"), ["tree-of-block", "large-tree-of-block"]);
    }
}

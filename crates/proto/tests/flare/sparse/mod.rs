//! Sparse allreduces in virtual time, against sums that are made at home: of each index that any rank names, the ranks'
//! values.

mod golden;
mod levels;
mod patience;
mod questions;
mod rejected_packets;
mod rules;
mod storage;
mod sums;

use tributary_proto::contract::config::JobConfig;
use tributary_proto::contract::metric;

use crate::harness::Network;
pub use crate::harness::sparse::{Pairs, bits, collective, drawn, expected, reduce, result, tensor, whole};
use crate::setup;

/// A job of sparse tensors, of one shard.
pub fn job(world_size: u16, slots: u16, elements_per_packet: u16, given: &[(&str, &str)]) -> JobConfig {
    let auto = if given.iter().any(|(name, _)| *name == "sparse") { vec![] } else { vec![("sparse", "auto")] };
    setup::job(world_size, slots, elements_per_packet, &[given, &auto].concat())
}

/// A figure of all shards of a switch.
pub fn metric(network: &Network, switch: usize, name: &str) -> f64 {
    let reports = network.switches[switch].pipelines.iter().map(|pipeline| {
        let report = pipeline.report(tributary_proto::contract::ids::JobId(1)).expect("the job is there");
        metric::named(&report.machine.expect("it has a machine").metrics, name).expect("it has that figure")
    });
    reports.sum()
}

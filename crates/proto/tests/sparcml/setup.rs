//! Jobs for the tests.

use tributary_proto::contract::config::JobConfig;
use tributary_proto::contract::ids::{JobId, JobKey};
use tributary_proto::sparcml::PROTOCOL;

use crate::harness::link::LinkConfig;

/// The three algorithms, and the choice among them.
pub const ALGORITHMS: [&str; 4] = ["auto", "ssar_recursive_double", "ssar_split_allgather", "dsar_split_allgather"];

/// A job with these options.
pub fn job(world_size: u16, elements_per_packet: u16, given: &[(&str, &str)]) -> JobConfig {
    let text = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    let given = given.iter().map(text).collect();
    JobConfig {
        job: JobId(3),
        key: JobKey(0x5EED),
        protocol: PROTOCOL.code,
        world_size,
        slots: 1,
        elements_per_packet,
        trees: 1,
        levels: false,
        options: PROTOCOL.options.read(&given).expect("the options are right"),
    }
}

/// A job of sparse tensors.
pub fn sparse_job(world_size: u16, elements_per_packet: u16, algorithm: &str) -> JobConfig {
    job(world_size, elements_per_packet, &[("sparse", "true"), ("algorithm", algorithm)])
}

/// A job of dense tensors.
pub fn dense_job(world_size: u16, elements_per_packet: u16, algorithm: &str) -> JobConfig {
    job(world_size, elements_per_packet, &[("algorithm", algorithm)])
}

pub fn lossy() -> LinkConfig {
    LinkConfig { loss: 0.05, duplicate: 0.05, reorder: 0.1, ..LinkConfig::default() }
}

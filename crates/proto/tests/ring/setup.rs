//! Rings for the tests.

use tributary_proto::contract::config::JobConfig;
use tributary_proto::contract::host::Host;
use tributary_proto::contract::ids::{JobId, JobKey};
use tributary_proto::ring::PROTOCOL;

pub use crate::harness::hosts::{check_sums, collective, errors, input, output, reduce, separate, submit_all};
use crate::harness::link::LinkConfig;
pub use crate::harness::reduction::at_ms;
use crate::harness::{Network, reduction};

pub fn job(world_size: u16, elements_per_packet: u16) -> JobConfig {
    JobConfig {
        job: JobId(3),
        key: JobKey(0x5EED),
        protocol: 2,
        world_size,
        slots: 1,
        elements_per_packet,
        trees: 1,
        levels: false,
        options: PROTOCOL.options.defaults(),
    }
}

pub fn host(job: &JobConfig, rank: u16) -> Box<dyn Host> {
    reduction::host(job, rank, rank)
}

/// All ranks of a job round a switch that only forwards.
pub fn ring(seed: u64, link: LinkConfig, job: &JobConfig) -> Network {
    reduction::star(seed, link, job)
}

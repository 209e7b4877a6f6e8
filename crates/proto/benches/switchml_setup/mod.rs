//! A switch of SwitchML and its workers' packets, as this protocol's bench and the switches' feed them.

use std::collections::BTreeMap;

use tributary_numeric::ReduceOp;
use tributary_proto::contract::config::{Below, HostConfig, JobConfig, SwitchConfig};
use tributary_proto::contract::host::{Collective, Host};
use tributary_proto::contract::ids::{ChildId, GroupId, JobId, JobKey, PortId, Rank, TreeId};
use tributary_proto::contract::pipeline::{InstalledJob, Pipeline};
use tributary_proto::contract::time::Time;
use tributary_proto::contract::values::Values;
use tributary_proto::switchml::PROTOCOL;
use tributary_proto::switchml::wire::Header;
use tributary_proto::tensors::{ElementTensor, InPlaceStorage};

pub const WORLD_SIZE: u16 = 8;
/// SwitchML keeps two versions of each.
pub const SLOTS: u16 = 256;
pub const JOB: JobId = JobId(1);
pub const KEY: JobKey = JobKey(2);

/// A job that sums so.
pub fn job(elements_per_packet: u16, numbers: &str) -> JobConfig {
    let chosen = [("numbers", numbers), ("congestion_control", "fixed")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
    let chosen = BTreeMap::from(chosen);
    JobConfig {
        job: JOB,
        key: KEY,
        protocol: 1,
        world_size: WORLD_SIZE,
        slots: SLOTS,
        elements_per_packet,
        trees: 1,
        levels: false,
        options: PROTOCOL.options.read(&chosen).expect("an option of the protocol"),
    }
}

/// A switch with the job.
pub fn pipeline(job: &JobConfig) -> Pipeline {
    let members: Vec<PortId> = (0..WORLD_SIZE).map(PortId).collect();
    let config = SwitchConfig {
        job: job.clone(),
        tree: TreeId(0),
        members: members.clone(),
        below: Below::workers(WORLD_SIZE),
        group: GroupId(0),
        parent: None,
    };
    let machine = PROTOCOL.switch(Values::Elements, &config);
    let mut pipeline = Pipeline::default();
    let installed = InstalledJob { protocol: PROTOCOL.code, key: job.key, members, others: Vec::new(), machine };
    pipeline.install(job.job, installed);
    pipeline
}

/// Rank 0, before any collective.
pub fn host(job: &JobConfig) -> Box<dyn Host> {
    let config = HostConfig::worker(job.clone(), Rank(0));
    PROTOCOL.host(Values::Elements, &config)
}

/// Makes an update one of this rank's, for this phase of its slot.
pub fn readdress(bytes: &mut [u8], rank: u16, phase: u32) {
    let header = Header::parse(bytes).expect("an update");
    Header { wid: ChildId(rank), phase, ..header }.emit(bytes);
}

/// One update of integers for each slot.
pub fn integers(job: &JobConfig) -> Vec<Vec<u8>> {
    let mut host = host(job);
    let elements = usize::from(SLOTS) * usize::from(job.elements_per_packet);
    let tensor = ElementTensor::new(InPlaceStorage::new(vec![7i32; elements]), ReduceOp::Sum);
    host.submit(Time::ZERO, Collective { tensor: Box::new(tensor), deadline: None }).unwrap();
    let updates = drain(&mut host);
    assert_eq!(updates.len(), usize::from(SLOTS));
    updates
}

/// All packets that a host sends now.
pub fn drain(host: &mut Box<dyn Host>) -> Vec<Vec<u8>> {
    let mut buf = vec![0; host.max_packet_len()];
    std::iter::from_fn(|| host.poll_transmit(Time::ZERO, &mut buf).map(|transmit| buf[..transmit.len].to_vec()))
        .collect()
}

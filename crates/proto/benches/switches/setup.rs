//! What the benches' jobs are made from: a job of eight ranks, a pipeline with a machine of its own, and a rank's
//! updates.

use tributary_numeric::{Element, ReduceOp};
use tributary_proto::contract::config::{Below, HostConfig, JobConfig, SwitchConfig};
use tributary_proto::contract::host::Collective;
use tributary_proto::contract::ids::{GroupId, JobId, JobKey, PortId, Rank, TreeId};
use tributary_proto::contract::pipeline::{InstalledJob, Pipeline};
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::contract::time::Time;
use tributary_proto::contract::values::Values;
use tributary_proto::tensors::{ElementTensor, InPlaceStorage};

use super::{SLOTS, WORLD_SIZE};

/// A job with packets of `k` elements, and these options.
pub fn job(protocol: &Protocol, k: u16, chosen: &[(&str, &str)]) -> JobConfig {
    let given = chosen.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
    JobConfig {
        job: JobId(1),
        key: JobKey(2),
        protocol: protocol.code,
        world_size: WORLD_SIZE,
        slots: SLOTS,
        elements_per_packet: k,
        trees: 1,
        levels: false,
        options: protocol.options.read(&given).expect("options of the protocol"),
    }
}

/// A switch with the job, whose machine is the job's own.
pub fn pipeline(protocol: &Protocol, job: &JobConfig) -> Pipeline {
    let members: Vec<PortId> = (0..WORLD_SIZE).map(PortId).collect();
    let (below, group) = (Below::workers(WORLD_SIZE), GroupId(0));
    let config =
        SwitchConfig { job: job.clone(), tree: TreeId(0), members: members.clone(), below, group, parent: None };
    let machine = protocol.switch(Values::Elements, &config);
    let mut pipeline = Pipeline::default();
    let installed = InstalledJob { protocol: protocol.code, key: job.key, members, others: Vec::new(), machine };
    pipeline.install(job.job, installed);
    pipeline
}

/// One update of rank 0 for each slot, of elements that all have this value.
pub fn updates<T: Element>(protocol: &Protocol, job: &JobConfig, value: T) -> Vec<Vec<u8>> {
    let config = HostConfig::worker(job.clone(), Rank(0));
    let mut host = protocol.host(Values::Elements, &config);
    let elements = usize::from(SLOTS) * usize::from(job.elements_per_packet);
    let tensor = ElementTensor::new(InPlaceStorage::new(vec![value; elements]), ReduceOp::Sum);
    host.submit(Time::ZERO, Collective { tensor: Box::new(tensor), deadline: None }).expect("nothing has failed");
    let mut buf = vec![0; host.max_packet_len()];
    std::iter::from_fn(|| host.poll_transmit(Time::ZERO, &mut buf).map(|sent| buf[..sent.len].to_vec())).collect()
}

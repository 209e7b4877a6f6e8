//! Jobs with servers for the tests, their inputs, and the check of every rank's output.

use tributary_numeric::ReduceOp;
use tributary_proto::contract::config::{HostConfig, JobConfig};
use tributary_proto::contract::host::{Collective, Host, HostEvent};
use tributary_proto::contract::ids::{JobId, JobKey, Rank, ServerId};
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::contract::values::Values;
use tributary_proto::tensors::{ElementTensor, VecStorage};

use crate::harness::Network;
use crate::harness::link::LinkConfig;

static PS: &Protocol = &tributary_proto::ps::PROTOCOL;

pub fn at_ms(ms: u64) -> Time {
    Time::ZERO + Span::from_millis(ms)
}

/// Workers with this many dedicated servers; colocated ones if none.
pub fn network(seed: u64, link: LinkConfig, world_size: u16, dedicated: u16) -> Network {
    network_with(seed, link, world_size, dedicated, &[])
}

/// The same with these options.
pub fn network_with(seed: u64, link: LinkConfig, world_size: u16, dedicated: u16, given: &[(&str, &str)]) -> Network {
    let given = given.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let servers = if dedicated == 0 { world_size } else { dedicated };
    let job = JobConfig {
        job: JobId(3),
        key: JobKey(0x5EED),
        protocol: PS.code,
        world_size,
        slots: 4 * servers,
        elements_per_packet: 64,
        trees: servers,
        levels: false,
        options: PS.options.read(&given.collect()).unwrap(),
    };
    let machine = |host: u16| -> Box<dyn Host> {
        let serves = if dedicated == 0 { Some(host) } else { host.checked_sub(world_size) };
        let config = HostConfig { serves: serves.map(ServerId), ..HostConfig::worker(job.clone(), Rank(host)) };
        let make = if host < world_size { PS.host } else { PS.server.unwrap() };
        make(Values::Elements, &config)
    };
    let mut network = Network::star(seed, link, (0..world_size + dedicated).map(machine).collect(), vec![]);
    network.first_server = if dedicated == 0 { 0 } else { usize::from(world_size) };
    network
}

fn value(rank: u16, op: u64, at: usize) -> i32 {
    (i32::from(rank) + 1) * (at as i32 + 7 * op as i32 + 1)
}

/// A rank's part of a sum of integers.
pub fn collective(rank: u16, op: u64, elements: usize, deadline: Option<Time>) -> Collective {
    let data: Vec<i32> = (0..elements).map(|at| value(rank, op, at)).collect();
    Collective { tensor: Box::new(ElementTensor::new(VecStorage::new(data), ReduceOp::Sum)), deadline }
}

/// The sum of all ranks' parts.
pub fn check(event: &HostEvent, world_size: u16, op: u64) {
    let HostEvent::Done { tensor, .. } = event else { panic!("collective {op} failed") };
    let elements = tensor.spec().elements as usize;
    let mut bytes = vec![0; 4 * elements];
    tensor.read_output(0..elements, &mut bytes);
    for (at, bytes) in bytes.chunks_exact(4).enumerate() {
        let sum: i32 = (0..world_size).map(|rank| value(rank, op, at)).sum();
        assert_eq!(i32::from_be_bytes(bytes.try_into().unwrap()), sum, "element {at} of collective {op}");
    }
}

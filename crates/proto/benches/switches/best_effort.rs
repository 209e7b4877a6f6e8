//! The switch of best-effort aggregation: of 8 packets of a block it gets 7 gradients and the server's result, and it
//! sends the server one sum. A protocol that acknowledges gradients makes each into its acknowledgement.

use criterion::Criterion;
use tributary_numeric::{BlockExponent, DType, ReduceOp};
use tributary_proto::aggregation::best_effort::LEVELS_OPTION;
use tributary_proto::aggregation::best_effort::wire::{Flags, HEADER_LEN, Header, Kind};
use tributary_proto::contract::config::{FabricPlan, SharedJob, SharedSwitchConfig};
use tributary_proto::contract::ids::{NodeId, PortId, PortSet, Rank};
use tributary_proto::contract::pipeline::Pipeline;
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::contract::switch::Verdict;
use tributary_proto::contract::tensor::Spec;
use tributary_proto::contract::time::Time;
use tributary_proto::contract::values::Values;
use tributary_proto::contract::wire::Common;
use tributary_proto::protocols;

use super::{K, LATE, Subject, WORLD_SIZE, measure, setup};

const SWITCH: NodeId = NodeId(100);
/// The last rank serves all blocks, so that each stage is one port.
const SERVER: u16 = WORLD_SIZE - 1;

pub fn switch(c: &mut Criterion) {
    let last = usize::from(SERVER) - 1;
    let stages_of = [
        ("whole block", 0..LATE + 1),
        ("first", 0..1),
        ("added", 1..last),
        ("last and sum", last..last + 1),
        ("result", last + 1..LATE),
    ];
    let family = protocols::ALL.iter().filter(|protocol| protocol.options.specs.contains(&LEVELS_OPTION));
    for protocol in family {
        for k in K {
            measure(c, &format!("packet/{}/{k}", protocol.name), &stages_of, || subject(protocol, k));
        }
    }
}

fn pipeline(protocol: &'static Protocol, k: u16) -> Pipeline {
    let shared = protocol.shared.as_ref().expect("the family's jobs share memory").options;
    let config = SharedSwitchConfig { node: SWITCH, elements_per_packet: k, options: shared.defaults() };
    let mut pipeline = Pipeline::default();
    pipeline.share(protocol.code, protocol.shared_switch(Values::Elements, &config).expect("they share a machine"));
    let job = setup::job(protocol, k, &[("served_by", "last_rank")]);
    let fabric = FabricPlan {
        hosts: (0..u32::from(WORLD_SIZE)).map(NodeId).collect(),
        switches: (0..WORLD_SIZE).map(|_| SWITCH).collect(),
        roots: [].into(),
    };
    let ports: Vec<PortId> = (0..WORLD_SIZE).map(PortId).collect();
    let plan =
        SharedJob { job, fabric, ports: ports.iter().copied().map(Some).collect(), trees: Vec::new(), share_bytes: 0 };
    pipeline.install_shared(&plan, ports);
    pipeline
}

fn subject(protocol: &'static Protocol, k: u16) -> Subject {
    let acknowledges = protocol.options.specs.iter().any(|spec| spec.name == "progress");
    let common = setup::job(protocol, k, &[]).common();
    let packets: Vec<Vec<u8>> = (0..WORLD_SIZE).map(|rank| packet(common, rank, k)).collect();
    Subject {
        pipeline: pipeline(protocol, k),
        packet_len: packets[0].len(),
        packet: Box::new(move |stage, block, bytes| {
            bytes.copy_from_slice(&packets[stage]);
            bytes[16..20].copy_from_slice(&(block as u32 + 1).to_be_bytes());
        }),
        verdict: Box::new(move |stage| match stage as u16 {
            SERVER => {
                let mut workers = PortSet::EMPTY;
                (0..SERVER).for_each(|port| assert!(workers.insert(PortId(port))));
                Verdict::Multicast(workers)
            }
            rank if acknowledges => Verdict::Port(PortId(rank)),
            _ => Verdict::Consume,
        }),
        block: 0,
        now: Time::ZERO,
        sums: Some((usize::from(SERVER) - 1, Verdict::Port(PortId(SERVER)))),
        flushes_to: None,
    }
}

/// A worker's gradient, or the server's result.
fn packet(common: Common, rank: u16, k: u16) -> Vec<u8> {
    let is_result = rank == SERVER;
    let mut bytes = vec![0; HEADER_LEN + 4 * usize::from(k)];
    let kind = if is_result { Kind::Aack } else { Kind::Gradient };
    Common { kind: kind as u8, ..common }.emit(&mut bytes);
    let header = Header {
        seq: 0,
        prog: 0,
        index: 0,
        received: 0,
        flags: if is_result { Flags::MULTICAST } else { Flags::default() },
        wid: Rank(if is_result { 0 } else { rank }),
        count: 1,
        attempt: 0,
        exponent: BlockExponent::ZERO,
        scale: BlockExponent::ZERO,
        spec: Spec::allreduce(1 << 20, DType::I32, ReduceOp::Sum),
    };
    header.emit(kind, &mut bytes);
    bytes[HEADER_LEN..].iter_mut().zip([0, 0, 0, 7].into_iter().cycle()).for_each(|(byte, value)| *byte = value);
    bytes
}

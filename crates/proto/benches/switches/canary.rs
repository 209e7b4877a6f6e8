//! Canary's switch: of 8 packets of a block it gets 7 contributions and the sum of the leader.

use criterion::Criterion;
use tributary_numeric::{DType, ReduceOp};
use tributary_proto::aggregation::ExponentHint;
use tributary_proto::canary::PROTOCOL;
use tributary_proto::canary::wire::{HEADER_LEN, Header, Kind, NO_SWITCH, RankProof, proof};
use tributary_proto::contract::config::{FabricPlan, JobConfig, SharedJob, SharedSwitchConfig};
use tributary_proto::contract::ids::{NodeId, PortId, PortSet, Rank};
use tributary_proto::contract::pipeline::Pipeline;
use tributary_proto::contract::switch::Verdict;
use tributary_proto::contract::tensor::Spec;
use tributary_proto::contract::time::Time;
use tributary_proto::contract::values::Values;
use tributary_proto::contract::wire::Common;

use super::{K, LATE, SLOTS, Subject, TIMEOUT, WORLD_SIZE, measure, setup};

/// As many accumulators as a protocol with two versions of each slot has.
const DESCRIPTORS: u32 = 2 * SLOTS as u32;
const SWITCH: NodeId = NodeId(100);
/// The last rank leads: its contribution never comes to the switch, but its sum does.
const LEADER: NodeId = NodeId(WORLD_SIZE as u32 - 1);

pub fn switch(c: &mut Criterion) {
    let last = usize::from(WORLD_SIZE) - 1;
    let whole = ("whole block", 0..LATE + 1);
    let of_root =
        [whole.clone(), ("first", 0..1), ("added", 1..last - 1), ("last", last - 1..last), ("sum", last..LATE)];
    let of_leaf = [whole, ("flushed late", LATE..LATE + 1)];
    for k in K {
        measure(c, &format!("packet/canary/{k}"), &of_root, || subject(k, false));
        measure(c, &format!("packet/canary-leaf/{k}"), &of_leaf, || subject(k, true));
    }
}

/// A leader's own leaf, which sees all contributions there are; or a leaf of many, which sees its own hosts' alone and
/// cannot know that they are all.
fn subject(k: u16, flushes_late: bool) -> Subject {
    let hosts = if flushes_late { 2 * WORLD_SIZE } else { WORLD_SIZE };
    let chosen = [
        ("descriptors", DESCRIPTORS.to_string()),
        ("timeout", TIMEOUT.to_text()),
        ("adaptive", "false".to_owned()),
        ("lease", "100 ms".to_owned()),
    ];
    let given = chosen.map(|(name, text)| (name.to_owned(), text)).into();
    let options = PROTOCOL.shared.as_ref().unwrap().options.read(&given).unwrap();
    let config = SharedSwitchConfig { node: SWITCH, elements_per_packet: k, options };
    let mut pipeline = Pipeline::default();
    pipeline.share(PROTOCOL.code, PROTOCOL.shared_switch(Values::Elements, &config).unwrap());
    let job = JobConfig { world_size: hosts, slots: 1024, ..setup::job(&PROTOCOL, k, &[]) };
    let common = job.common();
    let (fabric, ports, trees) = (FabricPlan::default(), Vec::new(), Vec::new());
    pipeline.install_shared(&SharedJob { job, fabric, ports, trees, share_bytes: 0 }, Vec::new());

    let stages: Vec<Vec<u8>> = (0..WORLD_SIZE).map(|rank| packet(common, rank, hosts, k)).collect();
    Subject {
        pipeline,
        packet_len: stages[0].len(),
        packet: Box::new(move |stage, block, bytes| {
            bytes.copy_from_slice(&stages[stage]);
            bytes[20..24].copy_from_slice(&(block as u32).to_be_bytes());
        }),
        verdict: Box::new(move |stage| match stage as u16 {
            rank if rank + 2 == WORLD_SIZE && !flushes_late => Verdict::Route(LEADER),
            rank if rank + 2 <= WORLD_SIZE => Verdict::Consume,
            _ => {
                let mut children = PortSet::EMPTY;
                (0..WORLD_SIZE - 1).for_each(|port| assert!(children.insert(PortId(port))));
                Verdict::Multicast(children)
            }
        }),
        block: 0,
        now: Time::ZERO,
        sums: None,
        flushes_to: flushes_late.then_some(Verdict::Route(LEADER)),
    }
}

/// A contribution, or the leader's sum.
fn packet(common: Common, rank: u16, hosts: u16, k: u16) -> Vec<u8> {
    let is_sum = rank + 1 == WORLD_SIZE;
    let kind = if is_sum { Kind::Broadcast } else { Kind::Reduce };
    let mut bytes = vec![0; HEADER_LEN + 4 * usize::from(k)];
    Common { kind: kind as u8, ..common }.emit(&mut bytes);
    let header = Header {
        destination: if is_sum { SWITCH } else { LEADER },
        id: 0,
        counter: if is_sum { hosts } else { 1 },
        hosts,
        children: 0,
        switch_address: NO_SWITCH,
        root: SWITCH,
        bypass: is_sum,
        multicast: is_sum,
        to_leader: true,
        shard: 0,
        attempt: 0,
        wid: Rank(rank),
        exponent_hint: ExponentHint::UNKNOWN,
        scale: None,
        spec: Spec::allreduce(1 << 20, DType::I32, ReduceOp::Sum),
        contributors: proof(RankProof::of(Rank(rank)), 0, 0),
    };
    header.emit(&mut bytes);
    bytes[HEADER_LEN..].iter_mut().zip([0, 0, 0, 7].into_iter().cycle()).for_each(|(byte, value)| *byte = value);
    bytes
}

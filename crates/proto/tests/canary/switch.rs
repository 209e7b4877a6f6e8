//! The switch by itself: what each packet does to the array (§3.1, §3.2, §3.5).

use tributary_numeric::{BlockExponent, DType, ReduceOp};
use tributary_proto::aggregation::ExponentHint;
use tributary_proto::canary::wire::{HEADER_LEN, Header, Kind, NO_SWITCH};
use tributary_proto::contract::config::SharedSwitchConfig;
use tributary_proto::contract::drive::record::SwitchRecorder;
use tributary_proto::contract::drop_reason::DropReason;
use tributary_proto::contract::ids::{JobId, NodeId, PortId, PortSet, Rank};
use tributary_proto::contract::packet::{Ecn, PacketMut};
use tributary_proto::contract::pipeline::Pipeline;
use tributary_proto::contract::switch::{NoQueues, Verdict};
use tributary_proto::contract::tensor::Spec;
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::contract::values::Values;
use tributary_proto::contract::wire::{Common, u32};

use crate::setup::{KEY, LEASE, TIMEOUT, figure, install, switch_config, switch_with};

const SELF: NodeId = NodeId(100);
pub const ROOT: NodeId = NodeId(101);
const LEADER: NodeId = NodeId(3);

pub struct Bench {
    pub pipeline: Pipeline,
    pub now: Time,
}

/// A contribution of one host to block `id`, of two elements.
pub fn contribution(id: u32) -> Header {
    Header {
        destination: LEADER,
        id,
        counter: 1,
        hosts: 5,
        children: 0,
        switch_address: NO_SWITCH,
        root: ROOT,
        bypass: false,
        multicast: false,
        to_leader: false,
        shard: 0,
        attempt: 0,
        wid: Rank(0),
        exponent_hint: ExponentHint::known(BlockExponent::ZERO),
        scale: None,
        spec: Spec::allreduce(2, DType::I32, ReduceOp::Sum),
        contributors: 10,
    }
}

/// The sum of block `id` on its way down, as it comes from another switch.
pub fn sum(id: u32) -> Header {
    Header { counter: 5, multicast: true, ..contribution(id) }
}

pub fn packet(job: u16, kind: Kind, header: &Header, values: &[u32]) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_LEN];
    Common { protocol: tributary_proto::canary::PROTOCOL.code, kind: kind as u8, job: JobId(job), key: KEY }
        .emit(&mut bytes);
    header.emit(&mut bytes);
    values.iter().for_each(|value| bytes.extend(value.to_be_bytes()));
    bytes
}

pub fn values(bytes: &[u8]) -> Vec<u32> {
    (HEADER_LEN..bytes.len()).step_by(4).map(|at| u32(bytes, at)).collect()
}

impl Bench {
    pub fn new(config: SharedSwitchConfig) -> Bench {
        let mut pipeline = Pipeline::default();
        let machine = tributary_proto::canary::PROTOCOL
            .shared_switch(Values::Elements, &SharedSwitchConfig { node: SELF, ..config });
        pipeline.share(tributary_proto::canary::PROTOCOL.code, machine.expect("Canary's jobs share"));
        (1..=3).for_each(|job| install(&mut pipeline, JobId(job)));
        Bench { pipeline, now: Time::ZERO + Span::from_micros(1) }
    }

    pub fn process(&mut self, port: u16, mut bytes: Vec<u8>) -> (Verdict, Vec<u8>) {
        let mut packet = PacketMut::new(&mut bytes, Ecn::NotCapable);
        let verdict = self.pipeline.process(self.now, PortId(port), &mut packet, &NoQueues);
        let len = packet.len;
        bytes.truncate(len);
        (verdict, bytes)
    }

    pub fn reduce(&mut self, port: u16, header: &Header, values: &[u32]) -> (Verdict, Vec<u8>) {
        self.process(port, packet(1, Kind::Reduce, header, values))
    }

    /// Lets time pass; gives what the switch sends meanwhile.
    pub fn pass(&mut self, span: Span) -> Vec<(Verdict, Vec<u8>)> {
        let end = self.now + span;
        let mut recorder = SwitchRecorder::default();
        while let Some(due) = self.pipeline.poll_timeout().filter(|&due| due <= end) {
            self.now = due.max(self.now);
            recorder.timeout(&mut self.pipeline, self.now);
        }
        self.now = end;
        recorder.take().into_iter().map(|made| (made.to, made.bytes)).collect()
    }

    /// Descriptors that are held.
    pub fn in_use(&self) -> u32 {
        self.pipeline.shared(tributary_proto::canary::PROTOCOL.code).expect("it is shared").slots_in_use
    }

    /// What is counted under a name.
    pub fn count(&self, name: &str) -> u64 {
        figure(&self.pipeline, name) as u64
    }

    /// How long a partial sum waits now.
    pub fn timeout(&self) -> Span {
        Span::from_secs_f64(figure(&self.pipeline, "timeout_seconds"))
    }
}

pub fn bench() -> Bench {
    Bench::new(switch_config())
}

pub fn ports<const N: usize>(ports: [u16; N]) -> Verdict {
    let insert = |mut set: PortSet, port| if set.insert(PortId(port)) { set } else { panic!("port {port} twice") };
    Verdict::Multicast(ports.into_iter().fold(PortSet::EMPTY, insert))
}

#[test]
fn a_partial_sum_leaves_towards_the_root_when_its_time_is_up() {
    let mut bench = bench();
    assert_eq!(bench.reduce(4, &contribution(7), &[1, 2]).0, Verdict::Consume);
    assert!(bench.pass(TIMEOUT - Span::from_nanos(1)).is_empty());
    assert_eq!(bench.reduce(2, &Header { contributors: 5, ..contribution(7) }, &[10, 20]).0, Verdict::Consume);
    let sent = bench.pass(Span::from_nanos(1));
    let [(Verdict::Route(ROOT), bytes)] = &sent[..] else { panic!("{} packets", sent.len()) };
    let header = Header::parse(bytes).unwrap();
    assert_eq!((header.counter, header.contributors, header.bypass), (2, 15, false));
    assert_eq!(values(bytes), [11, 22]);
}

#[test]
fn a_sum_in_which_nothing_is_missing_leaves_at_once() {
    let mut bench = bench();
    bench.reduce(0, &Header { counter: 3, ..contribution(7) }, &[1, 2]);
    let (verdict, bytes) = bench.reduce(1, &contribution(7), &[10, 20]);
    assert_eq!((verdict, values(&bytes)), (Verdict::Route(ROOT), vec![11, 22]));
    let (verdict, bytes) = bench.reduce(1, &Header { counter: 4, ..contribution(8) }, &[5, 6]);
    assert_eq!((verdict, values(&bytes)), (Verdict::Route(ROOT), vec![5, 6]));
    assert!(bench.pass(TIMEOUT).is_empty());
}

#[test]
fn where_the_root_is_on_the_way_to_the_leader_the_leader_is_the_way() {
    let mut bench = bench();
    let header = Header { to_leader: true, counter: 4, ..contribution(7) };
    let (verdict, bytes) = bench.reduce(0, &header, &[1, 2]);
    assert_eq!(verdict, Verdict::Route(LEADER));
    assert!(!Header::parse(&bytes).unwrap().bypass, "switches on the way sum");
}

#[test]
fn the_root_sends_to_the_leader_past_all_other_switches() {
    let mut bench = bench();
    let header = Header { root: SELF, ..contribution(7) };
    bench.reduce(0, &header, &[1, 2]);
    let sent = bench.pass(TIMEOUT);
    assert_eq!(sent[0].0, Verdict::Route(LEADER));
    assert!(Header::parse(&sent[0].1).unwrap().bypass);
    let (verdict, bytes) = bench.reduce(1, &header, &[3, 4]);
    assert_eq!(verdict, Verdict::Route(LEADER), "a straggler");
    assert!(Header::parse(&bytes).unwrap().bypass);
}

#[test]
fn a_straggler_goes_on_at_once_and_those_behind_it_together() {
    let mut bench = bench();
    bench.reduce(0, &contribution(7), &[1, 1]);
    bench.pass(TIMEOUT);
    let (verdict, bytes) = bench.reduce(1, &contribution(7), &[2, 2]);
    assert_eq!((verdict, values(&bytes)), (Verdict::Route(ROOT), vec![2, 2]));
    assert_eq!(bench.reduce(2, &Header { hosts: 5, ..contribution(7) }, &[3, 3]).0, Verdict::Consume);
    let sent = bench.pass(TIMEOUT);
    assert_eq!(sent.iter().map(|(_, bytes)| values(bytes)).collect::<Vec<_>>(), [[3, 3]]);
    assert_eq!(bench.process(9, packet(1, Kind::Broadcast, &sum(7), &[6, 6])).0, ports([0, 1, 2]));
    assert_eq!(bench.count("stragglers"), 2);
}

#[test]
fn the_last_contribution_of_all_waits_for_nothing() {
    let mut bench = bench();
    bench.reduce(0, &Header { counter: 2, ..contribution(7) }, &[1, 1]);
    bench.pass(TIMEOUT);
    assert_eq!(bench.reduce(1, &contribution(7), &[2, 2]).0, Verdict::Route(ROOT));
    assert_eq!(bench.reduce(2, &contribution(7), &[3, 3]).0, Verdict::Route(ROOT), "four of four");
}

#[test]
fn the_sum_goes_to_the_children_and_frees_the_descriptor() {
    let mut bench = bench();
    for port in [5, 0, 63, 5] {
        bench.reduce(port, &Header { hosts: 9, ..contribution(7) }, &[1, 2]);
    }
    bench.pass(TIMEOUT);
    let down = Header { hosts: 9, ..sum(7) };
    assert_eq!(bench.process(9, packet(1, Kind::Broadcast, &down, &[9, 9])).0, ports([0, 5, 63]));
    assert_eq!(bench.in_use(), 0);
    let again = bench.process(9, packet(1, Kind::Broadcast, &down, &[9, 9])).0;
    assert_eq!(again, Verdict::Drop(DropReason::NoDescriptor));
}

#[test]
fn a_failure_frees_the_descriptor_of_the_issue_before() {
    let mut bench = bench();
    bench.reduce(3, &contribution(7), &[1, 2]);
    bench.pass(TIMEOUT);
    let failure = Header { attempt: 1, counter: 0, ..sum(7) };
    let (verdict, bytes) = bench.process(9, packet(1, Kind::Failure, &failure, &[]));
    assert_eq!((verdict, Header::parse(&bytes).unwrap().attempt), (ports([3]), 1));
    assert_eq!(bench.in_use(), 0);
    let nonsense = Header { attempt: 0, ..failure };
    let verdict = bench.process(9, packet(1, Kind::Failure, &nonsense, &[])).0;
    assert_eq!(verdict, Verdict::Drop(DropReason::BadField));
}

#[test]
fn another_issue_is_another_block() {
    let mut bench = bench();
    bench.reduce(0, &contribution(7), &[1, 1]);
    bench.reduce(0, &Header { attempt: 1, ..contribution(7) }, &[2, 2]);
    let sent = bench.pass(TIMEOUT);
    assert_eq!(sent.iter().map(|(_, bytes)| values(bytes)).collect::<Vec<_>>(), [[1, 1], [2, 2]]);
}

#[test]
fn a_collision_goes_to_the_leader_with_switch_and_port() {
    let mut bench = Bench::new(switch_with(&[("descriptors", "1")]));
    bench.reduce(0, &contribution(7), &[1, 2]);
    let (verdict, bytes) = bench.reduce(40, &contribution(8), &[3, 4]);
    assert_eq!((verdict, values(&bytes)), (Verdict::Route(LEADER), vec![3, 4]));
    let header = Header::parse(&bytes).unwrap();
    assert_eq!((header.switch_address, header.children, header.bypass), (SELF, 40, true));
    // The descriptor that was there has not noticed.
    let sent = bench.pass(TIMEOUT);
    assert_eq!((sent.len(), values(&sent[0].1)), (1, vec![1, 2]));
    assert_eq!(bench.count("collisions"), 1);
}

#[test]
fn what_does_not_fit_together_is_not_summed() {
    let mut bench = bench();
    bench.reduce(0, &contribution(7), &[1, 2]);
    let other = |header: Header, values: &[u32]| (header, values.to_vec());
    let base = contribution(7);
    let floats = Spec { dtype: DType::F32, ..base.spec };
    for (header, values) in [
        other(Header { spec: floats, ..base }, &[1, 2]),
        other(Header { destination: NodeId(4), ..base }, &[1, 2]),
        other(Header { root: NodeId(9), ..base }, &[1, 2]),
        other(base, &[1]),
    ] {
        let (verdict, bytes) = bench.reduce(1, &header, &values);
        assert_eq!(verdict, Verdict::Route(header.destination), "the leader shall judge");
        assert_eq!(Header::parse(&bytes).unwrap().switch_address, SELF);
    }
    assert_eq!(values(&bench.pass(TIMEOUT)[0].1), [1, 2]);
}

#[test]
fn longer_packets_than_an_entry_holds_pass_unsummed() {
    let mut bench = bench();
    let (verdict, bytes) = bench.reduce(0, &contribution(7), &[1; 9]);
    assert_eq!((verdict, values(&bytes)), (Verdict::Route(LEADER), vec![1; 9]));
    assert_eq!(bench.in_use(), 0);
}

#[test]
fn a_restoration_goes_out_of_the_ports_that_it_names() {
    let mut bench = bench();
    bench.reduce(2, &contribution(7), &[1, 2]);
    let restoration =
        Header { destination: SELF, switch_address: SELF, bypass: true, children: 0b1001, shard: 1, ..sum(7) };
    let (verdict, bytes) = bench.process(9, packet(1, Kind::Broadcast, &restoration, &[6, 6]));
    assert_eq!(verdict, ports([32, 35]));
    let header = Header::parse(&bytes).unwrap();
    assert_eq!((header.bypass, header.switch_address, header.children), (false, NO_SWITCH, 0), "for those behind");
    assert_eq!(bench.in_use(), 1, "the descriptor waits for the sum that comes along the tree");
    let beyond = Header { shard: 8, ..restoration };
    let verdict = bench.process(9, packet(1, Kind::Broadcast, &beyond, &[6, 6])).0;
    assert_eq!(verdict, Verdict::Drop(DropReason::BadField));
}

#[test]
fn what_is_for_others_passes_untouched() {
    let mut bench = bench();
    for kind in Kind::ALL {
        let before = packet(1, kind, &Header { bypass: true, destination: NodeId(55), ..sum(7) }, &[1, 2]);
        let (verdict, after) = bench.process(0, before.clone());
        assert_eq!((verdict, after), (Verdict::Route(NodeId(55)), before));
    }
}

#[test]
fn what_nobody_needs_for_a_lease_is_free_again() {
    let mut bench = bench();
    bench.reduce(0, &contribution(7), &[1, 2]);
    bench.pass(TIMEOUT);
    bench.pass(LEASE - Span::from_nanos(1));
    assert_eq!(bench.in_use(), 1);
    bench.reduce(1, &contribution(7), &[1, 2]);
    bench.pass(LEASE - Span::from_nanos(1));
    assert_eq!(bench.in_use(), 1, "a straggler has renewed it");
    bench.pass(LEASE);
    assert_eq!((bench.in_use(), bench.count("expired")), (0, 1));
    assert_eq!(bench.pipeline.poll_timeout(), None, "an idle switch has nothing to do");
}

#[test]
fn nonsense_is_dropped_by_name() {
    let mut bench = bench();
    let drop = |bench: &mut Bench, bytes: Vec<u8>| match bench.process(0, bytes).0 {
        Verdict::Drop(reason) => reason,
        verdict => panic!("{verdict:?}"),
    };
    for counter in [0, 5, 6] {
        let header = Header { counter, ..contribution(7) };
        assert_eq!(drop(&mut bench, packet(1, Kind::Reduce, &header, &[1, 2])), DropReason::BadField);
    }
    let mut odd = packet(1, Kind::Reduce, &contribution(7), &[1, 2]);
    odd.pop();
    assert_eq!(drop(&mut bench, odd), DropReason::BadLength);
    let request = Header { destination: SELF, bypass: true, ..contribution(7) };
    assert_eq!(drop(&mut bench, packet(1, Kind::Request, &request, &[])), DropReason::BadKind);
    assert_eq!(drop(&mut bench, packet(1, Kind::Reduce, &contribution(7), &[])[..40].to_vec()), DropReason::Truncated);
    assert_eq!(drop(&mut bench, packet(9, Kind::Reduce, &contribution(7), &[])), DropReason::UnknownJob);
    assert_eq!(bench.in_use(), 0);
}

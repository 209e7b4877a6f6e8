//! A reduce: the rank that it is for gets the result, and the others a header that says that their slots are free.

use tributary_numeric::ReduceOp;
use tributary_proto::contract::config::{Below, Parent};
use tributary_proto::contract::drop_reason::DropReason;
use tributary_proto::contract::host::{Collective, HostEvent};
use tributary_proto::contract::ids::{ChildId, GroupId, PortId, Rank};
use tributary_proto::contract::packet::{Ecn, PacketMut};
use tributary_proto::contract::pipeline::Pipeline;
use tributary_proto::contract::switch::{NoQueues, Verdict};
use tributary_proto::contract::tensor::Spec;
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::contract::values::Values;
use tributary_proto::contract::wire::Common;
use tributary_proto::switchml::wire::{ExponentHint, HEADER_LEN, Header, Kind};
use tributary_proto::tensors::{ElementTensor, InPlaceStorage};

use crate::harness::Network;
use crate::harness::link::LinkConfig;
use crate::harness::nodes::Node;
use crate::levels::tree;
use crate::setup::{at_ms, collective, input, job, pipelines, pipelines_in_tree, star, sum};

const SIZES: [usize; 7] = [1, 0, 63, 64, 65, 5_003, 1];

fn to<T: tributary_numeric::Element>(root: u16, values: Vec<T>) -> Collective {
    let tensor = ElementTensor::new(InPlaceStorage::new(values), ReduceOp::Sum).to(Rank(root));
    Collective { tensor: Box::new(tensor), deadline: None }
}

fn output(event: &HostEvent, elements: usize) -> Vec<[u8; 4]> {
    let HostEvent::Done { tensor, .. } = event else { panic!("a collective failed") };
    let mut bytes = vec![0; 4 * elements];
    tensor.read_output(0..elements, &mut bytes);
    bytes.as_chunks().0.to_vec()
}

/// Reduces to changing ranks, of integers and of floats, and a sum for all after each, in the same slots.
fn reduce_and_sum(network: &mut Network) {
    let world_size = network.hosts.len() as u16;
    let root = |op: usize| op as u16 % world_size;
    let floats = |rank, op, elements| -> Vec<f32> {
        input(rank, op, elements).into_iter().map(|value| (value % 1_000) as f32).collect()
    };
    for (op, &elements) in SIZES.iter().enumerate() {
        for rank in 0..world_size {
            network.submit(usize::from(rank), to(root(op), input(rank, op, elements))).unwrap();
            network.submit(usize::from(rank), to(root(op), floats(rank, op, elements))).unwrap();
            network.submit(usize::from(rank), collective(rank, op, elements, false)).unwrap();
        }
    }
    for (rank, events) in (0..).zip(network.run_until_idle(at_ms(1_000_000))) {
        assert_eq!(events.len(), 3 * SIZES.len());
        for (op, (events, &elements)) in events.chunks(3).zip(&SIZES).enumerate() {
            let integers: Vec<_> = sum(world_size, op, elements).into_iter().map(i32::to_be_bytes).collect();
            assert!(output(&events[2], elements) == integers, "rank {rank}, {elements} elements");
            if rank == root(op) {
                assert!(output(&events[0], elements) == integers, "rank {rank} of {world_size}, {elements} elements");
                let exact = |at| (0..world_size).map(|rank| floats(rank, op, elements)[at]).sum::<f32>().to_be_bytes();
                let floats: Vec<_> = (0..elements.min(70)).map(exact).collect();
                assert!(output(&events[1], elements)[..floats.len()] == floats, "rank {rank} of {world_size}, floats");
            }
        }
    }
}

#[test]
fn the_one_rank_gets_the_sum_whatever_is_lost_doubled_or_late() {
    for (seed, loss) in [(1, 0.0), (2, 0.01), (3, 0.05), (4, 0.2)] {
        let reorder_delay = Span::from_millis(3);
        let faults = if loss > 0.0 { 0.05 } else { 0.0 };
        let link = LinkConfig { loss, duplicate: faults, reorder: faults, reorder_delay, ..LinkConfig::default() };
        for world_size in [1, 2, 3, 8] {
            reduce_and_sum(&mut star(seed, link, &job(world_size, 16, 64)));
        }
        for (world_size, fanout) in [(4, &[4, 1][..]), (6, &[2, 3]), (8, &[2, 2, 2])] {
            reduce_and_sum(&mut tree(seed, link, fanout, &job(world_size, 16, 64)));
        }
    }
}

/// What a reduce-scatter is made of, a reduce for each rank: each sends all, and gets its part, and headers for the
/// others.
#[test]
fn results_for_others_are_headers() {
    let (world_size, blocks) = (4_u16, 40);
    let mut network = star(1, LinkConfig::default(), &job(world_size, 16, 64));
    network.record_trace();
    for root in 0..world_size {
        for rank in 0..world_size {
            network.submit(usize::from(rank), to(root, input(rank, root.into(), blocks * 64))).unwrap();
        }
    }
    network.run_until_idle(at_ms(10_000));
    let trace = network.trace.as_ref().unwrap();
    let bytes = |is_such: &dyn Fn(Node, Node) -> bool| -> usize {
        trace.iter().filter(|entry| is_such(entry.from, entry.to)).map(|entry| entry.wire_len).sum()
    };
    for rank in 0..usize::from(world_size) {
        let sent = bytes(&|from, _| from == Node::Host(rank));
        let received = bytes(&|_, to| to == Node::Host(rank));
        assert_eq!(sent, usize::from(world_size) * blocks * (HEADER_LEN + 64 * 4));
        // A header for every block, and a packet with a vector for each of its own.
        assert_eq!(received, usize::from(world_size) * blocks * HEADER_LEN + blocks * (HEADER_LEN + 64 * 4));
    }
    assert!(network.hosts.iter().all(|host| host.machine.stats().retransmissions == 0));
    assert!(network.hosts.iter().all(|host| host.machine.stats().drops.iter().all(|(_, count)| count == 0)));
}

const WORDS: usize = 4;
const SPEC: Spec = Spec::reduce(WORDS as u32, tributary_numeric::DType::I32, ReduceOp::Sum, Rank(0));

/// Rank `wid`'s packet of a reduce to rank 0 in slot 0.
fn packet(kind: Kind, wid: u16, words: &[i32]) -> Vec<u8> {
    let job = job(2, 1, WORDS as u16);
    let mut bytes = vec![0; HEADER_LEN];
    Common { kind: kind as u8, ..job.common() }.emit(&mut bytes);
    Header { wid: ChildId(wid), idx: 0, word: ExponentHint::UNKNOWN, phase: 0, spec: SPEC }.emit(&mut bytes);
    bytes.extend(words.iter().flat_map(|word| word.to_be_bytes()));
    bytes
}

/// The verdict on a packet with what it carries then, and what the switch makes besides; of vectors, the first word.
type Done = (Verdict, Option<i32>, Option<(Verdict, Option<i32>)>);

fn process(switch: &mut Pipeline, from: u16, packet: &[u8]) -> Done {
    let first = |bytes: &[u8]| bytes[HEADER_LEN..].first_chunk().map(|word| i32::from_be_bytes(*word));
    let mut bytes = packet.to_vec();
    let mut packet = PacketMut::new(&mut bytes, Ecn::NotCapable);
    let verdict = switch.process(Time::ZERO, PortId(from), &mut packet, &NoQueues);
    let carried = if verdict == Verdict::Consume || matches!(verdict, Verdict::Drop(_)) {
        None
    } else {
        first(&packet.bytes[..packet.len])
    };
    let mut buf = vec![0; 256];
    let made = switch.poll_transmit(Time::ZERO, &mut buf);
    (verdict, carried, made.map(|made| (made.verdict, first(&buf[..made.len]))))
}

#[test]
fn what_a_switch_answers_to_each_sender() {
    let [own, other] = [0, 1].map(|wid| packet(Kind::Update, wid, &[wid.into(), 2, 3, 4]));
    let mut switch = pipelines(Values::Elements, &job(2, 1, WORDS as u16), 2).remove(0);
    let to = |port| Verdict::Port(PortId(port));
    let all = Verdict::Group(GroupId(0));
    assert_eq!(process(&mut switch, 0, &own), (Verdict::Consume, None, None));
    // The sum goes to rank 0, and that it is there to all.
    assert_eq!(process(&mut switch, 1, &other), (to(0), Some(1), Some((all, None))));
    // Either may have been lost.
    assert_eq!(process(&mut switch, 0, &own), (to(0), Some(1), None));
    assert_eq!(process(&mut switch, 1, &other), (to(1), None, None));
}

#[test]
fn a_switch_on_the_way_hands_the_sum_on_and_others_say_that_it_is_there() {
    const UP: PortId = PortId(1);
    let parent = Some(Parent { port: UP, child: ChildId(5) });
    let switch = |rank| {
        let mut switch =
            pipelines_in_tree(Values::Elements, &job(2, 1, WORDS as u16), &[Below::Worker(Rank(rank))], parent)
                .remove(0);
        let update = packet(Kind::Update, 0, &[1, 2, 3, 4]);
        assert_eq!(process(&mut switch, 0, &update), (Verdict::Port(UP), Some(1), None));
        switch
    };
    let (whole, bare) = (packet(Kind::Result, 5, &[7, 2, 3, 4]), packet(Kind::Result, 5, &[]));
    let update = packet(Kind::Update, 0, &[1, 2, 3, 4]);
    let all = Verdict::Group(GroupId(0));

    let mut on_the_way = switch(0);
    assert_eq!(process(&mut on_the_way, 1, &bare), (Verdict::Consume, None, None), "the sum itself follows");
    assert_eq!(process(&mut on_the_way, 1, &whole), (Verdict::Port(PortId(0)), Some(7), Some((all, None))));
    assert_eq!(process(&mut on_the_way, 0, &update), (Verdict::Port(PortId(0)), Some(7), None));

    let mut beside = switch(1);
    let refused = (Verdict::Drop(DropReason::BadLength), None, None);
    assert_eq!(process(&mut beside, 1, &whole), refused, "it has no room for a sum that nobody here gets");
    assert_eq!(process(&mut beside, 1, &bare), (all, None, None));
    assert_eq!(process(&mut beside, 0, &update), (Verdict::Port(PortId(0)), None, None));
}

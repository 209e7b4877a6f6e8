//! A broadcast: the root alone sends vectors, the others headers that say that their slots are ready. The result is a
//! vector for all, even where the packet that completes a block, or that asks for it again, is a header without room
//! for one.

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
use crate::levels::tree;
use crate::setup::{at_ms, collective, input, job, pipelines, pipelines_in_tree, star, sum};

const SIZES: [usize; 7] = [1, 0, 63, 64, 65, 5_003, 1];

fn from(root: u16, values: Vec<i32>) -> Collective {
    let tensor = ElementTensor::new(InPlaceStorage::new(values), ReduceOp::Sum).from(Rank(root));
    Collective { tensor: Box::new(tensor), deadline: None }
}

fn output(event: &HostEvent, elements: usize) -> Vec<i32> {
    let HostEvent::Done { tensor, .. } = event else { panic!("a collective failed") };
    let mut bytes = vec![0; 4 * elements];
    tensor.read_output(0..elements, &mut bytes);
    bytes.chunks_exact(4).map(|bytes| i32::from_be_bytes(bytes.try_into().unwrap())).collect()
}

/// Broadcasts from changing roots, and a sum after each, in the same slots.
fn broadcast_and_sum(network: &mut Network) {
    let world_size = network.hosts.len() as u16;
    let root = |op: usize| op as u16 % world_size;
    for (op, &elements) in SIZES.iter().enumerate() {
        for rank in 0..world_size {
            let values = input(rank, op, elements);
            network.submit(usize::from(rank), from(root(op), values)).unwrap();
            network.submit(usize::from(rank), collective(rank, op, elements, false)).unwrap();
        }
    }
    for (rank, events) in network.run_until_idle(at_ms(1_000_000)).iter().enumerate() {
        assert_eq!(events.len(), 2 * SIZES.len());
        for (op, (pair, &elements)) in events.chunks(2).zip(&SIZES).enumerate() {
            let words = output(&pair[0], elements);
            assert!(words == input(root(op), op, elements), "rank {rank} of {world_size}, {elements} words");
            assert!(output(&pair[1], elements) == sum(world_size, op, elements), "rank {rank}, {elements} elements");
        }
    }
}

#[test]
fn every_rank_gets_the_roots_words_whatever_is_lost_doubled_or_late() {
    for (seed, loss) in [(1, 0.0), (2, 0.01), (3, 0.05), (4, 0.2)] {
        let reorder_delay = Span::from_millis(3);
        let faults = if loss > 0.0 { 0.05 } else { 0.0 };
        let link = LinkConfig { loss, duplicate: faults, reorder: faults, reorder_delay, ..LinkConfig::default() };
        for world_size in [1, 2, 3, 8] {
            broadcast_and_sum(&mut star(seed, link, &job(world_size, 16, 64)));
        }
        for (world_size, fanout) in [(4, &[4, 1][..]), (6, &[2, 3]), (8, &[2, 2, 2])] {
            broadcast_and_sum(&mut tree(seed, link, fanout, &job(world_size, 16, 64)));
        }
    }
}

/// Bytes that hosts send are the root's vectors, and headers.
#[test]
fn ranks_other_than_the_root_send_headers() {
    let (world_size, elements) = (4, 40 * 64);
    let mut network = star(1, LinkConfig::default(), &job(world_size, 16, 64));
    network.record_trace();
    for rank in 0..world_size {
        network.submit(usize::from(rank), from(2, input(rank, 0, elements))).unwrap();
    }
    network.run_until_idle(at_ms(10_000));
    let sent = |rank: usize| -> usize {
        let trace = network.trace.as_ref().unwrap().iter();
        trace.filter(|entry| entry.from == crate::harness::nodes::Node::Host(rank)).map(|entry| entry.wire_len).sum()
    };
    let headers = 40 * HEADER_LEN;
    assert_eq!([0, 1, 2, 3].map(sent), [headers, headers, headers + 4 * elements, headers]);
}

const WORDS: usize = 4;
const SPEC: Spec = Spec::broadcast(WORDS as u32, Rank(0));

/// Rank `wid`'s packet of a broadcast from rank 0 in slot 0.
fn packet(kind: Kind, wid: u16, words: &[i32]) -> Vec<u8> {
    let job = job(2, 1, WORDS as u16);
    let mut bytes = vec![0; HEADER_LEN];
    Common { kind: kind as u8, ..job.common() }.emit(&mut bytes);
    Header { wid: ChildId(wid), idx: 0, word: ExponentHint::UNKNOWN, phase: 0, spec: SPEC }.emit(&mut bytes);
    bytes.extend(words.iter().flat_map(|word| word.to_be_bytes()));
    bytes
}

/// What a switch does with a packet: its verdict on it, and the vector and way of what it makes besides.
type Done = (Verdict, Option<(Verdict, Vec<u8>)>);

fn process(switch: &mut Pipeline, from: u16, packet: &[u8]) -> Done {
    let mut bytes = packet.to_vec();
    let mut packet = PacketMut::new(&mut bytes, Ecn::NotCapable);
    let verdict = switch.process(Time::ZERO, PortId(from), &mut packet, &NoQueues);
    let mut buf = vec![0; 256];
    let made = switch.poll_transmit(Time::ZERO, &mut buf);
    let made = made.map(|made| (made.verdict, buf[HEADER_LEN..made.len].to_vec()));
    (verdict, made)
}

/// The port and the packet that come, and what the switch does.
type Row<'a> = (u16, &'a [u8], Done);

/// A header completes nothing in place; a vector does. Who asks again gets the vector, by whatever it asks.
#[test]
fn what_a_switch_does_with_headers_and_vectors() {
    const SOME: [i32; WORDS] = [7, -1, i32::MIN, 0];
    let (vector, header) = (packet(Kind::Update, 0, &SOME), packet(Kind::Update, 1, &[]));
    let words: Vec<u8> = SOME.iter().flat_map(|word| word.to_be_bytes()).collect();
    let group = Verdict::Group(GroupId(0));
    let to = |port| Verdict::Port(PortId(port));
    let made = |verdict| Some((verdict, words.clone()));
    let consumed: Done = (Verdict::Consume, None);
    let rows: [(&str, &[Row<'_>]); 3] = [
        (
            "the header comes last",
            &[
                (0, &vector, consumed.clone()),
                (0, &vector, (Verdict::Drop(DropReason::Duplicate), None)),
                (1, &header, (Verdict::Consume, made(group))),
                (1, &header, (Verdict::Consume, made(to(1)))),
                (0, &vector, (to(0), None)),
            ],
        ),
        (
            "the vector comes last",
            &[
                (1, &header, consumed.clone()),
                (1, &header, (Verdict::Drop(DropReason::Duplicate), None)),
                (0, &vector, (group, None)),
                (1, &header, (Verdict::Consume, made(to(1)))),
            ],
        ),
        (
            "a vector of another length",
            &[
                (1, &header, consumed.clone()),
                (0, &vector[..HEADER_LEN + 4], (Verdict::Drop(DropReason::BadLength), None)),
                (0, &vector, (group, None)),
            ],
        ),
    ];
    for (name, packets) in rows {
        let mut switch = pipelines(Values::Elements, &job(2, 1, WORDS as u16), 2).remove(0);
        for (at, (port, packet, expected)) in packets.iter().enumerate() {
            assert_eq!(&process(&mut switch, *port, packet), expected, "{name}, packet {at}");
        }
    }
}

/// Below a switch of a tree nobody may be the root: then the switch sends a header up, again too, and the vector that
/// comes down is for all.
#[test]
fn a_switch_without_the_root_below_sends_a_header_up() {
    const UP: PortId = PortId(1);
    let below = [Below::Worker(Rank(1))];
    let parent = Some(Parent { port: UP, child: ChildId(5) });
    let mut switch = pipelines_in_tree(Values::Elements, &job(2, 1, WORDS as u16), &below, parent).remove(0);
    let (header, result) = (packet(Kind::Update, 0, &[]), packet(Kind::Result, 5, &[1, 2, 3, 4]));
    assert_eq!(process(&mut switch, 0, &header), (Verdict::Port(UP), None));
    assert_eq!(process(&mut switch, 0, &header), (Verdict::Port(UP), None), "it is sent up again");
    let nothing = packet(Kind::Result, 5, &[]);
    assert_eq!(process(&mut switch, 1, &nothing), (Verdict::Drop(DropReason::BadLength), None));
    assert_eq!(process(&mut switch, 1, &result), (Verdict::Group(GroupId(0)), None));
    let lost_results = Some((Verdict::Port(PortId(0)), result[HEADER_LEN..].to_vec()));
    assert_eq!(process(&mut switch, 0, &header), (Verdict::Consume, lost_results));
}

//! Links, queues and paths, without any protocol.

use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::time::{Span, Time};
use tributary_sim::Balancing;
use tributary_sim::engine::{Settings, Simulation};
use tributary_sim::net::LossCause;
use tributary_sim::topology::{Clos, Graph, LinkId, LinkSpec, MarkBytes, Rate, dumbbell, leaf_spine, star};

const GBIT: u64 = 1_000_000_000;
const END: Time = Time(u64::MAX);

fn spec(gbit: u64, queue_bytes: u64) -> LinkSpec {
    LinkSpec { rate: Rate(gbit * GBIT), delay: Span::from_micros(1), queue_bytes, mark_bytes: None }
}

fn simulation(graph: &Graph, balancing: Balancing) -> Simulation {
    Simulation::new(graph.clone(), Settings { balancing: [balancing; 2], ..Settings::default() })
}

fn hosts(graph: &Graph) -> Vec<NodeId> {
    (0..graph.hosts()).map(NodeId).collect()
}

#[test]
fn a_message_takes_its_transmission_one_packet_more_for_each_hop_and_the_delays() {
    let graph = leaf_spine(2, 2, 1, spec(100, 1 << 20), spec(100, 1 << 20), Span::from_nanos(500));
    let mut sim = simulation(&graph, Balancing::Ecmp);
    sim.send_message(NodeId(0), NodeId(1), 100 * 1000, 1000);
    sim.run(END);
    let packet = Span::from_nanos(80);
    let expected = Time::ZERO + packet.times(100 + 3) + Span::from_micros(4) + Span::from_nanos(500).times(3);
    assert_eq!(sim.traffic.flows.all()[0].end, Some(expected));
}

#[test]
fn two_senders_share_a_bottleneck_and_its_queue_overflows() {
    let graph = dumbbell(2, 2, spec(10, 1 << 30), spec(10, 100_000), Span::ZERO);
    let mut sim = simulation(&graph, Balancing::Ecmp);
    sim.send_message(NodeId(0), NodeId(2), 1000 * 1000, 1000);
    sim.send_message(NodeId(1), NodeId(3), 1000 * 1000, 1000);
    sim.run(END);
    // The cable in the middle is edge 4. It drains half of what comes in; the queue keeps 100 packets.
    let middle = sim.fabric.counters(LinkId(8));
    assert_eq!(middle.max_queue_bytes, 100_000);
    assert_eq!(middle.packets + middle.losses[LossCause::QueueFull as usize], 2000);
    assert!(middle.packets.abs_diff(1000 + 100) <= 2, "{} got through", middle.packets);
    let received: u64 = sim.traffic.flows.all().iter().map(|flow| flow.received).sum();
    assert_eq!(received, middle.bytes);
}

#[test]
fn packets_are_marked_once_the_queue_is_over_the_threshold() {
    let middle = LinkSpec { mark_bytes: Some(MarkBytes::threshold(20_000)), ..spec(10, 1 << 30) };
    let graph = dumbbell(2, 2, spec(10, 1 << 30), middle, Span::ZERO);
    let mut sim = simulation(&graph, Balancing::Ecmp);
    sim.send_message(NodeId(0), NodeId(2), 100 * 1000, 1000);
    sim.send_message(NodeId(1), NodeId(3), 100 * 1000, 1000);
    sim.run(END);
    // Two packets come for each that leaves: the queue passes 20 packets when about 40 have come.
    let counters = sim.fabric.counters(LinkId(8));
    assert!(counters.marks.abs_diff(200 - 40) <= 2, "{} marks", counters.marks);
    assert_eq!(counters.losses, [0; LossCause::ALL.len()]);
}

#[test]
fn between_two_lengths_a_share_of_packets_is_marked_that_rises_with_the_queue() {
    let marks = |mark_above, mark_all_above, seed| {
        let middle = LinkSpec { mark_bytes: Some(MarkBytes { mark_above, mark_all_above }), ..spec(10, 1 << 30) };
        let graph = dumbbell(2, 2, spec(10, 1 << 30), middle, Span::ZERO);
        let mut sim = Simulation::new(graph, Settings { seed, ..Settings::default() });
        sim.send_message(NodeId(0), NodeId(2), 1000 * 1000, 1000);
        sim.send_message(NodeId(1), NodeId(3), 1000 * 1000, 1000);
        sim.run(END);
        sim.fabric.counters(LinkId(8)).marks
    };
    // Of 2,000 packets the first finds none and the last 1,000 before it, and the others what lies between.
    let half = marks(0, 1_000_000, 0);
    assert!(half.abs_diff(1_000) <= 60, "{half} marks");
    // Below the band no packet is marked, above it all are: 400 + 800 / 2.
    let most = marks(400_000, 800_000, 0);
    assert!(most.abs_diff(800) <= 60, "{most} marks");
    assert_eq!(marks(0, 1_000_000, 7), marks(0, 1_000_000, 7), "the seed decides");
    assert_ne!(marks(0, 1_000_000, 7), marks(0, 1_000_000, 8));
}

#[test]
fn every_way_of_balancing_brings_every_packet_home() {
    let balancings = [
        Balancing::Ecmp,
        Balancing::RoundRobin,
        Balancing::Random,
        Balancing::Flowlet { gap: Span::from_micros(5) },
        Balancing::LeastQueued,
        Balancing::DefaultUnlessHalfFull,
    ];
    let graphs = [
        star(8, spec(100, 1 << 30), Span::ZERO),
        leaf_spine(4, 4, 4, spec(100, 1 << 30), spec(100, 1 << 30), Span::ZERO),
        Clos::fat_tree(4).graph(spec(10, 1 << 30), spec(10, 1 << 30), spec(10, 1 << 30), Span::from_nanos(300)),
    ];
    for balancing in balancings {
        for graph in &graphs {
            let mut sim = simulation(graph, balancing);
            sim.send_permutation(&hosts(graph), 5, 50 * 1500, 1500);
            assert!(!sim.run(END));
            assert!(sim.traffic.flows.all().iter().all(|flow| flow.end.is_some()), "{balancing:?}");
        }
    }
}

#[test]
fn a_default_port_is_left_only_when_its_queue_is_half_full() {
    // Eight hosts of leaf 0 send to one destination: all on its default port until that queue is half full.
    let graph = leaf_spine(2, 4, 8, spec(100, 1 << 20), spec(100, 64_000), Span::ZERO);
    let mut sim = simulation(&graph, Balancing::DefaultUnlessHalfFull);
    for host in 0..8 {
        sim.send_message(NodeId(host), NodeId(9), 3 * 1000, 1000);
    }
    sim.run(END);
    let used = |sim: &Simulation| -> Vec<u64> {
        (8..12).map(|port| sim.fabric.counters(sim.fabric.port(NodeId(16), port)).packets).collect()
    };
    assert_eq!(used(&sim), [0, 24, 0, 0], "host 9 modulo 4 ports");
    for host in 0..8 {
        sim.send_message(NodeId(host), NodeId(9), 50 * 1000, 1000);
    }
    sim.run(END);
    let packets = used(&sim);
    assert_eq!(packets.iter().sum::<u64>(), 424);
    assert!(packets.iter().all(|&packets| packets > 50), "{packets:?}");
}

#[test]
fn one_seed_gives_one_trace() {
    let run = |seed| {
        let graph = leaf_spine(4, 4, 4, spec(100, 20_000), spec(100, 20_000), Span::ZERO);
        let settings = Settings { seed, balancing: [Balancing::Random; 2], ..Settings::default() };
        let hosts = hosts(&graph);
        let mut sim = Simulation::new(graph, settings);
        sim.send_permutation(&hosts, seed, 100 * 1024, 1024);
        sim.run(END);
        sim.fabric.trace_hash()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

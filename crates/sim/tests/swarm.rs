//! A few hundred worlds from seeds, and checkers that can be trusted to find what is wrong.

use std::ops::ControlFlow;

use tributary_proto::ids::NodeId;
use tributary_proto::time::{Span, Time};
use tributary_sim::check::Checker;
use tributary_sim::driver::{Settings, Simulation};
use tributary_sim::net::{Happening, LinkId, LinkSpec, Packet, Rate, TraceEvent, Tracer};
use tributary_sim::swarm::{run_seed, run_seeds};
use tributary_sim::topology::{Graph, star};

#[test]
fn nothing_wrong_comes_out_and_everything_ends() {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut failed = Vec::new();
    run_seeds(0..300, threads, &mut |outcome| {
        let replay = format!("tributary sim swarm --seeds {}..{}", outcome.seed, outcome.seed + 1);
        if !outcome.failures.is_empty() {
            failed.push(format!("{:#?}\nreplay: {replay}", outcome.failures));
        }
        ControlFlow::Continue(())
    });
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// PAUSE, and trees with roots at both ends of a cable: sums and results that cross it waited for each other's room.
#[test]
fn lossless_worlds_with_trees_that_turn_at_both_ends_of_a_cable_end() {
    for seed in [74, 1553, 2059] {
        assert_eq!(run_seed(seed).failures, [""; 0], "seed {seed}");
    }
}

#[test]
fn a_seed_gives_the_same_trace_again() {
    for seed in [3, 14, 15] {
        assert_eq!(run_seed(seed), run_seed(seed));
    }
}

fn graph() -> Graph {
    let spec =
        LinkSpec { rate: Rate(10_000_000_000), delay: Span::from_micros(1), queue_bytes: 3000, mark_bytes: None };
    star(2, spec, Span::ZERO)
}

/// Keeps the trace of one message of three packets.
struct Keep(std::sync::mpsc::Sender<TraceEvent>);

impl Tracer for Keep {
    fn record(&mut self, event: &TraceEvent, _payload: &[u8]) {
        self.0.send(*event).unwrap();
    }
}

fn trace() -> Vec<TraceEvent> {
    let mut sim = Simulation::new(graph(), Settings::default());
    let (sender, receiver) = std::sync::mpsc::channel();
    sim.fabric.set_tracer(Some(Box::new(Keep(sender))));
    sim.send_message(NodeId(0), NodeId(1), 3000, 1000);
    sim.run(Time(u64::MAX));
    drop(sim);
    receiver.iter().collect()
}

/// What the checkers say about a trace.
fn judge(trace: &[TraceEvent]) -> Vec<String> {
    let (mut checker, findings) = Checker::new(&graph());
    trace.iter().for_each(|event| checker.record(event, &[]));
    findings.violations().into_iter().map(|violation| violation.what).collect()
}

/// The trace with some events changed.
fn changed(change: impl Fn(usize, &mut TraceEvent)) -> Vec<TraceEvent> {
    let mut trace = trace();
    trace.iter_mut().enumerate().for_each(|(index, event)| change(index, event));
    trace
}

#[test]
fn checkers_accept_what_is_right() {
    assert_eq!(judge(&trace()), [""; 0]);
}

#[test]
fn checkers_find_a_packet_that_appears_from_nowhere() {
    let without: Vec<TraceEvent> = trace().into_iter().filter(|event| event.what != Happening::Made).collect();
    assert!(judge(&without)[0].contains("was not where this happened"));
}

#[test]
fn checkers_find_a_packet_that_is_taken_twice() {
    let mut twice = trace();
    twice.push(*twice.last().unwrap());
    assert!(judge(&twice)[0].contains("was not where this happened"));
}

#[test]
fn checkers_find_a_link_that_is_too_fast() {
    let fast = changed(|_, event| {
        if let Happening::Joined { link: LinkId(0), end, .. } = &mut event.what {
            end.0 -= 1000;
        }
    });
    assert!(judge(&fast)[0].contains("faster than"), "{:?}", judge(&fast));
}

#[test]
fn checkers_find_packets_that_overtake() {
    let arrivals: Vec<usize> = (0..trace().len())
        .filter(|&index| matches!(trace()[index].what, Happening::Arrived { link: LinkId(0) }))
        .collect();
    let packets: Vec<Packet> = arrivals.iter().map(|&index| trace()[index].packet).collect();
    let swapped = changed(|index, event| {
        if let Some(place) = arrivals.iter().position(|&arrival| arrival == index) {
            let arrival = event.packet.arrival;
            event.packet = Packet { arrival, ..packets[[1, 0, 2][place]] };
        }
    });
    assert!(judge(&swapped).iter().any(|what| what.contains("overtakes")), "{:?}", judge(&swapped));
}

#[test]
fn checkers_find_a_queue_that_is_too_full() {
    // Link 3 leads from the switch to host 1: five packets are put into a queue for three.
    let mut full = Vec::new();
    let first = trace()[0].packet;
    for serial in 0..5 {
        let packet = Packet { src: NodeId(2), serial, ..first };
        let start = Time(u64::from(serial) * 800_000);
        let at = TraceEvent { time: Time(0), node: NodeId(2), what: Happening::Made, packet };
        full.push(at);
        let end = start + Span(800_000);
        full.push(TraceEvent { what: Happening::Joined { link: LinkId(3), start, end }, ..at });
    }
    assert!(judge(&full)[0].contains("the queue holds 3000"), "{:?}", judge(&full));
}

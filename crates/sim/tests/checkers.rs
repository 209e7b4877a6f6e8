//! The checkers can be trusted to find what is wrong: each is shown a trace, or a run, that was changed.

use std::sync::{Arc, Mutex};

use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::packet::Ecn;
use tributary_proto::contract::time::{Span, Time};
use tributary_sim::Checker;
use tributary_sim::config::Config;
use tributary_sim::engine::{JobError, JobErrorKind, Settings, Simulation};
use tributary_sim::experiment::build;
use tributary_sim::net::{LossCause, Packet, PacketEvent, PayloadId, TraceEvent, Tracer};
use tributary_sim::topology::{Graph, LinkId, LinkSpec, MarkBytes, Rate, star};

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

/// What the checkers say about a trace, and how many packets they think are under way at its end.
fn judge_whole(graph: &Graph, trace: &[TraceEvent]) -> (Vec<String>, usize) {
    let (mut checker, findings) = Checker::new(graph);
    trace.iter().for_each(|event| checker.record(event, &[]));
    (findings.violations().into_iter().map(|violation| violation.what).collect(), findings.alive())
}

fn judge(trace: &[TraceEvent]) -> Vec<String> {
    judge_whole(&graph(), trace).0
}

/// The trace with some events changed.
fn changed(change: impl Fn(usize, &mut TraceEvent)) -> Vec<TraceEvent> {
    let mut trace = trace();
    trace.iter_mut().enumerate().for_each(|(index, event)| change(index, event));
    trace
}

#[test]
fn checkers_accept_what_is_right() {
    assert_eq!(judge_whole(&graph(), &trace()), (vec![], 0));
}

#[test]
fn checkers_find_a_packet_that_appears_from_nowhere() {
    let without: Vec<TraceEvent> = trace().into_iter().filter(|event| event.kind != PacketEvent::Created).collect();
    assert!(judge(&without)[0].contains("was not where this happened"));
}

#[test]
fn checkers_find_a_packet_that_is_delivered_twice() {
    let mut twice = trace();
    twice.push(*twice.last().unwrap());
    assert!(judge(&twice)[0].contains("was not where this happened"));
}

#[test]
fn checkers_find_a_link_that_is_too_fast() {
    let fast = changed(|_, event| {
        if let PacketEvent::Enqueued { link: LinkId(0), end, .. } = &mut event.kind {
            end.0 -= 1000;
        }
    });
    assert!(judge(&fast)[0].contains("faster than"), "{:?}", judge(&fast));
}

#[test]
fn checkers_find_packets_that_overtake() {
    let arrivals: Vec<usize> = (0..trace().len())
        .filter(|&index| matches!(trace()[index].kind, PacketEvent::Arrived { link: LinkId(0) }))
        .collect();
    let packets: Vec<Packet> = arrivals.iter().map(|&index| trace()[index].packet).collect();
    let swapped = changed(|index, event| {
        if let Some(index) = arrivals.iter().position(|&arrival| arrival == index) {
            let arrival = event.packet.arrival;
            event.packet = Packet { arrival, ..packets[[1, 0, 2][index]] };
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
        let at = TraceEvent { time: Time(0), node: NodeId(2), kind: PacketEvent::Created, packet };
        full.push(at);
        let end = start + Span(800_000);
        full.push(TraceEvent { kind: PacketEvent::Enqueued { link: LinkId(3), start, end }, ..at });
    }
    assert!(judge(&full)[0].contains("the queue holds 3000"), "{:?}", judge(&full));
}

#[test]
fn checkers_find_a_packet_that_vanishes() {
    let kept: Vec<TraceEvent> = trace().into_iter().filter(|event| event.kind != PacketEvent::Delivered).collect();
    assert_eq!(judge_whole(&graph(), &kept), (vec![], 3));
}

#[test]
fn checkers_find_a_packet_that_is_created_in_anothers_name() {
    let forged = changed(|index, event| {
        if index == 0 {
            event.node = NodeId(1);
        }
    });
    assert!(judge(&forged)[0].contains("in another's name"), "{:?}", judge(&forged));
}

#[test]
fn checkers_find_two_packets_on_one_link_at_a_time() {
    let mut second = 0;
    let both: Vec<TraceEvent> = trace()
        .into_iter()
        .map(|mut event| {
            if let PacketEvent::Enqueued { link: LinkId(0), start, end } = &mut event.kind {
                second += 1;
                if second == 2 {
                    (start.0, end.0) = (start.0 - 400_000, end.0 - 400_000);
                }
            }
            event
        })
        .collect();
    assert!(judge(&both).iter().any(|what| what.contains("while the link is busy")), "{:?}", judge(&both));
}

#[test]
fn checkers_find_a_packet_that_comes_out_too_early() {
    let early = changed(|_, event| {
        if matches!(event.kind, PacketEvent::Arrived { link: LinkId(0) }) {
            (event.time.0, event.packet.arrival.0) = (event.time.0 - 10, event.packet.arrival.0 - 10);
        }
    });
    assert!(judge(&early).iter().any(|what| what.contains("should have come out at")), "{:?}", judge(&early));
}

#[test]
fn checkers_find_a_loss_at_a_queue_that_is_not_full() {
    let mut lost = trace();
    let arrival = lost.iter().position(|event| matches!(event.kind, PacketEvent::Arrived { link: LinkId(0) })).unwrap();
    let cause = LossCause::QueueFull;
    let kind = PacketEvent::Lost { link: Some(LinkId(3)), cause };
    lost.insert(arrival + 1, TraceEvent { kind, ..lost[arrival] });
    assert!(judge(&lost)[0].contains("lost to a full queue that holds only 1000 bytes"), "{:?}", judge(&lost));
}

#[test]
fn checkers_find_a_mark_that_is_missing() {
    let spec = LinkSpec {
        rate: Rate(10_000_000_000),
        delay: Span::from_micros(1),
        queue_bytes: 9000,
        mark_bytes: Some(MarkBytes::threshold(1500)),
    };
    let graph = star(2, spec, Span::ZERO);
    let mut unmarked = Vec::new();
    let mut first = trace()[0].packet;
    first.flags.set_ecn(Ecn::Capable);
    for serial in 0..3 {
        let packet = Packet { src: NodeId(2), serial, ..first };
        let (start, end) = (Time(u64::from(serial) * 800_000), Time(u64::from(serial + 1) * 800_000));
        let at = TraceEvent { time: Time(0), node: NodeId(2), kind: PacketEvent::Created, packet };
        unmarked.extend([at, TraceEvent { kind: PacketEvent::Enqueued { link: LinkId(3), start, end }, ..at }]);
    }
    assert_eq!(judge_whole(&graph, &unmarked).0, ["2000 bytes wait, and it is not marked"]);
}

#[test]
fn checkers_find_time_that_runs_backwards() {
    let mut trace = trace();
    let last = trace.len() - 1;
    trace[last].time = Time(0);
    assert!(judge(&trace).contains(&"time ran backwards".to_string()));
}

/// Remembers what the first contribution carries.
struct First(Arc<Mutex<Option<PayloadId>>>);

impl Tracer for First {
    fn record(&mut self, event: &TraceEvent, _payload: &[u8]) {
        // Shorter ones carry no vector.
        if event.kind == PacketEvent::Created && event.packet.bytes > 1000 {
            self.0.lock().unwrap().get_or_insert(event.packet.payload);
        }
    }
}

/// Every contribution is to be in the sum exactly once. Here one is changed on its way.
#[test]
fn fingerprints_find_a_contribution_that_is_not_what_was_sent() {
    for protocol in ["switchml", "ring", "canary"] {
        let file =
            format!("[network]\nstar = {{ hosts = 4 }}\n[[job]]\nprotocol = '{protocol}'\ntensor = '40 kB'\nslots = 8");
        let mut simulation = build(&Config::parse(&file).unwrap()).unwrap();
        let first = Arc::new(Mutex::new(None));
        simulation.fabric.set_tracer(Some(Box::new(First(first.clone()))));
        while first.lock().unwrap().is_none() {
            assert!(simulation.step(Time(u64::MAX)));
        }
        let payload = first.lock().unwrap().unwrap();
        let (bytes, _) = simulation.fabric.payloads.get_mut(payload);
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        simulation.run_until_finished(Time(1_000_000_000_000));
        let job = &simulation.traffic.jobs.all()[0];
        let wrong = |error: &&JobError| matches!(error.kind, JobErrorKind::WrongSum(_));
        assert!(job.errors.iter().filter(wrong).count() > 0, "{protocol}: {:?}", job.errors);
    }
}

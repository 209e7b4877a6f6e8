//! Links with credits and virtual channels: closed forms, and what a file may not say.

use std::ops::ControlFlow;

use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::protocols;
use tributary_sim::config::Config;
use tributary_sim::engine::{Settings, Simulation};
use tributary_sim::net::LosslessSpec;
use tributary_sim::topology::{Graph, LinkId, LinkSpec, Rate, star};

const END: Time = Time(u64::MAX);
const PACKET: u16 = 1538;

/// A link of 100 Gbit/s; what its far end can hold is for the test to say.
fn spec() -> LinkSpec {
    LinkSpec { rate: Rate(100_000_000_000), delay: Span::from_micros(1), queue_bytes: 0, mark_bytes: None }
}

fn losses(sim: &Simulation) -> u64 {
    let links = (0..sim.fabric.links().len() as u32).map(LinkId);
    links.map(|link| sim.fabric.counters(link).losses.iter().sum::<u64>()).sum()
}

/// Two hosts send as fast as they can over one cable of 100 Gbit/s: one to a host whose link has a quarter of that, the
/// other to a fast one. What each receives in a millisecond, in Gbit/s.
fn beside_a_hot_link(lossless: LosslessSpec) -> [f64; 2] {
    let fast = LinkSpec { delay: Span::from_nanos(100), queue_bytes: 64 << 10, ..spec() };
    let slow = LinkSpec { rate: Rate(25_000_000_000), ..fast };
    let mut graph = Graph::new(4, vec![1, 1], Span::ZERO);
    for (a, b, link) in [(0, 4, fast), (1, 4, fast), (4, 5, fast), (5, 2, slow), (5, 3, fast)] {
        graph.connect(NodeId(a), NodeId(b), link);
    }
    let mut sim = Simulation::new(graph, Settings { lossless: Some(lossless), ..Settings::default() });
    for host in 0..2 {
        sim.send_message(NodeId(host), NodeId(host + 2), 100_000_000, PACKET);
    }
    let received = |sim: &Simulation| [0, 1].map(|flow| sim.traffic.flows.all()[flow].received);
    sim.run(Time::ZERO + Span::from_millis(1));
    let before = received(&sim);
    sim.run(Time::ZERO + Span::from_millis(2));
    assert_eq!(losses(&sim), 0);
    let after = received(&sim);
    [0, 1].map(|flow| 8.0 * (after[flow] - before[flow]) as f64 / 1e6)
}

fn credits(channels: u8) -> LosslessSpec {
    LosslessSpec { channels: Some(channels), ..LosslessSpec::new(u64::MAX, u64::MAX) }
}

/// Packets of both wait in one queue before the cable, so both go at the hot link's rate, with PAUSE and with credits. A
/// channel of its own lets the other have the rest of the cable.
#[test]
fn a_hot_link_stops_a_cable_or_a_channel() {
    let near = |ours: [f64; 2], theirs: [f64; 2]| (0..2).all(|flow| (ours[flow] / theirs[flow] - 1.0).abs() < 0.01);
    for lossless in [LosslessSpec::new(20_000, 16_000), credits(1)] {
        let rates = beside_a_hot_link(lossless);
        assert!(near(rates, [25.0, 25.0]), "{lossless:?}: {rates:?}");
    }
    let rates = beside_a_hot_link(credits(2));
    assert!(near(rates, [25.0, 75.0]), "{rates:?}");
}

/// A flow alone has a buffer's credits in the time from a packet's first bit to the return of its credit: the packet, its
/// way, and the credit's; where the packet waits, at the far end, its next link too.
#[test]
fn a_buffer_of_five_packets_is_a_window() {
    let packets = 5;
    let link = LinkSpec { delay: Span::from_micros(1), queue_bytes: packets * u64::from(PACKET), ..spec() };
    let mut sim =
        Simulation::new(star(2, link, Span::ZERO), Settings { lossless: Some(credits(1)), ..Settings::default() });
    let count = 1000;
    sim.send_message(NodeId(0), NodeId(1), count * u64::from(PACKET), PACKET);
    assert!(sim.run_until_finished(END));
    let packet = link.rate.time_of(u64::from(PACKET));
    // At the switch a packet holds its buffer until it has left over the second link.
    let round = packet + link.delay + packet + link.delay;
    let rounds = count / packets - 1;
    let end = sim.traffic.flows.all()[0].end.unwrap();
    // The last round: five packets one after the other, and one on the second link.
    let last = Span(packet.0 * (packets + 1)) + link.delay + link.delay;
    let expected = Time::ZERO + Span(round.0 * rounds) + last;
    assert!(end.since(expected).0.max(expected.since(end).0) < packet.0, "{end:?} instead of {expected:?}");
}

#[test]
fn credits_lose_nothing_and_end_whatever_is_sent_on_any_number_of_threads() {
    let has_trees = |protocol: &&&Protocol| protocol.sums_in_network() && protocol.shared.is_none();
    let name = protocols::ALL.iter().find(has_trees).unwrap().name;
    let text = format!(
        r#"
        [network]
        leaf_spine = {{ leaves = 4, spines = 4, hosts_per_leaf = 4 }}
        queue = "16 KiB"
        lossless = {{ kind = "credits", channels = 4 }}
        [[job]]
        protocol = "{name}"
        hosts = 8
        tensor = "1 MiB"
        trees = 4
        rto = {{ initial = "20 ms", min = "20 ms", max = "100 ms" }}
        [[traffic]]
        pattern = "uniform"
        message = "16 KiB"
    "#
    );
    let config = Config::parse(&text).unwrap();
    let report = tributary_sim::run(&config).unwrap();
    assert_eq!(report.failure(), None, "{report}");
    assert_eq!((report.jobs[0].retransmissions, report.lossless_drops), (0, Some(0)), "{report}");
    let threaded = tributary_sim::run_on_threads(&config, 2, &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(threaded.trace_hash, report.trace_hash);
}

#[test]
fn what_credits_cannot_have_is_refused_with_a_sentence() {
    let star = "[network]\nstar = { hosts = 2 }\n";
    for (rest, sentence) in [
        ("lossless = { channels = 2 }", "channels are for kind = \"credits\""),
        ("lossless = { kind = 'credits', xoff = 10 }", "xoff and xon are PAUSE's"),
        ("lossless = { kind = 'credits', channels = 17 }", "1 to 16 channels, not 17"),
        ("queue = '2 kB'\nlossless = { kind = 'credits', channels = 2 }", "2 share a queue of"),
        ("delay = '0 s'\nlossless = { kind = 'credits' }", "links need a delay"),
        ("lossless = { kind = 'credits' }\n[[fault]]\nat = '1 us'\nlinks = 'all'\nloss = 0.1", "leave a fault out"),
        ("lossless = { kind = 'credits' }\n[switches.cores]", "leave switches.cores out"),
    ] {
        let config = Config::parse(&format!("{star}{rest}")).unwrap();
        let error = tributary_sim::run(&config).unwrap_err().to_string();
        assert!(error.contains(sentence), "{rest}: {error}");
    }
}

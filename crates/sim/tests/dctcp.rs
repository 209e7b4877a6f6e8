//! DCTCP against its paper: Alizadeh et al., "Data Center TCP (DCTCP)", SIGCOMM 2010, sections 3.3 and 4.

use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::time::{Span, Time};
use tributary_sim::engine::{Settings, Simulation};
use tributary_sim::net::LossCause;
use tributary_sim::topology::{LinkId, LinkSpec, MarkBytes, Rate};
use tributary_sim::topology::{dumbbell, leaf_spine, star};
use tributary_sim::workload::{FlowSizes, FlowSource, PoissonGroup};

const GBIT: u64 = 1_000_000_000;
/// A full packet on a link: 1,460 bytes of data, 40 of TCP and IP, 38 of Ethernet.
const PACKET: u64 = 1538;
const DATA: f64 = 1460.0;

/// `flows` hosts send without end over one link of 10 Gbit/s to as many others; a round trip without queues takes 100 us;
/// packets that find more than `mark` packets are marked (the paper's K, figure 12).
struct Bottleneck {
    sim: Simulation,
    link: LinkId,
    flows: u32,
    /// Packets that fill the path: C x RTT.
    path: f64,
    mark: f64,
}

impl Bottleneck {
    fn new(flows: u32, mark: u64) -> Bottleneck {
        // Hosts are faster than the bottleneck, so the queue is there.
        let delay = Span::from_nanos(16_100);
        let host = LinkSpec { rate: Rate(40 * GBIT), delay, queue_bytes: u64::MAX, mark_bytes: None };
        let middle = LinkSpec { rate: Rate(10 * GBIT), mark_bytes: Some(MarkBytes::threshold(mark * PACKET)), ..host };
        let graph = dumbbell(flows, flows, host, middle, Span::ZERO);
        let base = delay.times(6) + host.rate.time_of(2 * PACKET) + middle.rate.time_of(PACKET);
        let path = base.as_secs_f64() / middle.rate.time_of(PACKET).as_secs_f64();
        let sim = Simulation::new(graph, Settings::default());
        Bottleneck { sim, link: LinkId(4 * flows), flows, path, mark: mark as f64 }
    }

    fn start(&mut self, flow: u32) {
        self.sim.start_flow(NodeId(flow), NodeId(self.flows + flow), 1 << 40).unwrap();
    }

    fn start_all(&mut self) {
        (0..self.flows).for_each(|flow| self.start(flow));
    }

    fn advance(&mut self, span: Span) -> Time {
        let end = self.sim.fabric.now + span;
        self.sim.run(end);
        end
    }

    /// The queue in packets, every microsecond for so long, ascending.
    fn queue(&mut self, span: Span) -> Vec<f64> {
        let start = self.sim.fabric.now;
        let mut lengths = Vec::new();
        for step in 1..=span.0 / Span::from_micros(1).0 {
            let now = start + Span::from_micros(step);
            self.sim.run(now);
            lengths.push(self.sim.fabric.link(self.link).queued_bytes(now) as f64 / PACKET as f64);
        }
        lengths.sort_by(f64::total_cmp);
        lengths
    }

    /// The share of its rate that the bottleneck sent for so long.
    fn utilisation(&mut self, span: Span) -> f64 {
        let before = self.sim.fabric.counters(self.link).bytes;
        self.advance(span);
        let bytes = self.sim.fabric.counters(self.link).bytes - before;
        bytes as f64 * 8.0 / (10e9 * span.as_secs_f64())
    }
}

#[test]
fn the_queue_swings_between_the_papers_bounds() {
    // Equations 8 to 10: at most K + N, and less by A = sqrt(2 N (C x RTT + K)) / 2 at the foot of the sawtooth. They
    // take windows for real numbers and flows for synchronised; a window is a whole number of packets, so each flow
    // may be off by one.
    for flows in [1, 2, 10, 40] {
        let mut net = Bottleneck::new(flows, 40);
        net.start_all();
        net.advance(Span::from_millis(100));
        let queue = net.queue(Span::from_millis(50));
        let (least, most) = (queue[0], queue[queue.len() - 1]);
        let n = f64::from(flows);
        let amplitude = (2.0 * n * (net.path + net.mark)).sqrt() / 2.0;
        println!("N = {flows}: {least:.1} to {most:.1}, paper {:.1} to {:.1}", net.mark + n - amplitude, net.mark + n);
        assert!((most - (net.mark + n)).abs() <= 1.0, "at most {most} with {flows} flows");
        assert!((most - least - amplitude).abs() <= n, "{least} to {most} with {flows} flows");
    }
}

#[test]
fn one_flows_window_is_a_sawtooth_of_the_papers_height_and_period() {
    // Section 3.3: W* = C x RTT + K at the first mark; alpha = sqrt(2 / W*); a fall by D = (W* + 1) alpha / 2 packets,
    // which takes D round trips to make up.
    let mut net = Bottleneck::new(1, 40);
    net.start_all();
    net.advance(Span::from_millis(100));
    let full = net.path + net.mark;
    let fall = (full + 1.0) * (2.0 / full).sqrt() / 2.0;
    let (mut windows, mut falls) = (Vec::new(), 0);
    for _ in 0..10_000 {
        net.advance(Span::from_micros(10));
        let window = net.sim.transport(NodeId(0)).unwrap().window(0).unwrap() as f64;
        falls += u32::from(windows.last().is_some_and(|&last| window < last - 2.0));
        windows.push(window);
    }
    let (least, most) = windows.iter().fold((f64::MAX, 0.0f64), |(least, most), &w| (least.min(w), most.max(w)));
    let round_trip = full / net.path * 100.0e-6;
    let period = 0.1 / f64::from(falls);
    println!(
        "window {least} to {most}, paper {:.1} to {full:.1}; {period:.6} s, paper {:.6}",
        full - fall,
        fall * round_trip
    );
    assert!((most - (full + 1.0)).abs() <= 2.0, "{most}");
    // Both ends are whole packets.
    assert!((most - least - fall).abs() <= 2.0, "{least} to {most}");
    assert!((period / (fall * round_trip) - 1.0).abs() < 0.15, "{period} s");
}

#[test]
fn one_flow_fills_the_bottleneck() {
    let mut net = Bottleneck::new(1, 40);
    let bytes = 500_000_000;
    net.sim.start_flow(NodeId(0), NodeId(1), bytes);
    assert!(net.sim.run_until_finished(Time(u64::MAX)));
    let seconds = net.sim.transport(NodeId(1)).unwrap().arrived()[0].at.as_secs_f64();
    let ideal = bytes as f64 / DATA * PACKET as f64 * 8.0 / 10e9 + 50e-6;
    println!("500 MB in {seconds:.6} s, at full rate {ideal:.6} s");
    assert!((seconds / ideal - 1.0).abs() < 0.01, "{seconds} s, {ideal} s at full rate");
    assert_eq!(net.sim.transport(NodeId(0)).unwrap().retransmissions(), 0);
}

#[test]
fn a_mark_of_a_seventh_of_the_path_is_enough_to_fill_it() {
    // Section 3.3: K > C x RTT / 7 never lets the queue run empty.
    let mut net = Bottleneck::new(2, 14);
    net.start_all();
    net.advance(Span::from_millis(100));
    let utilisation = net.utilisation(Span::from_millis(100));
    assert!(utilisation > 0.99, "{utilisation}");
}

#[test]
fn two_flows_share_fairly_though_one_comes_later() {
    let mut net = Bottleneck::new(2, 40);
    net.start(0);
    net.advance(Span::from_millis(20));
    net.start(1);
    net.advance(Span::from_millis(200));
    let received = |net: &Bottleneck| {
        [2, 3].map(|host| {
            let link = net.sim.fabric.port(NodeId(host), 0).reverse();
            net.sim.fabric.counters(link).bytes as f64
        })
    };
    let before = received(&net);
    let utilisation = net.utilisation(Span::from_millis(500));
    let after = received(&net);
    let shares = [0, 1].map(|flow| (after[flow] - before[flow]) * 8.0 / (10e9 * 0.5));
    println!("shares {shares:?} of {utilisation}");
    assert!(shares.iter().all(|share| (share - 0.5).abs() < 0.005), "{shares:?}");
    assert!((utilisation - 1.0).abs() < 0.01, "{utilisation}");
}

#[test]
fn an_incast_that_overflows_the_queue_arrives_whole() {
    let spec = LinkSpec {
        rate: Rate(10 * GBIT),
        delay: Span::from_micros(5),
        queue_bytes: 100 * PACKET,
        mark_bytes: Some(MarkBytes::threshold(65 * PACKET)),
    };
    let mut sim = Simulation::new(star(41, spec, Span::ZERO), Settings::default());
    for host in 1..=40 {
        sim.start_flow(NodeId(host), NodeId(0), 256_000);
    }
    assert!(sim.run_until_finished(Time(u64::MAX)));
    let into = sim.fabric.port(NodeId(0), 0).reverse();
    let lost = sim.fabric.counters(into).losses[LossCause::QueueFull as usize];
    let again: u64 = (1..=40).map(|host| sim.transport(NodeId(host)).unwrap().retransmissions()).sum();
    assert!(lost > 0 && again >= lost, "{lost} lost, {again} sent again");
    assert_eq!(sim.transport(NodeId(0)).unwrap().arrived().len(), 40);
    assert_eq!(sim.fabric.payloads.in_use(), 0, "nothing is left in the network");
}

#[test]
fn poisson_arrivals_finish_after_their_end_and_repeat_with_their_seed() {
    let run = |seed| {
        let spec = LinkSpec {
            rate: Rate(10 * GBIT),
            delay: Span::from_micros(1),
            queue_bytes: 1 << 20,
            mark_bytes: Some(MarkBytes::threshold(65 * PACKET)),
        };
        let graph = leaf_spine(4, 4, 4, spec, spec, Span::ZERO);
        let mut sim = Simulation::new(graph, Settings { seed, ..Settings::default() });
        let group = PoissonGroup {
            senders: (0..16).map(NodeId).collect(),
            receivers: (0..16).map(NodeId).collect(),
            sizes: FlowSizes::WebSearch.table(),
            between: None,
            load: 0.5,
            rate: spec.rate.0 as f64,
            start: Time::ZERO,
            until: Some(Time::ZERO + Span::from_millis(20)),
        };
        group
            .sources(seed, 0)
            .into_iter()
            .for_each(|(host, source)| sim.add_flow_source(host, FlowSource::Poisson(source)));
        assert!(sim.run_until_finished(Time(u64::MAX)));
        let ends = || (0..16).filter_map(|host| sim.transport(NodeId(host)));
        let started: usize = ends().map(|end| end.started().len()).sum();
        let arrived: usize = ends().map(|end| end.arrived().len()).sum();
        assert_eq!(started, arrived);
        (started, sim.fabric.trace_hash())
    };
    let (flows, hash) = run(1);
    // 16 hosts x 5 Gbit/s / 1.7 MB x 20 ms.
    assert!((60..180).contains(&flows), "{flows}");
    assert_eq!(run(1), (flows, hash));
    assert_ne!(run(2).1, hash);
}

//! PAUSE: nothing is dropped, whatever is sent; and nothing stands still permanently.

use tributary_numeric::{DType, ReduceOp};
use tributary_proto::contract::config::TimerConfig;
use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::tensor::Spec;
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::protocols;
use tributary_sim::config::Config;
use tributary_sim::engine::{Action, JobPlan, Settings, Simulation};
use tributary_sim::net::{LosslessSpec, headroom};
use tributary_sim::topology::{Graph, LinkId, LinkSpec, Rate, dumbbell, leaf_spine, star};
use tributary_sim::{Balancing, Checker};

const END: Time = Time(u64::MAX);
const PACKET: u16 = 1538;
const XOFF: u64 = 50_000;

fn spec() -> LinkSpec {
    let link = LinkSpec { rate: Rate(100_000_000_000), delay: Span::from_micros(1), queue_bytes: 0, mark_bytes: None };
    LinkSpec { queue_bytes: XOFF + headroom(&link, u64::from(PACKET)), ..link }
}

fn simulation(graph: &Graph, lossless: bool) -> Simulation {
    let lossless = lossless.then_some(LosslessSpec::new(XOFF, XOFF - 4000));
    Simulation::new(graph.clone(), Settings { lossless, balancing: [Balancing::Random; 2], ..Settings::default() })
}

fn losses(sim: &Simulation) -> u64 {
    links(sim).map(|link| sim.fabric.counters(link).losses.iter().sum::<u64>()).sum()
}

fn pauses(sim: &Simulation) -> u64 {
    links(sim).map(|link| sim.fabric.counters(link).pauses).sum()
}

fn links(sim: &Simulation) -> impl Iterator<Item = LinkId> {
    (0..sim.fabric.links().len() as u32).map(LinkId)
}

/// 15 hosts send to one, with no window at all.
fn incast(sim: &mut Simulation) {
    for host in 1..16 {
        sim.send_message(NodeId(host), NodeId(0), 500 * u64::from(PACKET), PACKET);
    }
}

#[test]
fn an_incast_loses_nothing_and_keeps_its_link_busy() {
    let graph = star(16, spec(), Span::ZERO);
    let mut lossy = simulation(&graph, false);
    incast(&mut lossy);
    lossy.run(END);
    assert!(losses(&lossy) > 1000, "without PAUSE it does");

    let mut sim = simulation(&graph, true);
    incast(&mut sim);
    assert!(sim.run_until_finished(END));
    assert_eq!(losses(&sim), 0);
    assert!(pauses(&sim) > 15);
    // All packets over one link, one packet over the other, two delays.
    let rate = spec().rate;
    let expected = rate.time_of(15 * 500 * u64::from(PACKET)) + rate.time_of(u64::from(PACKET)) + Span::from_micros(2);
    let end = sim.traffic.flows.all().iter().filter_map(|flow| flow.end).max().unwrap();
    assert!(end.since(Time::ZERO + expected) < Span::from_nanos(200), "{end:?}");
}

#[test]
fn the_checkers_accept_a_lossless_incast_and_find_a_drop() {
    let violations = |buffer_bytes: u64| {
        let link = LinkSpec { queue_bytes: buffer_bytes, ..spec() };
        let mut sim = simulation(&star(16, link, Span::ZERO), true);
        let (checker, findings) = Checker::lossless(sim.graph());
        sim.fabric.set_tracer(Some(Box::new(checker)));
        incast(&mut sim);
        sim.run(END);
        assert!(findings.events() > 0);
        findings.violations()
    };
    assert_eq!(violations(spec().queue_bytes), []);
    let found = violations(XOFF + 20_000);
    assert!(found.iter().any(|violation| violation.what.contains("a lossless network dropped it")), "{found:?}");
}

/// With two cables broken the only way from the first leaf to the second goes down to the third and up again.
#[test]
fn the_checkers_find_what_comes_down_and_goes_up() {
    let graph = leaf_spine(3, 2, 1, spec(), spec(), Span::ZERO);
    let violations = |broken: bool| {
        let mut sim = simulation(&graph, true);
        let (checker, findings) = Checker::lossless(&graph);
        sim.fabric.set_tracer(Some(Box::new(checker)));
        if broken {
            for (leaf, port) in [(0, 2), (1, 1)] {
                let cable = sim.fabric.port(graph.switch(leaf), port);
                sim.plan(Time::ZERO, Action::Cable(cable, true));
            }
            sim.plan(Time::ZERO, Action::Reroute);
        }
        sim.run(Time::ZERO + Span::from_micros(1));
        sim.send_message(NodeId(0), NodeId(1), u64::from(PACKET), PACKET);
        assert!(sim.run_until_finished(END));
        findings.violations()
    };
    assert_eq!(violations(false), []);
    let found = violations(true);
    assert!(found.iter().any(|violation| violation.what.contains("ports can wait in a cycle")), "{found:?}");
}

#[test]
fn what_comes_in_after_the_order_needs_the_headroom_and_no_more() {
    let max_ingress = |buffer_bytes: u64| {
        let link = LinkSpec { queue_bytes: buffer_bytes, ..spec() };
        let mut sim = simulation(&star(16, link, Span::ZERO), true);
        incast(&mut sim);
        sim.run(END);
        let buffered = links(&sim).map(|link| sim.fabric.counters(link).max_ingress_bytes).max().unwrap();
        (buffered, losses(&sim))
    };
    let (buffered, lost) = max_ingress(spec().queue_bytes);
    assert_eq!(lost, 0);
    // Two delays at 100 Gbit/s alone are 25 kB.
    assert!(buffered > XOFF + 25_000 && buffered <= spec().queue_bytes, "{buffered} of {}", spec().queue_bytes);
    let (_, lost) = max_ingress(XOFF + 20_000);
    assert!(lost > 0, "too little headroom shows");
}

#[test]
fn congestion_that_spreads_over_levels_of_switches_ends() {
    let graph_hosts: Vec<NodeId> = (0..16).map(NodeId).collect();
    let run = || {
        let link = LinkSpec { queue_bytes: spec().queue_bytes + 10_000, ..spec() };
        let graph = leaf_spine(4, 2, 4, link, link, Span::from_nanos(300));
        let mut sim = simulation(&graph, true);
        incast(&mut sim);
        sim.send_permutation(&graph_hosts, 3, 300 * u64::from(PACKET), PACKET);
        assert!(sim.run_until_finished(END));
        sim.run(END);
        assert_eq!(losses(&sim), 0);
        assert!(links(&sim).all(|link| sim.fabric.link(link).is_empty()));
        let spine_down = links(&sim).filter(|&link| graph.ends(link).0.0 >= 20 && graph.ends(link).1.0 >= 16);
        assert!(spine_down.map(|link| sim.fabric.counters(link).pauses).sum::<u64>() > 0, "spines were stopped too");
        sim.fabric.trace_hash()
    };
    assert_eq!(run(), run());
}

#[test]
fn without_congestion_pause_changes_nothing() {
    let graph = leaf_spine(2, 2, 2, spec(), spec(), Span::from_nanos(300));
    let run = |lossless| {
        let mut sim = simulation(&graph, lossless);
        sim.send_message(NodeId(0), NodeId(3), 100 * u64::from(PACKET), PACKET);
        sim.start_flow(NodeId(2), NodeId(1), 300_000);
        assert!(sim.run_until_finished(END));
        assert_eq!(pauses(&sim), 0);
        sim.fabric.trace_hash()
    };
    assert_eq!(run(true), run(false));
}

#[test]
fn a_cable_that_breaks_takes_its_orders_with_it() {
    let mut sim = simulation(&star(16, spec(), Span::ZERO), true);
    incast(&mut sim);
    // In the middle of the incast, when all senders have been stopped; the first host's cable comes back.
    let uplink = sim.fabric.port(NodeId(1), 0);
    for (microseconds, action) in [(100, Action::Cable(uplink, true)), (200, Action::Cable(uplink, false))] {
        sim.plan(Time::ZERO + Span::from_micros(microseconds), action);
    }
    sim.run(END);
    let flows = sim.traffic.flows.all();
    assert!(flows[1..].iter().all(|flow| flow.end.is_some()), "those whose cables held");
    assert!(flows[0].received > flows[0].bytes / 2 && flows[0].sent == flows[0].bytes, "{:?}", flows[0]);
    assert_eq!(losses(&sim), (flows[0].sent - flows[0].received) / u64::from(PACKET));
}

#[test]
fn a_job_beside_uncontrolled_traffic_loses_nothing() {
    let text = r#"
        [network]
        leaf_spine = { leaves = 4, spines = 4, hosts_per_leaf = 4 }
        lossless = { xoff = "40 kB", xon = "30 kB" }
        [[job]]
        protocol = "switchml"
        hosts = 8
        tensor = "4 MiB"
        trees = 2
        rto = { initial = "20 ms", min = "20 ms", max = "100 ms" }
        [[traffic]]
        pattern = "uniform"
        message = "256 KiB"
    "#;
    let report = tributary_sim::run(&Config::parse(text).unwrap()).unwrap();
    assert_eq!(report.failure(), None, "{report}");
    assert_eq!(report.jobs[0].retransmissions, 0, "{report}");
    assert_eq!(report.lossless_drops, Some(0));
    assert!(report.links.iter().map(|group| group.pauses).sum::<u64>() > 0, "{report}");
}

fn plan(elements: u32) -> JobPlan {
    JobPlan {
        custom_op: None,
        magnitudes: tributary_sim::engine::Magnitudes::Random,
        sparse: None,
        name: "job".into(),
        protocol: protocols::named("switchml").unwrap(),
        options: protocols::named("switchml").unwrap().options.defaults(),
        members: (0..16).map(NodeId).collect(),
        spec: Spec::allreduce(elements, DType::I32, ReduceOp::Sum),
        operations: Default::default(),
        iterations: 1,
        start: Time::ZERO,
        compute: Span::ZERO,
        elements_per_packet: 256,
        slots: 512,
        roots: vec![4],
        timers: TimerConfig::default(),
        timeout: None,
    }
}

/// Leaves send sums into links a tenth as fast as their hosts': more of them than a queue holds wait for their turn.
#[test]
fn sums_are_charged_like_the_packets_they_are_made_of() {
    let core = LinkSpec { rate: Rate(10_000_000_000), ..spec() };
    let graph = leaf_spine(4, 2, 4, spec(), core, Span::ZERO);
    let mut sim = simulation(&graph, true);
    let (checker, findings) = Checker::lossless(&graph);
    sim.fabric.set_tracer(Some(Box::new(checker)));
    sim.install(plan(1 << 18)).unwrap();
    assert!(sim.run_until_finished(END));
    assert_eq!(losses(&sim), 0);
    assert!(pauses(&sim) > 0, "leaves stopped their hosts");
    assert_eq!(findings.violations(), []);
    assert!(sim.traffic.jobs.all()[0].is_complete());
    sim.run(END);
    assert_eq!(sim.fabric.buffered_bytes(), 0, "all buffers are released");
}

/// Orders to stop that leaves give their hosts in a reduce into links a tenth as fast, if these are charged.
fn stops(protocol: &str, hosts_per_leaf: u32, charges: &str) -> u64 {
    let text = format!(
        r#"
        [network]
        leaf_spine = {{ leaves = 4, spines = 1, hosts_per_leaf = {hosts_per_leaf} }}
        core = {{ rate = "10 Gbit/s" }}
        lossless = {{ xoff = "40 kB", xon = "30 kB", charges = "{charges}" }}
        [[job]]
        protocol = "{protocol}"
        hosts = "all"
        collective = "reduce"
        tensor = "1 MiB"
        slots = 512
    "#
    );
    let report = tributary_sim::run(&Config::parse(&text).unwrap()).unwrap();
    assert_eq!(report.failure(), None, "{report}");
    assert_eq!(report.lossless_drops, Some(0));
    let host_up = &report.links[0];
    assert_eq!(host_up.name, "host up");
    host_up.pauses
}

/// Timers send its sums where each leaf has one host.
const BY_TIMERS: &str = "canary";

#[test]
fn sums_that_a_timer_sends_are_charged_like_the_packets_they_are_made_of() {
    assert!(stops(BY_TIMERS, 1, "all") > 0);
}

#[test]
fn whether_sums_are_charged_to_ports_can_be_chosen() {
    assert_eq!(stops(BY_TIMERS, 1, "all_but_timers"), 0);
    let of_trees = ["all", "all_but_timers", "forwarded"].map(|charges| stops("switchml", 2, charges));
    assert_eq!(of_trees[0], of_trees[1], "the last contribution's packet carries a tree's");
    assert!(of_trees[0] > 0);
    assert_eq!(of_trees[2], 0);
}

/// Results wait for one host's link, which other traffic fills, and so for space where the last contributions came in. No sender
/// is ordered to stop in time: the results are dropped, and counted at the links of all that they were for.
#[test]
fn results_that_find_a_full_buffer_are_dropped_and_counted_like_everything_else() {
    let run = |buffer_bytes: u64| {
        let link = LinkSpec { queue_bytes: buffer_bytes, ..spec() };
        let lossless = Some(LosslessSpec::new(1 << 20, 1 << 20));
        let mut sim = Simulation::new(star(16, link, Span::ZERO), Settings { lossless, ..Settings::default() });
        let members = (0..8).map(NodeId).collect();
        sim.install(JobPlan { members, roots: vec![0], ..plan(1 << 17) }).unwrap();
        for host in 8..16 {
            sim.send_message(NodeId(host), NodeId(0), 300 * u64::from(PACKET), PACKET);
        }
        sim.run(Time::ZERO + Span::from_millis(1_000));
        assert!(sim.traffic.jobs.all()[0].is_complete(), "lost results are asked for again");
        assert_eq!(sim.fabric.buffered_bytes(), 0, "all buffers are released");
        // Only results go there.
        let to_third = sim.fabric.port(NodeId(3), 0).reverse();
        sim.fabric.counters(to_third).losses.iter().sum::<u64>()
    };
    assert!(run(20_000) > 0);
    assert_eq!(run(1 << 20), 0);
}

/// Trees with roots at both ends of one link: sums cross it one way and results the other, for either root. Other traffic
/// lets them queue at both ends.
#[test]
fn trees_that_turn_at_both_ends_of_a_link_do_not_wait_in_a_circle() {
    let host = LinkSpec { rate: Rate(10_000_000_000), delay: Span::ZERO, ..spec() };
    let core = LinkSpec { rate: Rate(1_000_000_000), ..host };
    let graph = dumbbell(2, 2, host, core, Span::from_nanos(300));
    let lossless = Some(LosslessSpec::new(10_000, 10_000));
    let mut sim = Simulation::new(graph, Settings { lossless, ..Settings::default() });
    let members = (0..4).map(NodeId).collect();
    sim.install(JobPlan { members, slots: 64, roots: vec![0, 1], ..plan(1 << 17) }).unwrap();
    for (from, to) in [(0, 2), (2, 0), (1, 3), (3, 1)] {
        sim.send_message(NodeId(from), NodeId(to), 300 * u64::from(PACKET), PACKET);
    }
    assert!(sim.run_until_finished(Time::ZERO + Span::from_millis(10_000)));
    assert_eq!(losses(&sim), 0);
}

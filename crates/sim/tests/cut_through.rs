//! Switches that cut through: closed forms of a path, what comes as a whole all the same, and what a file may not say.

use std::ops::ControlFlow;

use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::protocols;
use tributary_sim::config::Config;
use tributary_sim::engine::{Settings, Simulation};
use tributary_sim::swarm::{run_seed, scenario};
use tributary_sim::topology::{LinkSpec, Rate, leaf_spine};
use tributary_sim::{run, run_on_threads};

const PACKET: u64 = 1538;
/// What a switch needs of a packet before it forwards it.
const HEAD: u64 = 84;
const DELAY: Span = Span::from_nanos(700);
const LATENCY: Span = Span::from_nanos(300);

fn link(gbits: u64) -> LinkSpec {
    LinkSpec { rate: Rate(gbits * 1_000_000_000), delay: DELAY, queue_bytes: 1 << 20, mark_bytes: None }
}

/// How long some packets take from a host of one leaf to one of another, over three switches.
fn over_three_switches(cut_through: bool, host: LinkSpec, core: LinkSpec, packets: u64) -> Span {
    let graph = leaf_spine(2, 1, 1, host, core, LATENCY);
    let mut sim = Simulation::new(graph, Settings { cut_through, ..Settings::default() });
    sim.send_message(NodeId(0), NodeId(1), packets * PACKET, PACKET as u16);
    assert!(sim.run_until_finished(Time(u64::MAX)));
    sim.traffic.flows.all()[0].end.unwrap().since(Time::ZERO)
}

fn assert_close(span: Span, expected: Span) {
    assert!(span.0.abs_diff(expected.0) <= 4, "{span} instead of {expected}");
}

#[test]
fn a_packet_takes_its_own_time_once_and_its_heads_at_each_switch() {
    let (whole, head) = (link(10).rate.time_of(PACKET), link(10).rate.time_of(HEAD));
    let path = DELAY.times(4) + LATENCY.times(3);
    for packets in [1, 100] {
        let others = whole.times(packets - 1);
        assert_close(over_three_switches(false, link(10), link(10), packets), path + whole.times(4) + others);
        assert_close(over_three_switches(true, link(10), link(10), packets), path + whole + head.times(3) + others);
    }
}

#[test]
fn a_packet_never_leaves_faster_than_it_comes() {
    let path = DELAY.times(4) + LATENCY.times(3);
    let [slow, fast] = [10, 40].map(|gbits| link(gbits).rate.time_of(PACKET));
    let [slow_head, fast_head] = [10, 40].map(|gbits| link(gbits).rate.time_of(HEAD));
    // The first leaf's next link is faster, so it waits for all of the packet.
    assert_close(over_three_switches(true, link(10), link(40), 1), path + slow + fast_head.times(2) + slow);
    // Here the last leaf's is, behind two links of a slow core.
    assert_close(over_three_switches(true, link(40), link(10), 1), path + fast_head + slow_head + slow + fast);
}

fn text(cut_through: bool, rest: &str) -> String {
    format!(
        "[network]\nleaf_spine = {{ leaves = 2, spines = 2, hosts_per_leaf = 2 }}\nrate = \"10 Gbit/s\"\n\
         delay = \"700 ns\"\nqueue = \"60 kB\"\nmark_above = \"20 kB\"\ncut_through = {cut_through}\n{rest}"
    )
}

/// Each packet of a job that is summed at both levels is for a program, or for a host.
#[test]
fn what_a_program_sums_comes_as_a_whole() {
    let has_trees = |protocol: &&&Protocol| protocol.sums_in_network() && protocol.shared.is_none();
    let summing = protocols::ALL.iter().find(has_trees).unwrap();
    let [stored, cut] = [false, true].map(|cut_through| {
        let job = format!("[[job]]\nprotocol = \"{}\"\nhosts = \"all\"\ntensor = \"256 KiB\"\n", summing.name);
        let report = run(&Config::parse(&text(cut_through, &job)).unwrap()).unwrap();
        assert_eq!(report.failure(), None, "{report}");
        report.trace_hash
    });
    assert_eq!(stored, cut);
}

#[test]
fn a_flow_alone_has_no_slowdown_and_takes_less_time() {
    let flow = "[[traffic]]\npattern = \"list\"\nflows = [{ from = \"host 0\", to = \"host 3\", bytes = 1460 }]\n";
    let [stored, cut] = [false, true].map(|cut_through| {
        let report = run(&Config::parse(&text(cut_through, flow)).unwrap()).unwrap();
        let class = &report.transport.as_ref().unwrap().classes[0];
        assert!((class.mean_slowdown - 1.0).abs() < 1e-4, "{}", class.mean_slowdown);
        class.mean_seconds
    });
    let behind_heads = link(10).rate.time_of(PACKET - HEAD).times(3).as_secs_f64();
    assert!((stored - cut - behind_heads).abs() < 1e-11, "{stored} and {cut}");
}

#[test]
fn the_trace_is_the_same_on_two_threads_beside_classes_and_a_shared_buffer() {
    for more in ["", "service = \"strict\"\n", "shared_buffer = \"100 kB\"\n"] {
        let flows = "[[traffic]]\npattern = \"poisson\"\nsizes = \"hadoop\"\nload = \"60 %\"\nuntil = \"2 ms\"\n";
        let config = Config::parse(&text(true, &format!("{more}{flows}"))).unwrap();
        let report = run(&config).unwrap();
        assert_eq!(report.failure(), None, "{report}");
        let threaded = run_on_threads(&config, 2, &mut |_| ControlFlow::Continue(())).unwrap();
        assert_eq!(threaded.trace_hash, report.trace_hash, "{more}");
    }
}

#[test]
fn what_cutting_through_cannot_have_is_a_sentence() {
    for (rest, sentence) in [
        ("lossless = {}\n", "leave cut_through or lossless out"),
        ("[[fault]]\nlinks = \"all\"\nrate = \"1 Gbit/s\"\n", "rate: with cut_through a packet could leave a switch"),
    ] {
        let error = run(&Config::parse(&text(true, rest)).unwrap()).unwrap_err().to_string();
        assert!(error.contains(sentence), "{error}");
    }
}

/// The checkers compute from the graph when a head is there.
#[test]
fn the_swarm_cuts_through_and_its_checkers_agree() {
    let drawn: Vec<u64> = (0..200).filter(|&seed| scenario(seed).config.network.cut_through).take(6).collect();
    assert_eq!(drawn.len(), 6);
    for seed in drawn {
        assert_eq!(run_seed(seed).failures, [""; 0], "seed {seed}");
    }
}

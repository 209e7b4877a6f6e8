//! Torus, mesh, HyperX, dragonfly and rails: sums are proven on them, detours go where their closed form says, and PAUSE is refused
//! where links could wait for each other in a circle.

use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::protocols;
use tributary_sim::Balancing;
use tributary_sim::config::Config;
use tributary_sim::engine::{Settings, Simulation};
use tributary_sim::run;
use tributary_sim::topology::{Graph, Grid, LinkId, LinkSpec, Rate, Specs};

const SHAPES: [&str; 6] = [
    "torus = { size = [4, 3], hosts_per_switch = 2 }",
    "torus = { size = [2, 3, 2], hosts_per_switch = 1 }",
    "torus = { size = [3, 3], hosts_per_switch = 1, wrap = false }",
    "hyperx = { size = [3, 3], hosts_per_switch = 2 }",
    "dragonfly = { groups = 5, switches = 2, global = 2, hosts_per_switch = 2 }",
    "rails = { pods = 2, servers = 3, rails = 2, spines = 2 }",
];

fn refusal(network: &str) -> String {
    let text = format!("[network]\n{network}\n[[traffic]]\npattern = 'permutation'\nhosts = 'all'\nmessage = '2 kB'\n");
    match Config::parse(&text) {
        Err(error) => error.to_string(),
        Ok(config) => run(&config).map(|_| "no error".to_string()).unwrap_or_else(|error| error.to_string()),
    }
}

#[test]
fn every_protocol_sums_on_every_shape() {
    for shape in SHAPES {
        let routings: &[&str] = match shape.split(' ').next() {
            Some("torus" | "hyperx") => &["ecmp", "dimension_order", "valiant"],
            Some("dragonfly") => &["ecmp", "valiant"],
            _ => &["ecmp"],
        };
        for routing in routings {
            let jobs = protocols::ALL.iter().map(|protocol| {
                let servers = if protocol.server.is_some() { "servers = 'colocated'\n" } else { "" };
                format!("[[job]]\nprotocol = '{}'\nhosts = 'all'\ntensor = '20 kB'\n{servers}", protocol.name)
            });
            let text = format!("[network]\n{shape}\nrouting = '{routing}'\n{}", jobs.collect::<String>());
            let report = run(&Config::parse(&text).unwrap()).unwrap();
            assert_eq!(report.failure(), None, "{text}\n{report}");
            assert!(report.jobs.iter().all(|job| job.seconds.is_some()), "{report}");
        }
    }
}

#[test]
fn what_a_shape_cannot_be_is_refused_with_a_sentence() {
    for (network, sentence) in [
        ("torus = { size = [], hosts_per_switch = 1 }", "has 1 to 6 dimensions"),
        ("hyperx = { size = [4, 0], hosts_per_switch = 1 }", "has 1 to 6 dimensions of at least one switch"),
        ("torus = { size = [60000, 60000], hosts_per_switch = 9 }", "more than this program takes"),
        ("hyperx = { size = [60000], hosts_per_switch = 1 }", "more than this program takes"),
        ("rails = { pods = 60000, servers = 60000, rails = 60000, spines = 1 }", "more than this program takes"),
        ("dragonfly = { groups = 4, switches = 2, global = 2, hosts_per_switch = 1 }", "5 groups have one cable"),
        ("torus = { size = [4], hosts_per_switch = 1 }\nstar = { hosts = 2 }", "exactly one shape"),
        ("star = { hosts = 2 }\nrouting = 'dimension_order'", "is for torus and hyperx"),
        ("leaf_spine = { leaves = 2, spines = 2, hosts_per_leaf = 1 }\nrouting = 'valiant'", "a detour by a random"),
        (
            "rails = { pods = 1, servers = 1, rails = 1, spines = 1 }\nbackground_routing = 'valiant'",
            "a detour by a random",
        ),
    ] {
        let refused = refusal(network);
        assert!(refused.contains(sentence), "{network}: {refused}");
    }
}

#[test]
fn pause_is_refused_where_links_could_wait_in_a_circle() {
    let lossless = "lossless = {}";
    for (network, free) in [
        ("torus = { size = [5, 4], hosts_per_switch = 1 }\nrouting = 'dimension_order'", false),
        ("torus = { size = [4, 4], hosts_per_switch = 1, wrap = false }", false),
        ("torus = { size = [4, 4], hosts_per_switch = 1, wrap = false }\nrouting = 'dimension_order'", true),
        ("hyperx = { size = [3, 3], hosts_per_switch = 1 }", false),
        ("hyperx = { size = [3, 3], hosts_per_switch = 1 }\nrouting = 'valiant'", false),
        ("hyperx = { size = [3, 3], hosts_per_switch = 1 }\nrouting = 'dimension_order'", true),
        (
            "hyperx = { size = [3, 3], hosts_per_switch = 1 }\nrouting = 'dimension_order'\nbackground_routing = 'ecmp'",
            false,
        ),
        ("dragonfly = { groups = 5, switches = 2, global = 2, hosts_per_switch = 1 }", false),
        ("rails = { pods = 2, servers = 3, rails = 2, spines = 2 }", true),
    ] {
        let refused = refusal(&format!("{network}\n{lossless}"));
        assert_eq!(!refused.contains("can PAUSE each other in a circle"), free, "{network}: {refused}");
        assert_eq!(refused == "no error", free, "{network}: {refused}");
    }
}

/// Every host of a row of five that closes sends two switches further without a window: the refusal above is not idle, because this graph,
/// which a file may have at its author's own risk, stands still; the same hosts on a mesh or a HyperX do not.
#[test]
fn a_closed_row_under_pause_stands_still_and_a_mesh_does_not() {
    let shapes = [
        (Grid(&[5]).torus(2, true, &SPECS), false),
        (Grid(&[5]).torus(2, false, &SPECS), true),
        (Grid(&[5, 2]).hyperx(1, &SPECS), true),
    ];
    for (graph, finishes) in shapes {
        let lossless = Some(tributary_sim::net::LosslessSpec::new(20_000, 16_000));
        let settings = Settings { lossless, balancing: [Balancing::DimensionOrder; 2], ..Settings::default() };
        let mut sim = Simulation::new(graph, settings);
        for host in 0..10 {
            sim.send_message(NodeId(host), NodeId((host + 4) % 10), 2_000 * 1538, 1538);
        }
        assert_eq!(sim.run_until_finished(Time(u64::MAX)), finishes);
    }
}

const SPEC: LinkSpec =
    LinkSpec { rate: Rate(100_000_000_000), delay: Span(500_000), queue_bytes: 1 << 20, mark_bytes: None };
const SPECS: Specs = Specs { host: SPEC, core: SPEC, switch_latency: Span::ZERO };

/// The packets that joined links between switches, and when all flows had ended: hosts of each switch of a row send to those
/// of the next one, 100 packets each.
fn to_the_next_switch(graph: &Graph, balancing: Balancing) -> (u64, Span) {
    let mut sim = Simulation::new(graph.clone(), Settings { balancing: [balancing; 2], ..Settings::default() });
    let per_switch = graph.hosts() / graph.switches();
    for host in 0..graph.hosts() {
        sim.send_message(NodeId(host), NodeId((host + per_switch) % graph.hosts()), 100 * 1538, 1538);
    }
    assert!(sim.run_until_finished(Time(u64::MAX)));
    let between = |link: &LinkId| graph.ends(*link).0.0.min(graph.ends(*link).1.0) >= graph.hosts();
    let links = (0..sim.fabric.links().len() as u32).map(LinkId).filter(between);
    let end = sim.traffic.flows.all().iter().filter_map(|flow| flow.end).max().unwrap();
    (links.map(|link| sim.fabric.counters(link).packets).sum(), end.since(Time::ZERO))
}

/// In a row of n switches that are all connected, a detour is one hop if it leads by the sender's or the receiver's own switch,
/// and else two: 2 - 2 / n in the mean. It spreads over all cables what shortest paths put on one.
#[test]
fn detours_are_as_long_as_their_closed_form_and_spread_the_load() {
    let graph = Grid(&[8]).hyperx(4, &SPECS);
    let packets = f64::from(graph.hosts() * 100);
    let (direct, slow) = to_the_next_switch(&graph, Balancing::Ecmp);
    assert_eq!(direct as f64 / packets, 1.0);
    let (detoured, fast) = to_the_next_switch(&graph, Balancing::Valiant);
    let hops = detoured as f64 / packets;
    // 3,200 draws of 1 or 2 hops deviate by 0.44 / sqrt(3200) = 0.008.
    assert!((hops - (2.0 - 2.0 / 8.0)).abs() < 0.03, "{hops}");
    assert!(fast < Span(slow.0 / 2), "four hosts share one cable, or seven: {fast:?} and {slow:?}");
}

#[test]
fn another_seed_takes_other_detours_and_the_threads_do_not_matter() {
    let text = |seed: u32| {
        format!(
            "seed = {seed}\n[network]\ntorus = {{ size = [4, 4], hosts_per_switch = 1 }}\nrouting = 'valiant'\n\
             [[traffic]]\npattern = 'all_to_all'\nhosts = 'all'\nmessage = '20 kB'\n"
        )
    };
    let hash = |seed: u32, threads: u16| {
        let config = Config::parse(&text(seed)).unwrap();
        let run = tributary_sim::run_on_threads(&config, threads, &mut |_| std::ops::ControlFlow::Continue(()));
        run.unwrap().trace_hash
    };
    assert_eq!(hash(1, 1), hash(1, 3));
    assert_ne!(hash(1, 1), hash(2, 1));
}

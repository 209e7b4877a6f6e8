//! PAUSE by class: a hot class stops itself and no other, each class needs its own headroom, and nothing is lost.

use std::ops::ControlFlow;

use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::protocols;
use tributary_sim::config::Config;
use tributary_sim::engine::{Settings, Simulation};
use tributary_sim::experiment::build;
use tributary_sim::net::{LosslessSpec, Service, headroom};
use tributary_sim::swarm::{run_seed, scenario};
use tributary_sim::topology::{LinkId, LinkSpec, Rate, star};
use tributary_sim::transport::{Kind, TransportSettings};
use tributary_sim::{run, run_on_threads};

const PACKET: u64 = 1538;
const XOFF: u64 = 30_000;

/// Two hosts send with windows that never end over one cable of 100 Gbit/s: one in class `hot` to a host whose link has a
/// quarter of that, the other in class `other` to a fast one. What each receives in a millisecond, in Gbit/s on the link.
fn beside_a_hot_link(service: &str, hot: u8, other: u8) -> [f64; 2] {
    let flow = |from: u32, class: u8| {
        format!(
            "[[traffic]]\npattern = 'list'\nflows = [{{ from = 'host {from}', to = 'host {}', bytes = '100 MB' }}]\n\
             transport_settings = {{ congestion_control = 'fixed', initial_window = 1000, priority = {class} }}\n",
            from + 2
        )
    };
    let text = format!(
        "[network]\nrate = '100 Gbit/s'\ndelay = '100 ns'\nqueue = '64 KiB'\nservice = {service}\n\
         lossless = {{ xoff = '20 kB', xon = '16 kB' }}\n[network.graph]\nhosts = 4\nswitches = 2\nlink = [\n\
         {{ between = ['host 0', 'switch 0'] }}, {{ between = ['host 1', 'switch 0'] }},\n\
         {{ between = ['switch 0', 'switch 1'] }},\n\
         {{ between = ['switch 1', 'host 2'], rate = '25 Gbit/s' }}, {{ between = ['switch 1', 'host 3'] }}]\n{}{}",
        flow(0, hot),
        flow(1, other)
    );
    let mut sim = build(&Config::parse(&text).unwrap()).unwrap();
    let received = |sim: &Simulation| {
        [2, 3].map(|host| sim.fabric.counters(sim.fabric.port(NodeId(host), 0).reverse()).bytes as f64)
    };
    sim.run(Time::ZERO + Span::from_millis(1));
    let before = received(&sim);
    sim.run(Time::ZERO + Span::from_millis(2));
    let after = received(&sim);
    assert_eq!(losses(&sim), 0);
    [0, 1].map(|flow| 8.0 * (after[flow] - before[flow]) / 1e6)
}

fn losses(sim: &Simulation) -> u64 {
    let links = (0..sim.fabric.links().len() as u32).map(LinkId);
    links.map(|link| sim.fabric.counters(link).losses.iter().sum::<u64>()).sum()
}

/// In one class both go at the hot link's rate. In two, the other one has what the hot one leaves of the cable, whatever the
/// service.
#[test]
fn a_hot_class_stops_itself_and_no_other() {
    let near = |rates: [f64; 2], expected: [f64; 2]| {
        let close = (0..2).all(|flow| (rates[flow] / expected[flow] - 1.0).abs() < 0.02);
        assert!(close, "{rates:?}, not {expected:?}");
    };
    near(beside_a_hot_link("'strict'", 0, 0), [25.0, 25.0]);
    near(beside_a_hot_link("'strict'", 1, 0), [25.0, 75.0]);
    near(beside_a_hot_link("{ weights = [1, 1] }", 0, 1), [25.0, 75.0]);
}

/// 15 hosts send to one in two classes, with windows that never end; each port has this buffer for each class.
fn incast_of_two_classes(buffer_bytes: u64) -> (Simulation, u64) {
    let link = LinkSpec { queue_bytes: buffer_bytes, ..link() };
    let class = |priority| TransportSettings { priority, initial_window: 1 << 12, ..TransportSettings::default() };
    let settings = Settings {
        lossless: Some(LosslessSpec::new(XOFF, XOFF - 4000)),
        service: Some(Service::Weights(vec![1, 1])),
        transports: [class(0), class(1)].into(),
        // A NIC has one queue, in which a class that is stopped would hold up the other.
        nic_bytes: 1 << 20,
        ..Settings::default()
    };
    let mut sim = Simulation::new(star(16, link, Span::ZERO), settings);
    for (host, class) in (1..16).flat_map(|host| [(host, 0), (host, 1)]) {
        sim.begin_flow(NodeId(host), NodeId(0), 300 * 1460, Kind { awaited: true, class, ..Kind::default() }).unwrap();
    }
    sim.run(Time::ZERO + Span::from_millis(5));
    let links = (0..32).map(|link| sim.fabric.counters(LinkId(link)).max_ingress_bytes);
    let most = links.max().unwrap();
    (sim, most)
}

fn link() -> LinkSpec {
    LinkSpec { rate: Rate(100_000_000_000), delay: Span::from_micros(1), queue_bytes: 0, mark_bytes: None }
}

#[test]
fn each_class_needs_the_headroom_and_no_more() {
    let buffer = XOFF + headroom(&link(), PACKET);
    let (sim, most) = incast_of_two_classes(buffer);
    assert_eq!((losses(&sim), sim.open()), (0, 0));
    // Both classes of a port beyond their thresholds: more than a cable's PAUSE would allow.
    assert!(most > buffer && most <= 2 * buffer, "{most} bytes in buffers of {buffer}");
    // All over one link, one packet over the other, two delays; and the way of the last order to go on.
    let least = link().rate.time_of(15 * 2 * 300 * PACKET);
    let took = sim.transport(NodeId(0)).unwrap().arrived().iter().map(|flow| flow.at).max().unwrap().since(Time::ZERO);
    assert!(took.0 >= least.0 && took.0 < least.0 + least.0 / 100, "{took}, at least {least}");
    let (sim, _) = incast_of_two_classes(XOFF + 10_000);
    assert!(losses(&sim) > 0, "too little headroom shows");
}

#[test]
fn the_trace_is_the_same_on_two_threads() {
    let summing = protocols::ALL.iter().find(|protocol| protocol.switch.is_some()).unwrap().name;
    for service in ["'strict'", "{ weights = [1, 3] }"] {
        let text = format!(
            "[network]\nleaf_spine = {{ leaves = 4, spines = 2, hosts_per_leaf = 4 }}\nqueue = '200 kB'\nservice = {service}\n\
             lossless = {{ xoff = '20 kB' }}\n[[job]]\nprotocol = '{summing}'\nhosts = 6\ntensor = '1 MiB'\npriority = 1\n\
             rto = {{ initial = '20 ms', min = '20 ms', max = '100 ms' }}\n[[traffic]]\npattern = 'incast'\nfan_in = 8\n\
             message = '500 kB'\ntransport_settings = {{ congestion_control = 'fixed', initial_window = 300 }}\n"
        );
        let config = Config::parse(&text).unwrap();
        let report = run(&config).unwrap();
        assert_eq!((report.failure(), report.lossless_drops), (None, Some(0)), "{report}");
        assert!(report.links.iter().map(|group| group.pauses).sum::<u64>() > 0, "{report}");
        let threaded = run_on_threads(&config, 2, &mut |_| ControlFlow::Continue(())).unwrap();
        assert_eq!((threaded.trace_hash, threaded.links), (report.trace_hash, report.links));
    }
}

#[test]
fn what_pause_by_class_cannot_have_is_a_sentence() {
    let star = "[network]\nstar = { hosts = 2 }\nlossless = {}\nservice = 'strict'\n";
    for rest in ["[[fault]]\nat = '1 us'\nlinks = 'all'\nloss = 0.1", "[switches.cores]"] {
        let error = run(&Config::parse(&format!("{star}{rest}")).unwrap()).unwrap_err().to_string();
        assert!(error.contains("with credits or classes no packet is lost or held back"), "{error}");
    }
}

#[test]
fn the_swarm_pauses_classes() {
    let by_class = |seed: &u64| {
        let network = scenario(*seed).config.network;
        network.service.is_some() && network.lossless.is_some()
    };
    let drawn: Vec<u64> = (0..1_000).filter(by_class).take(6).collect();
    assert_eq!(drawn.len(), 6);
    for seed in drawn {
        assert_eq!(run_seed(seed).failures, [""; 0], "seed {seed}");
    }
}

//! Controllers of `proto::congestion` in simulated networks: each carries jobs and background flows, and Swift keeps the
//! queue at its target.

use tributary_proto::congestion;
use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::protocols;
use tributary_sim::config::Config;
use tributary_sim::experiment::build;
use tributary_sim::run;
use tributary_sim::topology::LinkId;

#[test]
fn every_controller_carries_jobs_and_background_flows() {
    let has_choice = |specs: &[tributary_proto::contract::options::OptionSpec]| {
        specs.iter().any(|spec| spec.kind == congestion::option("").kind)
    };
    for name in congestion::NAMES {
        for protocol in protocols::ALL.iter().filter(|protocol| has_choice(protocol.options.specs)) {
            let text = format!(
                "[network]\nstar = {{ hosts = 6 }}\nrate = \"10 Gbit/s\"\nmark_above = \"80 KiB\"\n\
                 [[job]]\nprotocol = \"{}\"\nhosts = [0, 1, 2, 3]\ntensor = \"512 KiB\"\nslots = 256\n\
                 options = {{ congestion_control = \"{name}\" }}\n\
                 [transport]\ncongestion_control = \"{name}\"\n\
                 [[traffic]]\npattern = \"permutation\"\nhosts = [4, 5]\nmessage = \"512 KiB\"\ntransport = \"dctcp\"\n",
                protocol.name
            );
            let report = run(&Config::parse(&text).unwrap()).unwrap();
            assert_eq!(report.failure(), None, "{name}, {protocol}: {report}");
        }
    }
}

#[test]
fn a_controller_that_does_not_exist_is_refused_with_those_that_do() {
    let text = "[network]\nstar = { hosts = 2 }\n[transport]\ncongestion_control = \"hope\"\n";
    let error = build(&Config::parse(text).unwrap()).map(drop).unwrap_err().to_string();
    assert!(error.contains("no congestion_control \"hope\"; there are aimd, cubic, dcqcn, dctcp"), "{error}");
}

#[test]
fn two_flows_under_swift_share_a_link_and_hold_the_queue_at_the_target_delay() {
    let text = "[network]\ndumbbell = { left = 2, right = 2 }\nrate = \"10 Gbit/s\"\ndelay = \"5 us\"\nqueue = \"4 MiB\"\n\
                [transport]\ncongestion_control = \"swift\"\ntarget_delay = \"60 us\"\n";
    let mut sim = build(&Config::parse(text).unwrap()).unwrap();
    sim.start_flow(NodeId(0), NodeId(2), 1 << 40).unwrap();
    sim.run(Time::ZERO + Span::from_millis(20));
    sim.start_flow(NodeId(1), NodeId(3), 1 << 40).unwrap();
    sim.run(Time::ZERO + Span::from_millis(200));
    let middle = LinkId(8);
    let sent = |sim: &tributary_sim::engine::Simulation| {
        [NodeId(0), NodeId(1)].map(|host| sim.fabric.counters(sim.fabric.port(host, 0)).bytes as f64)
    };
    let before = sent(&sim);
    let (mut queued, steps) = (0, 20_000);
    for step in 1..=steps {
        let now = Time::ZERO + Span::from_millis(200) + Span::from_micros(5 * step);
        sim.run(now);
        queued += sim.fabric.link(middle).queued_bytes(now);
    }
    let after = sent(&sim);
    let [first, second] = [0, 1].map(|flow| after[flow] - before[flow]);
    assert!((0.8..1.25).contains(&(first / second)), "{first} and {second} bytes");
    let rate = (first + second) * 8.0 / (steps as f64 * 5e-6);
    assert!(rate > 9.5e9, "{rate} bit/s");
    let delay = queued as f64 / steps as f64 * 8.0 / 10e9;
    assert!((10e-6..40e-6).contains(&delay), "a queue of {} us", delay * 1e6);
}

#[test]
fn reports_call_flows_by_their_controller() {
    for (name, called) in
        [("dctcp", "flows under DCTCP"), ("swift", "flows under swift"), ("cubic", "flows under cubic")]
    {
        let text = format!(
            "[network]\nstar = {{ hosts = 2 }}\nmark_above = \"100 kB\"\n[transport]\ncongestion_control = \"{name}\"\n\
             [[traffic]]\npattern = \"list\"\nflows = [{{ from = \"host 0\", to = \"host 1\", bytes = 9999 }}]\n"
        );
        let report = run(&Config::parse(&text).unwrap()).unwrap();
        assert!(report.to_string().contains(&format!("{called}: 1 of 1 arrived whole")), "{report}");
        assert_eq!(report.flow_rows[0].kind, name);
        assert_eq!(serde_json::to_value(&report).unwrap()["transport"]["congestion_control"], name);
    }
}

/// RFC 9438, sections 4.3 and 4.6, on one bottleneck: the window is full with path and queue at the loss, and falls to 0.7 of
/// that; beta / (1 - beta) of the path is queue enough for the link to be full always; a cycle is `(1 - beta) W` packets of
/// growth at `alpha` a round trip. And it does not yield: marks on all packets change nothing.
#[test]
fn one_flow_under_cubic_is_the_rfcs_sawtooth_in_the_reno_region() {
    let windows = |mark: &str| {
        let text = format!(
            "[network]\ndumbbell = {{ left = 1, right = 1 }}\nrate = \"40 Gbit/s\"\ndelay = \"16 us\"\nqueue = \"100 MB\"\n{mark}\
             core = {{ rate = \"10 Gbit/s\", queue = \"123040 B\" }}\n[transport]\ncongestion_control = \"cubic\"\n"
        );
        let mut sim = build(&Config::parse(&text).unwrap()).unwrap();
        sim.start_flow(NodeId(0), NodeId(1), 1 << 40).unwrap();
        sim.run(Time::ZERO + Span::from_millis(100));
        let before = sim.fabric.counters(LinkId(4)).bytes;
        let window = |step: u64| {
            sim.run(Time::ZERO + Span::from_millis(100) + Span::from_micros(20 * step));
            sim.transport(NodeId(0)).unwrap().window(0).unwrap() as f64
        };
        let windows: Vec<f64> = (1..=10_000).map(window).collect();
        let rate = (sim.fabric.counters(LinkId(4)).bytes - before) as f64 * 8.0 / 0.2;
        (windows, rate)
    };
    let (seen, rate) = windows("");
    // Six delays, two packets at 40 Gbit/s, and one at 10; a queue of 80 packets.
    let packet = 1538.0 * 8.0 / 10e9;
    let path = (96e-6 + packet + packet / 2.0) / packet;
    let full = path + 80.0;
    let (least, most) = seen.iter().fold((f64::MAX, 0.0f64), |(least, most), &w| (least.min(w), most.max(w)));
    assert!((most - full).abs() <= 3.0, "{most} packets, and path and queue hold {full:.1}");
    assert!((least - 0.7 * most).abs() <= 2.0, "{least} after {most}");
    assert!(rate > 9.99e9, "{rate} bit/s");
    let falls = seen.windows(2).filter(|pair| pair[1] < 0.8 * pair[0]).count() as f64;
    let alpha = 3.0 * 0.3 / 1.7;
    let mean_round_trip = packet * 0.85 * full;
    let cycle = 0.3 * full / alpha * mean_round_trip;
    assert!((falls * cycle / 0.2 - 1.0).abs() < 0.15, "{falls} losses in 200 ms, a cycle of {cycle} s");
    assert_eq!(windows("mark_above = \"1538 B\"\n").0, seen, "marks are not read");
}

/// Hosts are faster than the bottleneck: at equal rates each packet of the first flow would arrive just as another leaves, and
/// find a place in a full queue, where the second flow's never would (the phase effects of Floyd and Jacobson, 1992).
#[test]
fn two_flows_under_cubic_share_a_link_though_one_comes_later() {
    let text = "[network]\ndumbbell = { left = 2, right = 2 }\nrate = \"40 Gbit/s\"\ndelay = \"16 us\"\nqueue = \"200 kB\"\n\
                core = { rate = \"10 Gbit/s\" }\n\
                [transport]\ncongestion_control = \"cubic\"\n";
    let mut sim = build(&Config::parse(text).unwrap()).unwrap();
    sim.start_flow(NodeId(0), NodeId(2), 1 << 40).unwrap();
    sim.run(Time::ZERO + Span::from_millis(50));
    sim.start_flow(NodeId(1), NodeId(3), 1 << 40).unwrap();
    sim.run(Time::ZERO + Span::from_millis(1000));
    let sent = |sim: &tributary_sim::engine::Simulation| {
        [NodeId(2), NodeId(3)].map(|host| sim.fabric.counters(sim.fabric.port(host, 0).reverse()).bytes as f64)
    };
    let before = sent(&sim);
    sim.run(Time::ZERO + Span::from_millis(3000));
    let after = sent(&sim);
    let [first, second] = [0, 1].map(|flow| after[flow] - before[flow]);
    assert!((0.7..1.43).contains(&(first / second)), "{first} and {second} bytes");
    assert!((first + second) * 8.0 / 2.0 > 9.5e9, "{first} and {second} bytes");
}

/// RFC 9438, section 4.3: where a share p of packets is lost, the average window is Reno's, `sqrt(3 / 2p)` for losses at even
/// distances. Random ones let it differ by a constant factor, and not in how it falls with p.
#[test]
fn a_flow_under_cubic_has_renos_window_whatever_the_share_of_losses() {
    let window = |loss: f64| {
        let text = format!(
            "[network]\ndumbbell = {{ left = 1, right = 1 }}\nrate = \"100 Gbit/s\"\ndelay = \"16 us\"\n\
             [transport]\ncongestion_control = \"cubic\"\n\
             [[fault]]\nlinks = [[\"host 0\", \"switch 0\"]]\nloss = {loss}\n"
        );
        let mut sim = build(&Config::parse(&text).unwrap()).unwrap();
        sim.start_flow(NodeId(0), NodeId(1), 1 << 40).unwrap();
        sim.run(Time::ZERO + Span::from_millis(50));
        let windows = (1..=5_000).map(|step| {
            sim.run(Time::ZERO + Span::from_millis(50) + Span::from_micros(100 * step));
            sim.transport(NodeId(0)).unwrap().window(0).unwrap() as f64
        });
        windows.sum::<f64>() / 5_000.0
    };
    let [often, rarely] = [4e-3, 4e-4].map(|loss| window(loss) / (1.5f64 / loss).sqrt());
    println!("{often} and {rarely} of Reno's window");
    assert!([often, rarely].iter().all(|share| (0.9..1.4).contains(share)), "{often} and {rarely}");
    assert!((rarely / often - 1.0).abs() < 0.15, "{often} and {rarely}");
}

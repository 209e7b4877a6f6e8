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
    assert!(error.contains("no congestion_control \"hope\"; there are aimd, dctcp"), "{error}");
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

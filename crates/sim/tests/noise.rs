//! Operating system noise (Canary §5.2.5) in its two readings: a NIC that stands still, and packets that come late.

use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::time::{Span, Time};
use tributary_sim::Checker;
use tributary_sim::engine::{Action, Holds, Noise, Settings, Simulation};
use tributary_sim::net::LosslessSpec;
use tributary_sim::rng::{Purpose, Rng};
use tributary_sim::topology::{LinkSpec, Rate, star};

const END: Time = Time(u64::MAX);
const PACKET: u16 = 1250;
const PACKETS: u64 = 1000;
const DELAY: Span = Span::from_micros(1);

/// Two hosts of which the first sends a message; some of its packets are delayed.
fn simulation(probability: f64, holds: Holds, lossless: bool) -> Simulation {
    let link =
        LinkSpec { rate: Rate(100_000_000_000), delay: Span::from_micros(1), queue_bytes: 1 << 20, mark_bytes: None };
    let lossless = lossless.then_some(LosslessSpec::new(500_000, 400_000));
    let mut sim = Simulation::new(star(2, link, Span::ZERO), Settings { lossless, ..Settings::default() });
    sim.set_noise(NodeId(0), Some(Noise::new(probability, DELAY, holds, Rng::new(7, Purpose::HostNoise, 0))));
    sim.send_message(NodeId(0), NodeId(1), PACKETS * u64::from(PACKET), PACKET);
    sim
}

/// When the message is complete, and with which hash.
fn run(probability: f64, holds: Holds, lossless: bool) -> (Span, u64) {
    let mut sim = simulation(probability, holds, lossless);
    assert!(sim.run_until_finished(END));
    (sim.fabric.now.since(Time::ZERO), sim.fabric.trace_hash())
}

#[test]
fn a_nic_that_stands_still_loses_the_time() {
    for lossless in [false, true] {
        let (quiet, _) = run(0.0, Holds::Nic, lossless);
        let (always, _) = run(1.0, Holds::Nic, lossless);
        assert_eq!(always - quiet, DELAY.times(PACKETS));
    }
}

#[test]
fn packets_that_come_late_cost_the_message_no_more_than_one_delay() {
    for lossless in [false, true] {
        let (quiet, _) = run(0.0, Holds::Packet, lossless);
        let (always, _) = run(1.0, Holds::Packet, lossless);
        let (often, _) = run(0.1, Holds::Packet, lossless);
        assert_eq!(always - quiet, DELAY, "all are late by as much");
        assert!(often >= quiet && often <= always, "{quiet} {often} {always}");
    }
}

#[test]
fn noise_with_probability_zero_changes_nothing() {
    for lossless in [false, true] {
        assert_eq!(run(0.0, Holds::Packet, lossless), run(0.0, Holds::Nic, lossless));
    }
}

#[test]
fn every_packet_that_is_kept_back_ends_once_even_if_its_host_dies() {
    for at in [500, 1000, 40_000] {
        let mut sim = simulation(0.5, Holds::Packet, false);
        let (checker, findings) = Checker::new(sim.graph());
        sim.fabric.set_tracer(Some(Box::new(checker)));
        sim.plan(Time::ZERO + Span::from_nanos(at), Action::Kill(NodeId(0)));
        sim.run(END);
        assert_eq!(findings.violations().len(), 0, "{:?}", findings.violations());
        assert_eq!((findings.alive(), sim.fabric.payloads.in_use()), (0, 0));
    }
}

//! What loss costs, in virtual time: hosts at 1 Gbit/s sum 25 MB.

use tributary_proto::contract::config::JobConfig;
use tributary_proto::contract::time::{Span, Time};

use crate::harness::link::LinkConfig;
use crate::setup::{collective, job, star};

/// Seconds until the last host is done, and the fraction of packets that were sent again.
fn run(seed: u64, job: &JobConfig, loss: f64) -> (f64, f64) {
    let link = LinkConfig { loss, ..LinkConfig::default() };
    let mut network = star(seed, link, job);
    for rank in 0..job.world_size {
        network.submit(usize::from(rank), collective(rank, 0, 6_250_000, false)).unwrap();
    }
    let mut now = Time::ZERO;
    while network.hosts.iter().any(|host| host.events.is_empty()) {
        now += Span::from_micros(100);
        network.run_until(now);
    }
    let stats = network.hosts.iter().map(|host| host.machine.stats());
    let (again, sent) = stats.fold((0, 0), |sums, stats| (sums.0 + stats.retransmissions, sums.1 + stats.packets_sent));
    (now.as_secs_f64(), again as f64 / sent as f64)
}

#[test]
fn the_link_is_full_and_loss_costs_little_more_than_what_is_sent_again() {
    for slots in [256, 512] {
        let (without, again) = run(1, &job(8, slots, 360), 0.0);
        assert!(0.2 / without > 0.945, "{:.4} Gbit/s without loss", 0.2 / without);
        assert_eq!(again, 0.0);
        for (loss, allowed) in [(0.001, 1.05), (0.01, 1.25)] {
            let (with, again) = run(2, &job(8, slots, 360), loss);
            println!("{slots} slots, loss {loss}: {:.3} x, {:.2} % sent again", with / without, 100.0 * again);
            assert!(with / without < allowed, "{slots} slots, loss {loss}: {:.3} x", with / without);
        }
    }
}

/// The paper's Algorithm 4 has timeouts alone: each loss then stops its slot for a timeout.
#[test]
fn where_only_timeouts_show_losses_each_costs_its_slot_a_timeout() {
    let given = [("numbers", "fixed"), ("resend", "timeout")].map(|(name, value)| (name.to_owned(), value.to_owned()));
    let options = tributary_proto::switchml::PROTOCOL.options.read(&given.into()).unwrap();
    let patient = JobConfig { options, ..job(8, 256, 360) };
    let (without, again) = run(1, &patient, 0.0);
    assert_eq!((without, again), run(1, &job(8, 256, 360), 0.0), "without losses there is no difference");
    let (noticed, _) = run(2, &job(8, 256, 360), 0.01);
    let (timed_out, _) = run(2, &patient, 0.01);
    println!("{:.3} x with timeouts alone, {:.3} x otherwise", timed_out / without, noticed / without);
    assert!(timed_out > 1.5 * noticed, "{timed_out} s against {noticed} s");
}

#[test]
fn a_pool_that_queues_for_longer_than_a_timeout_is_not_taken_for_lost() {
    // 512 packets of 9,000 bytes are 37 ms of a link whose empty round trip takes 0.3 ms. The timeout before the first
    // sample is 20 ms, and every timeout that fires too early spoils the sample that would have shown it.
    for (seed, shards) in [(3, 1), (4, 1), (5, 2), (6, 2)] {
        let job = JobConfig { trees: shards, ..job(4, 512, 2_240) };
        let (seconds, again) = run(seed, &job, 0.01);
        println!("seed {seed}, {shards} shards: {:.3} Gbit/s, {:.1} % sent again", 0.2 / seconds, 100.0 * again);
        // 6 % are lost on one of the ways from four hosts and back to four. The rest only stood in the queue.
        assert!(again < 0.25, "seed {seed}, {shards} shards: {:.1} % sent again", 100.0 * again);
    }
}

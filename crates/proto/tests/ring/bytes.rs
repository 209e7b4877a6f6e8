//! How much a ring sends, and how fast: 2(n-1)/n of the tensor from each rank, at the rate of the links.

use tributary_proto::contract::time::{Span, Time};
use tributary_proto::ring::wire::DATA_LEN;

use crate::harness::Network;
use crate::harness::link::LinkConfig;
use crate::harness::nodes::{HostNode, Node};
use crate::setup::{at_ms, check_sums, job, reduce, ring, submit_all};

const HEADERS: usize = DATA_LEN;

/// Tensor bytes and packets that a rank sent. Acknowledgements without gaps are headers only, and left out.
fn data_sent(net: &Network, rank: usize) -> (usize, usize) {
    let sent = net.trace.as_ref().unwrap().iter().filter(|entry| entry.from == Node::Host(rank));
    sent.map(|entry| entry.wire_len).filter(|&len| len > HEADERS).fold((0, 0), |(b, p), len| (b + len - HEADERS, p + 1))
}

#[test]
fn each_rank_sends_twice_the_tensor_less_its_nth() {
    for world_size in [2usize, 3, 4, 8] {
        let elements = world_size * 64 * 50;
        let mut net = ring(1, LinkConfig::default(), &job(world_size as u16, 64));
        net.record_trace();
        reduce(&mut net, &[elements], at_ms(1_000));
        for rank in 0..world_size {
            let (bytes, packets) = data_sent(&net, rank);
            assert_eq!(bytes * world_size, 2 * 4 * elements * (world_size - 1), "rank {rank} of {world_size}");
            assert_eq!(packets, 2 * (world_size - 1) * 50);
        }
    }
}

#[test]
fn all_ranks_together_send_exactly_that_for_any_size() {
    for (world_size, elements) in [(3usize, 1), (5, 1234), (7, 100_003), (32, 33)] {
        let mut net = ring(1, LinkConfig::default(), &job(world_size as u16, 64));
        net.record_trace();
        reduce(&mut net, &[elements], at_ms(1_000));
        let bytes: usize = (0..world_size).map(|rank| data_sent(&net, rank).0).sum();
        assert_eq!(bytes, 2 * 4 * elements * (world_size - 1));
    }
}

#[test]
fn acknowledgements_are_rare() {
    let mut net = ring(1, LinkConfig::default(), &job(4, 360));
    net.record_trace();
    reduce(&mut net, &[1_000_000], at_ms(1_000));
    let data = data_sent(&net, 0).1;
    let acks = net.hosts[0].machine.stats().packets_sent as usize - data;
    assert!(acks * 4 < data, "{acks} acknowledgements for {data} packets");
}

/// Goodput over the bound of a ring, `n / (2(n-1))` of the link's rate. Headers and framing take 5.1 % of it, 78 bytes
/// of 1,518.
fn share_of_bound(net: &mut Network, elements: usize) -> f64 {
    let (world_size, rate) = (net.hosts.len() as f64, net.hosts[0].port.link.config.rate_bps as f64);
    let took = reduce(net, &[elements], at_ms(10_000)).as_secs_f64();
    32.0 * elements as f64 / took / (world_size / (2.0 * (world_size - 1.0)) * rate)
}

#[test]
fn goodput_is_within_two_percent_of_what_headers_leave() {
    for world_size in [2, 4, 8, 16] {
        let mut net = ring(1, LinkConfig::default(), &job(world_size, 360));
        let share = share_of_bound(&mut net, 4_000_000);
        assert!(share > 0.951 * 0.98, "{world_size} ranks: {share:.3}");
        let again = |host: &HostNode| host.machine.stats().retransmissions;
        assert_eq!(net.hosts.iter().map(again).sum::<u64>(), 0, "nothing is lost, nothing is sent twice");
    }
}

#[test]
fn goodput_does_not_need_timers_on_time() {
    let link = LinkConfig { rate_bps: 10_000_000_000, ..LinkConfig::default() };
    let mut net = ring(1, link, &job(4, 360));
    net.timer_grain = Span::from_millis(1);
    let share = share_of_bound(&mut net, 6_000_000);
    assert!(share > 0.9, "{share:.3}");
}

#[test]
fn marks_keep_queues_short_and_links_busy() {
    let link = LinkConfig { mark_bytes: 30_000, queue_bytes: 150_000, ..LinkConfig::default() };
    let mut net = ring(1, link, &job(4, 360));
    let share = share_of_bound(&mut net, 4_000_000);
    assert!(share > 0.93, "{share:.3}");
    let lost = net.hosts.iter().map(|host| host.port.link.counts.overflowed).sum::<u64>();
    assert_eq!(lost, 0);
}

#[test]
fn a_small_tensor_takes_its_steps_and_nothing_more() {
    for world_size in [2u64, 4, 8] {
        let mut net = ring(1, LinkConfig::default(), &job(world_size as u16, 360));
        let elements = 64 * world_size as usize;
        let took = reduce(&mut net, &[elements], at_ms(10));
        // A step: two links of 10 us, and a packet of 64 elements serialised on each. The acknowledgement of the last
        // step ends the collective, and those before it share the links with data.
        let step = Span::from_nanos(2 * (10_000 + 8 * (32 + 256 + 42)));
        let least = Time::ZERO + step.times(2 * (world_size - 1));
        assert!(took >= least && took <= least + step + step, "{world_size} ranks: {}", took.since(least));
    }
}

#[test]
fn one_loss_is_mended_long_before_a_timeout() {
    let elements = 1_000_000;
    let clean = reduce(&mut ring(1, LinkConfig::default(), &job(4, 360)), &[elements], at_ms(1_000));
    let mut net = ring(1, LinkConfig::default(), &job(4, 360));
    submit_all(&mut net, &[elements], None);
    net.run_until(at_ms(5));
    net.hosts[2].port.link.config.loss = 1.0;
    net.run_until(at_ms(5) + Span::from_micros(20));
    net.hosts[2].port.link.config.loss = 0.0;
    let events = net.run_until_idle(at_ms(1_000));
    check_sums(events, &[elements]);
    let lost = net.hosts[2].port.link.counts.lost;
    assert!((1..=32).contains(&lost), "{lost} packets lost");
    assert!(net.hosts[2].machine.stats().retransmissions <= lost + 1);
    assert!(net.last_event().since(clean) < Span::from_millis(1), "{}", net.last_event().since(clean));
}

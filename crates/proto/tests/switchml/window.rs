//! What a host measures of its path: packets that carry a block, whatever the encoding.

use tributary_numeric::ReduceOp;
use tributary_proto::contract::config::JobConfig;
use tributary_proto::contract::time::{Span, Time};

use crate::harness::link::LinkConfig;
use crate::setup::{in_place, job, numbers, star};

/// The largest number of bytes that wait before a host's link of 1 Gbit/s.
fn longest_queue(kind: &str) -> u64 {
    let job = JobConfig { options: numbers(kind), ..job(4, 1024, 358) };
    let mut network = star(1, LinkConfig::default(), &job);
    let elements = 6000 * if kind == "int8" { 1432 } else { 358 };
    for rank in 0..4 {
        network.submit(rank, in_place(vec![1.0f32; elements], ReduceOp::Sum)).unwrap();
    }
    let (mut now, mut longest) = (Time::ZERO, 0);
    while network.hosts.iter().any(|host| host.events.is_empty()) {
        now += Span::from_micros(20);
        network.run_until(now);
        longest = longest.max(network.hosts[0].port.link.queued_bytes(now));
    }
    longest
}

/// Hosts that agree on exponents begin with empty packets, whose answers come as fast as a host can take them.
#[test]
fn a_queue_is_as_short_where_hosts_agree_on_exponents_first() {
    for kind in ["float", "fixed", "int8"] {
        // 4 ms of the link.
        let longest = longest_queue(kind);
        assert!(longest <= 500_000, "{kind}: {longest} bytes wait");
    }
}

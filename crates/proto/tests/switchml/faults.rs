//! Whatever the network does to packets, every collective ends with the right sum.

use tributary_proto::time::Span;

use crate::harness::link::LinkConfig;
use crate::setup::{at_ms, job, reduce, star};

const SIZES: [(usize, bool); 9] =
    [(0, false), (1, true), (63, true), (64, false), (65, true), (100_003, true), (0, true), (360, false), (361, true)];

#[test]
fn sums_are_right_without_loss() {
    for world in [1, 2, 3, 8, 32] {
        let job = job(world, 32, 64);
        let mut network = star(1, LinkConfig::default(), &job);
        reduce(&mut network, &SIZES, at_ms(10_000));
        for host in &network.hosts {
            assert_eq!(host.machine.stats().retransmissions, 0, "world {world}");
        }
    }
}

#[test]
fn sums_are_right_whatever_is_lost_doubled_or_late() {
    for (seed, loss) in [(1, 0.01), (2, 0.05), (3, 0.2)] {
        for world in [1, 2, 3, 8] {
            let job = job(world, 16, 64);
            let link = LinkConfig {
                loss,
                duplicate: 0.05,
                reorder: 0.1,
                reorder_delay: Span::from_millis(3),
                ..LinkConfig::default()
            };
            let mut network = star(seed, link, &job);
            reduce(&mut network, &SIZES, at_ms(1_000_000));
        }
    }
}

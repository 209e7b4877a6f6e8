//! Who leaves may when nobody needs what it holds: not before, and without waiting for others to leave too.

use tributary_numeric::ReduceOp;
use tributary_proto::contract::config::JobConfig;
use tributary_proto::contract::host::HostEvent;

use crate::harness::Network;
use crate::harness::link::LinkConfig;
use crate::harness::reduction::{at_ms, in_place, star};
use crate::setup::{faulty, floats, job, racks};

fn leave(network: &mut Network, host: usize) {
    let now = network.now;
    network.hosts[host].machine.finish(now);
    network.kick(host);
}

fn may_leave(network: &Network, host: usize) -> bool {
    network.hosts[host].machine.may_leave()
}

#[test]
fn one_leaves_while_the_others_stay() {
    for in_racks in [false, true] {
        let job = JobConfig { levels: true, ..job(4, 2, 8, 16) };
        let link = LinkConfig::default();
        let mut network = if in_racks { racks(1, link, 2, &job) } else { star(1, link, &job) };
        for rank in 0..4 {
            network.submit(rank, in_place(&floats(rank, 500), ReduceOp::Sum)).unwrap();
        }
        network.run_until_idle(at_ms(1_000));
        leave(&mut network, 2);
        assert!(!may_leave(&network, 2), "it has not asked");
        network.run_until_idle(at_ms(10_000));
        assert!(may_leave(&network, 2));
        assert!(network.hosts.iter().all(|host| host.timer.is_none()), "and it is quiet again");
    }
}

#[test]
fn who_has_sent_nothing_may_leave_at_once() {
    let mut network = star(1, LinkConfig::default(), &job(2, 2, 8, 16));
    leave(&mut network, 0);
    assert!(may_leave(&network, 0));
}

/// Every rank leaves as soon as it may, and is gone: nobody is left without a result, whatever is lost.
#[test]
fn nobody_leaves_who_is_still_needed() {
    for seed in 0..30 {
        let job = JobConfig { levels: true, ..job(6, 2, 4, 16) };
        let mut network = racks(seed, LinkConfig { loss: 0.05, ..faulty() }, 2, &job);
        for rank in 0..6 {
            network.submit(rank, in_place(&floats(rank, 300), ReduceOp::Sum)).unwrap();
        }
        let (mut leaving, mut left) = ([false; 6], [false; 6]);
        for ms in 1..200_000 {
            network.run_until(at_ms(ms));
            for rank in (0..6).filter(|&rank| !left[rank]).collect::<Vec<_>>() {
                let is_done = matches!(network.hosts[rank].events[..], [HostEvent::Done { .. }]);
                if is_done && !std::mem::replace(&mut leaving[rank], is_done) {
                    leave(&mut network, rank);
                }
                if is_done && may_leave(&network, rank) {
                    network.kill_host(rank);
                    left[rank] = true;
                }
            }
            if left == [true; 6] {
                break;
            }
        }
        assert_eq!(left, [true; 6], "seed {seed}");
    }
}

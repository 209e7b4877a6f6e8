//! Colocated servers are left by their hosts' callers one after the other, and no sum is lost by it.

use tributary_proto::contract::ids::{JobId, JobKey, Rank, ServerId};
use tributary_proto::contract::packet::{Addr, Ecn, Packet};
use tributary_proto::contract::time::Span;
use tributary_proto::contract::wire::{Common, VERSION};

use crate::harness::Network;
use crate::harness::link::LinkConfig;
use crate::setup::{at_ms, check, collective, network};

const WORLD_SIZE: u16 = 3;

fn finish(net: &mut Network, host: usize) {
    let now = net.now;
    net.hosts[host].machine.finish(now);
    net.kick(host);
}

fn may_leave(net: &Network) -> Vec<bool> {
    net.hosts.iter().map(|host| host.machine.may_leave()).collect()
}

/// One sum, whose results reach all but rank 2, which is cut off.
fn sum_without_its_result_at_rank_2() -> Network {
    let mut net = network(7, LinkConfig::default(), WORLD_SIZE, 0);
    for rank in 0..WORLD_SIZE {
        net.submit(rank.into(), collective(rank, 0, 64, None)).unwrap();
    }
    // Block 0 is in the first slot, which is server 0's. Its result to rank 2 is lost.
    let step = Span::from_micros(1);
    while net.hosts[1].events.is_empty() {
        net.hosts[2].alive = false;
        net.run_until(net.now + step);
    }
    net.run_until(net.now + Span::from_micros(100));
    net.hosts[2].alive = true;
    assert_eq!(net.hosts[0].events.len(), 1);
    net
}

#[test]
fn a_host_stays_until_everyone_has_its_results() {
    let mut net = sum_without_its_result_at_rank_2();
    finish(&mut net, 0);
    net.run_until(net.now + Span::from_micros(500));
    assert!(!net.hosts[0].machine.may_leave(), "rank 2 lacks its sum");
    let events = net.run_until_idle(at_ms(1_000));
    assert!(net.hosts[0].machine.may_leave());
    for events in &events {
        check(&events[0], WORLD_SIZE, 0);
    }
}

#[test]
fn all_leave_whatever_is_lost_and_then_have_nothing_to_do() {
    let mut net = network(3, LinkConfig { loss: 0.3, ..LinkConfig::default() }, WORLD_SIZE, 0);
    for rank in 0..WORLD_SIZE {
        net.submit(rank.into(), collective(rank, 0, 5_000, None)).unwrap();
    }
    net.run_until_idle(at_ms(60_000));
    assert_eq!(may_leave(&net), [true; 3], "nobody has to stay who has not finished");
    (0..3).for_each(|host| finish(&mut net, host));
    net.run_until_idle(at_ms(120_000));
    assert_eq!(may_leave(&net), [true; 3]);
    assert!(net.hosts.iter().all(|host| host.machine.poll_timeout().is_none()));
}

#[test]
fn who_finishes_last_does_not_wait_for_those_that_have_left() {
    let mut net = network(3, LinkConfig::default(), WORLD_SIZE, 0);
    for rank in 0..WORLD_SIZE {
        net.submit(rank.into(), collective(rank, 0, 64, None)).unwrap();
    }
    net.run_until_idle(at_ms(1_000));
    for host in [0, 1] {
        finish(&mut net, host);
        net.run_until_idle(at_ms(2_000));
        net.kill_host(host);
    }
    finish(&mut net, 2);
    assert!(net.hosts[2].machine.may_leave());
}

#[test]
fn who_has_failed_holds_nobody_up() {
    let mut net = sum_without_its_result_at_rank_2();
    net.abort(2);
    finish(&mut net, 0);
    net.run_until_idle(at_ms(1_000));
    assert!(net.hosts[0].machine.may_leave());
    finish(&mut net, 2);
    assert!(net.hosts[2].machine.may_leave());
}

#[test]
fn words_of_unauthorised_clients_and_of_a_wrong_length_change_nothing() {
    let mut net = sum_without_its_result_at_rank_2();
    finish(&mut net, 0);
    let leaving = {
        let mut packet = [0; 24];
        let common =
            Common { protocol: tributary_proto::ps::PROTOCOL.code, kind: 32, job: JobId(3), key: JobKey(0x5EED) };
        common.emit(&mut packet);
        packet[23] = 1;
        packet
    };
    let drops = net.hosts[0].machine.stats().drops.total();
    for (from, len) in [(Addr::Server(ServerId(2)), 24), (Addr::Worker(Rank(2)), 23)] {
        let mut parted = leaving[..len].to_vec();
        parted[4] = 33;
        net.inject_to_host(0, from, &parted);
    }
    net.run_until(net.now + Span::from_micros(1));
    assert_eq!(net.hosts[0].machine.stats().drops.total(), drops + 2);
    assert!(!net.hosts[0].machine.may_leave());
}

#[test]
fn the_words_have_these_bytes() {
    let mut net = network(7, LinkConfig::default(), 2, 0);
    for rank in 0..2 {
        net.submit(rank.into(), collective(rank, 0, 64, None)).unwrap();
    }
    net.run_until_idle(at_ms(1_000));
    let (now, mut buf) = (net.now, [0; 512]);
    let of_kind = |kind: u8| {
        let common = [0x54, 0x42, VERSION, 4, kind, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0x5E, 0xED];
        [&common[..], &[0, 0, 0, 0, 0, 0, 0, 1]].concat()
    };
    net.hosts[0].machine.finish(now);
    let leaving = net.hosts[0].machine.poll_transmit(now, &mut buf).unwrap();
    assert_eq!((leaving.to, &buf[..leaving.len]), (Addr::Worker(Rank(1)), &of_kind(32)[..]));
    let packet = Packet { bytes: &of_kind(32), wire_len: leaving.wire_len, ecn: Ecn::NotCapable };
    net.hosts[1].machine.handle_packet(now, Addr::Worker(Rank(0)), packet).unwrap();
    let parted = net.hosts[1].machine.poll_transmit(now, &mut buf).unwrap();
    assert_eq!((parted.to, &buf[..parted.len]), (Addr::Worker(Rank(0)), &of_kind(33)[..]));
}

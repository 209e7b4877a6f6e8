//! The test network itself: what it promises about rate, delay, faults, trees and order.

mod harness;

use std::collections::VecDeque;

use harness::Network;
use harness::link::LinkConfig;
use harness::nodes::Node;
use tributary_proto::contract::drop_reason::DropReason;
use tributary_proto::contract::host::{Collective, Host, HostEvent, HostStats, SubmitError};
use tributary_proto::contract::ids::{OpId, PortId, Rank, TreeId};
use tributary_proto::contract::packet::{Addr, Ecn, Packet, Transmit};
use tributary_proto::contract::pipeline::Pipeline;
use tributary_proto::contract::time::{Span, Time};

/// Sends `outbox` when its timer fires at `start`, and keeps nothing but counts.
struct Talker {
    start: Option<Time>,
    outbox: VecDeque<(Addr, u8)>,
    ready: bool,
    stats: HostStats,
}

impl Talker {
    fn boxed(outbox: impl IntoIterator<Item = (Addr, u8)>) -> Box<dyn Host> {
        let outbox = outbox.into_iter().collect();
        Box::new(Talker { start: Some(Time(1)), outbox, ready: false, stats: HostStats::default() })
    }
}

impl Host for Talker {
    fn submit(&mut self, _now: Time, _collective: Collective) -> Result<OpId, SubmitError> {
        Ok(OpId(0))
    }
    fn handle_packet(&mut self, _now: Time, _from: Addr, _packet: Packet<'_>) -> Result<(), DropReason> {
        self.stats.packets_received += 1;
        Ok(())
    }
    fn handle_timeout(&mut self, _now: Time) {
        self.start = None;
        self.ready = true;
    }
    fn abort(&mut self, _now: Time) {}
    fn poll_transmit(&mut self, _now: Time, buf: &mut [u8]) -> Option<Transmit> {
        let (to, byte) = if self.ready { self.outbox.pop_front()? } else { return None };
        buf[..100].fill(byte);
        Some(Transmit { to, len: 100, wire_len: 1458, ecn: Ecn::Capable })
    }
    fn poll_event(&mut self) -> Option<HostEvent> {
        None
    }
    fn poll_timeout(&self) -> Option<Time> {
        self.start
    }
    fn max_packet_len(&self) -> usize {
        100
    }
    fn stats(&self) -> &HostStats {
        &self.stats
    }
}

fn worker(rank: u16) -> Addr {
    Addr::Worker(Rank(rank))
}

fn pair(count: usize, link: LinkConfig) -> Network {
    let hosts = vec![Talker::boxed((0..count).map(|i| (worker(1), i as u8))), Talker::boxed([])];
    Network::star(7, link, hosts, vec![])
}

const LONG: Time = Time(u64::MAX);

#[test]
fn a_packet_takes_serialisation_and_delay_on_each_link() {
    let mut net = pair(1, LinkConfig::default());
    net.run_until_idle(LONG);
    // 1500 bytes at 1 Gbit/s are 12 us; two links; started at 1 ps.
    assert_eq!(net.now, Time(1) + Span::from_micros(2 * (12 + 10)));
    assert_eq!(net.hosts[1].machine.stats().packets_received, 1);
}

#[test]
fn packets_queue_behind_one_another() {
    let mut net = pair(10, LinkConfig::default());
    net.run_until_idle(LONG);
    assert_eq!(net.now, Time(1) + Span::from_micros(10 * 12 + 12 + 2 * 10));
}

#[test]
fn faults_lose_double_mark_and_overflow_packets() {
    let lossy = LinkConfig { loss: 0.2, duplicate: 0.1, reorder: 0.3, corrupt: 0.05, ..LinkConfig::default() };
    let mut net = pair(1000, lossy);
    net.run_until_idle(LONG);
    let up = net.hosts[0].port.link.counts;
    assert!((150..250).contains(&up.lost) && (20..70).contains(&up.corrupted), "{up:?}");
    let forwarded = net.switches[0].ports[1].link.counts.packets;
    let alive = 1000 - up.lost - up.corrupted;
    assert!(forwarded > alive && forwarded < alive + 150, "{forwarded} of {alive}");

    let mut net = pair(100, LinkConfig { queue_bytes: 75_000, mark_bytes: 30_000, ..LinkConfig::default() });
    net.run_until_idle(LONG);
    let up = net.hosts[0].port.link.counts;
    assert_eq!((up.overflowed, up.marked), (50, 30));
    assert_eq!(net.hosts[1].machine.stats().packets_received, 50);
}

#[test]
fn one_seed_gives_one_trace_and_another_seed_another() {
    let trace = |seed| {
        let link = LinkConfig { loss: 0.1, reorder: 0.3, ..LinkConfig::default() };
        let hosts = (0..4u16).map(|r| Talker::boxed((0..50).map(move |i| (worker((r + 1) % 4), i)))).collect();
        let mut net = Network::star(seed, link, hosts, vec![]);
        net.record_trace();
        net.run_until_idle(LONG);
        net.trace.unwrap()
    };
    assert_eq!(trace(1), trace(1));
    assert_ne!(trace(1), trace(2));
}

#[test]
fn a_tree_routes_between_leaves_over_the_root() {
    let hosts = (0..4u16).map(|r| Talker::boxed([(worker(3 - r), 1)])).collect();
    let switches = vec![(vec![], Some(2)), (vec![], Some(2)), (vec![], None)];
    let mut net = Network::tree(1, LinkConfig::default(), hosts, |host| host / 2, switches);
    net.record_trace();
    net.run_until_idle(LONG);
    assert!(net.hosts.iter().all(|host| host.machine.stats().packets_received == 1));
    let trace = net.trace.unwrap();
    assert_eq!(trace.len(), 4 * 4);
    assert!(trace.iter().filter(|entry| entry.to == Node::Switch(2)).count() == 4);
    assert_eq!(net.switches[0].parent, Some(PortId(2)));
}

#[test]
fn the_dead_send_and_receive_nothing() {
    let mut net = pair(1, LinkConfig::default());
    net.kill_host(1);
    net.run_until_idle(LONG);
    assert_eq!(net.hosts[1].machine.stats().packets_received, 0);

    let mut net = pair(1, LinkConfig::default());
    net.kill_switch(0);
    net.run_until_idle(LONG);
    assert_eq!(net.switches[0].ports[1].link.counts.packets, 0);
}

#[test]
fn unauthorised_packets_reach_the_pipeline_and_are_counted_there() {
    let mut net = Network::star(1, LinkConfig::default(), vec![Talker::boxed([])], vec![Pipeline::default()]);
    net.inject_to_switch(0, TreeId(0), PortId::UNKNOWN, b"hello");
    net.run_until_idle(LONG);
    assert_eq!(net.switches[0].pipelines[0].rejected().get(DropReason::Truncated), 1);
}

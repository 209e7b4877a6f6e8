//! Packets that come too late: copies from two phases ago, which is why packets carry the whole phase and not only its
//! last bit, the paper's `ver`; and packets that cross their result on the way.

use tributary_proto::contract::drop_reason::DropReason;
use tributary_proto::contract::host::Host;
use tributary_proto::contract::ids::{GroupId, PortId, TreeId};
use tributary_proto::contract::packet::{Addr, Ecn, Packet, PacketMut};
use tributary_proto::contract::pipeline::Pipeline;
use tributary_proto::contract::switch::{NoQueues, Verdict};
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::contract::values::Values;

use crate::setup::{collective, host, job, pipelines, sum};

const K: usize = 4;
const NOW: Time = Time::ZERO;

fn update(host: &mut Box<dyn Host>) -> Vec<u8> {
    let mut buf = vec![0; 64];
    let len = host.poll_transmit(NOW, &mut buf).expect("an update").len;
    buf.truncate(len);
    buf
}

fn process(switch: &mut Pipeline, worker: usize, packet: &[u8]) -> (Verdict, Vec<u8>) {
    process_at(NOW, switch, worker, packet)
}

fn process_at(now: Time, switch: &mut Pipeline, worker: usize, packet: &[u8]) -> (Verdict, Vec<u8>) {
    let mut bytes = packet.to_vec();
    let verdict =
        switch.process(now, PortId(worker as u16), &mut PacketMut::new(&mut bytes, Ecn::NotCapable), &NoQueues);
    (verdict, bytes)
}

/// The network holds back a copy of rank 0's update of phase 0 and delivers it in phase 2, which has the same version.
#[test]
fn a_copy_from_two_phases_ago_is_not_taken_for_a_contribution() {
    let job = job(2, 1, K as u16);
    let mut hosts = [host(&job, 0), host(&job, 1)];
    let mut switch = pipelines(Values::Elements, &job, 2).remove(0);
    for (rank, host) in hosts.iter_mut().enumerate() {
        host.submit(NOW, collective(rank as u16, 0, 3 * K, false)).unwrap();
    }
    let mut late = Vec::new();
    for phase in 0..2 {
        let updates = hosts.each_mut().map(update);
        if phase == 0 {
            late = updates[0].clone();
        }
        assert_eq!(process(&mut switch, 0, &updates[0]).0, Verdict::Consume);
        let (verdict, result) = process(&mut switch, 1, &updates[1]);
        assert_eq!(verdict, Verdict::Group(GroupId(0)));
        for host in &mut hosts {
            let packet = Packet { bytes: &result, wire_len: result.len(), ecn: Ecn::NotCapable };
            host.handle_packet(NOW, Addr::Switch(TreeId(0)), packet).unwrap();
            let again = host.handle_packet(NOW, Addr::Switch(TreeId(0)), packet);
            assert_eq!(again, Err(DropReason::Stale), "nor does a host take a result twice");
        }
    }
    let updates = hosts.each_mut().map(update);
    assert_eq!(process(&mut switch, 1, &updates[1]).0, Verdict::Consume);
    // With one bit, `seen[0, x, 0]` is 0 since phase 1: the copy would be added, and the sum be wrong.
    assert_eq!(process(&mut switch, 0, &late).0, Verdict::Drop(DropReason::Stale));
    let (verdict, result) = process(&mut switch, 0, &updates[0]);
    assert_eq!(verdict, Verdict::Group(GroupId(0)));
    let expected: Vec<u8> = sum(2, 0, 3 * K)[2 * K..].iter().flat_map(|value| value.to_be_bytes()).collect();
    assert_eq!(result[36..], expected);
}

/// A slot takes 1 ms a round. What comes again sooner than that after the result left gets no answer the first time.
#[test]
fn a_packet_that_crosses_its_result_is_let_go_once() {
    let job = job(2, 1, K as u16);
    let mut hosts = [host(&job, 0), host(&job, 1)];
    let mut switch = pipelines(Values::Elements, &job, 2).remove(0);
    for (rank, host) in hosts.iter_mut().enumerate() {
        host.submit(NOW, collective(rank as u16, 0, 3 * K, false)).unwrap();
    }
    let at = |us: u64| NOW + Span::from_micros(us);
    for phase in 0..2 {
        let updates = hosts.each_mut().map(update);
        process_at(at(1000 * phase), &mut switch, 0, &updates[0]);
        let (_, result) = process_at(at(1000 * phase), &mut switch, 1, &updates[1]);
        let again = |rank: usize, us, switch: &mut Pipeline| process_at(at(us), switch, rank, &updates[rank]).0;
        if phase == 0 {
            assert_eq!(again(0, 1, &mut switch), Verdict::Port(PortId(0)), "no round was measured yet");
        } else {
            assert_eq!(again(0, 1100, &mut switch), Verdict::Drop(DropReason::Crossed));
            assert_eq!(again(0, 1200, &mut switch), Verdict::Port(PortId(0)), "it has asked twice");
            assert_eq!(again(1, 2100, &mut switch), Verdict::Port(PortId(1)), "a round later it has lost the result");
        }
        for host in &mut hosts {
            let packet = Packet { bytes: &result, wire_len: result.len(), ecn: Ecn::NotCapable };
            host.handle_packet(NOW, Addr::Switch(TreeId(0)), packet).unwrap();
        }
    }
}

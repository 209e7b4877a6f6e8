//! The bytes of every kind of packet, as the machines write them.

use tributary_proto::canary::PROTOCOL;
use tributary_proto::canary::wire::put_children;
use tributary_proto::contract::config::FabricPlan;
use tributary_proto::contract::host::Host;
use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::packet::{Addr, Ecn, Packet};
use tributary_proto::contract::time::{Span, Time};

use crate::harness::golden::{check, f32s, sent, words};

/// A host of two at nodes 0x10 and 0x11, whose trees end in switch 0x20.
fn worker(rank: u16) -> Box<dyn Host> {
    let fabric = FabricPlan {
        hosts: [NodeId(0x10), NodeId(0x11)].into(),
        switches: [NodeId(0x20); 2].into(),
        ..FabricPlan::default()
    };
    crate::harness::golden::host(&PROTOCOL, rank, fabric)
}

#[test]
fn every_kind() {
    let [mut leader, mut host] = [0, 1].map(worker);
    let mut packets = Vec::new();
    let receive = |host: &mut Box<dyn Host>, now: Time, bytes: &[u8]| {
        let packet = Packet { bytes, wire_len: bytes.len(), ecn: Ecn::NotCapable };
        host.handle_packet(now, Addr::Node(NodeId(0x20)), packet).unwrap();
    };
    // One block, led by rank 0: first its exponent, then itself.
    leader.submit(Time::ZERO, f32s(&[1.0, -2.0, 0.5])).unwrap();
    host.submit(Time::ZERO, f32s(&[1.0, -2.0, 4.0])).unwrap();
    let probe = sent(&mut host, Time::ZERO);
    packets.push(("REDUCE of rank 1: place 0, phase 0, no vector, exponent 2", probe.clone()));
    receive(&mut leader, Time::ZERO, &probe);
    let agreed = sent(&mut leader, Time::ZERO);
    packets.push(("BROADCAST of the exponent, to the root", agreed.clone()));
    receive(&mut host, Time::ZERO, &agreed);
    let block = sent(&mut host, Time::ZERO);
    packets.push(("REDUCE of rank 1: place 0, phase 1, three elements", block.clone()));

    let late = Time::ZERO + Span::from_millis(75);
    host.handle_timeout(late);
    let query = sent(&mut host, late);
    packets.push(("QUERY of rank 1", query.clone()));
    receive(&mut leader, late, &query);
    packets.push(("REPORT: both have contributed", sent(&mut leader, late)));
    let request = sent(&mut host, late);
    packets.push(("REQUEST of rank 1", request.clone()));
    receive(&mut leader, late, &request);
    packets.push((
        "FAILURE: all have asked and one contribution is missing, so the block is issued again as attempt 1",
        sent(&mut leader, late),
    ));
    let failure = packets[packets.len() - 1].1.clone();
    receive(&mut host, late, &failure);

    let again = sent(&mut host, late);
    let mut collided = again.clone();
    collided[40] |= 0x80;
    put_children(&mut collided, NodeId(0x21), 35, 1);
    packets.push(("REDUCE of rank 1, attempt 1, after a collision in switch 0x21 on port 35", collided.clone()));
    receive(&mut leader, late, &collided);
    packets.push(("BROADCAST of the sum, a restoration of port 35 of switch 0x21", sent(&mut leader, late)));
    receive(&mut leader, late, &request);
    packets.push(("BROADCAST of the sum, to rank 1 alone", sent(&mut leader, late)));

    let [mut leader, mut host] = [0, 1].map(worker);
    leader.submit(Time::ZERO, f32s(&[1.0, -2.0, 0.5])).unwrap();
    host.submit(Time::ZERO, f32s(&[1.0, -2.0])).unwrap();
    let odd = sent(&mut host, Time::ZERO);
    let packet = Packet { bytes: &odd, wire_len: odd.len(), ecn: Ecn::NotCapable };
    assert!(leader.handle_packet(Time::ZERO, Addr::Node(NodeId(0x20)), packet).is_err());
    packets.push(("MISMATCH: rank 0 brings 3 f32, rank 1 brings 2", sent(&mut leader, Time::ZERO)));
    check("canary", &packets);
}

/// What differs where one rank is the root: the type byte, and where the root is named.
#[test]
fn roots() {
    let mut packets = Vec::new();
    let [mut source, mut host] = [0, 1].map(worker);
    source.submit(Time::ZERO, words(0, &[7, -1])).unwrap();
    host.submit(Time::ZERO, words(0, &[0, 0])).unwrap();
    let join = sent(&mut host, Time::ZERO);
    packets.push(("REDUCE of rank 1 to a broadcast of two words from rank 0", join.clone()));
    let packet = Packet { bytes: &join, wire_len: join.len(), ecn: Ecn::NotCapable };
    source.handle_packet(Time::ZERO, Addr::Node(NodeId(0x20)), packet).unwrap();
    packets.push(("BROADCAST of the words", sent(&mut source, Time::ZERO)));

    let [mut one, mut other] = [0, 1].map(worker);
    one.submit(Time::ZERO, words(0, &[7])).unwrap();
    other.submit(Time::ZERO, words(1, &[7])).unwrap();
    // Nothing has come at the second look either.
    let mut claim = None;
    for ms in [20, 40] {
        one.handle_timeout(Time::ZERO + Span::from_millis(ms));
        let mut buf = vec![0; one.max_packet_len()];
        claim = claim.or(one.poll_transmit(Time::ZERO, &mut buf).map(|transmit| buf[..transmit.len].to_vec()));
    }
    let claim = claim.expect("a claim");
    packets.push(("CLAIM of rank 0, that it is the root of a broadcast of one word", claim.clone()));
    let packet = Packet { bytes: &claim, wire_len: claim.len(), ecn: Ecn::NotCapable };
    assert!(other.handle_packet(Time::ZERO, Addr::Node(NodeId(0x20)), packet).is_err());
    packets.push(("MISMATCH: rank 1 brings a broadcast from rank 1, rank 0 one from 0", sent(&mut other, Time::ZERO)));
    check("canary_roots", &packets);
}

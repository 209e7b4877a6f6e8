//! The bytes of every kind of packet, as the machines write them.

use tributary_numeric::ReduceOp;
use tributary_proto::contract::config::Parent;
use tributary_proto::contract::host::{Collective, Host};
use tributary_proto::contract::ids::{ChildId, GroupId, PortId, Rank};
use tributary_proto::contract::packet::Ecn;
use tributary_proto::contract::switch::{Switch, Verdict};
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::flare::PROTOCOL;
use tributary_proto::tensors::{ElementTensor, InPlaceStorage};

use crate::harness::golden::{self, check, notice, sent};

fn host(rank: u16) -> Box<dyn Host> {
    golden::host(&PROTOCOL, rank, Default::default())
}

fn new_switch(parent: Option<Parent>) -> Box<dyn Switch> {
    golden::switch(&PROTOCOL, 2, parent)
}

fn processed(switch: &mut Box<dyn Switch>, from: u16, packet: &[u8]) -> (Verdict, Vec<u8>) {
    golden::processed(switch, from, packet, Ecn::NotCapable)
}

fn collective<T: tributary_numeric::Element>(data: &[T], op: ReduceOp) -> Collective {
    let tensor = ElementTensor::new(InPlaceStorage::new(data.to_vec()), op);
    Collective { tensor: Box::new(tensor), deadline: Some(Time::ZERO + Span::from_millis(100)) }
}

#[test]
fn every_kind() {
    let (mut hosts, mut switch) = ([host(0), host(1)], new_switch(None));
    let mut packets = Vec::new();
    // Two elements in block 0, which fill it, and one in block 1.
    for (rank, host) in hosts.iter_mut().enumerate() {
        host.submit(Time::ZERO, collective(&[1.0, -2.0 + rank as f64, 0.25], ReduceOp::Min)).unwrap();
    }
    let updates = hosts.each_mut().map(|host| sent(host, Time::ZERO));
    packets.push(("UPDATE of rank 1: slot 0, phase 0, the least of 3 f64 in all", updates[1].clone()));
    processed(&mut switch, 0, &updates[0]);

    let asks_at = hosts[0].poll_timeout().map(|_| Time::ZERO + Span::from_millis(75)).expect("a timer");
    hosts[0].handle_timeout(asks_at);
    let query = sent(&mut hosts[0], asks_at);
    packets.push(("QUERY of rank 0 about slot 0, phase 0", query.clone()));
    assert_eq!(processed(&mut switch, 0, &query).0, Verdict::Consume);
    packets.push(("REPORT: rank 1 of 2 is missing", notice(&mut switch)));

    let mut odd = updates[1].clone();
    odd[21] = ReduceOp::Max.code();
    processed(&mut switch, 1, &odd);
    packets.push(("MISMATCH: rank 0 brings the least of 3 f64, rank 1 the greatest", notice(&mut switch)));

    let mut switch = new_switch(None);
    processed(&mut switch, 0, &updates[0]);
    let (verdict, result) = processed(&mut switch, 1, &updates[1]);
    assert_eq!(verdict, Verdict::Group(GroupId(0)));
    packets.push(("RESULT along the tree over ranks 0 and 1", result));

    let mut leaf = new_switch(Some(Parent { port: PortId(2), child: ChildId(5) }));
    processed(&mut leaf, 0, &updates[0]);
    let (verdict, partial) = processed(&mut leaf, 1, &updates[1]);
    assert_eq!(verdict, Verdict::Port(PortId(2)));
    packets.push(("UPDATE of a switch that is child 5: the same ranks", partial));
    check("flare", &packets);
}

/// Sums of codes: packets have an exponent and no order.
#[test]
fn codes() {
    let floats = |rank| vec![1.0, -2.0, 0.5, 3.0 + f32::from(rank), f32::NAN];
    let sum = golden::scaled(&PROTOCOL, &[("numbers", "int8")], floats);
    let packets = [
        ("PROBE of rank 1: 5 elements, exponent 2, one is not finite", sum.probe),
        ("UPDATE of rank 1: codes of the range 4; the next block is unknown", sum.update),
        ("RESULT of 8 bits", sum.result),
    ];
    check("flare_codes", &packets);
}

/// What differs where one rank is the root: the operator, and where the root is named.
#[test]
fn roots() {
    let mut worker = host(1);
    let to = ElementTensor::new(InPlaceStorage::new(vec![7u8, 255]), ReduceOp::Bor).to(Rank(0x2AB));
    worker.submit(Time::ZERO, Collective { tensor: Box::new(to), deadline: None }).unwrap();
    let packets = [("UPDATE of rank 1, to a reduce of two elements for rank 0x2ab", sent(&mut worker, Time::ZERO))];
    check("flare_roots", &packets);
}

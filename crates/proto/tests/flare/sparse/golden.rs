//! The bytes of every kind of sparse packet, as the machines write them.

use tributary_numeric::{ReduceOp, bf16};
use tributary_proto::contract::config::{Below, Parent};
use tributary_proto::contract::host::{Collective, Host};
use tributary_proto::contract::ids::{ChildId, PortId, TreeId};
use tributary_proto::contract::packet::{Addr, Ecn, Packet, PacketMut};
use tributary_proto::contract::switch::{NoQueues, Switch, Verdict};
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::contract::values::Values;
use tributary_proto::flare::PROTOCOL;
use tributary_proto::flare::sparse::wire::Kind;

use super::{job, tensor};
use crate::harness::golden::check;
use crate::harness::reduction::{host, switch_config};

/// Pairs of four bytes, three a packet, in blocks of 10.
fn new_host(rank: u16, indices: &[u32]) -> Box<dyn Host> {
    let mut host = host(&job(2, 2, 3, &[("span", "10")]), rank, rank);
    let pairs: Vec<(u32, bf16)> = indices.iter().map(|&index| (index, bf16::from_f32(1.0 + index as f32))).collect();
    let tensor = Box::new(tensor(&pairs, 12, ReduceOp::Sum));
    host.submit(Time::ZERO, Collective { tensor, deadline: Some(Time::ZERO + Span::from_millis(100)) }).unwrap();
    host
}

fn new_switch(storage: &str, parent: Option<Parent>) -> Box<dyn Switch> {
    let given = [("sparse", storage), ("span", "10"), ("hash_slots", "1"), ("spill", "1")];
    PROTOCOL.switch(Values::Elements, &switch_config(&job(2, 2, 3, &given), 0, &Below::workers(2), parent)).unwrap()
}

const FROM: Addr = Addr::Switch(TreeId(0));

fn received(bytes: &[u8]) -> Packet<'_> {
    Packet { bytes, wire_len: bytes.len(), ecn: Ecn::NotCapable }
}

fn give(switch: &mut Box<dyn Switch>, from: u16, packet: &[u8]) -> Verdict {
    let mut bytes = packet.to_vec();
    switch.process(Time::ZERO, PortId(from), &mut PacketMut::new(&mut bytes, Ecn::NotCapable), &NoQueues)
}

/// All that a host sends now.
fn all_sent(host: &mut Box<dyn Host>, now: Time) -> Vec<Vec<u8>> {
    let mut buf = vec![0; host.max_packet_len()];
    std::iter::from_fn(|| host.poll_transmit(now, &mut buf).map(|sent| buf[..sent.len].to_vec())).collect()
}

/// The packet of a kind that a switch sends now; the others are gone.
fn made(switch: &mut Box<dyn Switch>, kind: Kind) -> Vec<u8> {
    let mut buf = vec![0; 1500];
    let made = std::iter::from_fn(|| switch.poll_transmit(Time::ZERO, &mut buf).map(|made| buf[..made.len].to_vec()));
    made.collect::<Vec<_>>().into_iter().find(|packet| packet[4] == kind as u8).expect("it sends one")
}

#[test]
fn every_kind() {
    let mut hosts = [new_host(0, &[1, 2, 3, 9]), new_host(1, &[3, 11])];
    let [of_0, of_1] = hosts.each_mut().map(|host| all_sent(host, Time::ZERO));
    let mut packets = vec![
        ("SHARD 0 of rank 0: slot 0, phase 0, three of the elements of 12 bf16", of_0[0].clone()),
        ("SHARD 1, the last of 2", of_0[1].clone()),
        ("SHARD of rank 0 of block 1, which is empty", of_0[2].clone()),
    ];
    let mut switch = new_switch("array", None);
    give(&mut switch, 0, &of_0[0]);
    give(&mut switch, 0, &of_0[1]);
    let late = Time::ZERO + Span::from_millis(75);
    hosts.iter_mut().for_each(|host| host.handle_timeout(late));
    let [late_0, late_1] = hosts.each_mut().map(|host| all_sent(host, late));
    packets.push(("QUERY of rank 1 about slot 0, phase 0", late_1[0].clone()));
    give(&mut switch, 1, &late_1[0]);
    packets.push(("REPORT: rank 1 of 2 is missing", made(&mut switch, Kind::Report)));
    let asks = late_0.iter().find(|packet| packet[4] == Kind::Shard as u8 && packet[27] == 0 && packet[36] & 0x80 != 0);
    packets.push(("SHARD 1 again, which asks", asks.expect("it waits").clone()));
    give(&mut switch, 0, asks.expect("it waits"));
    let taken = made(&mut switch, Kind::Taken);
    packets.push(("TAKEN: both shards of rank 0 have come", taken.clone()));
    let mut all_taken = taken;
    all_taken[36] |= 0x40;
    hosts[0].handle_packet(late, FROM, received(&all_taken)).unwrap();
    let want = all_sent(&mut hosts[0], late).pop().expect("it asks for the sum, which has gone");
    packets.push(("WANT of rank 0: no shard of the sum has come", want));

    give(&mut switch, 1, &of_1[0]);
    let sum = made(&mut switch, Kind::Sum);
    packets.push(("SUM: the first three of four elements of the result", sum.clone()));
    let mut asking = sum;
    asking[36] |= 0x80;
    hosts[1].handle_packet(late, FROM, received(&asking)).unwrap();
    packets.push((
        "HAVE of rank 1, that was asked: the sum's shard 0",
        all_sent(&mut hosts[1], late).pop().expect("an answer"),
    ));

    let mut leaf = new_switch("hash", Some(Parent { port: PortId(2), child: ChildId(5) }));
    give(&mut leaf, 0, &of_0[0]);
    packets.push((
        "SHARD of a switch that is child 5: one element that has spilled, as binary32",
        made(&mut leaf, Kind::Shard),
    ));
    let mut odd = of_1[0].clone();
    odd[21] = ReduceOp::Max.code();
    give(&mut leaf, 1, &odd);
    let mismatch = made(&mut leaf, Kind::Mismatch);
    packets.push(("MISMATCH: rank 0 brings the sum of 12 bf16, rank 1 the greatest", mismatch));
    check("flare_sparse", &packets);
}

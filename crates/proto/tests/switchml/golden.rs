//! The bytes of every kind of packet, as the machines write them.

use tributary_numeric::ReduceOp;
use tributary_proto::contract::config::{HostConfig, JobConfig};
use tributary_proto::contract::host::{Collective, Host};
use tributary_proto::contract::ids::{GroupId, PortId, Rank, TreeId};
use tributary_proto::contract::packet::{Addr, Ecn, Packet, PacketMut};
use tributary_proto::contract::switch::{NoQueues, Switch, Verdict};
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::contract::values::Values;
use tributary_proto::switchml::PROTOCOL;
use tributary_proto::tensors::{ElementTensor, InPlaceStorage};

use crate::harness::golden::{self, check, f32s, notice, sent, words};
use crate::setup::{in_place, pipelines};

fn host(rank: u16) -> Box<dyn Host> {
    golden::host(&PROTOCOL, rank, Default::default())
}

fn new_switch() -> Box<dyn Switch> {
    golden::switch(&PROTOCOL, 2, None)
}

fn processed(switch: &mut Box<dyn Switch>, from: u16, packet: &[u8]) -> (Verdict, Vec<u8>) {
    golden::processed(switch, from, packet, Ecn::NotCapable)
}

#[test]
fn every_kind() {
    let (mut hosts, mut switch) = ([host(0), host(1)], new_switch());
    let mut packets = Vec::new();
    // Four elements in block 0, one in block 1, and the next collective's in block 2, in slot 0 again.
    for (rank, host) in hosts.iter_mut().enumerate() {
        host.submit(Time::ZERO, f32s(&[1.0, -2.0, 0.5, 3.0 + rank as f32, 0.25])).unwrap();
        host.submit(Time::ZERO, f32s(&[f32::INFINITY, 1e-3])).unwrap();
    }
    let probes = hosts.each_mut().map(|host| sent(host, Time::ZERO));
    packets.push(("PROBE of rank 1: slot 0, phase 0, 5 elements in all, exponent 2", probes[1].clone()));
    processed(&mut switch, 0, &probes[0]);
    let (_, agreed) = processed(&mut switch, 1, &probes[1]);
    packets.push(("RESULT of the probes", agreed.clone()));
    // Slot 1's probes are not needed here.
    hosts.iter_mut().for_each(|host| drop(sent(host, Time::ZERO)));
    for host in &mut hosts {
        let packet = Packet { bytes: &agreed, wire_len: agreed.len(), ecn: Ecn::NotCapable };
        host.handle_packet(Time::ZERO, Addr::Switch(TreeId(0)), packet).unwrap();
    }
    let updates = hosts.each_mut().map(|host| sent(host, Time::ZERO));
    packets.push(("UPDATE of rank 1: slot 0, phase 1; its next block is not finite", updates[1].clone()));
    processed(&mut switch, 0, &updates[0]);

    let asks_at = hosts[0].poll_timeout().map(|_| Time::ZERO + Span::from_millis(75)).expect("a timer");
    hosts[0].handle_timeout(asks_at);
    let query = sent(&mut hosts[0], asks_at);
    packets.push(("QUERY of rank 0 about slot 0, phase 1", query.clone()));
    assert_eq!(processed(&mut switch, 0, &query).0, Verdict::Consume);
    packets.push(("REPORT: rank 1 of 2 is missing", notice(&mut switch)));

    let mut odd = updates[1].clone();
    odd[19] += 1;
    odd.truncate(36 + 16);
    processed(&mut switch, 1, &odd);
    packets.push(("MISMATCH: rank 0 brings 5 f32, rank 1 brings 6", notice(&mut switch)));

    let mut switch = new_switch();
    for probe in [&probes[0], &probes[1]] {
        processed(&mut switch, u16::from(probe[25]), probe);
    }
    processed(&mut switch, 0, &updates[0]);
    let (verdict, result) = processed(&mut switch, 1, &updates[1]);
    assert_eq!(verdict, Verdict::Group(GroupId(0)));
    packets.push(("RESULT of the updates", result));
    check("switchml", &packets);
}

/// Sums of codes: a byte an element up, one or two down.
#[test]
fn codes() {
    let mut packets = Vec::new();
    for (down, what) in [
        ("8", "RESULT of 8 bits: the sums are divided by 2 and rounded to even, and -128 is not finite"),
        ("16", "RESULT of 16 bits, in a packet of its own: the last UPDATE has no room for it"),
    ] {
        let floats = |rank| vec![1.0, -2.0, 0.5, 3.0 + f32::from(rank), f32::NAN];
        let sum = golden::scaled(&PROTOCOL, &[("numbers", "int8"), ("down", down)], floats);
        let fits = down == "8";
        if fits {
            packets.push(("PROBE of rank 1: 5 elements, exponent 2, one is not finite", sum.probe));
            packets.push(("UPDATE of rank 1: codes of the range 4; -128 is not finite", sum.update));
        }
        assert_eq!(sum.verdict, if fits { Verdict::Group(GroupId(0)) } else { Verdict::Consume });
        packets.push((what, sum.result));
    }
    check("switchml_codes", &packets);
}

/// Packets with a checksum: the low half of the key is exclusive-or the CRC32C of all other bytes.
#[test]
fn sealed() {
    let given = [("integrity".to_owned(), "crc32c".to_owned())].into();
    let job = JobConfig { options: PROTOCOL.options.read(&given).unwrap(), ..golden::job(&PROTOCOL) };
    let mut hosts = [0, 1].map(|rank| PROTOCOL.host(Values::Elements, &HostConfig::worker(job.clone(), Rank(rank))));
    let mut pipeline = pipelines(Values::Elements, &job, 2).remove(0);
    let updates = hosts.each_mut().map(|host| {
        host.submit(Time::ZERO, in_place(vec![1, 2, 3, 4], ReduceOp::Sum)).unwrap();
        sent(host, Time::ZERO)
    });
    let mut packets = vec![("UPDATE of rank 1: slot 0, phase 0; its checksum is in the key", updates[1].clone())];
    for (port, mut update) in (0..).zip(updates) {
        let mut packet = PacketMut::new(&mut update, Ecn::NotCapable);
        pipeline.process(Time::ZERO, PortId(port), &mut packet, &NoQueues);
        if port == 1 {
            packets.push(("RESULT: it has a checksum of its own", update));
        }
    }
    check("switchml_sealed", &packets);
}

/// Rotated codes: two elements a byte up, a byte an element down; and a block in which an element is not finite.
#[test]
fn rotated_codes() {
    let mut packets = Vec::new();
    let block = [1.0, -2.0, 0.5, 3.0, 0.25];
    for (last, [probe, update, sum]) in [
        (
            0.125,
            [
                "PROBE of rank 1: 6 elements, norm 2^(123/64)",
                "UPDATE of rank 1: 8 rotated elements, the first four in the low halves of bytes",
                "RESULT: the sums of levels, in a packet of its own",
            ],
        ),
        (
            f32::NAN,
            [
                "PROBE of rank 1: one element is not finite",
                "UPDATE of rank 1: 15 is an element that is not finite, and nothing else is sent",
                "RESULT: what is not 0 is not finite",
            ],
        ),
    ] {
        let floats = |_| block.into_iter().chain([last]).collect();
        let rotated = golden::scaled(&PROTOCOL, &[("numbers", "thc4")], floats);
        assert_eq!(rotated.verdict, Verdict::Consume);
        packets.extend([(probe, rotated.probe), (update, rotated.update), (sum, rotated.result)]);
    }
    check("switchml_rotated", &packets);
}

/// What differs where one rank is the root: the operator, and where the root is named.
#[test]
fn roots() {
    let mut packets = Vec::new();
    let mut worker = host(1);
    let to = ElementTensor::new(InPlaceStorage::new(vec![7i32, -1]), ReduceOp::Sum).to(Rank(0x2AB));
    worker.submit(Time::ZERO, Collective { tensor: Box::new(to), deadline: None }).unwrap();
    packets.push(("UPDATE of rank 1, to a reduce of two elements for rank 0x2ab", sent(&mut worker, Time::ZERO)));
    worker.submit(Time::ZERO, words(0, &[7])).unwrap();
    packets.push(("UPDATE of rank 1, to a broadcast of one word from rank 0", sent(&mut worker, Time::ZERO)));
    check("switchml_roots", &packets);
}

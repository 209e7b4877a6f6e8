//! The bytes of every kind of packet, as the machines write them.

use tributary_numeric::ReduceOp;
use tributary_proto::aggregation::best_effort::wire::{Flags, Header, Kind};
use tributary_proto::contract::config::{FabricPlan, JobConfig, SharedJob, SharedSwitchConfig};
use tributary_proto::contract::host::{Collective, Host};
use tributary_proto::contract::ids::{NodeId, PortId};
use tributary_proto::contract::packet::{Addr, Ecn, Packet, PacketMut};
use tributary_proto::contract::pipeline::Pipeline;
use tributary_proto::contract::switch::NoQueues;
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::contract::values::Values;

use crate::harness::golden::{check, f32s, job, sent};
use crate::setup::{acknowledging, collective, switch};

/// A job of three at nodes 0x10 to 0x12, round switch 0x20.
fn three() -> (JobConfig, FabricPlan) {
    let hosts = [NodeId(0x10), NodeId(0x11), NodeId(0x12)].into();
    let fabric = FabricPlan { hosts, switches: [NodeId(0x20); 3].into(), ..FabricPlan::default() };
    (JobConfig { world_size: 3, ..job(acknowledging()) }, fabric)
}

fn worker(rank: u16) -> Box<dyn Host> {
    use tributary_proto::contract::config::HostConfig;
    use tributary_proto::contract::ids::Rank;
    let (job, fabric) = three();
    let config = HostConfig { fabric, ..HostConfig::worker(job, Rank(rank)) };
    acknowledging().host(Values::Elements, &config)
}

fn switch_of_three() -> Pipeline {
    let protocol = acknowledging();
    let (job, fabric) = three();
    let config = SharedSwitchConfig { node: NodeId(0x20), ..switch(protocol, &[]) };
    let mut pipeline = Pipeline::default();
    pipeline.share(protocol.code, protocol.shared_switch(Values::Elements, &config).expect("jobs share"));
    let ports = (0..3).map(|port| Some(PortId(port))).collect();
    pipeline.install_shared(&SharedJob { job, fabric, ports, trees: Vec::new(), share_bytes: 0 }, Vec::new());
    pipeline
}

fn receive(host: &mut Box<dyn Host>, now: Time, bytes: &[u8]) {
    let packet = Packet { bytes, wire_len: bytes.len(), ecn: Ecn::NotCapable };
    host.handle_packet(now, Addr::Node(NodeId(0x20)), packet).unwrap();
}

/// A packet through the switch: what becomes of it, and what the switch says besides.
fn pass(pipeline: &mut Pipeline, port: u16, bytes: &[u8], ecn: Ecn) -> (Vec<u8>, Option<Vec<u8>>) {
    let mut bytes = bytes.to_vec();
    let mut packet = PacketMut::new(&mut bytes, ecn);
    pipeline.process(Time::ZERO, PortId(port), &mut packet, &NoQueues);
    let len = packet.len;
    bytes.truncate(len);
    let mut buf = vec![0; 256];
    let made = pipeline.poll_transmit(Time::ZERO, &mut buf).map(|made| buf[..made.len].to_vec());
    (bytes, made)
}

fn i32s(values: &[i32]) -> Collective {
    Collective { deadline: f32s(&[]).deadline, ..collective(values.to_vec(), ReduceOp::Sum) }
}

type Packets = Vec<(&'static str, Vec<u8>)>;

/// One block, which rank 0 serves: a sum of integers, and what becomes of it if rank 1 sends again. Gives a GACK.
fn one_block(packets: &mut Packets) -> Vec<u8> {
    let [mut server, mut one, mut two] = [0, 1, 2].map(worker);
    let mut pipeline = switch_of_three();
    for (host, values) in [(&mut server, [1, 2, 3]), (&mut one, [10, 20, 30]), (&mut two, [100, 200, 300])] {
        host.submit(Time::ZERO, i32s(&values)).unwrap();
    }
    let [first, second] = [&mut one, &mut two].map(|host| sent(host, Time::ZERO));
    packets.push(("GRADIENT of rank 1, number 1, three elements", first.clone()));
    let (gack, _) = pass(&mut pipeline, 1, &first, Ecn::CongestionExperienced);
    packets.push(("GACK of the switch to rank 1, which met a long queue; PROG is 1", gack.clone()));
    receive(&mut one, Time::ZERO, &gack);
    let (_, sum) = pass(&mut pipeline, 2, &second, Ecn::Capable);
    let sum = sum.expect("all but the server have contributed");
    packets.push(("SUM of ranks 1 and 2, full, by the switch next to the server", sum.clone()));
    receive(&mut server, Time::ZERO, &sum);
    packets.push(("AACK of rank 0, for all behind the switch", sent(&mut server, Time::ZERO)));

    // The same with rank 1's gradient sent again: a sum that is not full.
    let mut pipeline = switch_of_three();
    pass(&mut pipeline, 2, &second, Ecn::Capable);
    let mut again = first.clone();
    let header = Header::parse(&first).unwrap();
    Header { flags: Flags::RESEND, ..header }.emit(Kind::Gradient, &mut again);
    packets.push(("GRADIENT of rank 1 again", again.clone()));
    let mut alone = switch_of_three();
    pass(&mut alone, 1, &first, Ecn::Capable);
    packets.push((
        "SUM of rank 1 alone, with a bitmap, because rank 1 has sent again",
        pass(&mut alone, 1, &again, Ecn::Capable).1.unwrap(),
    ));
    gack
}

/// Rank 0 misses both, and rank 1 asks.
fn questions(packets: &mut Packets, gack: &[u8]) {
    let [mut server, mut one] = [0, 1].map(worker);
    server.submit(Time::ZERO, i32s(&[1, 2, 3])).unwrap();
    one.submit(Time::ZERO, i32s(&[10, 20, 30])).unwrap();
    let gradient = sent(&mut one, Time::ZERO);
    receive(&mut one, Time::ZERO, gack);
    let late = Time::ZERO + Span::from_millis(80);
    one.handle_timeout(late);
    let query = sent(&mut one, late);
    packets.push(("QUERY of rank 1", query.clone()));
    receive(&mut server, late, &query);
    packets.push(("NEED: rank 0 has nothing of rank 1", sent(&mut server, late)));
    receive(&mut server, late, &gradient);
    packets.push(("GACK of rank 0 to rank 1", sent(&mut server, late)));
    receive(&mut server, late, &query);
    packets.push(("REPORT: nothing is known of rank 2", sent(&mut server, late)));
}

/// Floats, whose scale nobody knows: first their exponents.
fn floats(packets: &mut Packets) {
    let [mut server, mut one, mut two] = [0, 1, 2].map(worker);
    server.submit(Time::ZERO, f32s(&[1.0, -2.0, 0.5])).unwrap();
    one.submit(Time::ZERO, f32s(&[1.0, -2.0, 4.0])).unwrap();
    two.submit(Time::ZERO, f32s(&[1.0, f32::INFINITY, 4.0])).unwrap();
    for host in [&mut one, &mut two] {
        let probe = sent(host, Time::ZERO);
        receive(&mut server, Time::ZERO, &probe);
        packets.push(("GRADIENT that probes: exponent 2, of rank 2 with an infinity", probe));
        sent(&mut server, Time::ZERO);
    }
    let word = sent(&mut server, Time::ZERO);
    packets.push(("AACK: send again as attempt 1, scaled by 2^2 with counters", word.clone()));
    receive(&mut one, Time::ZERO, &word);
    packets.push(("GRADIENT of rank 1, attempt 1", sent(&mut one, Time::ZERO)));
}

/// Ranks disagree, and leave.
fn troubles(packets: &mut Packets) {
    let [mut server, mut one] = [0, 1].map(worker);
    server.submit(Time::ZERO, i32s(&[1, 2, 3])).unwrap();
    one.submit(Time::ZERO, f32s(&[1.0])).unwrap();
    let other = sent(&mut one, Time::ZERO);
    let packet = Packet { bytes: &other, wire_len: other.len(), ecn: Ecn::NotCapable };
    server.handle_packet(Time::ZERO, Addr::Node(NodeId(0x20)), packet).unwrap_err();
    packets.push(("MISMATCH: rank 0 brings three i32, rank 1 one f32", sent(&mut server, Time::ZERO)));

    // Rank 1 leaves.
    let [mut server, mut one] = [0, 1].map(worker);
    one.finish(Time::ZERO);
    let leaving = sent(&mut one, Time::ZERO);
    packets.push(("LEAVING of rank 1 after no collective, to rank 0", leaving.clone()));
    receive(&mut server, Time::ZERO, &leaving);
    packets.push(("PARTED of rank 0", sent(&mut server, Time::ZERO)));
}

#[test]
fn every_kind() {
    let mut packets = Packets::new();
    let gack = one_block(&mut packets);
    questions(&mut packets, &gack);
    floats(&mut packets);
    troubles(&mut packets);
    for (what, bytes) in &packets {
        let header = Header::parse(bytes).unwrap_or_else(|reason| panic!("{what}: {reason:?}"));
        let mut again = bytes.clone();
        header.emit(Kind::of(bytes).unwrap(), &mut again);
        assert_eq!(&again, bytes, "{what}");
    }
    check("best_effort", &packets);
}

//! The bytes of every kind of packet, as the machines write them, against the files in `tests/golden/`.
//!
//! A change of the wire format is seen here first. If it is wanted: raise `wire::VERSION`, run with
//! `TRIBUTARY_BLESS=1`, and look at the difference.

use std::fmt::Write;
use std::path::PathBuf;

use tributary_numeric::ReduceOp;
use tributary_proto::canary::wire as canary_wire;
use tributary_proto::collective::tensors::{ElementTensor, InPlaceStorage};
use tributary_proto::collective::values::Values;
use tributary_proto::contract::config::{Below, FabricPlan, HostConfig, JobConfig, SwitchConfig, TimerConfig};
use tributary_proto::contract::host::{Collective, Host};
use tributary_proto::contract::ids::{ChildId, GroupId, JobId, JobKey, NodeId, PortId, Rank, ShardId};
use tributary_proto::contract::options::Options;
use tributary_proto::contract::packet::{Addr, Ecn, Packet, PacketMut};
use tributary_proto::contract::switch::{NoQueues, Switch, Verdict};
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::contract::wire::{Common, kind};

const JOB: JobId = JobId(0x0102);
const KEY: JobKey = JobKey(0xA1A2_A3A4_A5A6_A7A8);

/// Compares packets, each with a line that explains it, with a file of hexadecimal digits.
fn check(name: &str, packets: &[(&str, Vec<u8>)]) {
    let mut text = String::new();
    for (what, bytes) in packets {
        writeln!(text, "# {what}").unwrap();
        for line in bytes.chunks(16) {
            let words: Vec<String> =
                line.chunks(2).map(|word| word.iter().map(|byte| format!("{byte:02x}")).collect()).collect();
            writeln!(text, "{}", words.join(" ")).unwrap();
        }
    }
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden").join(format!("{name}.hex"));
    if std::env::var_os("TRIBUTARY_BLESS").is_some() {
        std::fs::write(&path, &text).expect("the golden file is written");
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!(text, golden, "{name}: the bytes on the wire have changed");
}

#[test]
fn the_common_header() {
    let mut packets = Vec::new();
    for (what, kind) in [("PING", kind::PING), ("PONG", kind::PONG)] {
        let mut bytes = vec![0; 16];
        Common { protocol: tributary_proto::switchml::PROTOCOL.code, kind, job: JOB, key: KEY }.emit(&mut bytes);
        packets.push((what, bytes));
    }
    check("common", &packets);
}

/// SwitchML's options for sums in fixed point, in which it has all its packets.
fn fixed_point() -> Options {
    let given = [("numbers".to_owned(), "fixed".to_owned())].into();
    tributary_proto::switchml::PROTOCOL.options.read(&given).expect("it is an option")
}

fn job() -> JobConfig {
    JobConfig {
        job: JOB,
        key: KEY,
        protocol: 1,
        world: 2,
        slots: 2,
        elements_per_packet: 4,
        shards: 1,
        levels: false,
        options: fixed_point(),
    }
}

fn switchml_host(rank: u16) -> Box<dyn Host> {
    let config = HostConfig {
        job: job(),
        rank: Rank(rank),
        child: ChildId(rank),
        serves: None,
        timers: TimerConfig::default(),
        fabric: Default::default(),
    };
    tributary_proto::switchml::PROTOCOL.host(Values::Elements, &config)
}

fn switchml_switch() -> Box<dyn Switch> {
    let config = SwitchConfig {
        job: job(),
        shard: ShardId(0),
        members: vec![PortId(0), PortId(1)],
        below: Below::workers(2),
        group: GroupId(0),
        parent: None,
    };
    tributary_proto::switchml::PROTOCOL.switch(Values::Elements, &config).expect("SwitchML has a program")
}

fn f32s(values: &[f32]) -> Collective {
    let tensor = ElementTensor::new(InPlaceStorage::new(values.to_vec()), ReduceOp::Sum);
    Collective { tensor: Box::new(tensor), deadline: Some(Time::ZERO + Span::from_millis(100)) }
}

fn sent(host: &mut Box<dyn Host>, now: Time) -> Vec<u8> {
    let mut buf = vec![0; host.max_packet_len()];
    let len = host.poll_transmit(now, &mut buf).expect("a packet").len;
    buf.truncate(len);
    buf
}

fn processed(switch: &mut Box<dyn Switch>, from: u16, packet: &[u8]) -> (Verdict, Vec<u8>) {
    let mut bytes = packet.to_vec();
    let verdict = switch.process(Time::ZERO, PortId(from), &mut PacketMut::new(&mut bytes, Ecn::NotCapable), &NoQueues);
    (verdict, bytes)
}

fn notice(switch: &mut Box<dyn Switch>) -> Vec<u8> {
    let mut buf = vec![0; 1500];
    let len = switch.poll_transmit(Time::ZERO, &mut buf).expect("a notice").len;
    buf.truncate(len);
    buf
}

#[test]
fn switchml() {
    let (mut hosts, mut switch) = ([switchml_host(0), switchml_host(1)], switchml_switch());
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
        host.handle_packet(Time::ZERO, Addr::Switch(ShardId(0)), packet).unwrap();
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

    let mut switch = switchml_switch();
    for probe in [&probes[0], &probes[1]] {
        processed(&mut switch, u16::from(probe[25]), probe);
    }
    processed(&mut switch, 0, &updates[0]);
    let (verdict, result) = processed(&mut switch, 1, &updates[1]);
    assert_eq!(verdict, Verdict::Group(GroupId(0)));
    packets.push(("RESULT of the updates", result));
    check("switchml", &packets);
}

/// A host of two at nodes 0x10 and 0x11, whose trees end in switch 0x20.
fn canary_host(rank: u16) -> Box<dyn Host> {
    let fabric = FabricPlan {
        hosts: [NodeId(0x10), NodeId(0x11)].into(),
        roots: [NodeId(0x20)].into(),
        roots_on_way: true,
        reissues: 3,
    };
    let config = HostConfig {
        job: JobConfig { protocol: 3, options: Default::default(), ..job() },
        rank: Rank(rank),
        child: ChildId(rank),
        serves: None,
        timers: TimerConfig::default(),
        fabric,
    };
    tributary_proto::canary::PROTOCOL.host(Values::Elements, &config)
}

#[test]
fn canary() {
    let [mut leader, mut host] = [0, 1].map(canary_host);
    let mut packets = Vec::new();
    let hear = |host: &mut Box<dyn Host>, now: Time, bytes: &[u8]| {
        let packet = Packet { bytes, wire_len: bytes.len(), ecn: Ecn::NotCapable };
        host.handle_packet(now, Addr::Node(NodeId(0x20)), packet).unwrap();
    };
    // One block, led by rank 0: first its exponent, then itself.
    leader.submit(Time::ZERO, f32s(&[1.0, -2.0, 0.5])).unwrap();
    host.submit(Time::ZERO, f32s(&[1.0, -2.0, 4.0])).unwrap();
    let probe = sent(&mut host, Time::ZERO);
    packets.push(("REDUCE of rank 1: place 0, phase 0, no vector, exponent 2", probe.clone()));
    hear(&mut leader, Time::ZERO, &probe);
    let agreed = sent(&mut leader, Time::ZERO);
    packets.push(("BROADCAST of the exponent, to the root", agreed.clone()));
    hear(&mut host, Time::ZERO, &agreed);
    let block = sent(&mut host, Time::ZERO);
    packets.push(("REDUCE of rank 1: place 0, phase 1, three elements", block.clone()));

    let late = Time::ZERO + Span::from_millis(75);
    host.handle_timeout(late);
    let query = sent(&mut host, late);
    packets.push(("QUERY of rank 1", query.clone()));
    hear(&mut leader, late, &query);
    packets.push(("REPORT: both have contributed", sent(&mut leader, late)));
    let request = sent(&mut host, late);
    packets.push(("REQUEST of rank 1", request.clone()));
    hear(&mut leader, late, &request);
    packets.push((
        "FAILURE: all have asked and one contribution is missing, so the block is issued again as attempt 1",
        sent(&mut leader, late),
    ));
    let failure = packets[packets.len() - 1].1.clone();
    hear(&mut host, late, &failure);

    let again = sent(&mut host, late);
    let mut collided = again.clone();
    collided[40] |= 0x80;
    canary_wire::put_children(&mut collided, NodeId(0x21), 35, 1);
    packets.push(("REDUCE of rank 1, attempt 1, after a collision in switch 0x21 on port 35", collided.clone()));
    hear(&mut leader, late, &collided);
    packets.push(("BROADCAST of the sum, a restoration of port 35 of switch 0x21", sent(&mut leader, late)));
    hear(&mut leader, late, &request);
    packets.push(("BROADCAST of the sum, to rank 1 alone", sent(&mut leader, late)));

    let [mut leader, mut host] = [0, 1].map(canary_host);
    leader.submit(Time::ZERO, f32s(&[1.0, -2.0, 0.5])).unwrap();
    host.submit(Time::ZERO, f32s(&[1.0, -2.0])).unwrap();
    let odd = sent(&mut host, Time::ZERO);
    let packet = Packet { bytes: &odd, wire_len: odd.len(), ecn: Ecn::NotCapable };
    assert!(leader.handle_packet(Time::ZERO, Addr::Node(NodeId(0x20)), packet).is_err());
    packets.push(("MISMATCH: rank 0 brings 3 f32, rank 1 brings 2", sent(&mut leader, Time::ZERO)));
    check("canary", &packets);
}

fn words(root: u16, values: &[i32]) -> Collective {
    let tensor = ElementTensor::new(InPlaceStorage::new(values.to_vec()), ReduceOp::Sum).from(Rank(root));
    Collective { tensor: Box::new(tensor), deadline: None }
}

/// What differs where one rank is the root: the type byte, and where the root is named.
#[test]
fn roots() {
    let mut packets = Vec::new();
    let mut worker = switchml_host(1);
    let to = ElementTensor::new(InPlaceStorage::new(vec![7i32, -1]), ReduceOp::Sum).to(Rank(0x2AB));
    worker.submit(Time::ZERO, Collective { tensor: Box::new(to), deadline: None }).unwrap();
    packets.push((
        "SwitchML: UPDATE of rank 1, to a reduce of two elements for rank 0x2ab",
        sent(&mut worker, Time::ZERO),
    ));
    worker.submit(Time::ZERO, words(0, &[7])).unwrap();
    packets.push(("SwitchML: UPDATE of rank 1, to a broadcast of one word from rank 0", sent(&mut worker, Time::ZERO)));

    let [mut source, mut host] = [0, 1].map(canary_host);
    source.submit(Time::ZERO, words(0, &[7, -1])).unwrap();
    host.submit(Time::ZERO, words(0, &[0, 0])).unwrap();
    let join = sent(&mut host, Time::ZERO);
    packets.push(("Canary: REDUCE of rank 1 to a broadcast of two words from rank 0", join.clone()));
    let packet = Packet { bytes: &join, wire_len: join.len(), ecn: Ecn::NotCapable };
    source.handle_packet(Time::ZERO, Addr::Node(NodeId(0x20)), packet).unwrap();
    packets.push(("Canary: BROADCAST of the words", sent(&mut source, Time::ZERO)));

    let [mut one, mut other] = [0, 1].map(canary_host);
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
    packets.push(("Canary: CLAIM of rank 0, that it is the root of a broadcast of one word", claim.clone()));
    let packet = Packet { bytes: &claim, wire_len: claim.len(), ecn: Ecn::NotCapable };
    assert!(other.handle_packet(Time::ZERO, Addr::Node(NodeId(0x20)), packet).is_err());
    packets.push((
        "Canary: MISMATCH: rank 1 brings a broadcast from rank 1, rank 0 one from 0",
        sent(&mut other, Time::ZERO),
    ));
    check("roots", &packets);
}

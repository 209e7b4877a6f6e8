//! The protocols: every parser of their wire formats, and the machines behind them.

mod canary;
mod ring;

use tributary_numeric::ReduceOp;
use tributary_proto::collective::tensors::{ElementTensor, InPlaceStorage};
use tributary_proto::collective::values::Elements;
use tributary_proto::contract::config::{Below, FabricPlan, HostConfig, JobConfig, Parent, SwitchConfig, TimerConfig};
use tributary_proto::contract::drive::record::{HostRecorder, SwitchRecorder};
use tributary_proto::contract::host::Collective;
use tributary_proto::contract::ids::{ChildId, GroupId, JobId, JobKey, PortId, Rank, ShardId};
use tributary_proto::contract::packet::{Addr, Ecn, Packet, PacketMut};
use tributary_proto::contract::pipeline::{InstalledJob, Pipeline};
use tributary_proto::contract::switch::{NoQueues, Verdict};
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::contract::wire::{COMMON_LEN, Common};
use tributary_proto::parts::report::Report;
use tributary_proto::protocols::Protocol;
use tributary_proto::switchml::wire::{Header, Kind, Mismatch};

pub use self::canary::{canary_host, canary_switch, canary_wire};
pub use self::ring::{ring_host, ring_wire};

/// What is read can be written back, to the same bytes.
pub fn common_header(bytes: &[u8]) {
    let Ok(common) = Common::parse(bytes) else { return };
    let mut again = [0; COMMON_LEN];
    common.emit(&mut again);
    // The reserved byte is not read.
    again[5] = bytes[5];
    assert_eq!(again, bytes[..COMMON_LEN]);
}

/// The same for SwitchML's header, and for the bodies behind it.
pub fn switchml_wire(bytes: &[u8]) {
    let Ok(header) = Header::parse(bytes) else { return };
    let mut again = bytes.to_vec();
    again[16..32].fill(0xAA);
    header.emit(&mut again);
    if header.spec.primitive.root().is_none() {
        // Reserved, and not read.
        again[5] = bytes[5];
    }
    assert_eq!(again, bytes);
    if let Ok(report) = Report::parse(bytes.get(32..).unwrap_or_default()) {
        assert_eq!(32 + report.emit(&mut again[32..]), bytes.len());
        again[33] = bytes[33];
        assert_eq!(again, bytes);
    }
    if let Ok(mismatch) = Mismatch::parse(bytes.get(32..).unwrap_or_default()) {
        again[32..].fill(0);
        mismatch.emit(&mut again[32..]);
        again[38..40].copy_from_slice(&bytes[38..40]);
        assert_eq!(again, bytes);
    }
    if let Ok(kind) = Kind::of(bytes) {
        assert_eq!(Kind::from_code(bytes[4]), Some(kind));
    }
}

fn job() -> JobConfig {
    JobConfig { job: JobId(1), key: JobKey(7), world: 3, slots: 4, elements_per_packet: 8, shards: 1 }
}

/// Cuts the input into packets: a byte that says where each comes from, a length, and the bytes. Where the first byte
/// is even, the common header is made right, so that the machines behind it are reached.
fn packets(protocol: Protocol, mut bytes: &[u8]) -> impl Iterator<Item = (u8, Vec<u8>)> + '_ {
    std::iter::from_fn(move || {
        let (&[from, len], rest) = bytes.split_first_chunk()?;
        let (packet, rest) = rest.split_at(usize::from(len).min(rest.len()));
        bytes = rest;
        let mut packet = packet.to_vec();
        if from % 2 == 0 && packet.len() >= COMMON_LEN {
            let kind = 16 + packet[4] % 7;
            Common { protocol: protocol.code(), kind, job: job().job, key: job().key }.emit(&mut packet);
        }
        Some((from / 2, packet))
    })
}

/// A switch with a job and a parent gets any packets from anywhere.
pub fn switchml_pipeline(bytes: &[u8]) {
    let job = job();
    let members: Vec<PortId> = (0..job.world).map(PortId).collect();
    // With or without a switch above.
    let parent = (bytes.len() % 2 == 1).then_some(Parent { port: PortId(9), child: ChildId(1) });
    // The last child is a switch.
    let mut below = Below::workers(job.world);
    below[2] = Below::Switch(vec![Rank(2), Rank(3)]);
    let (shard, group) = (ShardId(0), GroupId(0));
    let config = SwitchConfig { job: job.clone(), shard, members: members.clone(), below, group, parent };
    let mut pipeline = Pipeline::default();
    let installed = InstalledJob {
        protocol: Protocol::SwitchMl.code(),
        key: job.key,
        members,
        others: parent.iter().map(|parent| parent.port).collect(),
        machine: Protocol::SwitchMl.switch::<Elements>(&config),
    };
    pipeline.install(job.job, installed);
    let memory = pipeline.report(job.job).expect("it is installed").memory_bytes;
    let mut recorder = SwitchRecorder::default();
    for (from, mut bytes) in packets(Protocol::SwitchMl, bytes) {
        let before = bytes.len();
        let mut packet = PacketMut::new(&mut bytes, Ecn::NotCapable);
        let ingress = PortId(u16::from(from % 12));
        let verdict = recorder.packet(&mut pipeline, Time::ZERO, ingress, &mut packet, &NoQueues);
        assert!(packet.len <= before && packet.wire_len <= before, "a packet may not grow");
        if let Verdict::Port(port) = verdict {
            assert!(port.0 < 3 || port.0 == 9, "sent to a stranger");
        }
        for made in recorder.take() {
            assert!(Common::parse(&made.bytes).is_ok() && Header::parse(&made.bytes).is_ok());
        }
    }
    assert_eq!(pipeline.report(job.job).expect("it is installed").memory_bytes, memory);
}

/// A sum of floats and one of integers, with a deadline.
fn two_collectives() -> Vec<Collective> {
    let deadline = Some(Time::ZERO + Span::from_millis(50));
    let floats = ElementTensor::new(InPlaceStorage::new(vec![1.5f32; 50]), ReduceOp::Avg);
    let integers = ElementTensor::new(InPlaceStorage::new(vec![-3i32; 9]), ReduceOp::Sum);
    vec![Collective { tensor: Box::new(floats), deadline }, Collective { tensor: Box::new(integers), deadline }]
}

/// Rank 0 in the middle of collectives gets packets from wherever `from` says; then its time runs out. What it sends
/// must be `readable`, and every collective must end once. A host whose timers go on for ever is left when that is so.
fn drive_host(
    protocol: Protocol,
    fabric: FabricPlan,
    collectives: Vec<Collective>,
    bytes: &[u8],
    from: impl Fn(u8) -> Addr,
    readable: impl Fn(&[u8]) -> bool,
) {
    let config = HostConfig { job: job(), rank: Rank(0), child: ChildId(0), timers: TimerConfig::default(), fabric };
    let mut host = protocol.host::<Elements>(&config);
    let all = collectives.len();
    for collective in collectives {
        host.submit(Time::ZERO, collective).expect("nothing has failed");
    }
    let (mut now, mut ended, mut recorder) = (Time::ZERO, 0, HostRecorder::default());
    let inputs = packets(protocol, bytes).map(Some).chain(std::iter::repeat(None));
    for (step, input) in inputs.enumerate() {
        match input {
            Some((place, bytes)) => {
                let packet = Packet { bytes: &bytes, wire_len: bytes.len(), ecn: Ecn::NotCapable };
                recorder.packet(&mut *host, now, from(place), packet);
            }
            None => {
                let Some(due) = host.poll_timeout() else { break };
                if protocol == Protocol::Ring && ended == all {
                    break;
                }
                assert!(step < 10_000, "its timers never end");
                now = due.max(now);
                recorder.timeout(&mut *host, now);
            }
        }
        for made in recorder.sent.drain(..) {
            assert!(made.bytes.len() <= host.max_packet_len() && readable(&made.bytes));
        }
        ended += recorder.events.drain(..).count();
    }
    assert_eq!(ended, all, "every collective ends once");
}

/// A worker of SwitchML in the middle of two collectives gets any packets from anywhere.
pub fn switchml_host(bytes: &[u8]) {
    let from = |place| if place == 127 { Addr::Worker(Rank(1)) } else { Addr::Switch(ShardId(0)) };
    let readable = |packet: &[u8]| Header::parse(packet).is_ok();
    drive_host(Protocol::SwitchMl, FabricPlan::default(), two_collectives(), bytes, from, readable);
}

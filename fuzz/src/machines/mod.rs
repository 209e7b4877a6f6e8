//! The protocols: every parser of their wire formats, and the machines behind them.

pub mod best_effort;
pub mod canary;
pub mod flare;
pub mod panama;
pub mod ring;
pub mod sparcml;
pub mod switchml;

use tributary_numeric::ReduceOp;
use tributary_proto::contract::config::{Below, FabricPlan, HostConfig, JobConfig, Parent, SwitchConfig};
use tributary_proto::contract::drive::record::{HostRecorder, SwitchRecorder};
use tributary_proto::contract::host::Collective;
use tributary_proto::contract::ids::{ChildId, GroupId, JobId, JobKey, PortId, Rank, TreeId};
use tributary_proto::contract::packet::{Addr, Ecn, Packet, PacketMut};
use tributary_proto::contract::pipeline::{InstalledJob, Pipeline};
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::contract::seal;
use tributary_proto::contract::switch::{NoQueues, Verdict};
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::contract::values::Values;
use tributary_proto::contract::wire::kind::FIRST_OF_PROTOCOL;
use tributary_proto::contract::wire::{COMMON_LEN, Common};
use tributary_proto::tensors::{ElementTensor, InPlaceStorage};

/// What is read can be written back, to the same bytes.
pub fn common_header(bytes: &[u8]) {
    let Ok(common) = Common::parse(bytes) else { return };
    let mut again = [0; COMMON_LEN];
    common.emit(&mut again);
    // The reserved byte is not read.
    again[5] = bytes[5];
    assert_eq!(again, bytes[..COMMON_LEN]);
}

fn job(protocol: &Protocol) -> JobConfig {
    JobConfig {
        job: JobId(1),
        key: JobKey(7),
        protocol: protocol.code,
        world_size: 3,
        slots: 4,
        elements_per_packet: 8,
        trees: 1,
        levels: false,
        options: protocol.options.defaults(),
    }
}

/// Whose machines are driven, in what job, with packets of which kinds.
struct Subject {
    protocol: &'static Protocol,
    job: JobConfig,
    first_kind: u8,
}

impl Subject {
    /// A protocol in a small job, with its packets.
    fn of(protocol: &'static Protocol) -> Subject {
        Subject { protocol, job: job(protocol), first_kind: FIRST_OF_PROTOCOL }
    }

    /// The same in a job with these options.
    fn with(self, given: &[(&str, &str)]) -> Subject {
        let given = given.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let options = self.protocol.options.read(&given.collect()).expect("they are options of the protocol");
        Subject { job: JobConfig { options, ..self.job }, ..self }
    }
}

/// Cuts the input into packets: a byte that says where each comes from, a length, and the bytes. Where the first byte
/// is even, the common header is made right, so that the machines behind it are reached.
fn packets<'a>(subject: &'a Subject, mut bytes: &'a [u8]) -> impl Iterator<Item = (u8, Vec<u8>)> + 'a {
    std::iter::from_fn(move || {
        let (&[from, len], rest) = bytes.split_first_chunk()?;
        let (packet, rest) = rest.split_at(usize::from(len).min(rest.len()));
        bytes = rest;
        let mut packet = packet.to_vec();
        if from % 2 == 0 && packet.len() >= COMMON_LEN {
            // Most protocols have seven kinds or fewer, some have more.
            let kind = subject.first_kind + if packet[4] < 128 { packet[4] % 7 } else { packet[4] % 16 };
            let Subject { protocol, job, .. } = subject;
            Common { protocol: protocol.code, kind, job: job.job, key: job.key }.emit(&mut packet);
            if seal::is_chosen(&job.options) {
                seal::seal(&mut packet, job.key);
            }
        }
        Some((from / 2, packet))
    })
}

/// A sum of floats and one of integers, with a deadline.
fn two_collectives() -> Vec<Collective> {
    let deadline = Some(Time::ZERO + Span::from_millis(50));
    let floats = ElementTensor::new(InPlaceStorage::new(vec![1.5f32; 50]), ReduceOp::Avg);
    let integers = ElementTensor::new(InPlaceStorage::new(vec![-3i32; 9]), ReduceOp::Sum);
    vec![Collective { tensor: Box::new(floats), deadline }, Collective { tensor: Box::new(integers), deadline }]
}

/// A switch with a job, with or without a parent, gets any packets from anywhere. What it sends must be `readable`, and only
/// to its neighbours; it takes no memory.
fn drive_switch(subject: &Subject, ecn: Ecn, bytes: &[u8], readable: impl Fn(&[u8]) -> bool) {
    let Subject { protocol, job, .. } = subject;
    let members: Vec<PortId> = (0..job.world_size).map(PortId).collect();
    // With or without a switch above.
    let parent = (bytes.len() % 2 == 1).then_some(Parent { port: PortId(9), child: ChildId(1) });
    // The last child is a switch.
    let mut below = Below::workers(job.world_size);
    below[2] = Below::Switch(vec![Rank(2), Rank(3)]);
    let (shard, group) = (TreeId(0), GroupId(0));
    let config = SwitchConfig { job: job.clone(), tree: shard, members: members.clone(), below, group, parent };
    let mut pipeline = Pipeline::default();
    let installed = InstalledJob {
        protocol: protocol.code,
        key: job.key,
        members,
        others: parent.iter().map(|parent| parent.port).collect(),
        machine: protocol.switch(Values::Elements, &config),
    };
    pipeline.install(job.job, installed);
    let memory = pipeline.report(job.job).expect("it is installed").memory_bytes;
    let mut recorder = SwitchRecorder::default();
    for (from, mut bytes) in packets(subject, bytes) {
        let before = bytes.len();
        let mut packet = PacketMut::new(&mut bytes, ecn);
        let ingress = PortId(u16::from(from % 12));
        let verdict = recorder.packet(&mut pipeline, Time::ZERO, ingress, &mut packet, &NoQueues);
        assert!(packet.len <= before && packet.wire_len <= before, "a packet may not grow");
        if let Verdict::Port(port) = verdict {
            assert!(port.0 < 3 || port.0 == 9, "sent to an unknown port");
        }
        for made in recorder.take() {
            assert!(Common::parse(&made.bytes).is_ok() && readable(&made.bytes));
        }
    }
    assert_eq!(pipeline.report(job.job).expect("it is installed").memory_bytes, memory);
}

/// What a host's timers do when all its collectives have ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Timers {
    /// They end too.
    End,
    /// They have no end: the host is left.
    GoOn,
}

/// Rank 0 in the middle of collectives gets packets from wherever `from` says; then its time runs out. What it sends
/// must be `readable`, and every collective must end once.
fn drive_host(
    subject: &Subject,
    fabric: FabricPlan,
    collectives: Vec<Collective>,
    bytes: &[u8],
    timers: Timers,
    from: impl Fn(u8) -> Addr,
    readable: impl Fn(&[u8]) -> bool,
) {
    let Subject { protocol, job, .. } = subject;
    let config = HostConfig { fabric, ..HostConfig::worker(job.clone(), Rank(0)) };
    let mut host = protocol.host(Values::Elements, &config);
    let all = collectives.len();
    for collective in collectives {
        host.submit(Time::ZERO, collective).expect("nothing has failed");
    }
    let (mut now, mut ended, mut recorder) = (Time::ZERO, 0, HostRecorder::default());
    let inputs = packets(subject, bytes).map(Some).chain(std::iter::repeat(None));
    for (step, input) in inputs.enumerate() {
        match input {
            Some((sender, bytes)) => {
                let packet = Packet { bytes: &bytes, wire_len: bytes.len(), ecn: Ecn::NotCapable };
                recorder.packet(&mut *host, now, from(sender), packet);
            }
            None => {
                let Some(due) = host.poll_timeout() else { break };
                if timers == Timers::GoOn && ended == all {
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

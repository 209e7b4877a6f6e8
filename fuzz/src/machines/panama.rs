//! PANAMA: its header, a switch with or without a parent, and a worker.

use tributary_proto::collective::values::Values;
use tributary_proto::contract::config::{Below, FabricPlan, Parent, SwitchConfig};
use tributary_proto::contract::drive::record::SwitchRecorder;
use tributary_proto::contract::ids::{ChildId, GroupId, PortId, Rank, ShardId};
use tributary_proto::contract::packet::{Addr, Ecn, PacketMut};
use tributary_proto::contract::pipeline::{InstalledJob, Pipeline};
use tributary_proto::contract::switch::{NoQueues, Verdict};
use tributary_proto::contract::time::Time;
use tributary_proto::contract::wire::{COMMON_LEN, Common};
use tributary_proto::panama::PROTOCOL;
use tributary_proto::panama::wire::{HEADER_LEN, Header};

use super::{Timers, drive_host, job, packets, two_collectives};

/// What is read can be written back, to the same bytes. The bodies are SwitchML's too, and tried there.
pub fn wire(bytes: &[u8]) {
    let Ok(header) = Header::parse(bytes) else { return };
    let mut again = bytes.to_vec();
    again[COMMON_LEN..HEADER_LEN].fill(0xAA);
    header.emit(&mut again);
    assert_eq!(again, bytes);
}

/// A switch with a job and a parent gets any packets from anywhere.
pub fn pipeline(bytes: &[u8]) {
    let job = job(&PROTOCOL);
    let members: Vec<PortId> = (0..job.world).map(PortId).collect();
    let parent = (bytes.len() % 2 == 1).then_some(Parent { port: PortId(9), child: ChildId(1) });
    // The last child is a switch.
    let mut below = Below::workers(job.world);
    below[2] = Below::Switch(vec![Rank(2), Rank(3)]);
    let (shard, group) = (ShardId(0), GroupId(0));
    let config = SwitchConfig { job: job.clone(), shard, members: members.clone(), below, group, parent };
    let mut pipeline = Pipeline::default();
    let installed = InstalledJob {
        protocol: PROTOCOL.code,
        key: job.key,
        members,
        others: parent.iter().map(|parent| parent.port).collect(),
        machine: PROTOCOL.switch(Values::Elements, &config),
    };
    pipeline.install(job.job, installed);
    let memory = pipeline.report(job.job).expect("it is installed").memory_bytes;
    let mut recorder = SwitchRecorder::default();
    for (from, mut bytes) in packets(&PROTOCOL, bytes) {
        let before = bytes.len();
        let mut packet = PacketMut::new(&mut bytes, Ecn::Capable);
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

/// A worker in the middle of two collectives gets any packets from anywhere. An epoch that somebody has made up never
/// begins, so that its questions go on.
pub fn host(bytes: &[u8]) {
    let from = |place| if place == 127 { Addr::Worker(Rank(1)) } else { Addr::Switch(ShardId(0)) };
    let readable = |packet: &[u8]| Header::parse(packet).is_ok();
    let job = job(&PROTOCOL);
    drive_host(&PROTOCOL, &job, FabricPlan::default(), two_collectives(), bytes, Timers::GoOn, from, readable);
}

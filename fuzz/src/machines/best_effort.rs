//! Best-effort aggregation: its header, a switch of a fabric, and a host that works and serves; for each protocol of the
//! family.

use std::collections::BTreeMap;

use tributary_proto::aggregation::best_effort::LEVELS_OPTION;
use tributary_proto::aggregation::best_effort::wire::{HEADER_LEN, Header, Kind};
use tributary_proto::contract::config::{FabricPlan, SharedJob, SharedSwitchConfig};
use tributary_proto::contract::drive::record::SwitchRecorder;
use tributary_proto::contract::ids::{NodeId, PortId};
use tributary_proto::contract::packet::{Addr, Ecn, PacketMut};
use tributary_proto::contract::pipeline::Pipeline;
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::contract::switch::{NoQueues, Verdict};
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::contract::values::Values;
use tributary_proto::protocols;

use super::{Subject, Timers, drive_host, job, packets, two_collectives};

/// Its protocols.
fn family() -> impl Iterator<Item = &'static Protocol> {
    protocols::ALL.iter().copied().filter(|protocol| protocol.options.specs.contains(&LEVELS_OPTION))
}

/// Three ranks, of which two are behind switch 9.
fn fabric() -> FabricPlan {
    let switches = [NodeId(9), NodeId(9), NodeId(10)].into();
    FabricPlan { hosts: (0..3).map(NodeId).collect(), switches, ..FabricPlan::default() }
}

/// What is read can be written back, to the same bytes.
pub fn wire(bytes: &[u8]) {
    let Ok(header) = Header::parse(bytes) else { return };
    let Ok(kind) = Kind::of(bytes) else { return };
    let mut again = bytes.to_vec();
    again[16..HEADER_LEN].fill(0xAA);
    header.emit(kind, &mut again);
    assert_eq!(again, bytes);
}

/// A switch gets any packets on any port; it takes no memory for them, and in the end all that it holds expires.
pub fn switch(bytes: &[u8]) {
    family().for_each(|protocol| drive(protocol, bytes));
}

fn drive(protocol: &'static Protocol, bytes: &[u8]) {
    let shared = protocol.shared.as_ref().expect("the family's jobs share");
    let by_hash = if bytes.len().is_multiple_of(2) { "any" } else { "hash" };
    let chosen = [("aggregators", "3"), ("lease", "10 us"), ("placement", by_hash), ("path_packets", "1")];
    let chosen: BTreeMap<String, String> =
        chosen.iter().map(|&(name, text)| (name.to_owned(), text.to_owned())).collect();
    let options = shared.options.read(&chosen).expect("they are its options");
    let config = SharedSwitchConfig { node: NodeId(9), elements_per_packet: 8, options };
    let mut pipeline = Pipeline::default();
    pipeline.share(protocol.code, (shared.machine)(Values::Elements, &config));
    let (fabric, ports, trees) = (fabric(), vec![Some(PortId(0)), Some(PortId(1)), None], Vec::new());
    pipeline.install_shared(&SharedJob { job: job(protocol), fabric, ports, trees, share_bytes: 0 }, Vec::new());
    let memory = |pipeline: &Pipeline| pipeline.all_shared().map(|(.., bytes)| bytes).sum::<usize>();
    let before = memory(&pipeline);
    let (mut now, mut recorder) = (Time::ZERO, SwitchRecorder::default());
    for (from, mut bytes) in packets(&Subject::of(protocol), bytes) {
        now += Span::from_nanos(u64::from(from));
        let len = bytes.len();
        let mut packet = PacketMut::new(&mut bytes, Ecn::Capable);
        let ingress = PortId(u16::from(from) % 4);
        let verdict = recorder.packet(&mut pipeline, now, ingress, &mut packet, &NoQueues);
        assert!(packet.len <= len);
        assert!(!matches!(verdict, Verdict::Group(_)));
        recorder.timeout(&mut pipeline, now);
        assert!(recorder.take().iter().all(|made| Header::parse(&made.bytes).is_ok()));
    }
    assert_eq!(memory(&pipeline), before);
    while let Some(due) = pipeline.poll_timeout() {
        now = due.max(now);
        recorder.timeout(&mut pipeline, now);
        recorder.take();
    }
    assert_eq!(pipeline.shared(protocol.code).expect("it is shared").slots_in_use, 0);
}

/// A host in the middle of two collectives gets any packets from anywhere; then its time runs out.
pub fn host(bytes: &[u8]) {
    let readable = |packet: &[u8]| Header::parse(packet).is_ok();
    let from = |_| Addr::Node(NodeId(9));
    for protocol in family() {
        drive_host(&Subject::of(protocol), fabric(), two_collectives(), bytes, Timers::End, from, readable);
    }
}

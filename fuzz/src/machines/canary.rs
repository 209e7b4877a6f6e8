//! Canary: its header, a switch of a fabric, and a host that leads and follows.

use std::collections::BTreeMap;

use tributary_proto::canary::PROTOCOL;
use tributary_proto::canary::wire::{HEADER_LEN, Header, Kind, Report};
use tributary_proto::contract::config::{FabricPlan, JobConfig, SharedJob, SharedSwitchConfig};
use tributary_proto::contract::drive::record::SwitchRecorder;
use tributary_proto::contract::ids::{NodeId, PortId, Rank};
use tributary_proto::contract::packet::{Addr, Ecn, PacketMut};
use tributary_proto::contract::pipeline::Pipeline;
use tributary_proto::contract::switch::{NoQueues, Verdict};
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::contract::values::Values;

use super::{Subject, Timers, drive_host, job, packets, two_collectives};

/// What is read can be written back, to the same bytes.
pub fn wire(bytes: &[u8]) {
    let Ok(header) = Header::parse(bytes) else { return };
    let mut again = bytes.to_vec();
    again[16..HEADER_LEN].fill(0xAA);
    header.emit(&mut again);
    assert_eq!(again, bytes);
    if let Ok(report) = Report::parse(bytes, 40) {
        assert!((0..40).filter(|&rank| report.has_contributed(Rank(rank))).count() <= 40);
    }
    if let Ok(kind) = Kind::of(bytes) {
        assert_eq!(Kind::from_code(bytes[4]), Some(kind));
    }
}

/// A switch gets any packets on any port; in the end all that it holds expires.
pub fn switch(bytes: &[u8]) {
    let shared = PROTOCOL.shared.as_ref().expect("Canary's jobs share");
    let chosen = [("descriptors", "3"), ("timeout", "1 us"), ("least_timeout", "1 ns"), ("lease", "10 us")];
    let options = shared.options.read(&texts(&chosen)).expect("they are its options");
    let config = SharedSwitchConfig { node: NodeId(9), elements_per_packet: 8, options };
    let job = job(&PROTOCOL);
    let mut pipeline = Pipeline::default();
    pipeline.share(PROTOCOL.code, (shared.machine)(Values::Elements, &config));
    let (fabric, ports, trees) = (FabricPlan::default(), Vec::new(), Vec::new());
    pipeline.install_shared(&SharedJob { job, fabric, ports, trees, share_bytes: 0 }, Vec::new());
    let (mut now, mut recorder) = (Time::ZERO, SwitchRecorder::default());
    for (from, mut bytes) in packets(&Subject::of(&PROTOCOL), bytes) {
        now += Span::from_nanos(u64::from(from));
        let before = bytes.len();
        let mut packet = PacketMut::new(&mut bytes, Ecn::NotCapable);
        let ingress = PortId(u16::from(from) % 70);
        let verdict = recorder.packet(&mut pipeline, now, ingress, &mut packet, &NoQueues);
        assert!(packet.len <= before);
        assert!(!matches!(verdict, Verdict::Group(_)));
        recorder.timeout(&mut pipeline, now);
        assert!(recorder.take().iter().all(|made| Header::parse(&made.bytes).is_ok()));
    }
    while let Some(due) = pipeline.poll_timeout() {
        now = due.max(now);
        recorder.timeout(&mut pipeline, now);
    }
    assert_eq!(pipeline.shared(PROTOCOL.code).expect("it is shared").slots_in_use, 0);
}

/// A host in the middle of two collectives gets any packets from anywhere; then its time runs out.
pub fn host(bytes: &[u8]) {
    let fabric = FabricPlan { hosts: (0..3).map(NodeId).collect(), roots: [NodeId(9)].into(), ..FabricPlan::default() };
    let options = PROTOCOL.options.read(&texts(&[("reissues", "1")])).expect("it is an option");
    let job = JobConfig { options, ..job(&PROTOCOL) };
    let readable = |packet: &[u8]| Header::parse(packet).is_ok();
    let subject = Subject { job, ..Subject::of(&PROTOCOL) };
    drive_host(&subject, fabric, two_collectives(), bytes, Timers::End, |_| Addr::Node(NodeId(9)), readable);
}

fn texts(chosen: &[(&str, &str)]) -> BTreeMap<String, String> {
    chosen.iter().map(|&(name, text)| (name.to_owned(), text.to_owned())).collect()
}

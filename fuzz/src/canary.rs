//! Canary: its header, a switch of a fabric, and a host that leads and follows.

use tributary_numeric::ReduceOp;
use tributary_proto::canary::wire::{HEADER_LEN, Header, Kind, Report};
use tributary_proto::config::{FabricPlan, FlushTimeout, HostConfig, SharedSwitchConfig, TimerConfig};
use tributary_proto::host::{Collective, HostEvent};
use tributary_proto::ids::{NodeId, PortId, WorkerId};
use tributary_proto::packet::{Addr, Ecn, Packet, PacketMut};
use tributary_proto::pipeline::{InstalledJob, Pipeline};
use tributary_proto::registry::Protocol;
use tributary_proto::switch::{NoQueues, Verdict};
use tributary_proto::tensors::{ElementTensor, InPlaceStorage};
use tributary_proto::time::{Span, Time};
use tributary_proto::values::Elements;

use super::{job, packets};

/// What is read can be written back, to the same bytes.
pub fn canary_wire(bytes: &[u8]) {
    let Ok(header) = Header::parse(bytes) else { return };
    let mut again = bytes.to_vec();
    again[16..HEADER_LEN].fill(0xAA);
    header.emit(&mut again);
    assert_eq!(again, bytes);
    if let Ok(report) = Report::parse(bytes, 40) {
        assert!((0..40).filter(|&rank| report.has_contributed(WorkerId(rank))).count() <= 40);
    }
    if let Ok(kind) = Kind::of(bytes) {
        assert_eq!(Kind::from_code(bytes[4]), Some(kind));
    }
}

/// A switch gets any packets on any port; in the end all that it holds expires.
pub fn canary_switch(bytes: &[u8]) {
    let config = SharedSwitchConfig {
        node: NodeId(9),
        descriptors: 3,
        partitions: 1,
        elements_per_packet: 8,
        timeout: FlushTimeout::Adaptive { least: Span::from_nanos(1), most: Span::from_micros(1) },
        lease: Span::from_micros(10),
    };
    let job = job();
    let mut pipeline = Pipeline::default();
    let machine = Protocol::Canary.shared_switch::<Elements>(&config).expect("Canary's jobs share");
    pipeline.share(Protocol::Canary.code(), machine);
    let (members, others, protocol) = (Vec::new(), Vec::new(), Protocol::Canary.code());
    pipeline.install(job.job, InstalledJob { protocol, key: job.key, members, others, machine: None });
    let (mut now, mut buf) = (Time::ZERO, vec![0; 512]);
    for (from, mut bytes) in packets(Protocol::Canary, bytes) {
        now += Span::from_nanos(u64::from(from));
        let before = bytes.len();
        let mut packet = PacketMut::new(&mut bytes, Ecn::NotCapable);
        let verdict = pipeline.process(now, PortId(u16::from(from) % 70), &mut packet, &NoQueues);
        assert!(packet.len <= before);
        assert!(!matches!(verdict, Verdict::Group(_)));
        pipeline.handle_timeout(now);
        while let Some(emission) = pipeline.poll_transmit(now, &mut buf) {
            assert!(Header::parse(&buf[..emission.len]).is_ok());
        }
    }
    while let Some(due) = pipeline.poll_timeout() {
        now = due.max(now);
        pipeline.handle_timeout(now);
        while pipeline.poll_transmit(now, &mut buf).is_some() {}
    }
    assert_eq!(pipeline.array(Protocol::Canary.code()).expect("it is shared").0.held, 0);
}

/// A host in the middle of two collectives gets any packets from anywhere; then its time runs out.
pub fn canary_host(bytes: &[u8]) {
    let fabric =
        FabricPlan { hosts: (0..3).map(NodeId).collect(), roots: [NodeId(9)].into(), roots_on_way: false, reissues: 1 };
    let config = HostConfig { job: job(), worker: WorkerId(0), timers: TimerConfig::default(), fabric };
    let mut host = Protocol::Canary.host::<Elements>(&config);
    let deadline = Some(Time::ZERO + Span::from_millis(50));
    let floats = ElementTensor::new(InPlaceStorage::new(vec![1.5f32; 50]), ReduceOp::Avg);
    let integers = ElementTensor::new(InPlaceStorage::new(vec![-3i32; 9]), ReduceOp::Sum);
    host.submit(Time::ZERO, Collective { tensor: Box::new(floats), deadline }).expect("nothing has failed");
    host.submit(Time::ZERO, Collective { tensor: Box::new(integers), deadline }).expect("nothing has failed");
    let mut buf = vec![0; host.max_packet_len()];
    let (mut now, mut ended) = (Time::ZERO, 0);
    let inputs = packets(Protocol::Canary, bytes).map(Some).chain(std::iter::repeat(None));
    for (step, input) in inputs.enumerate() {
        match input {
            Some((_, bytes)) => {
                let packet = Packet { bytes: &bytes, wire_len: bytes.len(), ecn: Ecn::NotCapable };
                let _ = host.handle_packet(now, Addr::Node(NodeId(9)), packet);
            }
            None => {
                let Some(due) = host.poll_timeout() else { break };
                assert!(step < 10_000, "its timers never end");
                now = due.max(now);
                host.handle_timeout(now);
            }
        }
        while let Some(transmit) = host.poll_transmit(now, &mut buf) {
            assert!(transmit.len <= buf.len() && Header::parse(&buf[..transmit.len]).is_ok());
        }
        while let Some(HostEvent::Done { .. } | HostEvent::Failed { .. }) = host.poll_event() {
            ended += 1;
        }
    }
    assert_eq!(ended, 2, "every collective ends once");
}

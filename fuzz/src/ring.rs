//! The ring's part: its four headers, and a worker that gets anything from anyone.

use tributary_numeric::ReduceOp;
use tributary_proto::config::{HostConfig, TimerConfig};
use tributary_proto::host::{Collective, HostEvent};
use tributary_proto::ids::WorkerId;
use tributary_proto::packet::{Addr, Ecn, Packet};
use tributary_proto::registry::Protocol;
use tributary_proto::ring::wire::{Ack, Data, Fault, HEADER_LEN, MAX_CONTROL_LEN, Notice};
use tributary_proto::tensors::{ElementTensor, InPlaceStorage};
use tributary_proto::time::{Span, Time};
use tributary_proto::values::Elements;
use tributary_proto::wire::COMMON_LEN;

use super::{job, packets};

/// What is read can be written back, and reads the same then.
pub fn ring_wire(bytes: &[u8]) {
    let world = job().world;
    let mut again = [0; MAX_CONTROL_LEN];
    if let Ok(data) = Data::parse(bytes) {
        data.emit(&mut again);
        assert_eq!(again[COMMON_LEN..HEADER_LEN], bytes[COMMON_LEN..HEADER_LEN]);
    }
    if let Ok((ack, words, count)) = Ack::parse(bytes) {
        let len = ack.emit(&words[..count], &mut again);
        assert_eq!(again[COMMON_LEN..len], bytes[COMMON_LEN..]);
    }
    if let Ok(notice) = Notice::parse(bytes, world) {
        let len = notice.emit(&mut again);
        assert_eq!(Notice::parse(&again[..len], world), Ok(notice));
    }
    if let Ok(fault) = Fault::parse(bytes, world) {
        let len = fault.emit(&mut again);
        assert_eq!(Fault::parse(&again[..len], world), Ok(fault));
    }
}

/// A worker in the middle of a collective gets any packets from anywhere; then its time runs out.
pub fn ring_host(bytes: &[u8]) {
    let config =
        HostConfig { job: job(), worker: WorkerId(0), timers: TimerConfig::default(), fabric: Default::default() };
    let mut host = Protocol::Ring.host::<Elements>(&config);
    let deadline = Some(Time::ZERO + Span::from_millis(50));
    let tensor = ElementTensor::new(InPlaceStorage::new(vec![-3i32; 50]), ReduceOp::Sum);
    host.submit(Time::ZERO, Collective { tensor: Box::new(tensor), deadline }).expect("nothing has failed");
    let mut buf = vec![0; host.max_packet_len()];
    let (mut now, mut ended) = (Time::ZERO, 0);
    let inputs = packets(Protocol::Ring, bytes).map(Some).chain(std::iter::repeat(None));
    for (step, input) in inputs.enumerate() {
        match input {
            Some((from, bytes)) => {
                let packet = Packet { bytes: &bytes, wire_len: bytes.len(), ecn: Ecn::NotCapable };
                let _ = host.handle_packet(now, Addr::Worker(WorkerId(u16::from(from % 4))), packet);
            }
            None => {
                let Some(due) = host.poll_timeout() else { break };
                if ended > 0 {
                    break;
                }
                assert!(step < 100_000, "its timers never end");
                now = due.max(now);
                host.handle_timeout(now);
            }
        }
        while let Some(transmit) = host.poll_transmit(now, &mut buf) {
            assert!(transmit.len <= buf.len());
        }
        while let Some(HostEvent::Done { .. } | HostEvent::Failed { .. }) = host.poll_event() {
            ended += 1;
        }
    }
    assert_eq!(ended, 1, "every collective ends once");
}

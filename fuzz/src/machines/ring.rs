//! The ring's part: its four headers, and a worker that gets anything from anyone.

use tributary_numeric::ReduceOp;
use tributary_proto::contract::config::FabricPlan;
use tributary_proto::contract::host::Collective;
use tributary_proto::contract::ids::Rank;
use tributary_proto::contract::packet::Addr;
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::contract::wire::{COMMON_LEN, Common};
use tributary_proto::ring::PROTOCOL;
use tributary_proto::ring::wire::{Ack, Data, Fault, HEADER_LEN, MAX_CONTROL_LEN, Notice};
use tributary_proto::tensors::{ElementTensor, InPlaceStorage};

use super::{Subject, Timers, drive_host, job};

/// What is read can be written back, and reads the same then.
pub fn wire(bytes: &[u8]) {
    let world_size = job(&PROTOCOL).world_size;
    let mut again = [0; MAX_CONTROL_LEN];
    if let Ok(data) = Data::parse(bytes) {
        data.emit(&mut again);
        assert_eq!(again[COMMON_LEN..HEADER_LEN], bytes[COMMON_LEN..HEADER_LEN]);
    }
    if let Ok((ack, words, count)) = Ack::parse(bytes) {
        let len = ack.emit(&words[..count], &mut again);
        assert_eq!(again[COMMON_LEN..len], bytes[COMMON_LEN..]);
    }
    if let Ok(notice) = Notice::parse(bytes, world_size) {
        let len = notice.emit(&mut again);
        assert_eq!(Notice::parse(&again[..len], world_size), Ok(notice));
    }
    if let Ok(fault) = Fault::parse(bytes, world_size) {
        let len = fault.emit(&mut again);
        assert_eq!(Fault::parse(&again[..len], world_size), Ok(fault));
    }
}

/// A worker in the middle of a collective gets any packets from anywhere; then its time runs out.
pub fn host(bytes: &[u8]) {
    let deadline = Some(Time::ZERO + Span::from_millis(50));
    let tensor = ElementTensor::new(InPlaceStorage::new(vec![-3i32; 50]), ReduceOp::Sum);
    let collectives = vec![Collective { tensor: Box::new(tensor), deadline }];
    let from = |sender: u8| Addr::Worker(Rank(u16::from(sender % 4)));
    let readable = |packet: &[u8]| Common::parse(packet).is_ok();
    drive_host(&Subject::of(&PROTOCOL), FabricPlan::default(), collectives, bytes, Timers::GoOn, from, readable);
}

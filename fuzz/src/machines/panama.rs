//! PANAMA: its header, a switch with or without a parent, and a worker.

use tributary_proto::contract::config::FabricPlan;
use tributary_proto::contract::ids::{Rank, TreeId};
use tributary_proto::contract::packet::{Addr, Ecn};
use tributary_proto::contract::wire::COMMON_LEN;
use tributary_proto::panama::PROTOCOL;
use tributary_proto::panama::wire::{HEADER_LEN, Header};

use super::{Subject, Timers, drive_host, drive_switch, two_collectives};

/// What is read can be written back, to the same bytes. The bodies are SwitchML's too, and tried there.
pub fn wire(bytes: &[u8]) {
    let Ok(header) = Header::parse(bytes) else { return };
    let mut again = bytes.to_vec();
    again[COMMON_LEN..HEADER_LEN].fill(0xAA);
    header.emit(&mut again);
    assert_eq!(again, bytes);
}

/// A job of sums over all ranks, or of averages that may lack one, as the last byte says.
fn subject(bytes: &[u8]) -> Subject {
    let mut subject = Subject::of(&PROTOCOL);
    if bytes.last().is_some_and(|last| last % 2 == 1) {
        let partial = [("partial".to_owned(), "1/2".to_owned())].into();
        subject.job.options = PROTOCOL.options.read(&partial).expect("it is an option");
    }
    subject
}

/// A switch with a job and a parent gets any packets from anywhere.
pub fn pipeline(bytes: &[u8]) {
    drive_switch(&subject(bytes), Ecn::Capable, bytes, |packet| Header::parse(packet).is_ok());
}

/// A worker in the middle of two collectives gets any packets from anywhere. An epoch that somebody has made up never
/// begins, so that its questions go on.
pub fn host(bytes: &[u8]) {
    let from = |sender| if sender == 127 { Addr::Worker(Rank(1)) } else { Addr::Switch(TreeId(0)) };
    let readable = |packet: &[u8]| Header::parse(packet).is_ok();
    drive_host(&subject(bytes), FabricPlan::default(), two_collectives(), bytes, Timers::GoOn, from, readable);
}

//! Flare: its header, a switch with or without a parent, and a worker.

use tributary_proto::contract::config::FabricPlan;
use tributary_proto::contract::ids::{Rank, TreeId};
use tributary_proto::contract::packet::{Addr, Ecn};
use tributary_proto::contract::wire::COMMON_LEN;
use tributary_proto::flare::PROTOCOL;
use tributary_proto::flare::wire::{HEADER_LEN, Header};

use super::{Subject, Timers, drive_host, drive_switch, two_collectives};

/// What is read can be written back, to the same bytes. The bodies are other protocols' too, and tried there.
pub fn wire(bytes: &[u8]) {
    let Ok(header) = Header::parse(bytes) else { return };
    let mut again = bytes.to_vec();
    again[COMMON_LEN..HEADER_LEN].fill(0xAA);
    header.emit(&mut again);
    // Reserved, and not read.
    again[34..36].copy_from_slice(&bytes[34..36]);
    assert_eq!(again, bytes);
}

/// A switch with a job and a parent gets any packets from anywhere.
pub fn pipeline(bytes: &[u8]) {
    drive_switch(&Subject::of(&PROTOCOL), Ecn::NotCapable, bytes, |packet| Header::parse(packet).is_ok());
}

/// A worker in the middle of two collectives gets any packets from anywhere.
pub fn host(bytes: &[u8]) {
    let from = |place| if place == 127 { Addr::Worker(Rank(1)) } else { Addr::Switch(TreeId(0)) };
    let readable = |packet: &[u8]| Header::parse(packet).is_ok();
    drive_host(&Subject::of(&PROTOCOL), FabricPlan::default(), two_collectives(), bytes, Timers::End, from, readable);
}

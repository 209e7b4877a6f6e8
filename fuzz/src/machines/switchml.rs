//! SwitchML: its header, a switch with a parent, and a worker.

use tributary_proto::aggregation::Report;
use tributary_proto::contract::config::FabricPlan;
use tributary_proto::contract::drop_reason::DropReason;
use tributary_proto::contract::ids::{JobKey, Rank, TreeId};
use tributary_proto::contract::packet::{Addr, Ecn};
use tributary_proto::contract::seal;
use tributary_proto::contract::wire::COMMON_LEN;
use tributary_proto::switchml::PROTOCOL;
use tributary_proto::switchml::wire::{HEADER_LEN, Header, Kind, Mismatch};

use super::{Subject, Timers, drive_host, drive_switch, two_collectives};

/// What is read can be written back, to the same bytes: the header, and the bodies behind it.
pub fn wire(bytes: &[u8]) {
    let Ok(header) = Header::parse(bytes) else { return };
    let mut again = bytes.to_vec();
    again[COMMON_LEN..HEADER_LEN].fill(0xAA);
    header.emit(&mut again);
    // Reserved, and not read.
    again[35] = bytes[35];
    assert_eq!(again, bytes);
    wire_sealed(bytes);
    if let Ok(report) = Report::parse(bytes.get(HEADER_LEN..).unwrap_or_default()) {
        assert_eq!(HEADER_LEN + report.emit(&mut again[HEADER_LEN..]), bytes.len());
        again[HEADER_LEN + 1] = bytes[HEADER_LEN + 1];
        assert_eq!(again, bytes);
    }
    if let Ok(mismatch) = Mismatch::parse(bytes.get(HEADER_LEN..).unwrap_or_default()) {
        again[HEADER_LEN..].fill(0);
        mismatch.emit(&mut again[HEADER_LEN..]);
        assert_eq!(again, bytes);
    }
    if let Ok(kind) = Kind::of(bytes) {
        assert_eq!(Kind::from_code(bytes[4]), Some(kind));
    }
}

/// A packet that was completed is taken with the key that it was completed with, and with no other.
fn wire_sealed(bytes: &[u8]) {
    let (mut sealed, key, other) = (bytes.to_vec(), JobKey(0x5EED_0000_1234), JobKey(0x5EED_0000_1235));
    seal::seal(&mut sealed, key);
    assert_eq!((seal::check(&sealed, key), seal::check(&sealed, other)), (Ok(()), Err(DropReason::Corrupt)));
}

/// A job that sums floats, one that sums codes, whose results are as long as contributions, one whose results are longer,
/// one whose blocks are rotated, and one whose packets have a checksum.
fn subjects() -> [Subject; 5] {
    let codes = |down| Subject::of(&PROTOCOL).with(&[("numbers", "int8"), ("down", down)]);
    let with = |name, value| Subject::of(&PROTOCOL).with(&[(name, value)]);
    [Subject::of(&PROTOCOL), codes("8"), codes("16"), with("numbers", "thc4"), with("integrity", "crc32c")]
}

/// A switch with a job and a parent gets any packets from anywhere.
pub fn pipeline(bytes: &[u8]) {
    for subject in subjects() {
        drive_switch(&subject, Ecn::NotCapable, bytes, |packet| Header::parse(packet).is_ok());
    }
}

/// A worker of SwitchML in the middle of two collectives gets any packets from anywhere.
pub fn host(bytes: &[u8]) {
    let from = |sender| if sender == 127 { Addr::Worker(Rank(1)) } else { Addr::Switch(TreeId(0)) };
    let readable = |packet: &[u8]| Header::parse(packet).is_ok();
    for subject in subjects() {
        drive_host(&subject, FabricPlan::default(), two_collectives(), bytes, Timers::End, from, readable);
    }
}

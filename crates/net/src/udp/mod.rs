//! UDP for both sides of the driver: runs of equal segments in one call, each way.
//!
//! Start with [`UdpPort`]; [`Inbox`] is the memory into which it receives, [`path`] what is known of the way to a peer.

mod counters;
mod inbox;
mod lanes;
pub mod path;
mod pieces;
mod port;
pub mod probe;
mod run;
mod sys;

use std::net::{IpAddr, SocketAddr};

use tributary_proto::contract::packet::Ecn;

pub use counters::SocketCounters;
pub use inbox::{Inbox, Message, Segments};
pub use lanes::Lanes;
pub use pieces::Reassembly;
pub use port::{Destination, MAX_RUN, MAX_RUN_BYTES, UdpPort};
pub use run::Run;

/// What identifies a remote socket. An IPv4 address counts as IPv4 even if it is written as IPv6, and flow labels do
/// not count.
pub fn key_of(address: SocketAddr) -> (IpAddr, u16) {
    (address.ip().to_canonical(), address.port())
}

/// The two low bits of the TOS or traffic class byte (RFC 3168).
fn tos_from_ecn(ecn: Ecn) -> u8 {
    match ecn {
        Ecn::NotCapable => 0b00,
        Ecn::Capable => 0b10,
        Ecn::CongestionExperienced => 0b11,
    }
}

fn ecn_from_tos(tos: u8) -> Ecn {
    match tos & 0b11 {
        0b00 => Ecn::NotCapable,
        0b11 => Ecn::CongestionExperienced,
        _ => Ecn::Capable,
    }
}

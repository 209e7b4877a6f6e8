//! UDP for both sides of the driver: runs of equal segments in one call, each way.
//!
//! Start with [`UdpPort`]; [`Inbox`] is the memory into which it receives, [`path`] what is known of the path to a peer.

mod batches;
mod fragments;
mod inbox;
pub mod path;
mod port;
mod sys;

use std::net::{IpAddr, SocketAddr};

use tributary_proto::contract::packet::Ecn;

pub use batches::{Batches, Run};
pub use fragments::Reassembly;
pub use inbox::{Inbox, Message, Segments};
pub use port::{Destination, MAX_RUN, MAX_RUN_BYTES, UdpPort};

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

/// What a socket did and what went wrong with it, since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketCounters {
    /// UDP payload bytes received.
    pub rx_bytes: u64,
    /// Packets received; a coalesced run counts each segment.
    pub rx_packets: u64,
    /// Messages that the kernel handed over: runs of one or more segments.
    pub rx_runs: u64,
    /// UDP payload bytes sent.
    pub tx_bytes: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Messages handed to the kernel: runs of one or more segments.
    pub tx_runs: u64,
    /// Packets that the kernel dropped because the socket's receive buffer was full.
    pub rx_overflows: u64,
    /// Packets not sent because buffers were full for too long.
    pub tx_no_buffers: u64,
    /// Packets not sent because they do not fit the path's MTU, or no longer fit it.
    pub tx_too_long: u64,
    /// Packets not sent for another reason: no route, a firewall's refusal.
    pub tx_errors: u64,
    /// Errors that the kernel reported for earlier packets, such as a dead peer's "port unreachable".
    pub soft_errors: u64,
    /// True if the kernel takes runs of segments in one call (UDP_SEGMENT).
    pub segmentation_offload: bool,
    /// True if the kernel hands over coalesced runs (UDP_GRO).
    pub receive_coalescing: bool,
    /// Bytes of receive buffer that the kernel granted, as it counts them (with its own overhead).
    pub receive_buffer: usize,
    /// Bytes of send buffer that the kernel granted, as it counts them.
    pub send_buffer: usize,
}

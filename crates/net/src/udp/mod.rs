//! UDP for both sides of the driver: runs of equal segments in one call, each way.
//!
//! Start with [`UdpPort`]; [`Inbox`] is the memory into which it receives, [`path`] what is known of the path to a peer.

mod batches;
mod fragments;
mod inbox;
pub mod path;
mod port;
mod sharing;
mod sys;

use std::net::{IpAddr, SocketAddr};

use socket2::SockAddr;
use tributary_proto::contract::packet::Ecn;

pub use batches::{Batches, Run};
pub use fragments::Reassembly;
pub use inbox::{Inbox, Message, Segments};
pub use port::{MAX_RUN, MAX_RUN_BYTES, UdpPort};
pub(crate) use sharing::PortSharing;

/// What identifies a remote socket. An IPv4 address counts as IPv4 even if it is written as IPv6, and flow labels do
/// not count.
pub fn key_of(address: SocketAddr) -> (IpAddr, u16) {
    (address.ip().to_canonical(), address.port())
}

/// A remote address in the form that one socket needs for sending to it.
#[derive(Clone, Debug)]
pub struct Destination {
    address: SockAddr,
    v4: bool,
    /// The source address of our packets, if the socket has several addresses.
    from: Option<IpAddr>,
    /// Bytes of the longest packet that the path holds, if it is known to be narrow.
    limit: Option<usize>,
}

impl Destination {
    /// The address, as people write it.
    pub fn remote(&self) -> Option<SocketAddr> {
        let address = self.address.as_socket()?;
        Some(SocketAddr::new(address.ip().to_canonical(), address.port()))
    }

    /// Sets the longest packet that the path to the remote is known to hold. Longer packets leave in fragments.
    pub fn set_limit(&mut self, limit: Option<usize>) {
        let before = std::mem::replace(&mut self.limit, limit);
        match (before, limit, self.remote()) {
            (before, Some(bytes), Some(peer)) if before.is_none_or(|before| bytes < before) => {
                tracing::warn!(%peer, bytes, "path shrunk: longer packets to this peer travel in fragments");
            }
            (Some(before), _, Some(peer)) if limit.is_none_or(|limit| limit > before) => {
                tracing::info!(%peer, bytes = limit, "path widened: longer packets reach this peer again");
            }
            _ => {}
        }
    }

    /// The longest packet that the path to the remote holds, if it is known to be narrow.
    pub fn limit(&self) -> Option<usize> {
        self.limit
    }

    /// Copies the limit of another destination on the same path.
    pub fn with_limit_of(mut self, known: Option<&Destination>) -> Destination {
        self.limit = known.and_then(Destination::limit);
        self
    }
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

impl SocketCounters {
    /// Adds what another socket of the same process has counted, and its buffers.
    pub fn add(&mut self, other: &SocketCounters) {
        for (sum, other) in [
            (&mut self.rx_bytes, other.rx_bytes),
            (&mut self.rx_packets, other.rx_packets),
            (&mut self.rx_runs, other.rx_runs),
            (&mut self.tx_bytes, other.tx_bytes),
            (&mut self.tx_packets, other.tx_packets),
            (&mut self.tx_runs, other.tx_runs),
            (&mut self.rx_overflows, other.rx_overflows),
            (&mut self.tx_no_buffers, other.tx_no_buffers),
            (&mut self.tx_too_long, other.tx_too_long),
            (&mut self.tx_errors, other.tx_errors),
            (&mut self.soft_errors, other.soft_errors),
        ] {
            *sum += other;
        }
        self.receive_buffer += other.receive_buffer;
        self.send_buffer += other.send_buffer;
    }
}

//! A reliable link between two hosts, over a network that loses packets. Hosts that sum for each other send their
//! blocks over it.
//!
//! [`sender`] and [`receiver`] are the link's two ends, [`wire`] has their packets without data, [`broken`] is the end
//! of a job. A protocol brings the header of data and what a packet carries.

pub mod broken;
pub mod receiver;
pub mod sender;
pub mod wire;

#[cfg(test)]
mod tests;

/// The part of a data packet's header that is about the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Numbers {
    /// The packet's number on the link, modulo 2^32.
    pub seq: u32,
    /// How often the packet was sent, this time included: from 1 to [`wire::MAX_ATTEMPT`], then from 1 again.
    pub attempt: u8,
    /// The sender waits for an acknowledgement.
    pub ack_now: bool,
}

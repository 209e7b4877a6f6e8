//! A reliable link between two hosts, over packets that get lost: what hosts that sum for each other send their blocks over.
//!
//! [`sender`] and [`receiver`] are its two ends, [`wire`] what both say besides data, [`broken`] the end of a job whose ranks
//! tell each other so; a protocol brings the data's header and what a packet carries.

pub mod broken;
pub mod receiver;
pub mod sender;
pub mod seq;
pub mod wire;

/// What a data packet's header says of its place in the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Numbers {
    /// Counts the packets of the link, modulo 2^32.
    pub seq: u32,
    /// How often the packet was sent, this time included: 1 to [`wire::MAX_ATTEMPT`] and over again.
    pub attempt: u8,
    /// The sender waits for an acknowledgement.
    pub ack_now: bool,
}

//! Reliable flows between hosts: DCTCP (Alizadeh et al., SIGCOMM 2010), what most of a data centre's other traffic uses.
//!
//! Start with [`Endpoint`], one host's machine. It owns no clock and no link: a driver tells it the time, brings packets
//! and timeouts, and takes packets. A [`sender`] is one flow's sending end, a [`receiver`] its other end.
//!
//! Window and marks are `proto::parts::window`, which SwitchML's peers use too: slow start, one packet a round after
//! that, `alpha` with g = 1/16, a cut by `alpha / 2` once a window. Each packet is acknowledged by itself with the mark
//! that it arrived with, so the paper's state machine for delayed acknowledgements (figure 10) is not needed. An
//! acknowledgement names the transmission that caused it: round trips and losses are never ambiguous.

mod endpoint;
mod receiver;
mod sender;
mod wire;

pub use endpoint::{Arrived, Balance, Endpoint, Outgoing, Started};
pub use wire::HEADER_LEN;

use tributary_proto::contract::config::TimerConfig;
use tributary_proto::contract::time::Span;

/// What the flows of a host have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransportSettings {
    /// Bytes of a flow that a packet carries.
    pub packet_bytes: u16,
    /// Packets that a flow begins with (RFC 6928).
    pub initial_window: u32,
    /// Retransmission timeouts.
    pub timers: TimerConfig,
    /// A packet is lost when one that was sent so many later has arrived: TCP's third duplicate acknowledgement. More
    /// where packets of one flow take several paths.
    pub reordering: u16,
}

impl Default for TransportSettings {
    /// Ten packets of 1,460 bytes, and the paper's least timeout of 10 ms (§4).
    fn default() -> TransportSettings {
        let ms = Span::from_millis;
        TransportSettings {
            packet_bytes: 1460,
            initial_window: 10,
            timers: TimerConfig { initial_rto: ms(10), min_rto: ms(10), max_rto: ms(640) },
            reordering: 3,
        }
    }
}

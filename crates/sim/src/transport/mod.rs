//! Reliable flows between hosts: DCTCP (Alizadeh et al., SIGCOMM 2010), which most other traffic in data centres uses.
//!
//! Start with [`Endpoint`], one host's machine. It owns no clock and no link: a driver tells it the time, brings
//! packets and timeouts, and takes packets. A [`sender`] is the sending end of one flow, a [`receiver`] the other end.
//!
//! The controller is [`tributary_proto::congestion::dctcp`], which the ring uses too, or another one of
//! [`tributary_proto::congestion::ALGORITHMS`]. Each packet is acknowledged by itself with the mark with
//! which it arrived, so that the paper's state machine for delayed acknowledgements (figure 10) is not needed. An
//! acknowledgement names the transmission that caused it, so round trips and losses are never ambiguous.

mod endpoint;
mod receiver;
mod sender;
mod wire;

pub use endpoint::{Arrived, Balance, Endpoint, Outgoing, Started};
pub use wire::HEADER_LEN;

use tributary_proto::congestion::{Algorithm, SIMULATED_TARGET_DELAY, dctcp};
use tributary_proto::contract::config::TimerConfig;
use tributary_proto::contract::time::Span;

/// The common settings of a host's flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransportSettings {
    /// Bytes of a flow in each packet.
    pub packet_bytes: u16,
    /// The first window of a flow, in packets (RFC 6928).
    pub initial_window: u32,
    /// What decides how many packets of a flow are under way.
    pub congestion_control: &'static Algorithm,
    /// The round trip that controllers aim for which measure delay.
    pub target_delay: Span,
    /// Retransmission timeouts.
    pub timers: TimerConfig,
    /// A packet counts as lost when a packet that was sent so many later has arrived: TCP's third duplicate
    /// acknowledgement. The number is larger if packets of one flow take several paths.
    pub reordering: u16,
}

impl Default for TransportSettings {
    /// Ten packets of 1,460 bytes, and the paper's least timeout of 10 ms (§4).
    fn default() -> TransportSettings {
        let ms = Span::from_millis;
        TransportSettings {
            packet_bytes: 1460,
            initial_window: 10,
            congestion_control: &dctcp::ALGORITHM,
            target_delay: SIMULATED_TARGET_DELAY,
            timers: TimerConfig { initial_rto: ms(10), min_rto: ms(10), max_rto: ms(640) },
            reordering: 3,
        }
    }
}

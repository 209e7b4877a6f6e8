//! Reliable flows between hosts: DCTCP (Alizadeh et al., SIGCOMM 2010), which most other traffic in data centres uses.
//!
//! Start with [`TransportHost`], the transport of one host. It owns no clock and no link: a driver passes in the
//! time, packets and timeouts, and sends its packets. `Sender` is the sending end of one flow, `Receiver` the other end.
//!
//! A host's flows belong to classes, each with [`TransportSettings`] of its own: traffic of a file can run under several
//! controllers side by side.
//!
//! The controller is [`tributary_proto::congestion::dctcp`], which the ring uses too, or another one of
//! [`tributary_proto::congestion::ALGORITHMS`]. Each packet is acknowledged by itself with the mark with
//! which it arrived, so that the paper's state machine for delayed acknowledgements (figure 10) is not needed. An
//! acknowledgement names the transmission that caused it, so round trips and losses are never ambiguous.

mod flow;
mod host;
mod receiver;
mod segment;
mod spray;

pub use host::TransportHost;
pub(crate) use segment::BEYOND_UDP;
pub use segment::HEADER_LEN;
pub use spray::Spray;

use serde::{Deserialize, Serialize};
use tributary_proto::congestion::{Algorithm, Feedback, SIMULATED_TARGET_DELAY, dctcp};
use tributary_proto::contract::config::TimerConfig;
use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::packet::Ecn;
use tributary_proto::contract::time::{Span, Time};

use crate::net::{Framing, RECORDS_LEN, RECORDS_ON_LINKS};

/// What a flow does about lost packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Recovery {
    /// The receiver keeps packets that come after a gap, and the sender repeats those that are missing.
    #[default]
    Selective,
    /// The receiver drops all that does not come in order, and the sender begins again at the gap, as RoCE's network
    /// cards do.
    GoBackN,
}

impl Recovery {
    /// True for the choice that files need not name.
    pub fn is_default(&self) -> bool {
        *self == Recovery::default()
    }
}

/// The common settings of a class of flows.
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
    /// Reordering threshold: a packet is lost once a packet sent this many later has arrived, as at TCP's third duplicate
    /// acknowledgement. It is larger if packets of one flow take several paths.
    pub reordering: u16,
    /// What a flow does about losses.
    pub recovery: Recovery,
    /// How packets of a flow are spread over paths.
    pub spray: Spray,
    /// The rate of hosts' links in bits per second, for controllers that set a rate.
    pub line_rate: u64,
    /// The longest round trip without queues, for controllers that need to know it.
    pub base_rtt: Span,
    /// Bytes of a packet on links besides its payload, which count in the rate.
    pub framing: Framing,
    /// The class of data at switches. Acknowledgements have the highest of any flow.
    pub priority: u8,
}

impl TransportSettings {
    /// True if data packets carry what switches write into them.
    pub(crate) fn has_telemetry(&self) -> bool {
        self.congestion_control.feedback == Feedback::Telemetry
    }

    /// Bytes of UDP payload of a packet with this much data.
    pub(crate) fn payload(&self, bytes: usize) -> usize {
        if self.has_telemetry() { payload_with_records(bytes) } else { BEYOND_UDP + bytes }
    }
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
            recovery: Recovery::Selective,
            spray: Spray::Flow,
            line_rate: 100_000_000_000,
            base_rtt: Span::from_micros(10),
            framing: Framing::ETHERNET,
            priority: 0,
        }
    }
}

/// The longest header: one with records.
pub(crate) const LONGEST_HEADER: usize = HEADER_LEN + RECORDS_LEN;

/// Bytes of UDP payload of a packet with this much data, and with what switches write into it.
pub(crate) fn payload_with_records(bytes: usize) -> usize {
    BEYOND_UDP + bytes + RECORDS_ON_LINKS
}

/// A flow that this host began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Started {
    /// Its receiver.
    pub to: NodeId,
    /// The bytes of its data.
    pub bytes: u64,
    /// When it arose.
    pub at: Time,
    /// The class of its settings.
    pub class: u8,
}

/// A flow that this host has received completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// Its sender.
    pub from: NodeId,
    /// Its number at the sender.
    pub flow: u32,
    /// When its last byte came.
    pub at: Time,
}

/// A packet that this host must send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// The receiver.
    pub to: NodeId,
    /// By which switches choose its path: the flow's number at its sender, and its entropy.
    pub path: u32,
    /// The bytes of its header.
    pub header_len: usize,
    /// Its length on the wire, as UDP payload.
    pub wire_len: usize,
    /// Acknowledgements do not support ECN, like TCP's.
    pub ecn: Ecn,
    /// The lane of the flow's data.
    pub lane: u8,
    /// Switches write records into it.
    pub takes_records: bool,
    /// Its class at switches.
    pub priority: u8,
}

/// What distinguishes flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kind {
    /// The run waits for the flow.
    pub awaited: bool,
    /// The lane of its packets: not 0 if a training step waits for it.
    pub lane: u8,
    /// The class of its settings.
    pub class: u8,
}

/// How many flows and sources that the run waits for have begun and ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Balance {
    /// How many began.
    pub opened: u64,
    /// How many ended.
    pub closed: u64,
}

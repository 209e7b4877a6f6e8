//! Reliable flows between hosts: DCTCP (Alizadeh et al., SIGCOMM 2010), which most other traffic in data centres uses.
//!
//! Start with [`TransportHost`], the transport of one host. It owns no clock and no link: a driver passes in the
//! time, packets and timeouts, and sends its packets. `Sender` is the sending end of one flow, `Receiver` the other end.
//!
//! The controller is [`tributary_proto::congestion::dctcp`], which the ring uses too, or another one of
//! [`tributary_proto::congestion::ALGORITHMS`]. Each packet is acknowledged by itself with the mark with
//! which it arrived, so that the paper's state machine for delayed acknowledgements (figure 10) is not needed. An
//! acknowledgement names the transmission that caused it, so round trips and losses are never ambiguous.

mod flow;
mod host;

pub use host::TransportHost;

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
    /// Reordering threshold: a packet is lost once a packet sent this many later has arrived, as at TCP's third duplicate
    /// acknowledgement. It is larger if packets of one flow take several paths.
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

/// Bytes of a header.
pub const HEADER_LEN: usize = 20;

/// Bytes that a header has beyond the UDP header that the simulator's framing counts: TCP's is 12 bytes longer.
pub(crate) const BEYOND_UDP: usize = HEADER_LEN - 8;

const DATA: u8 = 1;
const ACK: u8 = 2;

/// The header of a segment: as long as TCP's, with packets numbered instead of bytes.
///
/// | bytes | data | acknowledgement |
/// |---|---|---|
/// | 0 | 1 | 2 |
/// | 1 | 0 | 1 if the packet arrived marked |
/// | 2-3 | bytes of data | 0 |
/// | 4-7 | number of the flow at its sender | the same |
/// | 8-11 | number of the packet in its flow | the packet that arrived |
/// | 12-15 | number of the transmission | the transmission that arrived |
/// | 16-19 | packets of the flow | the first packet that has not arrived |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub flow: u32,
    pub packet: u32,
    pub transmission: u32,
    pub body: Body,
}

/// The two kinds of segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Body {
    Data { bytes: u16, packets: u32 },
    Ack { marked: bool, next: u32 },
}

impl Segment {
    pub fn write(&self, buf: &mut [u8]) {
        let (kind, flag, bytes, last) = match self.body {
            Body::Data { bytes, packets } => (DATA, 0, bytes, packets),
            Body::Ack { marked, next } => (ACK, u8::from(marked), 0, next),
        };
        buf[0] = kind;
        buf[1] = flag;
        buf[2..4].copy_from_slice(&bytes.to_be_bytes());
        for (index, word) in [self.flow, self.packet, self.transmission, last].into_iter().enumerate() {
            buf[4 + 4 * index..8 + 4 * index].copy_from_slice(&word.to_be_bytes());
        }
    }

    /// Reads a segment; `None` if it is not one.
    pub fn parse(bytes: &[u8]) -> Option<Segment> {
        let bytes: &[u8; HEADER_LEN] = bytes.try_into().ok()?;
        let word = |index: usize| u32::from_be_bytes([0, 1, 2, 3].map(|byte| bytes[4 + 4 * index + byte]));
        let length = u16::from_be_bytes([bytes[2], bytes[3]]);
        let body = match (bytes[0], bytes[1]) {
            (DATA, 0) if word(1) < word(3) => Body::Data { bytes: length, packets: word(3) },
            (ACK, flag @ (0 | 1)) if length == 0 => Body::Ack { marked: flag == 1, next: word(3) },
            _ => return None,
        };
        Some(Segment { flow: word(0), packet: word(1), transmission: word(2), body })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let bodies = [
            Body::Data { bytes: 1460, packets: 8 },
            Body::Ack { marked: true, next: 9 },
            Body::Ack { marked: false, next: 0 },
        ];
        for body in bodies {
            let segment = Segment { flow: 0x0102_0304, packet: 7, transmission: 0xffff_fffe, body };
            let mut bytes = [0; HEADER_LEN];
            segment.write(&mut bytes);
            assert_eq!(Segment::parse(&bytes), Some(segment));
        }
    }

    #[test]
    fn invalid_segments_are_refused() {
        let mut bytes = [0; HEADER_LEN];
        assert_eq!(Segment::parse(&bytes), None, "no kind");
        let body = Body::Data { bytes: 1, packets: 7 };
        Segment { flow: 0, packet: 7, transmission: 0, body }.write(&mut bytes);
        assert_eq!(Segment::parse(&bytes), None, "a packet after its flow's end");
        assert_eq!(Segment::parse(&bytes[..19]), None, "cut short");
    }
}

//! The packets of flows.

/// Bytes of a header.
pub const HEADER_LEN: usize = 20;

/// Bytes that a header has beyond the UDP header that the simulator's framing counts: TCP's is 12 bytes longer.
pub(crate) const BEYOND_UDP: usize = HEADER_LEN - 8;

const DATA: u8 = 1;
const ACK: u8 = 2;
const NACK: u8 = 3;
const TRIMMED: u8 = 4;

/// The header of a segment: as long as TCP's, with packets numbered instead of bytes.
///
/// | bytes | data | acknowledgement |
/// |---|---|---|
/// | 0 | 1 | 2 |
/// | 1 | 1 if the receiver must take packets in order only | 1 if the packet arrived marked |
/// | 2-3 | bytes of data | 0 |
/// | 4-7 | number of the flow at its sender | the same |
/// | 8-11 | number of the packet in its flow | the packet that arrived |
/// | 12-15 | number of the transmission | the transmission that arrived |
/// | 16-19 | packets of the flow | the first packet that has not arrived |
///
/// The answer to a packet whose data was trimmed (4) is as an acknowledgement without its last word. A refusal (3) of a packet that came after a gap is as an acknowledgement, and says where the sender must begin again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub flow: u32,
    pub packet: u32,
    pub transmission: u32,
    pub body: Body,
}

/// The kinds of segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Body {
    Data { bytes: u16, packets: u32, in_order: bool },
    Ack { marked: bool, next: u32 },
    Nack { marked: bool, next: u32 },
    Trimmed,
}

impl Segment {
    pub fn write(&self, buf: &mut [u8]) {
        let (kind, flag, bytes, last) = match self.body {
            Body::Data { bytes, packets, in_order } => (DATA, u8::from(in_order), bytes, packets),
            Body::Ack { marked, next } => (ACK, u8::from(marked), 0, next),
            Body::Nack { marked, next } => (NACK, u8::from(marked), 0, next),
            Body::Trimmed => (TRIMMED, 0, 0, 0),
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
            (DATA, flag @ (0 | 1)) if word(1) < word(3) => {
                Body::Data { bytes: length, packets: word(3), in_order: flag == 1 }
            }
            (ACK, flag @ (0 | 1)) if length == 0 => Body::Ack { marked: flag == 1, next: word(3) },
            (NACK, flag @ (0 | 1)) if length == 0 => Body::Nack { marked: flag == 1, next: word(3) },
            (TRIMMED, 0) if length == 0 && word(3) == 0 => Body::Trimmed,
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
            Body::Data { bytes: 1460, packets: 8, in_order: false },
            Body::Data { bytes: 1460, packets: 8, in_order: true },
            Body::Nack { marked: true, next: 7 },
            Body::Ack { marked: true, next: 9 },
            Body::Ack { marked: false, next: 0 },
            Body::Trimmed,
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
        let body = Body::Data { bytes: 1, packets: 7, in_order: false };
        Segment { flow: 0, packet: 7, transmission: 0, body }.write(&mut bytes);
        assert_eq!(Segment::parse(&bytes), None, "a packet after its flow's end");
        assert_eq!(Segment::parse(&bytes[..19]), None, "cut short");
    }
}

//! The fabric's own packets: hellos between switches, packets that switches only forward, and PAUSE.
//!
//! ```text
//! HELLO  | common header (16) | node (4) | ready (1) | adverts (1) | advert ... |
//! advert | switch (2) | seq (8) | dead ports (1) | port (1) ... |
//! CARRY  | common header (16) | via (4) | to (4) | UDP port (2) | reserved (2) | anything |
//! PAUSE  | common header (16) | microseconds (4) |
//! ```

use tributary_control::fabric::Advert;
use tributary_proto::contract::ids::{JobId, JobKey, NodeId, PortId, PortSet};
use tributary_proto::contract::time::Span;
use tributary_proto::contract::wire::{COMMON_LEN, Common, kind};

/// Bytes of a HELLO before its adverts.
const HELLO_LEN: usize = COMMON_LEN + 6;
/// Once a HELLO is longer than this, further adverts go into another one.
const HELLO_FILL: usize = 1_200;
/// Bytes of a CARRY's headers.
pub const CARRY_LEN: usize = COMMON_LEN + 12;
/// The `via` of a packet that need not pass a certain switch, or has passed it.
pub const NO_VIA: NodeId = NodeId(u32::MAX);

/// Bytes of a PAUSE.
pub const PAUSE_LEN: usize = COMMON_LEN + 4;

/// The header with which the fabric's own packets begin.
pub fn fabric_header(kind: u8, key: JobKey) -> Common {
    Common { protocol: 0, kind, job: JobId(0), key }
}

fn common(kind: u8, key: JobKey) -> [u8; COMMON_LEN] {
    let mut bytes = [0; COMMON_LEN];
    fabric_header(kind, key).emit(&mut bytes);
    bytes
}

/// A PAUSE of this length; one of no length resumes the receiver. To a switch it has the fabric's header, and to a member
/// that of the member's job.
pub fn pause(header: Common, span: Span) -> [u8; PAUSE_LEN] {
    let mut bytes = [0; PAUSE_LEN];
    Common { kind: kind::PAUSE, ..header }.emit(&mut bytes);
    bytes[COMMON_LEN..].copy_from_slice(&((span.0 / 1_000_000).min(u32::MAX.into()) as u32).to_be_bytes());
    bytes
}

/// Reads what follows a PAUSE's common header; `None` if it is too short.
pub fn read_pause(bytes: &[u8]) -> Option<Span> {
    let micros: &[u8; 4] = bytes.get(COMMON_LEN..)?.first_chunk()?;
    Some(Span::from_micros(u32::from_be_bytes(*micros).into()))
}

/// The hellos of a switch, in as many packets as its adverts need, and at least one.
pub fn hellos<'a>(key: JobKey, node: NodeId, ready: bool, adverts: impl Iterator<Item = &'a Advert>) -> Vec<Vec<u8>> {
    let empty = || {
        let mut packet = common(kind::HELLO, key).to_vec();
        packet.extend(node.0.to_be_bytes());
        packet.extend([u8::from(ready), 0]);
        packet
    };
    let mut packets = vec![empty()];
    for advert in adverts {
        let full = packets.last().is_some_and(|packet| packet.len() > HELLO_FILL);
        if full {
            packets.push(empty());
        }
        let packet = packets.last_mut().expect("there is at least one");
        packet[HELLO_LEN - 1] += 1;
        packet.extend(advert.switch.to_be_bytes());
        packet.extend(advert.seq.to_be_bytes());
        // A HELLO counts at most 255 ports. A switch with 256 dead ports would have no neighbour left.
        let dead: Vec<u8> = advert.down.iter().take(u8::MAX.into()).map(|port| port.0 as u8).collect();
        packet.push(dead.len() as u8);
        packet.extend(dead);
    }
    packets
}

/// A HELLO that arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The switch that sent it.
    pub node: NodeId,
    /// True if the switch knows the running jobs.
    pub ready: bool,
    /// The adverts of dead cables that the switch knows.
    pub adverts: Vec<Advert>,
}

/// Reads what follows a HELLO's common header; `None` if it is malformed.
pub fn read_hello(bytes: &[u8]) -> Option<Hello> {
    let (head, mut rest) = bytes.get(COMMON_LEN..)?.split_at_checked(HELLO_LEN - COMMON_LEN)?;
    let node = NodeId(u32::from_be_bytes(head[..4].try_into().ok()?));
    let mut adverts = Vec::with_capacity(head[5].into());
    for _ in 0..head[5] {
        let (fixed, after) = rest.split_at_checked(11)?;
        let (dead, after) = after.split_at_checked(fixed[10].into())?;
        let mut down = PortSet::EMPTY;
        for &port in dead {
            down.insert(PortId(port.into()));
        }
        let switch = u16::from_be_bytes([fixed[0], fixed[1]]);
        adverts.push(Advert { switch, seq: u64::from_be_bytes(fixed[2..10].try_into().ok()?), down });
        rest = after;
    }
    Some(Hello { node, ready: head[4] != 0, adverts })
}

/// A packet that the fabric only forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carry {
    /// A switch that the packet must pass first; [`NO_VIA`] if it may take any route.
    pub via: NodeId,
    /// The receiving host.
    pub to: NodeId,
    /// The receiving UDP port.
    pub udp_port: u16,
}

impl Carry {
    /// Writes the headers to the first [`CARRY_LEN`] bytes.
    pub fn emit(&self, key: JobKey, bytes: &mut [u8]) {
        bytes[..COMMON_LEN].copy_from_slice(&common(kind::CARRY, key));
        self.emit_fields(bytes);
    }

    /// Writes what follows the common header.
    pub fn emit_fields(&self, bytes: &mut [u8]) {
        bytes[16..20].copy_from_slice(&self.via.0.to_be_bytes());
        bytes[20..24].copy_from_slice(&self.to.0.to_be_bytes());
        bytes[24..26].copy_from_slice(&self.udp_port.to_be_bytes());
        bytes[26..28].fill(0);
    }

    /// Reads what follows the common header; `None` if it is too short.
    pub fn read(bytes: &[u8]) -> Option<Carry> {
        let own: &[u8; 12] = bytes.get(COMMON_LEN..)?.first_chunk()?;
        let node = |at: usize| NodeId(u32::from_be_bytes([own[at], own[at + 1], own[at + 2], own[at + 3]]));
        Some(Carry { via: node(0), to: node(4), udp_port: u16::from_be_bytes([own[8], own[9]]) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advert(switch: u16, dead: &[u16]) -> Advert {
        let mut down = PortSet::EMPTY;
        dead.iter().for_each(|&port| assert!(down.insert(PortId(port))));
        Advert { switch, seq: 1 << 40 | u64::from(switch), down }
    }

    #[test]
    fn a_hello_is_read_as_it_was_written_in_one_packet_or_many() {
        for switches in [0, 3, 64] {
            let adverts: Vec<Advert> = (0..switches).map(|switch| advert(switch, &[100, 200, switch])).collect();
            let packets = hellos(JobKey(5), NodeId(9), true, adverts.iter());
            assert!(packets.iter().all(|packet| packet.len() < 1_472));
            let read: Vec<Hello> = packets.iter().map(|packet| read_hello(packet).unwrap()).collect();
            assert!(read.iter().all(|hello| hello.node == NodeId(9) && hello.ready));
            assert!(read.iter().flat_map(|hello| &hello.adverts).eq(adverts.iter()));
        }
    }

    #[test]
    fn a_damaged_hello_is_none() {
        let adverts = [advert(1, &[4, 5])];
        let whole = hellos(JobKey(5), NodeId(9), false, adverts.iter()).remove(0);
        assert!((0..whole.len()).all(|len| read_hello(&whole[..len]).is_none()));
    }

    #[test]
    fn any_bytes_are_read_or_refused_and_never_a_panic() {
        let mut random = 7u64;
        for len in (0..200).cycle().take(20_000) {
            let mut bytes: Vec<u8> = (0..len)
                .map(|_| {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    (random >> 56) as u8
                })
                .collect();
            // Small numbers of adverts and ports, so that some adverts are complete.
            bytes.iter_mut().skip(HELLO_LEN - 1).for_each(|byte| *byte %= 4);
            if let Some(hello) = read_hello(&bytes) {
                assert!(hello.adverts.len() * 11 <= len);
            }
            assert_eq!(Carry::read(&bytes).is_some(), len >= CARRY_LEN);
            assert_eq!(read_pause(&bytes).is_some(), len >= PAUSE_LEN);
        }
    }

    #[test]
    fn a_pause_says_how_long() {
        let header = Common { protocol: 5, kind: 0, job: JobId(3), key: JobKey(9) };
        let packet = pause(header, Span::from_micros(70_000));
        assert_eq!(Common::parse(&packet), Ok(Common { kind: kind::PAUSE, ..header }));
        assert_eq!(read_pause(&packet), Some(Span::from_millis(70)));
    }

    #[test]
    fn a_carried_packet_keeps_its_fields() {
        let carry = Carry { via: NO_VIA, to: NodeId(7), udp_port: 4_000 };
        let mut bytes = [9; CARRY_LEN + 4];
        carry.emit(JobKey(1), &mut bytes);
        assert_eq!((Carry::read(&bytes), bytes[CARRY_LEN]), (Some(carry), 9));
        assert_eq!(Carry::read(&bytes[..CARRY_LEN - 1]), None);
    }
}

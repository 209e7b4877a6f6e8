//! Sends packets that are too long for the way to their receiver in pieces. A job's packets have the same length as
//! long as the job runs, but a way may become narrower meanwhile. Then the sender cuts packets, and the receiver puts
//! each together again before a machine sees it. No node on the way takes part, so such pieces also pass where IP's own
//! fragments are dropped.
//!
//! A piece begins with the common header of its packet, except for the kind, so that pieces of strangers are dropped as
//! their packets are: `| common header (16) | id (2) | offset (2) | total (2) | index (1) | count (1) | bytes |`.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

use tributary_proto::contract::wire::{self, COMMON_LEN, kind};

/// Bytes of a piece in front of its part of the packet.
pub const HEADER_LEN: usize = COMMON_LEN + 8;
/// The most incomplete packets of one sender. The oldest gives way to another.
const INCOMPLETE: usize = 4;
/// The longest packet that comes in pieces. It is that of the longest frames.
const LONGEST: usize = 1 << 14;
/// The most bytes of all incomplete packets of all senders.
const MOST_BYTES: usize = 16 << 20;

/// Appends the pieces of a packet to `pieces`. Each has `limit` bytes, except the last. False if the packet cannot be
/// cut: either its kind is not a protocol's own, so that its length has a meaning, or there would be too many pieces.
pub fn cut(packet: &[u8], limit: usize, id: u16, pieces: &mut Vec<u8>) -> bool {
    let is_own = packet.len() >= COMMON_LEN && packet[4] >= kind::FIRST_OF_PROTOCOL;
    let Some(room) = limit.checked_sub(HEADER_LEN).filter(|&room| room > 0 && is_own) else { return false };
    let count = packet.len().div_ceil(room);
    if count > usize::from(u8::MAX) || packet.len() > LONGEST {
        return false;
    }
    for (index, bytes) in packet.chunks(room).enumerate() {
        pieces.extend_from_slice(&packet[..4]);
        pieces.push(kind::FRAGMENT);
        pieces.extend_from_slice(&packet[5..COMMON_LEN]);
        for field in [id, (index * room) as u16, packet.len() as u16] {
            pieces.extend_from_slice(&field.to_be_bytes());
        }
        pieces.extend_from_slice(&[index as u8, count as u8]);
        pieces.extend_from_slice(bytes);
    }
    true
}

struct Partial {
    id: u16,
    bytes: Vec<u8>,
    /// One bit for each piece that has come.
    came: [u64; 4],
    lacks: usize,
}

/// Packets that lack pieces, by sender.
pub struct Reassembly<Sender> {
    partials: HashMap<Sender, VecDeque<Partial>>,
    bytes: usize,
}

impl<Sender> Default for Reassembly<Sender> {
    /// No piece has come.
    fn default() -> Reassembly<Sender> {
        Reassembly { partials: HashMap::new(), bytes: 0 }
    }
}

impl<Sender: Copy + Eq + Hash> Reassembly<Sender> {
    /// Takes a piece whose common header was checked; returns the packet that it completes.
    pub fn add(&mut self, from: Sender, piece: &[u8]) -> Option<Vec<u8>> {
        let (header, bytes) = piece.split_at_checked(HEADER_LEN)?;
        let field = |at| usize::from(wire::u16(header, COMMON_LEN + at));
        let (id, offset, total) = (wire::u16(header, COMMON_LEN), field(2), field(4));
        let (index, count) = (usize::from(header[HEADER_LEN - 2]), usize::from(header[HEADER_LEN - 1]));
        let end = offset + bytes.len();
        if index >= count || end > total || total > LONGEST || bytes.is_empty() {
            return None;
        }
        let partials = self.partials.entry(from).or_default();
        let at = match partials.iter().position(|partial| partial.id == id && partial.bytes.len() == total) {
            Some(at) => at,
            None => {
                if partials.len() == INCOMPLETE {
                    self.bytes -= partials.pop_front().map_or(0, |oldest| oldest.bytes.len());
                }
                if self.bytes + total > MOST_BYTES {
                    return None;
                }
                self.bytes += total;
                partials.push_back(Partial { id, bytes: vec![0; total], came: [0; 4], lacks: count });
                partials.len() - 1
            }
        };
        let partial = &mut partials[at];
        let (word, bit) = (&mut partial.came[index / 64], 1 << (index % 64));
        if *word & bit != 0 {
            return None;
        }
        *word |= bit;
        partial.bytes[offset..end].copy_from_slice(bytes);
        partial.lacks = partial.lacks.saturating_sub(1);
        if partial.lacks > 0 {
            return None;
        }
        let whole = partials.remove(at)?;
        self.bytes -= whole.bytes.len();
        Some(whole.bytes)
    }

    /// Forgets the pieces of a sender that is gone.
    pub fn forget(&mut self, from: Sender) {
        let gone = self.partials.remove(&from).unwrap_or_default();
        self.bytes -= gone.iter().map(|partial| partial.bytes.len()).sum::<usize>();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(len: usize) -> Vec<u8> {
        let mut packet: Vec<u8> = (0..len).map(|i| (i * 7) as u8).collect();
        packet[4] = kind::FIRST_OF_PROTOCOL;
        packet
    }

    fn pieces(packet: &[u8], limit: usize, id: u16) -> Vec<Vec<u8>> {
        let mut bytes = Vec::new();
        assert!(cut(packet, limit, id, &mut bytes));
        bytes.chunks(limit).map(<[u8]>::to_vec).collect()
    }

    #[test]
    fn a_packet_is_the_same_after_it_was_cut_whatever_the_order_and_whatever_comes_twice() {
        for (len, limit) in [(1472, 524), (1472, 1471), (9000, 1472), (100, 25)] {
            let packet = packet(len);
            let mut pieces = pieces(&packet, limit, 3);
            assert!(pieces.iter().all(|piece| piece.len() <= limit));
            pieces.reverse();
            let mut reassembly = Reassembly::default();
            let (last, others) = pieces.split_last().unwrap();
            for piece in others.iter().chain(others) {
                assert_eq!(reassembly.add((), piece), None);
            }
            assert_eq!(reassembly.add((), last), Some(packet));
            assert_eq!(reassembly.bytes, 0);
        }
    }

    #[test]
    fn pieces_of_different_packets_and_senders_are_never_put_together() {
        let (a, b) = (packet(1000), vec![kind::FIRST_OF_PROTOCOL; 1000]);
        let (a, b) = (pieces(&a, 600, 1), pieces(&b, 600, 2));
        let mut reassembly = Reassembly::default();
        assert_eq!(reassembly.add(0, &a[0]), None);
        assert_eq!(reassembly.add(0, &b[1]), None);
        assert_eq!(reassembly.add(1, &a[1]), None);
        assert_eq!(reassembly.add(0, &a[1]), Some(packet(1000)));
    }

    #[test]
    fn what_lacks_pieces_for_ever_takes_bounded_memory() {
        let mut reassembly = Reassembly::default();
        for id in 0..10_000 {
            reassembly.add(0, &pieces(&packet(1472), 1000, id)[0]);
        }
        assert_eq!(reassembly.bytes, INCOMPLETE * 1472);
        reassembly.forget(0);
        assert_eq!(reassembly.bytes, 0);
    }

    #[test]
    fn nonsense_is_turned_away() {
        let right = pieces(&packet(1472), 1000, 1).remove(0);
        for (at, value) in [(18, 0xff), (HEADER_LEN - 2, 9), (HEADER_LEN - 1, 0), (20, 0xff), (20, 0)] {
            let mut wrong = right.clone();
            wrong[at] = value;
            assert_eq!(Reassembly::default().add((), &wrong), None, "{at}");
        }
        assert_eq!(Reassembly::default().add((), &right[..HEADER_LEN]), None);
        let mut ping = packet(1472);
        ping[4] = kind::PING;
        assert!(!cut(&ping, 1000, 1, &mut Vec::new()), "the length of a ping is what it asks about");
    }
}

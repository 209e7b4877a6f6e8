//! Fragments of packets that are longer than the path to their receiver holds. A job's packets keep their length as long
//! as the job runs, but a path may become narrower meanwhile. Then the sender splits packets, and the receiver puts them
//! together before a machine sees them. No node on the path takes part, so such fragments also pass where IP's own
//! fragments are dropped.
//!
//! A fragment begins with the common header of its packet, except for the kind, so that fragments without a valid key are
//! rejected like packets: `| common header (16) | id (2) | offset (2) | total (2) | index (1) | count (1) | bytes |`.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

use tributary_proto::contract::wire::{self, COMMON_LEN, kind};

/// Bytes of a fragment's headers.
pub const HEADER_LEN: usize = COMMON_LEN + 8;
/// The most incomplete packets of one sender. The oldest makes way for another.
const INCOMPLETE: usize = 4;
/// The longest packet that is split: that of the longest frames.
const LONGEST: usize = 1 << 14;
/// The most bytes of all incomplete packets of all senders.
const MOST_BYTES: usize = 16 << 20;

/// Appends the fragments of a packet to `fragments`. Each has `limit` bytes, except the last. False if the packet cannot be
/// split: its kind is common to all protocols, so that its length has a meaning, or there would be too many fragments.
pub fn split(packet: &[u8], limit: usize, id: u16, fragments: &mut Vec<u8>) -> bool {
    let is_own = packet.len() >= COMMON_LEN && packet[4] >= kind::FIRST_OWN;
    let Some(space) = limit.checked_sub(HEADER_LEN).filter(|&space| space > 0 && is_own) else { return false };
    let count = packet.len().div_ceil(space);
    if count > usize::from(u8::MAX) || packet.len() > LONGEST {
        return false;
    }
    for (index, bytes) in packet.chunks(space).enumerate() {
        fragments.extend_from_slice(&packet[..4]);
        fragments.push(kind::PIECE);
        fragments.extend_from_slice(&packet[5..COMMON_LEN]);
        for field in [id, (index * space) as u16, packet.len() as u16] {
            fragments.extend_from_slice(&field.to_be_bytes());
        }
        fragments.extend_from_slice(&[index as u8, count as u8]);
        fragments.extend_from_slice(bytes);
    }
    true
}

struct Partial {
    id: u16,
    bytes: Vec<u8>,
    /// One bit for each fragment that has arrived.
    received: [u64; 4],
    missing: usize,
}

/// Incomplete packets, by sender.
pub struct Reassembly<Sender> {
    partials: HashMap<Sender, VecDeque<Partial>>,
    bytes: usize,
}

impl<Sender> Default for Reassembly<Sender> {
    /// No fragment has arrived.
    fn default() -> Reassembly<Sender> {
        Reassembly { partials: HashMap::new(), bytes: 0 }
    }
}

impl<Sender: Copy + Eq + Hash> Reassembly<Sender> {
    /// Takes a fragment whose common header was checked; returns the packet that it completes.
    pub fn add(&mut self, from: Sender, fragment: &[u8]) -> Option<Vec<u8>> {
        let (header, bytes) = fragment.split_at_checked(HEADER_LEN)?;
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
                partials.push_back(Partial { id, bytes: vec![0; total], received: [0; 4], missing: count });
                partials.len() - 1
            }
        };
        let partial = &mut partials[at];
        let (word, bit) = (&mut partial.received[index / 64], 1 << (index % 64));
        if *word & bit != 0 {
            return None;
        }
        *word |= bit;
        partial.bytes[offset..end].copy_from_slice(bytes);
        partial.missing = partial.missing.saturating_sub(1);
        if partial.missing > 0 {
            return None;
        }
        let whole = partials.remove(at)?;
        self.bytes -= whole.bytes.len();
        Some(whole.bytes)
    }

    /// Drops the fragments of a sender that is gone.
    pub fn remove(&mut self, from: Sender) {
        let gone = self.partials.remove(&from).unwrap_or_default();
        self.bytes -= gone.iter().map(|partial| partial.bytes.len()).sum::<usize>();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(len: usize) -> Vec<u8> {
        let mut packet: Vec<u8> = (0..len).map(|i| (i * 7) as u8).collect();
        packet[4] = kind::FIRST_OWN;
        packet
    }

    fn fragments(packet: &[u8], limit: usize, id: u16) -> Vec<Vec<u8>> {
        let mut bytes = Vec::new();
        assert!(split(packet, limit, id, &mut bytes));
        bytes.chunks(limit).map(<[u8]>::to_vec).collect()
    }

    #[test]
    fn a_packet_is_the_same_after_it_was_split_in_any_order_and_with_duplicates() {
        for (len, limit) in [(1472, 524), (1472, 1471), (9000, 1472), (100, 25)] {
            let packet = packet(len);
            let mut fragments = fragments(&packet, limit, 3);
            assert!(fragments.iter().all(|fragment| fragment.len() <= limit));
            fragments.reverse();
            let mut reassembly = Reassembly::default();
            let (last, others) = fragments.split_last().unwrap();
            for fragment in others.iter().chain(others) {
                assert_eq!(reassembly.add((), fragment), None);
            }
            assert_eq!(reassembly.add((), last), Some(packet));
            assert_eq!(reassembly.bytes, 0);
        }
    }

    #[test]
    fn fragments_of_different_packets_and_senders_are_never_put_together() {
        let (a, b) = (packet(1000), vec![kind::FIRST_OWN; 1000]);
        let (a, b) = (fragments(&a, 600, 1), fragments(&b, 600, 2));
        let mut reassembly = Reassembly::default();
        assert_eq!(reassembly.add(0, &a[0]), None);
        assert_eq!(reassembly.add(0, &b[1]), None);
        assert_eq!(reassembly.add(1, &a[1]), None);
        assert_eq!(reassembly.add(0, &a[1]), Some(packet(1000)));
    }

    #[test]
    fn incomplete_packets_take_bounded_memory() {
        let mut reassembly = Reassembly::default();
        for id in 0..10_000 {
            reassembly.add(0, &fragments(&packet(1472), 1000, id)[0]);
        }
        assert_eq!(reassembly.bytes, INCOMPLETE * 1472);
        reassembly.remove(0);
        assert_eq!(reassembly.bytes, 0);
    }

    #[test]
    fn malformed_fragments_are_rejected() {
        let right = fragments(&packet(1472), 1000, 1).remove(0);
        for (at, value) in [(18, 0xff), (HEADER_LEN - 2, 9), (HEADER_LEN - 1, 0), (20, 0xff), (20, 0)] {
            let mut wrong = right.clone();
            wrong[at] = value;
            assert_eq!(Reassembly::default().add((), &wrong), None, "{at}");
        }
        assert_eq!(Reassembly::default().add((), &right[..HEADER_LEN]), None);
        let mut ping = packet(1472);
        ping[4] = kind::PING;
        assert!(!split(&ping, 1000, 1, &mut Vec::new()), "the length of a ping is what it tests");
    }
}

//! Fragments of packets that are longer than the path to their receiver holds. A job's packets keep their length as long
//! as the job runs, but a path may become narrower meanwhile. Then the sender splits packets, and the receiver puts them
//! together before a machine sees them. No node on the path takes part, so such fragments also pass where IP's own
//! fragments are dropped.
//!
//! A fragment begins with the common header of its packet, except for the kind, so that fragments without a valid key are
//! rejected like packets: `| common header (16) | id (2) | offset (2) | total (2) | index (1) | count (1) | bytes |`.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

use tributary_proto::contract::seal;
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::contract::wire::{self, COMMON_LEN, kind};

/// Bytes of a fragment's headers.
pub const HEADER_LEN: usize = COMMON_LEN + 8;
/// The most incomplete packets of one sender. The oldest makes way for another.
const INCOMPLETE: usize = 4;
/// The longest packet that is split: that of the longest frames.
const LONGEST: usize = 1 << 14;
/// The most bytes of all incomplete packets of one owner ...
const MOST_BYTES_OF_OWNER: usize = 2 << 20;
/// ... and of all.
const MOST_BYTES: usize = 16 << 20;
/// How long a packet may stay incomplete. Its fragments leave together.
const LIFETIME: Span = Span::from_millis(1_000);

/// Appends the fragments of a packet to `fragments`. Each has `limit` bytes, except the last. False if the packet cannot be
/// split: its kind is common to all protocols, so that its length has a meaning, or there would be too many fragments.
pub fn split(packet: &[u8], limit: usize, id: u16, fragments: &mut Vec<u8>) -> bool {
    let is_own = packet.len() >= COMMON_LEN && packet[4] >= kind::FIRST_OF_PROTOCOL;
    let Some(space) = limit.checked_sub(HEADER_LEN).filter(|&space| space > 0 && is_own) else { return false };
    // The header of a fragment is checked before the packet is whole.
    let Some(mut header) = seal::plain_header(packet) else { return false };
    header[4] = kind::FRAGMENT;
    let count = packet.len().div_ceil(space);
    if count > usize::from(u8::MAX) || packet.len() > LONGEST {
        return false;
    }
    for (index, bytes) in packet.chunks(space).enumerate() {
        fragments.extend_from_slice(&header);
        for field in [id, (index * space) as u16, packet.len() as u16] {
            fragments.extend_from_slice(&field.to_be_bytes());
        }
        fragments.extend_from_slice(&[index as u8, count as u8]);
        fragments.extend_from_slice(bytes);
    }
    true
}

struct Partial<Owner> {
    id: u16,
    bytes: Vec<u8>,
    /// One bit for each fragment that has arrived.
    received: [u64; 4],
    missing: usize,
    /// Who is charged for the bytes.
    owner: Owner,
    since: Time,
}

/// Incomplete packets, by sender. Each owner of senders has a bounded share of the memory, and what stays incomplete is
/// dropped.
pub struct Reassembly<Sender, Owner> {
    partials: HashMap<Sender, VecDeque<Partial<Owner>>>,
    /// Bytes of all incomplete packets, by owner.
    bytes: HashMap<Owner, usize>,
    /// The same of all owners. Anybody's fragment may ask for it, so it is not added up each time.
    all_bytes: usize,
    /// When packets were last dropped because they have become too old.
    expired: Time,
}

impl<Sender, Owner> Default for Reassembly<Sender, Owner> {
    /// No fragment has arrived.
    fn default() -> Reassembly<Sender, Owner> {
        Reassembly { partials: HashMap::new(), bytes: HashMap::new(), all_bytes: 0, expired: Time::ZERO }
    }
}

impl<Sender: Copy + Eq + Hash, Owner: Copy + Eq + Hash> Reassembly<Sender, Owner> {
    /// Takes a fragment whose common header was checked, from a sender of this owner; returns the packet that it completes.
    pub fn add(&mut self, now: Time, from: Sender, owner: Owner, fragment: &[u8]) -> Option<Vec<u8>> {
        let (header, bytes) = fragment.split_at_checked(HEADER_LEN)?;
        let field = |at| usize::from(wire::u16(header, COMMON_LEN + at));
        let (id, offset, total) = (wire::u16(header, COMMON_LEN), field(2), field(4));
        let (index, count) = (usize::from(header[HEADER_LEN - 2]), usize::from(header[HEADER_LEN - 1]));
        let end = offset + bytes.len();
        if index >= count || end > total || total > LONGEST || bytes.is_empty() {
            return None;
        }
        self.expire(now);
        let is_same = |partial: &Partial<Owner>| partial.id == id && partial.bytes.len() == total;
        let known = self.partials.get(&from).and_then(|partials| partials.iter().position(is_same));
        let at = match known {
            Some(at) => at,
            None => {
                if self.partials.get(&from).is_some_and(|partials| partials.len() == INCOMPLETE) {
                    self.drop_first(from);
                }
                let own = self.bytes.get(&owner).copied().unwrap_or(0);
                if own + total > MOST_BYTES_OF_OWNER || self.all_bytes + total > MOST_BYTES {
                    return None;
                }
                *self.bytes.entry(owner).or_default() += total;
                self.all_bytes += total;
                let bytes = vec![0; total];
                let partials = self.partials.entry(from).or_default();
                partials.push_back(Partial { id, bytes, received: [0; 4], missing: count, owner, since: now });
                partials.len() - 1
            }
        };
        let partials = self.partials.get_mut(&from)?;
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
        self.release(&whole);
        Some(whole.bytes)
    }

    /// Drops the fragments of a sender that is gone.
    pub fn remove(&mut self, from: Sender) {
        for gone in self.partials.remove(&from).unwrap_or_default() {
            self.release(&gone);
        }
    }

    fn drop_first(&mut self, from: Sender) {
        let first = self.partials.get_mut(&from).and_then(VecDeque::pop_front);
        first.into_iter().for_each(|first| self.release(&first));
    }

    /// Drops what has been incomplete for too long: the sender sends the packet again, under another number.
    fn expire(&mut self, now: Time) {
        if now.since(self.expired) < LIFETIME {
            return;
        }
        self.expired = now;
        let mut old = Vec::new();
        for partials in self.partials.values_mut() {
            while partials.front().is_some_and(|partial| now.since(partial.since) >= LIFETIME) {
                old.extend(partials.pop_front());
            }
        }
        self.partials.retain(|_, partials| !partials.is_empty());
        old.iter().for_each(|partial| self.release(partial));
    }

    fn release(&mut self, partial: &Partial<Owner>) {
        self.all_bytes -= partial.bytes.len();
        if let Some(bytes) = self.bytes.get_mut(&partial.owner) {
            *bytes -= partial.bytes.len();
            if *bytes == 0 {
                self.bytes.remove(&partial.owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tributary_proto::contract::ids::JobKey;

    use super::*;

    fn owner(number: u8) -> [u8; 4] {
        [10, 0, 0, number]
    }

    fn packet(len: usize) -> Vec<u8> {
        let mut packet: Vec<u8> = (0..len).map(|i| (i * 7) as u8).collect();
        packet[4] = kind::FIRST_OF_PROTOCOL;
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
                assert_eq!(reassembly.add(Time::ZERO, (), owner(1), fragment), None);
            }
            assert_eq!(reassembly.add(Time::ZERO, (), owner(1), last), Some(packet));
            assert!(reassembly.bytes.is_empty());
        }
    }

    #[test]
    fn fragments_of_a_packet_with_a_checksum_have_the_job_s_key_and_the_packet_keeps_its_own() {
        let (key, mut sealed) = (JobKey(0x0123_4567_89AB_CDEF), packet(1472));
        seal::seal(&mut sealed, key);
        let (mut reassembly, mut whole) = (Reassembly::default(), None);
        for fragment in fragments(&sealed, 600, 1) {
            assert_eq!(fragment[8..COMMON_LEN], key.0.to_be_bytes());
            whole = reassembly.add(Time::ZERO, (), owner(1), &fragment);
        }
        assert_eq!(whole, Some(sealed));
    }

    #[test]
    fn fragments_of_different_packets_and_senders_are_never_put_together() {
        let (a, b) = (packet(1000), vec![kind::FIRST_OF_PROTOCOL; 1000]);
        let (a, b) = (fragments(&a, 600, 1), fragments(&b, 600, 2));
        let mut reassembly = Reassembly::default();
        assert_eq!(reassembly.add(Time::ZERO, 0, owner(1), &a[0]), None);
        assert_eq!(reassembly.add(Time::ZERO, 0, owner(1), &b[1]), None);
        assert_eq!(reassembly.add(Time::ZERO, 1, owner(1), &a[1]), None);
        assert_eq!(reassembly.add(Time::ZERO, 0, owner(1), &a[1]), Some(packet(1000)));
    }

    #[test]
    fn incomplete_packets_take_bounded_memory() {
        let mut reassembly = Reassembly::default();
        for id in 0..10_000 {
            reassembly.add(Time::ZERO, 0, owner(1), &fragments(&packet(1472), 1000, id)[0]);
        }
        assert_eq!(reassembly.bytes[&owner(1)], INCOMPLETE * 1472);
        reassembly.remove(0);
        assert!(reassembly.bytes.is_empty());
    }

    #[test]
    fn the_incomplete_packets_of_one_owner_leave_memory_to_others_and_are_dropped_after_a_while() {
        let mut reassembly = Reassembly::default();
        let first = |id| fragments(&packet(LONGEST), 9_000, id).remove(0);
        for sender in 0..10_000u16 {
            reassembly.add(Time::ZERO, sender, owner(1), &first(1));
        }
        assert_eq!(reassembly.bytes[&owner(1)], MOST_BYTES_OF_OWNER);
        let whole = packet(1472);
        let honest = fragments(&whole, 1_000, 7);
        assert_eq!(reassembly.add(Time::ZERO, 20_000, owner(2), &honest[0]), None);
        assert_eq!(reassembly.add(Time::ZERO, 20_000, owner(2), &honest[1]), Some(whole));
        reassembly.add(Time::ZERO + LIFETIME, 20_001, owner(2), &honest[0]);
        assert_eq!(reassembly.bytes, HashMap::from([(owner(2), 1472)]), "nothing else is left");
    }

    #[test]
    fn malformed_fragments_are_rejected() {
        let right = fragments(&packet(1472), 1000, 1).remove(0);
        for (at, value) in [(18, 0xff), (HEADER_LEN - 2, 9), (HEADER_LEN - 1, 0), (20, 0xff), (20, 0)] {
            let mut wrong = right.clone();
            wrong[at] = value;
            assert_eq!(Reassembly::default().add(Time::ZERO, (), owner(1), &wrong), None, "{at}");
        }
        assert_eq!(Reassembly::default().add(Time::ZERO, (), owner(1), &right[..HEADER_LEN]), None);
        let mut ping = packet(1472);
        ping[4] = kind::PING;
        assert!(!split(&ping, 1000, 1, &mut Vec::new()), "the length of a ping is what it tests");
    }
}

//! The packets of a link's two ends besides data, and the packet that ends a job. Big-endian, behind the common header.

use crate::contract::drop_reason::DropReason;
use crate::contract::host::CollectiveError;
use crate::contract::ids::{OpId, Rank};
use crate::contract::protocol::Description;
use crate::contract::wire::{COMMON_LEN, SPEC_LEN, kind, put_spec, spec_at, u16, u32};

/// Data; the header is the protocol's.
pub const DATA: u8 = kind::FIRST_OF_PROTOCOL;
/// To the sender of data: which packets have arrived.
pub const ACK: u8 = kind::FIRST_OF_PROTOCOL + 1;
/// A rank is silent, or others wait for it.
pub const NOTICE: u8 = kind::FIRST_OF_PROTOCOL + 2;
/// Collectives fail.
pub const FAULT: u8 = kind::FIRST_OF_PROTOCOL + 3;

/// Bytes of both headers of a packet without a vector.
pub const HEADER_LEN: usize = COMMON_LEN + 16;
/// The most words of selective acknowledgement in a packet: 1,024 packets, from any bit of the first word on.
pub const MAX_ACK_WORDS: usize = 17;
/// Bytes of the longest packet without a vector.
pub const MAX_CONTROL_LEN: usize = HEADER_LEN + 8 * MAX_ACK_WORDS;
/// The largest `attempt`; after it comes 1.
pub const MAX_ATTEMPT: u8 = 0x3F;

const FAULT_SILENT: u8 = 1;
const FAULT_MISMATCH: u8 = 2;

/// The header of an acknowledgement; the words follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ack {
    /// Every packet before this one has arrived.
    pub cum: u32,
    /// Packets from this one on have no place yet.
    pub limit: u32,
    /// The packet that caused the acknowledgement.
    pub echo_seq: u32,
    /// The attempt of that packet; 0 if no packet caused the acknowledgement.
    pub echo_attempt: u8,
    /// Packets so far that arrived with a congestion mark, modulo 2^16.
    pub marks: u16,
}

/// A rank of which nothing was heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Notice {
    /// The collective that waits.
    pub op: OpId,
    /// The silent rank.
    pub worker: Rank,
}

/// The end of a job.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Fault {
    /// The first collective that fails.
    pub op: OpId,
    /// The error.
    pub error: CollectiveError,
}

fn own_header(bytes: &[u8]) -> Result<&[u8; 16], DropReason> {
    bytes.get(COMMON_LEN..).and_then(|own| own.first_chunk()).ok_or(DropReason::Truncated)
}

impl Ack {
    /// Writes the header and the words; returns the packet's length.
    pub fn emit(&self, words: &[u64], bytes: &mut [u8]) -> usize {
        let own = &mut bytes[COMMON_LEN..];
        own[0..4].copy_from_slice(&self.cum.to_be_bytes());
        own[4..8].copy_from_slice(&self.limit.to_be_bytes());
        own[8..12].copy_from_slice(&self.echo_seq.to_be_bytes());
        own[12..14].copy_from_slice(&self.marks.to_be_bytes());
        own[14] = self.echo_attempt;
        own[15] = words.len() as u8;
        for (word, bytes) in words.iter().zip(own[16..].chunks_exact_mut(8)) {
            bytes.copy_from_slice(&word.to_be_bytes());
        }
        HEADER_LEN + 8 * words.len()
    }

    /// Reads the header and the words; also returns the number of words.
    pub fn parse(bytes: &[u8]) -> Result<(Ack, [u64; MAX_ACK_WORDS], usize), DropReason> {
        let own = own_header(bytes)?;
        let count = own[15] as usize;
        if count > MAX_ACK_WORDS || own[14] > MAX_ATTEMPT {
            return Err(DropReason::BadField);
        }
        if bytes.len() != HEADER_LEN + 8 * count {
            return Err(DropReason::BadLength);
        }
        let mut words = [0; MAX_ACK_WORDS];
        for (word, bytes) in words.iter_mut().zip(bytes[HEADER_LEN..].chunks_exact(8)) {
            *word = u64::from_be_bytes(bytes.try_into().expect("8 bytes"));
        }
        let ack = Ack {
            cum: u32(own, 0),
            limit: u32(own, 4),
            echo_seq: u32(own, 8),
            marks: u16(own, 12),
            echo_attempt: own[14],
        };
        Ok((ack, words, count))
    }
}

impl Notice {
    /// Writes the header; returns the packet's length.
    pub fn emit(&self, bytes: &mut [u8]) -> usize {
        let own = &mut bytes[COMMON_LEN..HEADER_LEN];
        own.fill(0);
        own[0..8].copy_from_slice(&self.op.0.to_be_bytes());
        own[8..10].copy_from_slice(&self.worker.0.to_be_bytes());
        HEADER_LEN
    }

    /// Reads a whole packet of a job with `world_size` ranks.
    pub fn parse(bytes: &[u8], world_size: u16) -> Result<Notice, DropReason> {
        let own = own_header(bytes)?;
        Ok(Notice { op: parse_op(own), worker: parse_worker(own, 8, world_size)? })
    }
}

impl Fault {
    /// Writes the packet; returns its length. The error is never one of other protocols' errors.
    pub fn emit(&self, bytes: &mut [u8]) -> usize {
        let own = &mut bytes[COMMON_LEN..HEADER_LEN + 16];
        own.fill(0);
        own[0..8].copy_from_slice(&self.op.0.to_be_bytes());
        match &self.error {
            CollectiveError::Mismatch { a, a_spec, b, b_spec, .. } => {
                own[8..10].copy_from_slice(&a.0.to_be_bytes());
                own[10..12].copy_from_slice(&b.0.to_be_bytes());
                own[12] = FAULT_MISMATCH;
                put_spec(&mut own[16..], a_spec);
                put_spec(&mut own[16 + SPEC_LEN..], b_spec);
                HEADER_LEN + 2 * SPEC_LEN
            }
            CollectiveError::PeerSilent { worker, .. } => {
                own[8..10].copy_from_slice(&worker.0.to_be_bytes());
                own[12] = FAULT_SILENT;
                HEADER_LEN
            }
            other => unreachable!("hosts tell each other nothing of {other}"),
        }
    }

    /// Reads a whole packet of a job with `world_size` ranks.
    pub fn parse(bytes: &[u8], world_size: u16) -> Result<Fault, DropReason> {
        let own = own_header(bytes)?;
        let op = parse_op(own);
        let a = parse_worker(own, 8, world_size)?;
        let error = match own[12] {
            FAULT_SILENT => CollectiveError::PeerSilent { worker: a, op },
            FAULT_MISMATCH => {
                let (a_spec, b_spec) = (spec_at(bytes, HEADER_LEN)?, spec_at(bytes, HEADER_LEN + SPEC_LEN)?);
                CollectiveError::Mismatch { a, a_spec, b: parse_worker(own, 10, world_size)?, b_spec, op }
            }
            _ => return Err(DropReason::BadField),
        };
        Ok(Fault { op, error })
    }
}

fn parse_op(own: &[u8; 16]) -> OpId {
    OpId(u64::from_be_bytes(own[..8].try_into().expect("8 bytes")))
}

fn parse_worker(own: &[u8; 16], at: usize, world_size: u16) -> Result<Rank, DropReason> {
    let worker = u16(own, at);
    if worker < world_size { Ok(Rank(worker)) } else { Err(DropReason::BadField) }
}

/// Describes a packet whose common header was checked. `data_len` is the number of bytes before the vector of data.
pub fn describe(bytes: &[u8], data_len: usize) -> Description {
    let kind = match bytes.get(kind::AT) {
        Some(&DATA) => "Data",
        Some(&ACK) => "Ack",
        Some(&NOTICE) => "Notice",
        Some(&FAULT) => "Fault",
        _ => return Description::default(),
    };
    let has_vector = kind == "Data";
    Description { kind, slot: None, header_len: if has_vector { data_len } else { HEADER_LEN }, has_vector }
}

/// The most packets that may be on their way on a link, and the most that a receiver keeps for collectives that its
/// caller has not submitted yet.
pub const WINDOW: u64 = 1024;

/// Words of a [`SeqSet`]: twice the window, so that a window that begins inside a word fits.
const WORDS: u64 = WINDOW * 2 / 64;

/// The number with these low bits that is nearest to `near`; `None` below zero.
pub fn expand(near: u64, low: u32) -> Option<u64> {
    near.checked_add_signed(i64::from(low.wrapping_sub(near as u32) as i32))
}

/// A set of numbers that are less than a window above a base. The base only rises.
#[derive(Clone, Debug, Default, Hash)]
pub struct SeqSet {
    words: [u64; WORDS as usize],
}

impl SeqSet {
    /// Adds a number; false if the set had it.
    pub fn insert(&mut self, seq: u64) -> bool {
        let (word, bit) = (&mut self.words[(seq / 64 % WORDS) as usize], 1 << (seq % 64));
        let fresh = *word & bit == 0;
        *word |= bit;
        fresh
    }

    /// True if the number is in the set.
    pub fn contains(&self, seq: u64) -> bool {
        self.words[(seq / 64 % WORDS) as usize] & 1 << (seq % 64) != 0
    }

    /// The word of 64 numbers that begins with the multiple of 64 at or below `seq`.
    pub fn word(&self, seq: u64) -> u64 {
        self.words[(seq / 64 % WORDS) as usize]
    }

    /// Forgets the words between the old and the new base.
    pub fn rise(&mut self, from: u64, to: u64) {
        for word in from / 64..to / 64 {
            self.words[(word % WORDS) as usize] = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expands_to_the_nearest_number_with_the_same_low_bits() {
        assert_eq!(expand(5, 7), Some(7));
        assert_eq!(expand(0xFFFF_FFFE, 1), Some(0x1_0000_0001));
        assert_eq!(expand(0x1_0000_0001, 0xFFFF_FFFE), Some(0xFFFF_FFFE));
        assert_eq!(expand(0, 0xFFFF_FFFF), None);
    }

    #[test]
    fn keeps_a_window_while_the_base_rises() {
        let mut set = SeqSet::default();
        for base in 0..5000u64 {
            assert!(!set.contains(base + WINDOW - 1));
            assert!(set.insert(base + WINDOW - 1));
            assert!(!set.insert(base + WINDOW - 1));
            set.rise(base, base + 1);
        }
        assert!((5000..5000 + WINDOW - 1).all(|seq| set.contains(seq)));
    }
}

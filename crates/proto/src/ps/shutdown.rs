//! The packets by which colocated servers leave ([`crate::aggregation::shutdown`]).
//!
//! ```text
//!  16              24
//!  | collectives   |
//! ```

use crate::aggregation::shutdown::Word;
use crate::contract::config::{HostConfig, JobConfig};
use crate::contract::drop_reason::DropReason;
use crate::contract::ids::Rank;
use crate::contract::packet::{Addr, Ecn, Transmit};
use crate::contract::wire::{COMMON_LEN, Common};

/// The sender has completed this many collectives and leaves. The first kind that SwitchML will not use.
pub const LEAVING: u8 = 32;
/// The sender, too, has completed this many collectives.
pub const PARTED: u8 = 33;
/// Bytes of either packet.
pub const LEN: usize = COMMON_LEN + 8;

/// The word of a kind; `None` for other kinds.
pub fn word(kind: u8) -> Option<Word> {
    match kind {
        LEAVING => Some(Word::Leaving),
        PARTED => Some(Word::Parted),
        _ => None,
    }
}

/// The sender of a word and its number of collectives. The common header was checked.
pub fn parse(from: Addr, bytes: &[u8]) -> Result<(Rank, u64), DropReason> {
    let Addr::Worker(rank) = from else { return Err(DropReason::NotAMember) };
    let count: &[u8; 8] = bytes[COMMON_LEN..].first_chunk().ok_or(DropReason::Truncated)?;
    if bytes.len() != LEN {
        return Err(DropReason::BadLength);
    }
    Ok((rank, u64::from_be_bytes(*count)))
}

/// Writes a word.
pub fn emit(job: &JobConfig, (to, word, count): (Rank, Word, u64), buf: &mut [u8]) -> Transmit {
    let kind = if word == Word::Leaving { LEAVING } else { PARTED };
    Common { kind, ..job.common() }.emit(buf);
    buf[COMMON_LEN..LEN].copy_from_slice(&count.to_be_bytes());
    Transmit { to: Addr::Worker(to), len: LEN, wire_len: LEN, ecn: Ecn::NotCapable }
}

/// True for one of several hosts that are workers and servers.
pub fn is_needed(job: &JobConfig, config: &HostConfig) -> bool {
    config.serves.is_some() && job.world_size > 1
}

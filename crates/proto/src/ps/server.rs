//! A server: the switch's machine for one tree. A multicast becomes one packet for each worker.

use std::collections::VecDeque;

use crate::aggregation::shutdown::Word;
use crate::contract::config::{HostConfig, JobConfig, SwitchConfig};
use crate::contract::drop_reason::DropReason;
use crate::contract::ids::{PortId, Rank, TreeId};
use crate::contract::packet::{Addr, Ecn, Packet, PacketMut, Transmit};
use crate::contract::rate_limit::QueryLimit;
use crate::contract::switch::{MIN_TRANSMIT_LEN, NoQueues, Switch, Verdict};
use crate::contract::time::Time;
use crate::contract::values::{FINGERPRINT_LEN, Values};
use crate::contract::wire::{COMMON_LEN, Common, kind};
use crate::switchml::SwitchMl;
use crate::switchml::wire::HEADER_LEN;

/// Bytes of the longest packet of a job.
pub fn longest(values: Values, job: &JobConfig) -> usize {
    let vector = values.buffer_len(1, job.payload_bytes()).max(FINGERPRINT_LEN);
    (HEADER_LEN + vector).max(MIN_TRANSMIT_LEN)
}

/// A packet for one worker or for all of them.
#[derive(Clone, Hash)]
struct Outgoing {
    bytes: Vec<u8>,
    wire_len: usize,
    ecn: Ecn,
    /// The next copy's receiver.
    next: u16,
    /// The number of copies that are left.
    left: u16,
}

/// One server's slots, and the packets that it has to send.
#[derive(Clone, Hash)]
pub struct Server {
    machine: SwitchMl,
    world_size: u16,
    tree: TreeId,
    outgoing: VecDeque<Outgoing>,
    /// Buffers for further packets.
    free: Vec<Vec<u8>>,
    longest: usize,
    /// The limit of each worker's queries.
    query_limits: Vec<QueryLimit>,
}

impl Server {
    /// The server of one tree.
    pub fn new(values: Values, job: &JobConfig, tree: TreeId) -> Server {
        Server {
            machine: SwitchMl::new(values, &SwitchConfig::star(job.clone(), tree)),
            world_size: job.world_size,
            tree,
            outgoing: VecDeque::new(),
            free: Vec::new(),
            longest: longest(values, job),
            query_limits: vec![QueryLimit::default(); job.world_size.into()],
        }
    }

    /// Takes a packet from a worker.
    pub fn receive(&mut self, now: Time, from: Rank, packet: Packet<'_>) -> Result<(), DropReason> {
        if packet.bytes.len() > self.longest {
            return Err(DropReason::BadLength);
        }
        let kind = packet.bytes.get(kind::AT).filter(|&&kind| kind < 64);
        let is_query = kind.is_some_and(|kind| self.machine.query_kinds() >> kind & 1 == 1);
        if is_query && !self.query_limits[from.index()].try_query(now) {
            return Err(DropReason::TooOften);
        }
        let mut bytes = self.buffer();
        bytes[..packet.bytes.len()].copy_from_slice(packet.bytes);
        let len = packet.bytes.len();
        let mut rewritten = PacketMut { bytes: &mut bytes, len, wire_len: packet.wire_len, ecn: packet.ecn };
        let verdict = self.machine.process(now, PortId(from.0), &mut rewritten, &NoQueues);
        let (len, wire_len, ecn) = (rewritten.len, rewritten.wire_len, rewritten.ecn);
        self.carry_out(verdict, bytes, len, wire_len, ecn)
    }

    fn carry_out(
        &mut self,
        verdict: Verdict,
        mut bytes: Vec<u8>,
        len: usize,
        wire_len: usize,
        ecn: Ecn,
    ) -> Result<(), DropReason> {
        let (next, left) = match verdict {
            // Each server begins with another worker, so that the servers' results do not all meet at one worker.
            Verdict::Group(_) => (self.tree.0 % self.world_size, self.world_size),
            Verdict::Port(port) => (port.0, 1),
            Verdict::Drop(reason) => {
                self.free.push(bytes);
                return Err(reason);
            }
            Verdict::Consume | Verdict::Route(_) | Verdict::Multicast(_) => {
                self.free.push(bytes);
                return Ok(());
            }
        };
        bytes.truncate(len);
        self.outgoing.push_back(Outgoing { bytes, wire_len, ecn, next, left });
        Ok(())
    }

    /// The next copy of a packet.
    pub fn poll_transmit(&mut self, now: Time, buf: &mut [u8]) -> Option<Transmit> {
        let mut notice = self.buffer();
        while let Some(emission) = self.machine.poll_transmit(now, &mut notice) {
            let bytes = std::mem::replace(&mut notice, self.buffer());
            let _ = self.carry_out(emission.verdict, bytes, emission.len, emission.wire_len, emission.ecn);
        }
        self.free.push(notice);
        let front = self.outgoing.front_mut()?;
        let len = front.bytes.len();
        buf[..len].copy_from_slice(&front.bytes);
        let to = Addr::Worker(Rank(front.next));
        let sent = Transmit { to, len, wire_len: front.wire_len, ecn: front.ecn };
        front.next = (front.next + 1) % self.world_size;
        front.left -= 1;
        if front.left == 0
            && let Some(done) = self.outgoing.pop_front()
        {
            self.free.push(done.bytes);
        }
        Some(sent)
    }

    fn buffer(&mut self) -> Vec<u8> {
        let mut bytes = self.free.pop().unwrap_or_default();
        bytes.resize(self.longest, 0);
        bytes
    }
}

// The packets by which colocated servers leave ([`crate::aggregation::shutdown`]).
//
// ```text
//  16              24
//  | collectives   |
// ```

/// The sender has completed this many collectives and leaves. The first kind that SwitchML will not use.
pub const LEAVING: u8 = 32;
/// The sender, too, has completed this many collectives.
pub const PARTED: u8 = 33;
/// Bytes of either packet.
pub const LEAVING_LEN: usize = COMMON_LEN + 8;

/// The word of a kind; `None` for other kinds.
pub fn word_of(kind: u8) -> Option<Word> {
    match kind {
        LEAVING => Some(Word::Leaving),
        PARTED => Some(Word::Parted),
        _ => None,
    }
}

/// The sender of a word and its number of collectives. The common header was checked.
pub fn parse_leaving(from: Addr, bytes: &[u8]) -> Result<(Rank, u64), DropReason> {
    let Addr::Worker(rank) = from else { return Err(DropReason::NotAMember) };
    let count: &[u8; 8] = bytes[COMMON_LEN..].first_chunk().ok_or(DropReason::Truncated)?;
    if bytes.len() != LEAVING_LEN {
        return Err(DropReason::BadLength);
    }
    Ok((rank, u64::from_be_bytes(*count)))
}

/// Writes a word.
pub fn emit_leaving(job: &JobConfig, (to, word, count): (Rank, Word, u64), buf: &mut [u8]) -> Transmit {
    let kind = if word == Word::Leaving { LEAVING } else { PARTED };
    Common { kind, ..job.common() }.emit(buf);
    buf[COMMON_LEN..LEAVING_LEN].copy_from_slice(&count.to_be_bytes());
    Transmit { to: Addr::Worker(to), len: LEAVING_LEN, wire_len: LEAVING_LEN, ecn: Ecn::NotCapable }
}

/// True for one of several hosts that are workers and servers.
pub fn is_needed(job: &JobConfig, config: &HostConfig) -> bool {
    config.serves.is_some() && job.world_size > 1
}

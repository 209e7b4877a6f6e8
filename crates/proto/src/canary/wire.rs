//! Canary's own header: the fields of §4.1 under their names, then what we add. Big-endian; `docs/wire.md` draws it.
//!
//! ```text
//!  16            20   24        26      28         32               36     40      41      42        43      44
//!  | destination | id | counter | hosts | children | switch address | root | flags | shard | attempt | scale | ...
//!  44         46    48             52           60
//!  | exponent | wid | contributors | collective | vector or body ...
//! ```
//!
//! The application's part of the paper's id is the job in the common header. A block that is issued again gets another
//! `attempt`: what §3.3 calls a different id is here the pair of `id` and `attempt`.

use std::iter::Sum;

use tributary_numeric::{self as numeric, BlockExponent, DType};

use crate::aggregation::agreement::ExponentHint;
use crate::contract::drop_reason::DropReason;
use crate::contract::ids::{NodeId, PortId, PortSet, Rank};
use crate::contract::protocol::Description;
use crate::contract::tensor::Spec;
use crate::contract::wire::{COMMON_LEN, SPEC_LEN, kind, put_spec, spec_at, u16, u32};
use tributary_numeric::splitmix64;

/// Bytes of the common header and of this protocol's own.
pub const HEADER_LEN: usize = COMMON_LEN + 36 + SPEC_LEN;
/// The value of `switch_address` where no switch is meant.
pub const NO_SWITCH: NodeId = NodeId(u32::MAX);
/// Ports of a shard of the children bitmap (§4.2).
pub const SHARD_PORTS: u16 = 32;

const COUNTER_AT: usize = 24;
const CHILDREN_AT: usize = 28;
const SWITCH_AT: usize = 32;
const FLAGS_AT: usize = 40;
const SHARD_AT: usize = 41;
const SCALE_AT: usize = 43;
const EXPONENT_AT: usize = 44;
const CONTRIBUTORS_AT: usize = 48;
const SPEC_AT: usize = 52;

const BYPASS: u8 = 0x80;
const MULTICAST: u8 = 0x40;
const TO_LEADER: u8 = 0x20;
/// The vector is 16-bit floats. Its exponent has nine bits: `SCALE_HIGH`, then the byte at `SCALE_AT`.
const NARROW: u8 = 0x10;
const SCALE_HIGH: u8 = 8;
const SCALE_NON_FINITE: u8 = 4;
const UNKNOWN: u8 = 2;
const NON_FINITE: u8 = 1;

kind::protocol_kinds! {
    /// Contributions of `counter` hosts, on their way to the leader.
    Reduce,
    /// The sum, on its way from the leader: along a tree, to a switch whose children it names, or to one host.
    Broadcast,
    /// From a host that waits to the leader: is there a sum? (§3.3)
    Request,
    /// From the leader to hosts: the block is issued again, as `attempt`. The packet frees the descriptors that it
    /// passes.
    Failure,
    /// From a host whose deadline is near to the leader: which ranks are missing?
    Query,
    /// The answer to a query: a bitmap of the ranks that have contributed.
    Report,
    /// From one host to another: ranks disagree on what they reduce.
    Mismatch,
    /// From a leader that waits to a host that it has not heard of: what the block is. The host may have named another
    /// root.
    Claim,
}

impl Kind {
    /// True if the packet goes to the leader. Packets of other kinds come from the leader; a mismatch may come from any
    /// host.
    pub fn is_for_leader(self) -> bool {
        matches!(self, Kind::Reduce | Kind::Request | Kind::Query)
    }
}

/// The protocol's own header as a plain value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    /// The leader; for packets that bypass, the receiver.
    pub destination: NodeId,
    /// The block's number in its application: see `Step`.
    pub id: u32,
    /// Contributions in the vector.
    pub counter: u16,
    /// Hosts that take part, the leader included.
    pub hosts: u16,
    /// After a collision: the port that the packet came in by. In a restoration: the shard's bitmap of ports.
    pub children: u32,
    /// After a collision, and in a restoration: the switch. Otherwise [`NO_SWITCH`].
    pub switch_address: NodeId,
    /// The switch in which the tree ends.
    pub root: NodeId,
    /// Only the destination processes the packet; switches forward it.
    pub bypass: bool,
    /// The switch multicasts the packet to its children.
    pub multicast: bool,
    /// Every way to the leader passes the root, so the next hop is chosen by `destination`.
    pub to_leader: bool,
    /// Which 32 ports `children` is about.
    pub shard: u8,
    /// How often the block was issued before.
    pub attempt: u8,
    /// The sender; in a sum of several contributions, one of the contributors.
    pub wid: Rank,
    /// The exponent of the sender's next block in the place; while ranks agree on an exponent first, that of this
    /// block. In a sum: of all contributors together.
    pub exponent_hint: ExponentHint,
    /// The exponent on which ranks have agreed for their block, if the vector is 16-bit floats. `None`: the vector is
    /// 32-bit fixed point, or there is none.
    pub scale: Option<BlockExponent>,
    /// The collective that the block belongs to. Its root, if it has one, is the leader.
    pub spec: Spec,
    /// The sum of the contributors' proofs modulo 2^32: see [`proof`].
    pub contributors: u32,
}

/// The number of the block in a packet that was not checked yet.
pub fn id_of(bytes: &[u8]) -> Option<u32> {
    (bytes.len() >= HEADER_LEN).then(|| u32(bytes, 20))
}

impl Header {
    /// Reads the header behind a common header that was checked.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Header, DropReason> {
        let bytes: &[u8; HEADER_LEN] = bytes.first_chunk().ok_or(DropReason::Truncated)?;
        let flags = bytes[FLAGS_AT];
        let known = BYPASS | MULTICAST | TO_LEADER | NARROW | SCALE_HIGH | SCALE_NON_FINITE | UNKNOWN | NON_FINITE;
        if flags & !known != 0 {
            return Err(DropReason::BadField);
        }
        let exponent = u16(bytes, EXPONENT_AT) as i16;
        let exponent = BlockExponent { exponent, non_finite: flags & NON_FINITE != 0 };
        let spec = spec_at(bytes, SPEC_AT)?;
        // An exponent above the type's largest would scale every rank's block to zeros.
        if flags & UNKNOWN == 0 && exponent.exponent > BlockExponent::largest(spec.dtype) {
            return Err(DropReason::BadField);
        }
        Ok(Header {
            destination: NodeId(u32(bytes, 16)),
            id: u32(bytes, 20),
            counter: u16(bytes, COUNTER_AT),
            hosts: u16(bytes, 26),
            children: u32(bytes, CHILDREN_AT),
            switch_address: NodeId(u32(bytes, SWITCH_AT)),
            root: NodeId(u32(bytes, 36)),
            bypass: flags & BYPASS != 0,
            multicast: flags & MULTICAST != 0,
            to_leader: flags & TO_LEADER != 0,
            shard: bytes[SHARD_AT],
            attempt: bytes[42],
            wid: Rank(u16(bytes, 46)),
            scale: scale_at(bytes, spec.dtype)?,
            exponent_hint: ExponentHint { exponent, unknown: flags & UNKNOWN != 0, is_norm: false },
            spec,
            contributors: u32(bytes, CONTRIBUTORS_AT),
        })
    }

    /// The header of the sum that begins with this contribution. A switch sums in fixed point, so `scale` is `None`.
    pub fn summed(&self) -> Header {
        Header { scale: None, ..*self }
    }

    /// Where a contribution is routed to until it has passed the root.
    pub fn way(&self) -> NodeId {
        if self.to_leader { self.destination } else { self.root }
    }

    /// Writes the header behind the common one.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8]) {
        let bytes = &mut bytes[..HEADER_LEN];
        bytes[16..20].copy_from_slice(&self.destination.0.to_be_bytes());
        bytes[20..24].copy_from_slice(&self.id.to_be_bytes());
        bytes[26..28].copy_from_slice(&self.hosts.to_be_bytes());
        bytes[36..40].copy_from_slice(&self.root.0.to_be_bytes());
        bytes[42] = self.attempt;
        bytes[46..48].copy_from_slice(&self.wid.0.to_be_bytes());
        put_spec(&mut bytes[SPEC_AT..], &self.spec);
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        bytes[FLAGS_AT] = flag(self.bypass, BYPASS) | flag(self.multicast, MULTICAST) | flag(self.to_leader, TO_LEADER);
        put_scale(bytes, self.scale);
        put_sum(bytes, self.counter, self.contributors, self.exponent_hint);
        put_children(bytes, self.switch_address, self.children, self.shard);
    }
}

/// Reads the exponent of a vector of 16-bit floats. Other types have none, and no exponent is above the type's largest.
#[inline]
fn scale_at(bytes: &[u8; HEADER_LEN], dtype: DType) -> Result<Option<BlockExponent>, DropReason> {
    let flags = bytes[FLAGS_AT];
    if flags & NARROW == 0 {
        let is_empty = flags & (SCALE_HIGH | SCALE_NON_FINITE) == 0 && bytes[SCALE_AT] == 0;
        return if is_empty { Ok(None) } else { Err(DropReason::BadField) };
    }
    let offset = i16::from(flags & SCALE_HIGH != 0) << 8 | i16::from(bytes[SCALE_AT]);
    let exponent = BlockExponent::MIN + offset;
    if numeric::fixed_16(dtype).is_none() || exponent > BlockExponent::largest(dtype) {
        return Err(DropReason::BadField);
    }
    Ok(Some(BlockExponent { exponent, non_finite: flags & SCALE_NON_FINITE != 0 }))
}

/// Writes the exponent of a vector of 16-bit floats. A block of zeros is written with the smallest exponent that the
/// field can hold.
#[inline]
fn put_scale(bytes: &mut [u8], scale: Option<BlockExponent>) {
    bytes[SCALE_AT] = 0;
    let Some(BlockExponent { exponent, non_finite }) = scale else { return };
    let offset = exponent.clamp(BlockExponent::MIN, BlockExponent::MAX) - BlockExponent::MIN;
    bytes[FLAGS_AT] |= NARROW | if non_finite { SCALE_NON_FINITE } else { 0 };
    bytes[FLAGS_AT] |= if offset > 0xff { SCALE_HIGH } else { 0 };
    bytes[SCALE_AT] = offset as u8;
}

/// Rewrites the fields that grow with each contribution.
#[inline]
pub fn put_sum(bytes: &mut [u8], counter: u16, contributors: u32, exponent_hint: ExponentHint) {
    let ExponentHint { exponent, unknown, .. } = exponent_hint;
    let flags = bytes[FLAGS_AT] & !(UNKNOWN | NON_FINITE);
    bytes[FLAGS_AT] = flags | if exponent.non_finite { NON_FINITE } else { 0 } | if unknown { UNKNOWN } else { 0 };
    bytes[COUNTER_AT..COUNTER_AT + 2].copy_from_slice(&counter.to_be_bytes());
    bytes[EXPONENT_AT..EXPONENT_AT + 2].copy_from_slice(&exponent.exponent.to_be_bytes());
    bytes[CONTRIBUTORS_AT..CONTRIBUTORS_AT + 4].copy_from_slice(&contributors.to_be_bytes());
}

/// Rewrites whether switches only pass the packet on.
#[inline]
pub fn put_bypass(bytes: &mut [u8], bypass: bool) {
    bytes[FLAGS_AT] = bytes[FLAGS_AT] & !BYPASS | if bypass { BYPASS } else { 0 };
}

/// Rewrites switch and children (§3.2.1).
pub fn put_children(bytes: &mut [u8], switch: NodeId, children: u32, shard: u8) {
    bytes[SWITCH_AT..SWITCH_AT + 4].copy_from_slice(&switch.0.to_be_bytes());
    bytes[CHILDREN_AT..CHILDREN_AT + 4].copy_from_slice(&children.to_be_bytes());
    bytes[SHARD_AT] = shard;
}

/// The ports of a shard's bitmap.
pub fn ports_of_shard(shard: u8, children: u32) -> Result<PortSet, DropReason> {
    let mut ports = PortSet::EMPTY;
    for bit in (0..SHARD_PORTS).filter(|bit| children >> bit & 1 != 0) {
        let port = PortId(u16::from(shard) * SHARD_PORTS + bit);
        if port.index() >= PortSet::CAPACITY {
            return Err(DropReason::BadField);
        }
        ports.insert(port);
    }
    Ok(ports)
}

/// The proof that ranks have contributed to a block. Proofs are added up; the sum is the one that the leader expects
/// only if each rank has contributed once. The counter alone would count one rank twice where a network duplicates a
/// packet whose block no switch remembers.
///
/// Each rank has two fixed numbers and each issue of a block two factors; a proof is the sum of their products (a
/// multilinear hash). Two different sets of contributors have the same proof in one block with a probability of about
/// 1.5 in 2^32. In the next block the probability is the same again, because its factors are different.
pub fn proof(ranks: RankProof, id: u32, attempt: u8) -> u32 {
    let factors = splitmix64(u64::from(id) << 8 | u64::from(attempt));
    let (first, second) = ((factors >> 32) as u32, factors as u32);
    ranks.first.wrapping_mul(first).wrapping_add(ranks.second.wrapping_mul(second))
}

/// The numbers of ranks that proofs are made of: two numbers a rank, summed modulo 2^32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RankProof {
    first: u32,
    second: u32,
}

impl RankProof {
    /// The numbers of one rank.
    pub fn of(rank: Rank) -> RankProof {
        let numbers = splitmix64(1 << 48 | u64::from(rank.0));
        RankProof { first: (numbers >> 32) as u32, second: numbers as u32 }
    }
}

impl Sum for RankProof {
    fn sum<I: Iterator<Item = RankProof>>(ranks: I) -> RankProof {
        ranks.fold(RankProof::default(), |sum, rank| RankProof {
            first: sum.first.wrapping_add(rank.first),
            second: sum.second.wrapping_add(rank.second),
        })
    }
}

/// The body of a `Report`: which ranks have contributed. Rank `r` is bit `r mod 8` of byte `r / 8`.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a>(&'a [u8]);

impl<'a> Report<'a> {
    /// Bytes of a whole REPORT about `world_size` ranks.
    pub fn packet_len(world_size: u16) -> usize {
        HEADER_LEN + usize::from(world_size).div_ceil(8)
    }

    /// Reads the body behind the headers.
    pub fn parse(bytes: &'a [u8], world_size: u16) -> Result<Report<'a>, DropReason> {
        if bytes.len() != Report::packet_len(world_size) {
            return Err(DropReason::BadLength);
        }
        Ok(Report(&bytes[HEADER_LEN..]))
    }

    /// Writes a body; gives the packet's length.
    pub fn emit(bytes: &mut [u8], world_size: u16, has_contributed: impl Fn(Rank) -> bool) -> usize {
        let len = Report::packet_len(world_size);
        bytes[HEADER_LEN..len].fill(0);
        for rank in (0..world_size).filter(|&rank| has_contributed(Rank(rank))) {
            bytes[HEADER_LEN + usize::from(rank / 8)] |= 1 << (rank % 8);
        }
        len
    }

    /// True if the rank has contributed.
    pub fn has_contributed(&self, rank: Rank) -> bool {
        self.0.get(rank.index() / 8).is_some_and(|byte| byte >> (rank.0 % 8) & 1 != 0)
    }
}

/// Describes a packet whose common header was checked.
pub fn describe(bytes: &[u8]) -> Description {
    let (Ok(kind), Ok(header)) = (Kind::of(bytes), Header::parse(bytes)) else { return Description::default() };
    let has_vector = matches!(kind, Kind::Reduce | Kind::Broadcast) && bytes.len() > HEADER_LEN;
    Description { kind: kind.name(), slot: Some(header.id), header_len: HEADER_LEN, has_vector }
}

//! The header that every packet begins with. Big-endian; `docs/wire.md` draws it.
//!
//! ```text
//!  0       2         3          4      5          6     8                16
//!  | magic | version | protocol | kind | reserved | job | key (64 bits)  | the protocol's own header ...
//! ```

use tributary_numeric::{DType, ReduceOp};

use crate::collective::tensor::{Primitive, Spec};
use crate::contract::config::JobConfig;
use crate::contract::drop_reason::DropReason;
use crate::contract::ids::{JobId, JobKey, Rank};

/// `TB`.
pub const MAGIC: u16 = 0x5442;
/// Of this wire format.
pub const VERSION: u8 = 1;
/// Bytes of the common header.
pub const COMMON_LEN: usize = 16;

/// Kinds that every protocol shares; a protocol's own kinds start at [`kind::FIRST_OWN`].
pub mod kind {
    /// Host to switch: are you there? Also keeps the membership alive.
    pub const PING: u8 = 0;
    /// Switch to host: the same bytes back.
    pub const PONG: u8 = 1;
    /// Switch to switch of one fabric: I live, and these cables are dead. Of job 0, under the fabric's own key.
    pub const HELLO: u8 = 2;
    /// Host to host over switches of one fabric, which only forward it. Of job 0, under the fabric's own key.
    pub const CARRY: u8 = 3;
    /// The first kind that a protocol may give its own meaning.
    pub const FIRST_OWN: u8 = 16;
    /// Where the header keeps the kind.
    pub(crate) const AT: usize = 4;

    /// Declares a protocol's own kinds of packets, in the order of their codes.
    macro_rules! own {
        ($(#[$first_doc:meta])* $first:ident, $($(#[$doc:meta])* $name:ident,)*) => {
            /// What a packet is for.
            #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
            #[repr(u8)]
            pub enum Kind {
                $(#[$first_doc])* $first = $crate::contract::wire::kind::FIRST_OWN,
                $($(#[$doc])* $name,)*
            }

            impl Kind {
                /// Every kind, in the order of its code.
                pub const ALL: [Kind; [Kind::$first, $(Kind::$name),*].len()] = [Kind::$first, $(Kind::$name),*];

                /// The kind with this code in the common header.
                pub fn from_code(code: u8) -> Option<Kind> {
                    Kind::ALL.get(usize::from(code.checked_sub(Kind::$first as u8)?)).copied()
                }

                /// Its name in traces.
                pub const fn name(self) -> &'static str {
                    match self {
                        Kind::$first => stringify!($first),
                        $(Kind::$name => stringify!($name),)*
                    }
                }

                /// The kind of a packet whose common header was checked.
                #[inline]
                pub fn of(bytes: &[u8]) -> Result<Kind, $crate::contract::drop_reason::DropReason> {
                    Kind::from_code(bytes[$crate::contract::wire::kind::AT]).ok_or($crate::contract::drop_reason::DropReason::BadKind)
                }

                /// Makes a packet one of this kind.
                pub fn put(self, bytes: &mut [u8]) {
                    bytes[$crate::contract::wire::kind::AT] = self as u8;
                }
            }
        };
    }
    pub(crate) use own;
}

/// The common header as a plain value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Common {
    /// The protocol's code: its field `code`.
    pub protocol: u8,
    /// What the packet is for: shared kinds below 16, then the protocol's own.
    pub kind: u8,
    /// The job.
    pub job: JobId,
    /// Shared by the job's members and the switch.
    pub key: JobKey,
}

impl Common {
    /// Reads the header; says why it is none of ours.
    pub fn parse(bytes: &[u8]) -> Result<Common, DropReason> {
        let header: &[u8; COMMON_LEN] = bytes.first_chunk().ok_or(DropReason::Truncated)?;
        if u16(header, 0) != MAGIC {
            return Err(DropReason::BadMagic);
        }
        if header[2] != VERSION {
            return Err(DropReason::BadVersion);
        }
        Ok(Common {
            protocol: header[3],
            kind: header[kind::AT],
            job: JobId(u16(header, 6)),
            key: JobKey(u64::from_be_bytes(header[8..16].try_into().expect("8 bytes"))),
        })
    }

    /// Reads the header of a packet for a member of `job`; gives its kind.
    #[inline]
    pub fn parse_kind(bytes: &[u8], job: &JobConfig) -> Result<u8, DropReason> {
        let common = Common::parse(bytes)?;
        if common.job != job.job {
            return Err(DropReason::UnknownJob);
        }
        if common.key != job.key {
            return Err(DropReason::WrongKey);
        }
        if common.protocol != job.protocol {
            return Err(DropReason::WrongProtocol);
        }
        Ok(common.kind)
    }

    /// Writes the header to the first [`COMMON_LEN`] bytes.
    pub fn emit(&self, bytes: &mut [u8]) {
        bytes[0..2].copy_from_slice(&MAGIC.to_be_bytes());
        bytes[2] = VERSION;
        bytes[3] = self.protocol;
        bytes[kind::AT] = self.kind;
        bytes[5] = 0;
        bytes[6..8].copy_from_slice(&self.job.0.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.key.0.to_be_bytes());
    }
}

/// The big-endian 16-bit field at `at`.
pub fn u16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// The big-endian 32-bit field at `at`.
pub fn u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Set in the byte of type and operator where one rank is the root; no operator beside it says that its data travels.
pub const ROOTED: u8 = 8;

/// Element type, operator and kind of primitive in one byte. Where the root is named is the protocol's own matter.
pub fn dtype_op(spec: &Spec) -> u8 {
    let op = match spec.primitive {
        Primitive::Allreduce => spec.op as u8,
        Primitive::Reduce(_) => ROOTED | spec.op as u8,
        Primitive::Broadcast(_) => ROOTED,
    };
    (spec.dtype as u8) << 4 | op
}

/// Reads such a byte; `root` is looked at only where there is one. The parts and not a `Spec`: a `Result<Spec>` is packed
/// so that reading it back stalls for as long as all the rest.
#[inline]
pub fn parse_dtype_op(byte: u8, root: Rank) -> Result<(DType, ReduceOp, Primitive), DropReason> {
    // This version of the wire carries what has fixed point, under every protocol.
    let dtype = DType::from_code(byte >> 4).filter(|dtype| DType::FIXED.contains(dtype)).ok_or(DropReason::BadField)?;
    let op = ReduceOp::from_code(byte & 7).filter(|op| ReduceOp::FIXED.contains(op));
    if byte & ROOTED == 0 {
        return Ok((dtype, op.ok_or(DropReason::BadField)?, Primitive::Allreduce));
    }
    match op {
        Some(op) => Ok((dtype, op, Primitive::Reduce(root))),
        None if byte & 7 == 0 && dtype == DType::I32 => Ok((dtype, ReduceOp::Sum, Primitive::Broadcast(root))),
        None => Err(DropReason::BadField),
    }
}

#[cfg(test)]
mod tests {
    use tributary_numeric::has_fixed_point;

    use super::*;

    /// The byte has room for 15 types and 7 operators; what it may name are the four types and two operators of old.
    #[test]
    fn types_and_operators_beyond_fixed_point_are_no_field() {
        for byte in 0..=u8::MAX {
            let (dtype, op) = (DType::from_code(byte >> 4), ReduceOp::from_code(byte & 7));
            let served = dtype.zip(op).is_some_and(|(dtype, op)| has_fixed_point(dtype, op));
            let broadcast = byte == (DType::I32 as u8) << 4 | ROOTED;
            assert_eq!(parse_dtype_op(byte, Rank(0)).is_ok(), served || broadcast, "{byte:#x}");
        }
    }

    #[test]
    fn a_member_hears_only_its_own_job_with_its_key_under_its_protocol() {
        let job = JobConfig {
            job: JobId(3),
            key: JobKey(7),
            protocol: 1,
            world: 2,
            slots: 1,
            elements_per_packet: 8,
            shards: 1,
            options: Default::default(),
        };
        let ours = Common { protocol: 1, kind: 17, job: job.job, key: job.key };
        let heard = |common: Common| {
            let mut bytes = [0; COMMON_LEN];
            common.emit(&mut bytes);
            Common::parse_kind(&bytes, &job)
        };
        assert_eq!(heard(ours), Ok(17));
        assert_eq!(heard(Common { job: JobId(4), ..ours }), Err(DropReason::UnknownJob));
        assert_eq!(heard(Common { key: JobKey(8), ..ours }), Err(DropReason::WrongKey));
        assert_eq!(heard(Common { protocol: 2, ..ours }), Err(DropReason::WrongProtocol));
        // Who does not know the job's key learns nothing of its protocol.
        assert_eq!(heard(Common { key: JobKey(8), protocol: 2, ..ours }), Err(DropReason::WrongKey));
        assert_eq!(Common::parse_kind(&[0; COMMON_LEN], &job), Err(DropReason::BadMagic));
    }
}

//! The header that every packet begins with. Big-endian; `docs/wire.md` draws it.
//!
//! ```text
//!  0       2         3          4      5          6     8                16
//!  | magic | version | protocol | kind | checksum | job | key (64 bits)  | the protocol's own header ...
//! ```

use tributary_numeric::{DType, ReduceOp};

use crate::contract::drop_reason::DropReason;
use crate::contract::ids::{JobId, JobKey, Rank};
use crate::contract::tensor::{Primitive, Spec};

/// `TB` in ASCII.
pub const MAGIC: u16 = 0x5442;
/// The version of this wire format.
pub const VERSION: u8 = 2;
/// Offset of the version in every header, whatever the version.
pub const VERSION_AT: usize = 2;
/// Bytes of the common header.
pub const COMMON_LEN: usize = 16;
/// Bytes of the headers before ours: IPv4's without options, and UDP's.
pub const IPV4_AND_UDP_LEN: usize = 20 + 8;

/// Kinds that every protocol shares; a protocol's own kinds start at [`kind::FIRST_OF_PROTOCOL`].
pub mod kind {
    /// Host to switch: asks for a PONG, and keeps the membership alive.
    pub const PING: u8 = 0;
    /// Switch to host: the PING's bytes back.
    pub const PONG: u8 = 1;
    /// Switch to switch of one fabric: this switch is alive, and these cables are dead. Of job 0, under the fabric's
    /// own key.
    pub const HELLO: u8 = 2;
    /// Host to host over switches of one fabric, which only forward the packet. Of job 0, under the fabric's own key.
    pub const CARRY: u8 = 3;
    /// Switch to host, or to a switch below: proves that the process that joins receives at this address. Of job 0; the
    /// key is a random number drawn for this challenge.
    pub const CHALLENGE: u8 = 4;
    /// The answer to CHALLENGE: the same bytes back.
    pub const RESPONSE: u8 = 5;
    /// A fragment of a packet that is too long for one link on its way.
    pub const FRAGMENT: u8 = 6;
    /// Host to switch, and on to the parent switch: how far a rank is in its collectives.
    pub const PROGRESS: u8 = 7;
    /// Switch to the node at the other end of a cable, in a lossless fabric: send nothing for a while. To switches of
    /// job 0, under the fabric's own key.
    pub const PAUSE: u8 = 8;
    /// The first kind that a protocol may give its own meaning.
    pub const FIRST_OF_PROTOCOL: u8 = 16;
    /// Where the header keeps the kind.
    pub(crate) const AT: usize = 4;

    /// Declares a protocol's own kinds of packets, in the order of their codes.
    macro_rules! protocol_kinds {
        ($(#[$first_doc:meta])* $first:ident, $($rest:tt)*) => {
            $crate::contract::wire::kind::protocol_kinds! {
                $(#[$first_doc])* $first = $crate::contract::wire::kind::FIRST_OF_PROTOCOL, $($rest)*
            }
        };
        ($(#[$first_doc:meta])* $first:ident = $code:expr, $($(#[$doc:meta])* $name:ident,)*) => {
            /// What a packet is for.
            #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
            #[repr(u8)]
            pub enum Kind {
                $(#[$first_doc])* $first = $code,
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
    pub(crate) use protocol_kinds;
}

/// The common header as a plain value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Common {
    /// The code of the protocol.
    pub protocol: u8,
    /// What the packet is for: shared kinds below 16, then the protocol's own.
    pub kind: u8,
    /// The job.
    pub job: JobId,
    /// The secret that the job's members and the switch share.
    pub key: JobKey,
}

impl Common {
    /// Reads the header; an error if the packet is not one of ours.
    pub fn parse(bytes: &[u8]) -> Result<Common, DropReason> {
        let header: &[u8; COMMON_LEN] = bytes.first_chunk().ok_or(DropReason::Truncated)?;
        if u16(header, 0) != MAGIC {
            return Err(DropReason::BadMagic);
        }
        if header[VERSION_AT] != VERSION {
            return Err(DropReason::BadVersion);
        }
        Ok(Common {
            protocol: header[3],
            kind: header[kind::AT],
            job: JobId(u16(header, 6)),
            key: JobKey(u64::from_be_bytes(header[8..16].try_into().expect("8 bytes"))),
        })
    }

    /// Reads the header of a packet that must have the same job, key and protocol as `expected`; returns the packet's
    /// kind.
    #[inline]
    pub fn parse_kind(bytes: &[u8], expected: &Common) -> Result<u8, DropReason> {
        let common = Common::parse(bytes)?;
        if common.job != expected.job {
            return Err(DropReason::UnknownJob);
        }
        if common.key != expected.key {
            return Err(DropReason::WrongKey);
        }
        if common.protocol != expected.protocol {
            return Err(DropReason::WrongProtocol);
        }
        Ok(common.kind)
    }

    /// Writes the header to the first [`COMMON_LEN`] bytes.
    pub fn emit(&self, bytes: &mut [u8]) {
        bytes[0..2].copy_from_slice(&MAGIC.to_be_bytes());
        bytes[VERSION_AT] = VERSION;
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

/// Bytes of a packet's description of its collective: elements (32 bits), type, operator, root (16 bits).
pub const SPEC_LEN: usize = 8;
/// The root of a collective that has none: no job has this many ranks.
const NO_ROOT: u16 = u16::MAX;
/// The operator of a broadcast, which has none.
const NO_OPERATOR: u8 = 0;

/// Writes the description of a collective to the first [`SPEC_LEN`] bytes.
#[inline]
pub fn put_spec(bytes: &mut [u8], spec: &Spec) {
    let (op, root) = match spec.primitive {
        Primitive::Allreduce => (spec.op.code(), NO_ROOT),
        Primitive::Reduce(root) => (spec.op.code(), root.0),
        Primitive::Broadcast(root) => (NO_OPERATOR, root.0),
    };
    bytes[0..4].copy_from_slice(&spec.elements.to_be_bytes());
    bytes[4] = spec.dtype as u8;
    bytes[5] = op;
    bytes[6..8].copy_from_slice(&root.to_be_bytes());
}

/// Reads the description that [`put_spec`] wrote. A broadcast moves 32-bit words, whatever they mean.
#[inline(always)]
pub fn parse_spec(bytes: &[u8; SPEC_LEN]) -> Result<Spec, DropReason> {
    let elements = u32(bytes, 0);
    let dtype = DType::from_code(bytes[4]).ok_or(DropReason::BadField)?;
    let op = ReduceOp::from_code(bytes[5]);
    let spec = match (op, u16(bytes, 6)) {
        (Some(op), NO_ROOT) => Spec::allreduce(elements, dtype, op),
        (Some(op), root) => Spec::reduce(elements, dtype, op, Rank(root)),
        (None, root) if bytes[5] == NO_OPERATOR && root != NO_ROOT && dtype == DType::I32 => {
            Spec::broadcast(elements, Rank(root))
        }
        (None, _) => return Err(DropReason::BadField),
    };
    Ok(spec)
}

/// Reads the description of a collective at `at`.
#[inline(always)]
pub fn spec_at(bytes: &[u8], at: usize) -> Result<Spec, DropReason> {
    parse_spec(bytes.get(at..).and_then(|rest| rest.first_chunk()).ok_or(DropReason::Truncated)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collectives_survive_the_wire() {
        let root = Rank(300);
        for dtype in DType::ALL {
            for op in ReduceOp::ALL {
                for spec in [Spec::allreduce(7, dtype, op), Spec::reduce(u32::MAX, dtype, op, root)] {
                    let mut bytes = [0xAA; SPEC_LEN];
                    put_spec(&mut bytes, &spec);
                    assert_eq!(parse_spec(&bytes), Ok(spec));
                }
            }
        }
        let mut bytes = [0; SPEC_LEN];
        put_spec(&mut bytes, &Spec::broadcast(5, root));
        assert_eq!(parse_spec(&bytes), Ok(Spec::broadcast(5, root)));
        for (at, wrong) in [(4, 0), (4, 10), (4, DType::F32 as u8), (5, 9), (5, 255)] {
            let mut bytes = bytes;
            bytes[at] = wrong;
            assert_eq!(parse_spec(&bytes), Err(DropReason::BadField), "byte {at} is {wrong}");
        }
        put_spec(&mut bytes, &Spec::broadcast(5, Rank(NO_ROOT)));
        assert_eq!(parse_spec(&bytes), Err(DropReason::BadField), "a broadcast has a root");
    }

    #[test]
    fn a_member_accepts_only_its_own_job_with_its_key_under_its_protocol() {
        let ours = Common { protocol: 1, kind: 17, job: JobId(3), key: JobKey(7) };
        let parsed = |common: Common| {
            let mut bytes = [0; COMMON_LEN];
            common.emit(&mut bytes);
            Common::parse_kind(&bytes, &ours)
        };
        assert_eq!(parsed(ours), Ok(17));
        assert_eq!(parsed(Common { job: JobId(4), ..ours }), Err(DropReason::UnknownJob));
        assert_eq!(parsed(Common { key: JobKey(8), ..ours }), Err(DropReason::WrongKey));
        assert_eq!(parsed(Common { protocol: 2, ..ours }), Err(DropReason::WrongProtocol));
        // A sender without the job's key learns nothing of the job's protocol.
        assert_eq!(parsed(Common { key: JobKey(8), protocol: 2, ..ours }), Err(DropReason::WrongKey));
        assert_eq!(Common::parse_kind(&[0; COMMON_LEN], &ours), Err(DropReason::BadMagic));
    }
}

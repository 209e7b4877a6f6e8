//! What becomes of packets on the cables of a fabric.

use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::time::{Span, Time};

/// What packets of a protocol say, as a fabric's tests read it.
pub trait Words {
    type Kind: PartialEq;
    type Header;

    /// Kind and header of a packet that a machine has sent.
    fn read(bytes: &[u8]) -> (Self::Kind, Self::Header);
}

/// What becomes of a packet on a cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Arrives,
    IsMarked,
    IsLost,
    /// Twice, the second time so much later.
    IsDoubled(Span),
    IsLate(Span),
}

/// A packet on a cable.
pub struct Sent<W: Words> {
    pub at: Time,
    pub from: NodeId,
    pub to: NodeId,
    pub kind: W::Kind,
    pub header: W::Header,
    pub len: usize,
}

pub type FateOf<W> = Box<dyn FnMut(&Sent<W>) -> Fate>;

/// Cables that lose about a tenth of all packets, double some, mark some (of those that ask for marks) and delay some,
/// as the seed will have it.
pub fn bad_cables<W: Words>(seed: u64) -> FateOf<W> {
    let mut state = seed;
    Box::new(move |_| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        match state >> 33 & 31 {
            0..=2 => Fate::IsLost,
            3 => Fate::IsDoubled(Span::from_nanos(state >> 50)),
            4 => Fate::IsLate(Span::from_nanos(state >> 48)),
            5..=6 => Fate::IsMarked,
            _ => Fate::Arrives,
        }
    })
}

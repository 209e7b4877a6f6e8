//! What becomes of packets on cables.

use tributary_proto::aggregation::best_effort::wire::{Header, Kind};
use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::time::{Span, Time};

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
pub struct Sent {
    pub at: Time,
    pub from: NodeId,
    pub to: NodeId,
    pub kind: Kind,
    pub header: Header,
    pub len: usize,
}

pub type FateOf = Box<dyn FnMut(&Sent) -> Fate>;

/// Cables that lose about a tenth of all packets, double some, mark some and delay some, as the seed will have it.
pub fn bad_cables(seed: u64) -> FateOf {
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

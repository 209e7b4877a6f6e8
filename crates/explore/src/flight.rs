//! Packets on their way.

use std::hash::Hash;

use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::packet::Ecn;
use tributary_proto::contract::time::Time;

use crate::fingerprint::{Fingerprint, StateHasher};

/// A packet on its way to a neighbour.
#[derive(Debug)]
pub struct Flight {
    /// The node that it has left last.
    pub from: NodeId,
    /// The nodes that it may come to next: several where the way is a balancer's choice.
    pub next: Vec<NodeId>,
    /// Header and vector.
    pub bytes: Vec<u8>,
    /// UDP payload bytes on the wire.
    pub wire_len: usize,
    /// Its congestion bits.
    pub ecn: Ecn,
    /// What it is known by.
    pub fingerprint: Fingerprint,
}

impl Flight {
    /// A packet that has just left.
    pub fn new(from: NodeId, next: Vec<NodeId>, bytes: Vec<u8>, wire_len: usize, ecn: Ecn) -> Flight {
        let mut hasher = StateHasher::default();
        (from, &next, &bytes, wire_len, ecn).hash(&mut hasher);
        Flight { from, next, bytes, wire_len, ecn, fingerprint: hasher.fingerprint(Time::ZERO) }
    }
}

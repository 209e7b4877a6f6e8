//! Packets on their way.

use std::hash::Hash;

use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::packet::Ecn;
use tributary_proto::contract::time::Time;

use crate::fingerprint::{Fingerprint, StateHasher};

/// A packet on its way to a neighbour.
#[derive(Debug)]
pub struct Flight {
    /// The node that sent it last.
    pub from: NodeId,
    /// The nodes that may get it: several where a balancer chooses.
    pub next: Vec<NodeId>,
    /// Header and vector.
    pub bytes: Vec<u8>,
    /// Bytes of the UDP payload on the wire.
    pub wire_len: usize,
    /// Its congestion bits.
    pub ecn: Ecn,
    /// What identifies it.
    pub fingerprint: Fingerprint,
}

impl Flight {
    /// A packet that was just sent.
    pub fn new(from: NodeId, next: Vec<NodeId>, bytes: Vec<u8>, wire_len: usize, ecn: Ecn) -> Flight {
        let mut hasher = StateHasher::default();
        (from, &next, &bytes, wire_len, ecn).hash(&mut hasher);
        Flight { from, next, bytes, wire_len, ecn, fingerprint: hasher.fingerprint(Time::ZERO) }
    }
}

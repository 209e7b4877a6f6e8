//! What can happen next: a step, its text form, and the packets in flight.

use std::fmt;
use std::hash::Hash;
use std::str::FromStr;

use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::packet::Ecn;
use tributary_proto::contract::time::Time;

use crate::fingerprint::{Fingerprint, StateHasher};

/// A possible step. Packets in flight are numbered by their order, the oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// A rank submits its next collective.
    Submit(NodeId),
    /// A packet arrives at one of the nodes that it may come to.
    Deliver {
        /// The packet.
        flight: u16,
        /// Which node.
        hop: u8,
    },
    /// A packet arrives, and a copy of it stays in flight.
    Repeat {
        /// The packet.
        flight: u16,
        /// Which node.
        hop: u8,
    },
    /// A packet is lost.
    Lose(u16),
    /// A node's timer expires.
    Timeout(NodeId),
}

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

/// Writes the form that [`Step::from_str`] reads.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Submit(node) => write!(f, "s{node}"),
            Step::Deliver { flight, hop: 0 } => write!(f, "d{flight}"),
            Step::Deliver { flight, hop } => write!(f, "d{flight}/{hop}"),
            Step::Repeat { flight, hop: 0 } => write!(f, "r{flight}"),
            Step::Repeat { flight, hop } => write!(f, "r{flight}/{hop}"),
            Step::Lose(flight) => write!(f, "l{flight}"),
            Step::Timeout(node) => write!(f, "t{node}"),
        }
    }
}

impl FromStr for Step {
    type Err = String;
    fn from_str(text: &str) -> Result<Step, String> {
        let wrong = || format!("\"{text}\" is not a step: write s0, d0, d0/1, r0, l0 or t0");
        let (kind, rest) = text.split_at_checked(1).ok_or_else(wrong)?;
        let (number, hop) = rest.split_once('/').unwrap_or((rest, "0"));
        let number: u16 = number.parse().map_err(|_| wrong())?;
        let hop = hop.parse().map_err(|_| wrong())?;
        match kind {
            "s" => Ok(Step::Submit(NodeId(number.into()))),
            "d" => Ok(Step::Deliver { flight: number, hop }),
            "r" => Ok(Step::Repeat { flight: number, hop }),
            "l" => Ok(Step::Lose(number)),
            "t" => Ok(Step::Timeout(NodeId(number.into()))),
            _ => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_read_as_it_was_written() {
        for text in ["s0", "d3", "d3/1", "r2", "r2/1", "l1", "t4"] {
            assert_eq!(text.parse::<Step>().unwrap().to_string(), text);
        }
        for text in ["", "x1", "d", "d1/", "é1"] {
            assert!(text.parse::<Step>().unwrap_err().contains("is not a step"), "{text}");
        }
    }
}

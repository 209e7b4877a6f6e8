//! What a packet's handler claims of its block, and what the switch has done, for simulators of a switch's cores.

use super::SparseSwitch;
use crate::contract::ids::PortId;
use crate::contract::work::{Claim, Instrumented, Needs, Work};
use crate::flare::sparse::layout::Storage;
use crate::flare::sparse::wire::{Header, Kind};

impl Instrumented for SparseSwitch {
    /// A packet about a block needs the whole block to itself; a sum on its way down does not.
    fn claim(&mut self, _ingress: PortId, packet: &[u8]) -> Claim {
        let (Ok(kind), Ok(header)) = (Kind::of(packet), Header::parse(packet)) else { return Claim::nothing(0) };
        let block = u64::from(header.idx);
        match kind {
            Kind::Shard | Kind::Taken | Kind::Have | Kind::Want => {
                let needs = match self.storage {
                    Storage::Hash => Needs::Table,
                    Storage::Array => Needs::Array,
                };
                Claim { block, needs }
            }
            Kind::Sum | Kind::Query | Kind::Report | Kind::Mismatch => Claim::nothing(block),
        }
    }

    fn take_work(&mut self) -> Work {
        std::mem::take(&mut self.counters.work)
    }
}

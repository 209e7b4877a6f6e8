//! The part of its block that a packet's handler needs, where handlers run on cores.

use super::SparseSwitch;
use crate::contract::work::{Claim, Needs};
use crate::flare::sparse::layout::Storage;
use crate::flare::sparse::wire::{Header, Kind};

impl SparseSwitch {
    /// A packet about a block needs the whole block to itself; a sum on its way down does not.
    pub(super) fn claim_of(&self, packet: &[u8]) -> Claim {
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
}

//! The part of its block that a packet's handler needs, where handlers run on cores.

use super::SparseSwitch;
use crate::aggregation::missing_ranks::Neighbour;
use crate::aggregation::vector_format::Form;
use crate::contract::ids::PortId;
use crate::contract::work::{Brought, Claim, Needs};
use crate::flare::sparse::layout::Storage;
use crate::flare::sparse::wire::{HEADER_LEN, Header, Kind};

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

    /// What a shard brings.
    pub(super) fn brought_by(&mut self, ingress: PortId, packet: &[u8], wire_len: usize) -> Option<Brought> {
        let header = Header::parse(packet).ok()?;
        let is_from_above = self.parent.is_some_and(|parent| parent.port == ingress);
        if is_from_above || Kind::of(packet) != Ok(Kind::Shard) {
            return None;
        }
        let form = if self.inquiry.is_switch(Neighbour::Child(header.wid)) { Form::Partial } else { Form::Host };
        let layout = self.layout(&header.spec).ok()?;
        let pairs = layout.parse(&packet[HEADER_LEN..], wire_len.checked_sub(HEADER_LEN)?, form, layout.span).ok()?;
        let places = match self.storage {
            Storage::Hash => self.choices.hash_slots,
            Storage::Array => layout.span,
        };
        let mut indices = Vec::new();
        pairs.append_offsets(0, &mut indices);
        let (shard, shards) = (header.shard, header.count);
        Some(Brought { child: header.wid.0, shard, shards, places, indices, ..Brought::default() })
    }
}

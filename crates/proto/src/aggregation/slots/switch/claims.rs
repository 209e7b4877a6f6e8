//! What a packet's handler claims of its block, and what the switch has done, for simulators of a switch's cores.

use super::SlotSwitch;
use crate::aggregation::ordered::Arrangement;
use crate::aggregation::slots::wire::{Header, Kind};
use crate::aggregation::slots::{Dialect, Word};
use crate::contract::ids::PortId;
use crate::contract::work::{Claim, Instrumented, Needs, Work};

impl<D: Dialect> Instrumented for SlotSwitch<D> {
    /// The versions of a slot follow each other and count as one block here. Only contributions need the block: a
    /// result comes from above when no other handler uses the block.
    fn claim(&mut self, ingress: PortId, packet: &[u8]) -> Claim {
        let mut header = Header::<D::Word>::BLANK;
        let (Ok(()), Ok(kind)) = (header.read(packet), Kind::of(packet)) else { return Claim::nothing(0) };
        let block = u64::from(header.idx);
        let is_from_parent = self.parent.is_some_and(|parent| parent.port == ingress);
        match kind {
            Kind::Update | Kind::Probe if !is_from_parent => {
                let Some(position) = self.pool.position(header.wid, header.word.subtree()) else {
                    return Claim::nothing(block);
                };
                let Ok(sizes) = self.sizes.of(&header.spec) else { return Claim::nothing(block) };
                let needs = match self.pool.arrangement(&header.spec, &sizes.encoding) {
                    Arrangement::Buffers(buffers) => Needs::Buffer(buffers),
                    Arrangement::Tree => Needs::Leaf(position as u16, self.pool.positions() as u16),
                    // Nodes of a larger tree are claimed together, like one buffer.
                    Arrangement::Forest => Needs::Buffer(1),
                };
                Claim { block, needs }
            }
            Kind::Update | Kind::Probe | Kind::Result | Kind::Query | Kind::Report | Kind::Mismatch => {
                Claim::nothing(block)
            }
        }
    }

    fn take_work(&mut self) -> Work {
        std::mem::take(&mut self.counters.work)
    }
}

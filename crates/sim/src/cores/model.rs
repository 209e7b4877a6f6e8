//! A processor with a machine that only counts: each packet costs the same, and a block is complete when so many have come. What
//! the paper's figures and equations are about.

use std::collections::BTreeMap;
use std::ops::Deref;

use tributary_proto::contract::work::Needs;

use super::steps::{Called, Kind, Machine, Spent};
use super::{Finished, Full, Packet, Processor, Shape};

/// How a block's packets become its sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Design {
    /// Each packet for itself, without a lock and without a buffer: queues alone.
    Apart,
    /// So many buffers. A handler owns one while it combines, the first that nobody owns, or else waits for the one
    /// for which the fewest wait. The handler that is the last to combine merges the other buffers into its own, one after
    /// the other.
    Buffers(u32),
    /// A buffer for each child. A handler copies its packet there, and merges it with its sibling if that is there, and so
    /// on upwards; it never waits.
    Tree,
}

/// How long steps take, in cycles. A start or a send of no cycles is no step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// The overhead of a handler.
    pub start: u64,
    /// The first packet of a buffer.
    pub copy: u64,
    /// Every later one.
    pub combine: u64,
    /// One buffer with another.
    pub merge: u64,
    /// The result.
    pub send: u64,
}

/// What the handlers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handling {
    /// How they sum.
    pub design: Design,
    /// Packets of a block.
    pub children: u32,
    /// Bytes of a buffer.
    pub buffer_bytes: u64,
    /// How long it takes.
    pub costs: Costs,
}

/// Packets of the blocks that have begun.
struct Counting {
    handling: Handling,
    come: BTreeMap<u64, u32>,
}

impl Machine for Counting {
    fn call(&mut self, _now: u64, packet: &Packet, _buffer: u32) -> Called {
        let Handling { design, children, buffer_bytes, costs } = self.handling;
        let come = self.come.entry(packet.block).or_insert(0);
        *come += 1;
        let (is_first, completes) = (*come == 1, *come == children);
        if completes {
            self.come.remove(&packet.block);
        }
        let copy = Spent::on(Kind::Copy, costs.copy);
        let combine = Spent::on(Kind::Combine, costs.combine);
        Called {
            counts: true,
            completes,
            buffer_bytes,
            copy,
            combine: if design == Design::Buffers(1) && is_first { copy } else { combine },
            merge: Spent::on(Kind::Merge, costs.merge),
            end: Spent::on(Kind::Send, if completes { costs.send } else { 0 }),
        }
    }
}

/// A processor whose handlers are all alike.
pub struct Modelled {
    processor: Processor,
    machine: Counting,
}

impl Modelled {
    /// A processor that has nothing to do.
    pub fn new(shape: Shape, handling: Handling) -> Modelled {
        let machine = Counting { handling, come: BTreeMap::new() };
        Modelled { processor: Processor::new(shape), machine }
    }

    /// Keeps what every core does and when, for [`Processor::stretches`].
    pub fn recording(self) -> Modelled {
        Modelled { processor: self.processor.recording(), ..self }
    }

    /// A child's packet of a block comes in: [`Processor::arrive`].
    pub fn arrive(&mut self, now: u64, block: u64, child: u32, bytes: u64) -> Result<(), Full> {
        let Handling { design, children, costs, .. } = self.machine.handling;
        let needs = match design {
            Design::Apart => Needs::Nothing,
            Design::Buffers(buffers) => Needs::Buffer(buffers as u16),
            Design::Tree => Needs::Place(child as u16, children as u16),
        };
        let packet = Packet { needs, start: costs.start, ..Packet::new(block, child, bytes) };
        self.processor.arrive(now, packet, &mut self.machine)
    }

    /// Everything happens that does so up to a time: [`Processor::advance`].
    pub fn advance(&mut self, now: u64) -> Vec<Finished> {
        self.processor.advance(now, &mut self.machine)
    }
}

impl Deref for Modelled {
    type Target = Processor;
    fn deref(&self) -> &Processor {
        &self.processor
    }
}

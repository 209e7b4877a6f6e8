//! A processor with a machine that only counts: each packet costs the same, and a block is complete after a fixed
//! number of packets. This is the model of the paper's figures and equations.

use std::collections::BTreeMap;
use std::ops::Deref;

use tributary_proto::contract::work::Needs;

use super::steps::{Called, Kind, Machine, Spent};
use super::{Assignment, Finished, Full, Packet, Processor};

/// How a block's packets are summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Design {
    /// Each packet by itself, without a lock and without a buffer, so that there are only queues.
    Unbuffered,
    /// In this many buffers. A handler owns one while it combines: the first without an owner, or else it waits for the
    /// buffer for which the fewest wait. The handler that is the last to combine merges the other buffers into its own,
    /// one after the other.
    Buffers(u32),
    /// With a buffer for each child. A handler copies its packet there, merges it with its sibling if the sibling is
    /// there, and so on upwards; it never waits.
    Tree,
}

/// How many cycles steps take. A start or a send of no cycles is not a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// The overhead of a handler.
    pub start: u64,
    /// The first packet into a buffer.
    pub copy: u64,
    /// Every later packet.
    pub combine: u64,
    /// One buffer into another.
    pub merge: u64,
    /// Sending the result.
    pub send: u64,
}

/// The properties of the handlers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handling {
    /// How they sum.
    pub design: Design,
    /// How many packets a block has.
    pub children: u32,
    /// Bytes of a buffer.
    pub buffer_bytes: u64,
    /// How long their steps take.
    pub costs: Costs,
}

/// The packets of blocks that have begun.
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
    /// A processor without packets.
    pub fn new(shape: Shape, handling: Handling) -> Modelled {
        let machine = Counting { handling, come: BTreeMap::new() };
        Modelled { processor: Processor::new(shape), machine }
    }

    /// Records what every core does and when, for [`Processor::stretches`].
    pub fn recording(self) -> Modelled {
        Modelled { processor: self.processor.recording(), ..self }
    }

    /// A child's packet of a block arrives: [`Processor::arrive`].
    pub fn arrive(&mut self, now: u64, block: u64, child: u32, bytes: u64) -> Result<(), Full> {
        let Handling { design, children, costs, .. } = self.machine.handling;
        let needs = match design {
            Design::Unbuffered => Needs::Nothing,
            Design::Buffers(buffers) => Needs::Buffer(buffers as u16),
            Design::Tree => Needs::Leaf(child as u16, children as u16),
        };
        let packet = Packet { needs, start: costs.start, ..Packet::new(block, child, bytes) };
        self.processor.arrive(now, packet, &mut self.machine)
    }

    /// Goes on to a time: [`Processor::advance`].
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

// The shape of a processor: clusters, cores and memories.

/// The cores that may run a block's handlers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subset {
    /// One core: S = 1.
    Core,
    /// All cores of one cluster: S = C.
    Cluster,
}

/// How clusters fetch packets from the packet memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetching {
    /// How many packets a cluster holds whose handlers have not begun.
    pub input_slots: u32,
    /// Bytes that its DMA moves in a cycle.
    pub bytes_per_cycle: u64,
    /// How many cycles a fetch takes besides.
    pub latency: u64,
    /// How long a cycle is.
    pub cycle: u64,
}

/// The processor's clusters, cores and memories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// How many clusters there are.
    pub clusters: u32,
    /// How many cores each cluster has.
    pub cores: u32,
    /// The subset of cores that is the home of a block.
    pub subset: Subset,
    /// Which subset a block gets.
    pub assignment: Assignment,
    /// Bytes of the packet memory.
    pub packet_memory: u64,
    /// Bytes of a cluster's memory that blocks may take. Using more is counted, and costs nothing.
    pub working_memory: u64,
    /// How packets get from the packet memory to cores; `None` if they need no time.
    pub fetching: Option<Fetching>,
    /// How long it takes until a cluster's first handler is in its instruction cache. All handlers that begin meanwhile
    /// wait for it.
    pub cold_start: u64,
}

impl Shape {
    /// Clusters with unbounded memory, where packets need not be fetched.
    pub fn ideal(clusters: u32, cores: u32, subset: Subset) -> Shape {
        let boundless = 1 << 40;
        Shape {
            clusters,
            cores,
            subset,
            assignment: Assignment::ByNumber,
            packet_memory: boundless,
            working_memory: boundless,
            fetching: None,
            cold_start: 0,
        }
    }

    /// The number of cores of all clusters: K.
    pub fn all_cores(&self) -> u32 {
        self.clusters * self.cores
    }

    /// The number of cores of a subset: S.
    pub fn subset_cores(&self) -> u32 {
        match self.subset {
            Subset::Core => 1,
            Subset::Cluster => self.cores,
        }
    }

    /// How many subsets there are.
    pub fn subsets(&self) -> u32 {
        self.all_cores() / self.subset_cores()
    }
}

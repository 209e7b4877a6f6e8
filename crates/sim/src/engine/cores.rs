//! A switch's processor, and the packets that it has. `steps::cores` runs it.

use std::collections::BTreeMap;

use tributary_proto::contract::drive::switch::Passed;
use tributary_proto::contract::ids::JobId;
use tributary_proto::contract::switch::{Emission, Verdict};
use tributary_proto::contract::time::Time;

use crate::cores::counters::Counters;
use crate::cores::prices::Prices;
use crate::cores::{Processor, Shape};
use crate::net::Packet;
use crate::topology::LinkId;

/// The common properties of all switches' processors. Times are picoseconds.
#[derive(Clone, Debug)]
pub struct CoresSpec {
    /// Its clusters, cores and memories.
    pub shape: Shape,
    /// How long a cycle is.
    pub cycle: u64,
    /// Packets are marked that arrive while the packet memory holds more.
    pub mark_above: Option<u64>,
    /// Packets are charged to the ports at which they came in.
    pub pauses: bool,
    /// The costs of each job's handlers.
    pub prices: BTreeMap<JobId, Prices>,
}

/// A switch's processor, and the packets that it has.
pub struct SwitchCores {
    pub(super) spec: CoresSpec,
    pub(super) processor: Processor,
    pub(super) packets: Vec<Option<InProcessor>>,
    pub(super) free: Vec<u32>,
}

/// A packet in the processor, and the packets that follow from it.
pub(super) struct InProcessor {
    pub(super) from: LinkId,
    pub(super) packet: Packet,
    pub(super) verdict: Option<(Verdict, Passed)>,
    pub(super) made: Vec<(Emission, Vec<u8>)>,
}

impl SwitchCores {
    /// A processor without packets.
    pub fn new(spec: CoresSpec) -> SwitchCores {
        SwitchCores { processor: Processor::new(spec.shape), spec, packets: Vec::new(), free: Vec::new() }
    }

    /// The next time at which something happens.
    pub fn next_time(&self) -> Option<Time> {
        self.processor.next_time().map(Time)
    }

    /// The counts, in picoseconds.
    pub fn counters(&self) -> &Counters {
        self.processor.counters()
    }

    /// The processor.
    pub fn processor(&self) -> &Processor {
        &self.processor
    }

    /// The common properties of all switches' processors.
    pub fn spec(&self) -> &CoresSpec {
        &self.spec
    }

    pub(super) fn keep(&mut self, packet: InProcessor) -> u32 {
        match self.free.pop() {
            Some(tag) => {
                self.packets[tag as usize] = Some(packet);
                tag
            }
            None => {
                self.packets.push(Some(packet));
                self.packets.len() as u32 - 1
            }
        }
    }

    pub(super) fn take(&mut self, tag: u32) -> Option<InProcessor> {
        self.free.push(tag);
        self.packets[tag as usize].take()
    }
}

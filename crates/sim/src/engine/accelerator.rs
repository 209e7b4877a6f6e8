//! What a switch's accelerator adds to the time of a packet, and the packets that wait in it.
//!
//! A machine's call is atomic, as everywhere: it is made when the accelerator has the sum. Packets that pass through the
//! switch do not wait here.

use std::collections::VecDeque;

use tributary_proto::contract::time::{Span, Time};

use crate::net::{Fabric, Packet};
use crate::topology::LinkId;

/// How long packets wait before a switch's programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accelerator {
    /// Every packet for as long.
    Fixed(Span),
    /// As in the hardware design of `dataplanes/panama`: the control logic takes the headers of all ports one after the
    /// other, and what follows is a pipeline. `latency.csv` there has what was measured, and a test compares.
    Design {
        /// How long a cycle is.
        cycle: Span,
    },
}

/// Cycles of the control logic for each header.
const CONTROL: u64 = 4;
/// Cycles of an adder; a sum passes one for each level of the tree.
const ADDER: u64 = 4;
/// Cycles of parser, buffer and egress, whatever the size.
const ALWAYS: u64 = 6;

impl Accelerator {
    /// The ports for which the cycles were measured on the design.
    pub const MEASURED_PORTS: std::ops::RangeInclusive<usize> = 2..=16;

    /// How long a packet keeps later ones waiting.
    fn occupancy(self) -> Span {
        match self {
            Accelerator::Fixed(_) => Span::ZERO,
            Accelerator::Design { cycle } => cycle.times(CONTROL),
        }
    }

    /// How long a packet waits besides, in a switch with this many ports.
    fn pipeline(self, ports: usize) -> Span {
        match self {
            Accelerator::Fixed(latency) => latency,
            Accelerator::Design { cycle } => cycle.times(ADDER * u64::from(levels(ports)) + ALWAYS),
        }
    }

    /// The most that a block's last packet waits if the packets of all ports arrive together.
    pub fn longest(self, ports: usize) -> Span {
        self.occupancy().times(ports as u64) + self.pipeline(ports)
    }
}

/// Levels of a tree of adders over this many ports.
fn levels(ports: usize) -> u32 {
    ports.next_power_of_two().trailing_zeros()
}

/// The packets in one switch's accelerator, in the order in which they came.
pub(super) struct InAccelerator {
    kind: Accelerator,
    ports: usize,
    /// When the control logic can take the next header.
    free_at: Time,
    waiting: VecDeque<(Time, LinkId, Packet)>,
}

impl InAccelerator {
    pub fn new(kind: Accelerator, ports: usize) -> InAccelerator {
        InAccelerator { kind, ports, free_at: Time::ZERO, waiting: VecDeque::new() }
    }

    /// A packet has arrived as a whole.
    pub fn push(&mut self, now: Time, from: LinkId, packet: Packet) {
        self.free_at = self.free_at.max(now) + self.kind.occupancy();
        self.waiting.push_back((self.free_at + self.kind.pipeline(self.ports), from, packet));
    }

    /// When the next packet reaches the programs.
    pub fn next_time(&self) -> Option<Time> {
        self.waiting.front().map(|&(time, ..)| time)
    }

    /// The next packet that has reached the programs by now.
    pub fn pop_due(&mut self, now: Time) -> Option<(LinkId, Packet)> {
        let (_, from, packet) = self.waiting.pop_front_if(|&mut (time, ..)| time <= now)?;
        Some((from, packet))
    }

    /// The switch dies, and loses what it has.
    pub fn clear(&mut self, fabric: &mut Fabric) {
        self.waiting.drain(..).for_each(|(_, _, packet)| fabric.payloads.release(packet.payload));
        self.free_at = Time::ZERO;
    }
}

//! The protocols by name: the only place outside their folders that knows which there are.

use crate::config::{HostConfig, SharedSwitchConfig, SwitchConfig};
use crate::host::Host;
use crate::ring::RingHost;
use crate::switch::{SharedSwitch, Switch};
use crate::switchml::{SwitchMl, SwitchMlHost};
use crate::values::Values;

/// A protocol that this build speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Protocol {
    /// SwitchML (Sapio et al., NSDI 2021): self-clocked slots in one switch, or in levels of switches.
    SwitchMl = 1,
    /// Host-based ring allreduce: the peer that in-network aggregation is measured against.
    Ring = 2,
}

impl Protocol {
    /// Every protocol, in the order of its code.
    pub const ALL: [Protocol; 2] = [Protocol::SwitchMl, Protocol::Ring];

    /// The code in the common header.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The name on the command line, in files and in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Protocol::SwitchMl => "switchml",
            Protocol::Ring => "ring",
        }
    }

    /// The protocol with this name.
    pub fn from_name(name: &str) -> Option<Protocol> {
        Protocol::ALL.into_iter().find(|protocol| protocol.name() == name)
    }

    /// True if switches hold slots for the protocol; false where they need to forward only.
    pub const fn aggregates_in_switch(self) -> bool {
        match self {
            Protocol::SwitchMl => true,
            Protocol::Ring => false,
        }
    }

    /// True if every switch on a packet's way handles it, whomever it is for.
    pub const fn every_hop(self) -> bool {
        match self {
            Protocol::SwitchMl | Protocol::Ring => false,
        }
    }

    /// A worker's machine.
    pub fn host<V: Values>(self, config: &HostConfig) -> Box<dyn Host> {
        match self {
            Protocol::SwitchMl => Box::new(SwitchMlHost::new(config)),
            Protocol::Ring => Box::new(RingHost::new(config)),
        }
    }

    /// A switch's machine for one job in one shard; `None` where the protocol needs none of the job's own.
    pub fn switch<V: Values>(self, config: &SwitchConfig) -> Option<Box<dyn Switch>> {
        match self {
            Protocol::SwitchMl => Some(Box::new(SwitchMl::<V>::new(config))),
            Protocol::Ring => None,
        }
    }
    /// The machine that all jobs of the protocol share in one switch of a fabric, where they do.
    pub fn shared_switch<V: Values>(self, _config: &SharedSwitchConfig) -> Option<Box<dyn SharedSwitch>> {
        match self {
            Protocol::SwitchMl | Protocol::Ring => None,
        }
    }
}

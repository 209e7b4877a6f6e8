//! The protocols by name: the only place outside their folders that knows which there are.

use crate::canary::{CanaryHost, CanarySwitch};
use crate::collective::values::Values;
use crate::contract::config::{HostConfig, SharedSwitchConfig, SwitchConfig};
use crate::contract::host::Host;
use crate::contract::switch::{SharedSwitch, Switch};
use crate::ring::RingHost;
use crate::switchml::{SwitchMl, SwitchMlHost};

/// A protocol that this build speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Protocol {
    /// SwitchML (Sapio et al., NSDI 2021): self-clocked slots in one switch, or in levels of switches.
    SwitchMl = 1,
    /// Host-based ring allreduce: the peer that in-network aggregation is measured against.
    Ring = 2,
    /// Canary (De Sensi et al., 2023): dynamic trees through all switches of a fabric.
    Canary = 3,
}

impl Protocol {
    /// Every protocol, in the order of its code.
    pub const ALL: [Protocol; 3] = [Protocol::SwitchMl, Protocol::Ring, Protocol::Canary];

    /// The code in the common header.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The name on the command line, in files and in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Protocol::SwitchMl => "switchml",
            Protocol::Ring => "ring",
            Protocol::Canary => "canary",
        }
    }

    /// The protocol with this code.
    pub fn from_code(code: u8) -> Option<Protocol> {
        Protocol::ALL.into_iter().find(|protocol| protocol.code() == code)
    }

    /// Bytes of header before the vector of a full packet.
    pub const fn header_len(self) -> usize {
        match self {
            Protocol::SwitchMl => crate::switchml::wire::HEADER_LEN,
            Protocol::Ring => crate::ring::wire::HEADER_LEN,
            Protocol::Canary => crate::canary::wire::HEADER_LEN,
        }
    }

    /// The protocol with this name.
    pub fn from_name(name: &str) -> Option<Protocol> {
        Protocol::ALL.into_iter().find(|protocol| protocol.name() == name)
    }

    /// True if switches hold slots for each job of the protocol; false where they only forward, or where jobs share
    /// what they find (see [`Protocol::every_hop`]).
    pub const fn aggregates_in_switch(self) -> bool {
        match self {
            Protocol::SwitchMl => true,
            Protocol::Ring | Protocol::Canary => false,
        }
    }

    /// True if every switch on a packet's way handles it, whomever it is for.
    pub const fn every_hop(self) -> bool {
        match self {
            Protocol::Canary => true,
            Protocol::SwitchMl | Protocol::Ring => false,
        }
    }

    /// A worker's machine.
    pub fn host<V: Values>(self, config: &HostConfig) -> Box<dyn Host> {
        match self {
            Protocol::SwitchMl => Box::new(SwitchMlHost::new(config)),
            Protocol::Ring => Box::new(RingHost::new(config)),
            Protocol::Canary => Box::new(CanaryHost::<V>::new(config)),
        }
    }

    /// A switch's machine for one job in one shard; `None` where the protocol needs none of the job's own.
    pub fn switch<V: Values>(self, config: &SwitchConfig) -> Option<Box<dyn Switch>> {
        match self {
            Protocol::SwitchMl => Some(Box::new(SwitchMl::<V>::new(config))),
            Protocol::Ring | Protocol::Canary => None,
        }
    }
    /// The machine that all jobs of the protocol share in one switch of a fabric, where they do.
    pub fn shared_switch<V: Values>(self, config: &SharedSwitchConfig) -> Option<Box<dyn SharedSwitch>> {
        match self {
            Protocol::Canary => Some(Box::new(CanarySwitch::<V>::new(config))),
            Protocol::SwitchMl | Protocol::Ring => None,
        }
    }
}

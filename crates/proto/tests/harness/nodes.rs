//! Hosts and switches of the test network, their ports, and the record of what they sent.

use std::collections::BTreeMap;

use tributary_proto::contract::host::{Host, HostEvent};
use tributary_proto::contract::ids::{GroupId, PortId};
use tributary_proto::contract::pipeline::Pipeline;
use tributary_proto::contract::switch::PortView;
use tributary_proto::contract::time::Time;

use super::link::Link;

/// A node of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    Host(usize),
    Switch(usize),
}

/// One end of a link: who is at the other, and the direction away from here.
pub struct Port {
    pub peer: Node,
    /// The port there.
    pub peer_port: PortId,
    pub link: Link,
}

impl Port {
    pub fn new(peer: Node, peer_port: PortId, link: Link) -> Port {
        Port { peer, peer_port, link }
    }
}

/// A host with its machine.
pub struct HostNode {
    pub machine: Box<dyn Host>,
    pub port: Port,
    pub alive: bool,
    /// What the machine told its caller and nobody has taken yet.
    pub events: Vec<HostEvent>,
    pub timer: Option<Time>,
    /// When the machine last told its caller something.
    pub last_event: Time,
}

impl HostNode {
    pub fn new(machine: Box<dyn Host>, port: Port) -> HostNode {
        HostNode { machine, port, alive: true, events: Vec::new(), timer: None, last_event: Time::ZERO }
    }
}

/// A switch with a pipeline for each shard.
pub struct SwitchNode {
    pub pipelines: Vec<Pipeline>,
    pub ports: Vec<Port>,
    pub parent: Option<PortId>,
    pub groups: BTreeMap<GroupId, Vec<PortId>>,
    pub alive: bool,
    pub timer: Option<Time>,
}

impl SwitchNode {
    pub fn new(pipelines: Vec<Pipeline>) -> SwitchNode {
        SwitchNode { pipelines, ports: Vec::new(), parent: None, groups: BTreeMap::new(), alive: true, timer: None }
    }

    pub fn add_port(&mut self, peer: Node, peer_port: PortId, link: Link) -> PortId {
        self.ports.push(Port::new(peer, peer_port, link));
        PortId((self.ports.len() - 1) as u16)
    }

    pub fn port_to(&self, peer: Node) -> Option<PortId> {
        self.ports.iter().position(|port| port.peer == peer).map(|port| PortId(port as u16))
    }
}

/// What a machine sees of a switch's queues.
pub struct Queues<'a> {
    pub ports: &'a [Port],
    pub now: Time,
}

impl PortView for Queues<'_> {
    fn queued_bytes(&self, port: PortId) -> u64 {
        self.ports.get(port.index()).map_or(0, |port| port.link.queued_bytes(self.now))
    }
}

/// One packet as it was put on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceEntry {
    pub time: Time,
    pub from: Node,
    pub to: Node,
    pub wire_len: usize,
    /// FNV-1a of the bytes in memory.
    pub hash: u64,
}

/// FNV-1a.
pub fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01B3))
}

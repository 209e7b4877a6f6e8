//! The fabric's file: its switches, hosts and cables, and the properties of every port. `examples/fabric.toml` shows a
//! small one, `docs/fabric.md` every key.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use serde::Deserialize;

use crate::config::{OptionTable, QuotaFile};
use crate::quantity::{Bytes, DataRate};

/// A fabric's file. The same file is on every machine of the fabric.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FabricFile {
    /// The secret of the fabric's switches; at least 16 characters.
    pub secret: String,
    /// The switch where jobs are formed; the last one, if left out.
    pub controller: Option<String>,
    /// UDP port of every switch, and TCP port of its control API.
    #[serde(default = "defaults::port")]
    pub port: u16,
    /// The network from which addresses are counted up: hosts from its start, switches from its middle, control
    /// addresses from three quarters.
    #[serde(default = "defaults::network")]
    pub network: Ipv4Addr,
    /// Every port's rate, each way. If left out, a port is as fast as the machines copy.
    pub rate: Option<DataRate>,
    /// The size of a port's queue; a packet that does not fit is dropped.
    #[serde(default = "defaults::queue")]
    pub queue: Bytes,
    /// Packets that find more than this in a queue are marked (ECN). If left out, none is marked.
    pub mark_above: Option<Bytes>,
    /// Packets that find more than this are all marked, and of those that find less a share that rises from `mark_above`
    /// on; the same as `mark_above`, if left out.
    pub mark_all_above: Option<Bytes>,
    /// Switches tell senders to pause before a port overflows, so that no packet is dropped.
    #[serde(default)]
    pub lossless: bool,
    /// A port pauses its sender if more than this has come in by the port and has not left the switch. If left out:
    /// half of the smallest queue.
    pub pause_above: Option<Bytes>,
    /// How a switch chooses among equally short ways.
    #[serde(default)]
    pub balancing: Balancing,
    /// The options of the machines that jobs share, by protocol: `[switches.NAME]`. They are the same at all switches.
    #[serde(default)]
    pub switches: BTreeMap<String, OptionTable>,
    /// Which of the jobs' custom operators the switches serve. If left out: none.
    pub operators: Option<FabricOperators>,
    /// Hosts where servers may be that sum for everybody's jobs. If left out: none.
    #[serde(default)]
    pub servers: Vec<String>,
    /// Elements of four bytes in the longest packet that switches sum. The default fits an ordinary packet.
    #[serde(default = "defaults::elements_per_packet")]
    pub elements_per_packet: u16,
    /// Memory for jobs on each switch; as much as a switch without a fabric has, if left out.
    #[serde(default = "defaults::memory")]
    pub memory: Bytes,
    /// The same for switches that have other memory, by name.
    #[serde(default)]
    pub memory_at: BTreeMap<String, Bytes>,
    /// Limits of jobs by their names; the first quota whose pattern fits counts.
    #[serde(default, rename = "quota")]
    pub quotas: Vec<QuotaFile>,
    /// A two-level fat tree: every leaf is connected to every spine.
    pub leaf_spine: Option<LeafSpine>,
    /// Any other network.
    pub graph: Option<Graph>,
    /// Addresses that differ from those of `network`.
    #[serde(default)]
    pub addresses: BTreeMap<String, IpAddr>,
    /// Control addresses of switches that differ from those of `network`.
    #[serde(default)]
    pub control: BTreeMap<String, SocketAddr>,
    /// Links that differ from the others.
    #[serde(default, rename = "link")]
    pub links: Vec<LinkFile>,
}

/// `[leaf_spine]`: nodes are `host0 ...`, `leaf0 ...`, `spine0 ...`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeafSpine {
    /// Switches with hosts.
    pub leaves: u16,
    /// Switches that connect the leaves.
    pub spines: u16,
    /// Hosts on each leaf.
    pub hosts_per_leaf: u16,
}

/// `[graph]`: nodes by name, and the links between them.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Graph {
    /// Names of hosts.
    pub hosts: Vec<String>,
    /// Names of switches.
    pub switches: Vec<String>,
    /// The two ends of each link.
    pub links: Vec<[String; 2]>,
}

/// `[operators]`: what every switch serves, and what some switches serve instead.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FabricOperators {
    /// `any`, `none`, or hashes with commas between them.
    pub allow: String,
    /// The same for single switches, by name.
    #[serde(default)]
    pub at: BTreeMap<String, String>,
}

/// How a switch chooses among equally short ways, packet by packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Balancing {
    /// The destination's own port, unless its queue is more than half full: then the port with the fewest bytes (Canary
    /// §5.2).
    #[default]
    DefaultUnlessHalfFull,
    /// The port with the fewest bytes in its queue.
    LeastQueued,
    /// The destination's own port, always.
    Ecmp,
}

/// `[[link]]`: the properties of one link that differ from the others.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkFile {
    /// The link's two ends, in any order.
    pub between: [String; 2],
    /// The link's rate, each way.
    pub rate: Option<DataRate>,
    /// The size of the link's queues.
    pub queue: Option<Bytes>,
}

mod defaults {
    use std::net::Ipv4Addr;

    use crate::admission::Limits;
    use crate::quantity::Bytes;

    pub fn port() -> u16 {
        17_777
    }
    pub fn network() -> Ipv4Addr {
        Ipv4Addr::new(10, 77, 0, 0)
    }
    pub fn queue() -> Bytes {
        Bytes(256 << 10)
    }
    pub fn elements_per_packet() -> u16 {
        352
    }
    pub fn memory() -> Bytes {
        Limits::DEFAULT_MEMORY
    }
}

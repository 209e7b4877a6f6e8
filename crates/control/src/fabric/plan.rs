//! What follows from a fabric's file: numbers, addresses, ports and the ways between nodes.

mod shape;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use serde::Deserialize;
use tributary_proto::contract::ids::{JobKey, NodeId, PortSet};
use tributary_proto::contract::options::Defaults;
use tributary_proto::switch_options::SwitchOptions;

use self::shape::Shape;
use super::file::{FabricFile, LinkFile};
use super::lossless::Thresholds;
use super::marks::Marks;
use super::{memory, served};
use crate::config::SwitchConfigFile;
use crate::memory::MAX_ELEMENTS_PER_PACKET;
use crate::option_text::of_switches;
use crate::quantity::{Bytes, DataRate};
use crate::routes::{Cabling, Port};
use crate::shared_memory::SharedMemory;

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

/// A host or a switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The node's name in the file.
    pub name: String,
    /// The source address of the node's packets.
    pub address: IpAddr,
    /// The address of a switch's control API; `None` for hosts.
    pub control: Option<SocketAddr>,
    /// 0 for hosts, 1 for switches with hosts, one more with each switch between.
    pub level: u8,
}

/// A cable between two nodes, the same both ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cable {
    /// Bits per second; `None` if nothing limits the rate.
    pub bits_per_s: Option<u64>,
    /// Bytes that may wait at each end.
    pub queue_bytes: u64,
}

/// A fabric as its file describes it. Hosts are the nodes `0..hosts`, switches follow; ports are numbered in the order
/// of the cables.
#[derive(Clone, Debug, PartialEq)]
pub struct FabricLayout {
    /// Hosts and switches, by node number.
    pub nodes: Vec<Node>,
    /// Which nodes are connected.
    pub cabling: Cabling,
    /// Each cable's properties, by the cable's number.
    pub cables: Vec<Cable>,
    /// The ports of each node.
    pub ports: Vec<Vec<Port>>,
    /// The switch where jobs are formed.
    pub seat: NodeId,
    /// UDP port of every switch.
    pub port: u16,
    /// The secret of the fabric's switches.
    pub secret: String,
    /// Which packets queues mark.
    pub marks: Option<Marks>,
    /// When a port pauses its sender, if no packet may be lost.
    pub lossless: Option<Thresholds>,
    /// How a switch chooses among equally short ways.
    pub balancing: Balancing,
    /// The options of the machines that jobs share, for every switch.
    pub switch_options: SwitchOptions,
    /// Which of the jobs' own operators a switch serves, as the file says; by node, for the nodes that the file
    /// mentions.
    pub operators: BTreeMap<NodeId, String>,
    /// The hosts where servers may be.
    pub servers: Vec<NodeId>,
    /// Elements of four bytes in the longest packet that switches sum.
    pub elements_per_packet: u16,
    /// Bytes for jobs on each switch.
    pub memory_bytes: u64,
    /// The same for switches that have other memory.
    pub memory_at: BTreeMap<NodeId, u64>,
    /// What jobs share, on each switch.
    pub shared: SharedMemory,
}

/// The fewest characters of a secret.
const SECRET_LEN: usize = 16;
/// The smallest queue: two of the longest packets on ordinary Ethernet.
const MIN_QUEUE: Bytes = Bytes(4 << 10);
/// The largest queue.
const MAX_QUEUE: Bytes = Bytes(1 << 30);

impl FabricLayout {
    /// Computes numbers, addresses and ways; the error is one sentence.
    pub fn new(file: &FabricFile) -> Result<FabricLayout, String> {
        check_settings(file)?;
        let shape = Shape::of(file)?;
        let names: Vec<String> = shape.hosts.iter().chain(&shape.switches).cloned().collect();
        let by_name = number(&names)?;
        let find = |name: &String| by_name.get(name).copied().ok_or_else(|| format!("there is no node '{name}'"));
        let cables = shape.links.iter().map(|[a, b]| Ok((find(a)?, find(b)?))).collect::<Result<Vec<_>, String>>()?;
        let (hosts, switches) = (shape.hosts.len() as u32, shape.switches.len() as u32);
        let cabling = Cabling { hosts, switches, cables };
        let ports = cabling.ports();
        check_cabling(&cabling, &ports, &names)?;
        let levels = levels(&cabling, &ports, &names)?;
        let nodes = names.iter().zip(levels).enumerate().map(|(number, (name, level))| {
            let switch = cabling.switch_index(NodeId(number as u32));
            node(file, name, level, number as u32, switch)
        });
        let nodes: Vec<Node> = nodes.collect();
        check_addresses(file, &nodes, &by_name)?;
        let seat = match &file.seat {
            None => NodeId(names.len() as u32 - 1),
            Some(name) => find(name).map_err(|error| format!("seat: {error}"))?,
        };
        if cabling.switch_index(seat).is_none() {
            return Err(format!("seat: '{}' is a host; jobs are formed at a switch", names[seat.index()]));
        }
        let switch_options = SwitchOptions::read(&of_switches(&file.switches), Defaults::Real);
        let switch_options = switch_options.map_err(|error| error.to_string())?;
        let operators = served::by_switch(file.operators.as_ref(), &cabling, find)?;
        let servers = served::servers(file, &cabling, find)?;
        let cables = cable_properties(file, &cabling, find)?;
        Ok(FabricLayout {
            lossless: Thresholds::of(file, &cables)?,
            memory_at: memory::by_switch(&file.memory_at, &cabling, find)?,
            cables,
            nodes,
            cabling,
            ports,
            seat,
            port: file.port,
            secret: file.secret.clone(),
            marks: Marks::of(file)?,
            balancing: file.balancing,
            shared: SharedMemory::of(&switch_options, |_| file.elements_per_packet),
            switch_options,
            operators,
            servers,
            elements_per_packet: file.elements_per_packet,
            memory_bytes: file.memory.0,
        })
    }

    /// The node of this name.
    pub fn node_named(&self, name: &str) -> Option<NodeId> {
        self.nodes.iter().position(|node| node.name == name).map(|number| NodeId(number as u32))
    }

    /// The node with this address.
    pub fn node_at(&self, address: IpAddr) -> Option<NodeId> {
        let address = address.to_canonical();
        self.nodes.iter().position(|node| node.address == address).map(|number| NodeId(number as u32))
    }

    /// A node's name.
    pub fn name(&self, node: NodeId) -> &str {
        &self.nodes[node.index()].name
    }

    /// Every host.
    pub fn hosts(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.cabling.hosts).map(NodeId)
    }

    /// Every switch.
    pub fn switches(&self) -> impl Iterator<Item = NodeId> + use<> {
        (self.cabling.hosts..self.nodes.len() as u32).map(NodeId)
    }

    /// True if the node is a switch.
    pub fn is_switch(&self, node: NodeId) -> bool {
        self.cabling.switch_index(node).is_some()
    }

    /// The address where a switch receives packets.
    pub fn udp(&self, switch: NodeId) -> SocketAddr {
        SocketAddr::new(self.nodes[switch.index()].address, self.port)
    }

    /// The switch that a host is connected to.
    pub fn leaf_of(&self, host: NodeId) -> NodeId {
        self.ports[host.index()][0].to
    }

    /// The switches of the highest level: every way between hosts of different leaves may lead through one of them.
    pub fn roots(&self) -> Vec<NodeId> {
        let level = |node: &NodeId| self.nodes[node.index()].level;
        let highest = self.switches().map(|node| level(&node)).max().unwrap_or(0);
        self.switches().filter(|node| level(node) == highest).collect()
    }

    /// The key in packets between the fabric's own switches. It is computed from the secret and does not reveal it:
    /// FNV-1a of its bytes.
    pub fn key(&self) -> JobKey {
        let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        JobKey(self.secret.bytes().fold(0xcbf2_9ce4_8422_2325, step))
    }
}

fn check_settings(file: &FabricFile) -> Result<(), String> {
    if file.secret.chars().count() < SECRET_LEN {
        return Err(format!("secret: at least {SECRET_LEN} characters, such as `openssl rand -hex 16` prints"));
    }
    let queues = file.links.iter().filter_map(|link| link.queue).chain([file.queue]);
    if let Some(queue) = queues.into_iter().find(|queue| !(MIN_QUEUE..=MAX_QUEUE).contains(queue)) {
        return Err(format!("queue = {queue}: it may be {MIN_QUEUE} to {MAX_QUEUE}"));
    }
    if file.port == 0 {
        return Err("port = 0: it is at least 1".into());
    }
    if file.memory < SwitchConfigFile::MIN_MEMORY {
        return Err(format!("memory = {}: it is at least {}", file.memory, SwitchConfigFile::MIN_MEMORY));
    }
    if !(1..=MAX_ELEMENTS_PER_PACKET).contains(&file.elements_per_packet) {
        return Err(format!(
            "elements_per_packet = {}: it may be 1 to {MAX_ELEMENTS_PER_PACKET}",
            file.elements_per_packet
        ));
    }
    Ok(())
}

fn number(names: &[String]) -> Result<BTreeMap<String, NodeId>, String> {
    let mut by_name = BTreeMap::new();
    for (number, name) in names.iter().enumerate() {
        // Node names are part of the names of namespaces and of files.
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || name.len() > 32 || !name.chars().all(plain) {
            return Err(format!("'{name}' cannot be a node's name: take 1 to 32 ASCII letters, digits and -_."));
        }
        if by_name.insert(name.clone(), NodeId(number as u32)).is_some() {
            return Err(format!("two nodes are named '{name}'"));
        }
    }
    Ok(by_name)
}

fn check_cabling(cabling: &Cabling, ports: &[Vec<Port>], names: &[String]) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for &(a, b) in &cabling.cables {
        let both = || format!("'{}' and '{}'", names[a.index()], names[b.index()]);
        if a == b {
            return Err(format!("a link joins '{}' to itself", names[a.index()]));
        }
        if !seen.insert((a.min(b), a.max(b))) {
            return Err(format!("two links join {}: one is enough, with the rate of both", both()));
        }
        if cabling.switch_index(a).is_none() && cabling.switch_index(b).is_none() {
            return Err(format!("a link joins the hosts {}; hosts are connected to switches", both()));
        }
    }
    for (number, own) in ports.iter().enumerate() {
        let (name, ports) = (&names[number], own.len());
        match cabling.switch_index(NodeId(number as u32)) {
            None if ports != 1 => return Err(format!("host '{name}' has {ports} links; a host has one")),
            Some(_) if ports > PortSet::CAPACITY => {
                return Err(format!("switch '{name}' has {ports} ports; at most {} fit", PortSet::CAPACITY));
            }
            _ => {}
        }
    }
    if cabling.hosts == 0 { Err("a fabric has at least one host".into()) } else { Ok(()) }
}

/// Each node's distance from the nearest host; an error if the fabric is not connected.
fn levels(cabling: &Cabling, ports: &[Vec<Port>], names: &[String]) -> Result<Vec<u8>, String> {
    let distances = |from: &[usize]| {
        let mut distance = vec![u8::MAX; cabling.nodes()];
        let mut reached: std::collections::VecDeque<usize> = from.iter().copied().collect();
        from.iter().for_each(|&node| distance[node] = 0);
        while let Some(node) = reached.pop_front() {
            let next = (distance[node] + 1).min(u8::MAX - 1);
            for port in &ports[node] {
                let place = &mut distance[port.to.index()];
                if *place == u8::MAX {
                    *place = next;
                    reached.push_back(port.to.index());
                }
            }
        }
        distance
    };
    match distances(&[0]).iter().position(|&distance| distance == u8::MAX) {
        Some(far) => Err(format!("no way leads from '{}' to '{}'", names[0], names[far])),
        None => Ok(distances(&(0..cabling.hosts as usize).collect::<Vec<_>>())),
    }
}

fn node(file: &FabricFile, name: &str, level: u8, number: u32, switch: Option<u32>) -> Node {
    let at = |offset: u32| IpAddr::V4(Ipv4Addr::from(u32::from(file.network).wrapping_add(offset)));
    let address = match (file.addresses.get(name), switch) {
        (Some(&address), _) => address.to_canonical(),
        (None, None) => at(1 + number),
        (None, Some(switch)) => at(0x8000 + 1 + switch),
    };
    // If a file moves a switch's address, the control API has the new address too, unless the file says otherwise.
    let control = switch.map(|switch| match (file.control.get(name), file.addresses.get(name)) {
        (Some(&control), _) => control,
        (None, Some(&address)) => SocketAddr::new(address, file.port),
        (None, None) => SocketAddr::new(at(0xc000 + 1 + switch), file.port),
    });
    Node { name: name.to_owned(), address, control, level }
}

fn check_addresses(file: &FabricFile, nodes: &[Node], by_name: &BTreeMap<String, NodeId>) -> Result<(), String> {
    for name in file.addresses.keys().chain(file.control.keys()) {
        let Some(&node) = by_name.get(name) else { return Err(format!("addresses: there is no node '{name}'")) };
        if file.control.contains_key(name) && nodes[node.index()].control.is_none() {
            return Err(format!("control: '{name}' is a host, and only switches have a control address"));
        }
    }
    let mut seen = BTreeMap::new();
    for node in nodes {
        if let Some(other) = seen.insert(node.address, &node.name) {
            return Err(format!("'{other}' and '{}' both have the address {}", node.name, node.address));
        }
    }
    Ok(())
}

fn cable_properties(
    file: &FabricFile,
    cabling: &Cabling,
    find: impl Fn(&String) -> Result<NodeId, String>,
) -> Result<Vec<Cable>, String> {
    let bits = |rate: DataRate| rate.0.0;
    let common = Cable { bits_per_s: file.rate.map(bits), queue_bytes: file.queue.0 };
    let mut cables = vec![common; cabling.cables.len()];
    for LinkFile { between: [a, b], rate, queue } in &file.links {
        let (from, to) = (find(a)?, find(b)?);
        let found = cabling.cables.iter().position(|&ends| ends == (from, to) || ends == (to, from));
        let cable = &mut cables[found.ok_or_else(|| format!("link: nothing joins '{a}' and '{b}'"))?];
        cable.bits_per_s = rate.map(bits).or(cable.bits_per_s);
        cable.queue_bytes = queue.map_or(cable.queue_bytes, |queue| queue.0);
    }
    Ok(cables)
}

#[cfg(test)]
mod tests;

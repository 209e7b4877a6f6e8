//! What follows from a fabric's file: numbers, addresses, ports, the ways between nodes, and the limits of admission.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use tributary_proto::contract::ids::{JobKey, NodeId};
use tributary_proto::contract::options::Defaults;
use tributary_proto::switch_options::{Given, SwitchOptions};

use super::file::{Balancing, FabricFile, FabricOperators};
use super::queues::{Cable, Marks, Thresholds, cables};
use super::topology::{Node, Shape, check_addresses, check_cabling, levels, node, number};
use crate::admission::{JoinRequest, Limits, MAX_ELEMENTS_PER_PACKET, Quota, SharedMemory, SharedTooLarge};
use crate::config::{ConfigError, OptionText, QuotaFile, SwitchConfigFile, of_switches};
use crate::quantity::Bytes;
use crate::routes::{Cabling, Port};
use crate::trees::TreePlanner;

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
    pub controller: NodeId,
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
    /// Which of the jobs' custom operators a switch serves, as the file says; by node, for the nodes that the file
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
    /// The memory that jobs share, on each switch.
    pub shared: SharedMemory,
    /// Limits of jobs by their names.
    pub quotas: Vec<Quota>,
}

/// The fewest characters of a secret.
const SECRET_LEN: usize = 16;
/// The smallest queue: two of the longest packets on ordinary Ethernet.
const MIN_QUEUE: Bytes = Bytes(4 << 10);
/// The largest queue.
const MAX_QUEUE: Bytes = Bytes(1 << 30);

impl FabricFile {
    /// Reads and checks a file's text. The error is one sentence that names the place.
    pub fn parse(text: &str) -> Result<FabricLayout, ConfigError> {
        FabricFile::parse_with(text, &Given::new())
    }

    /// The same, with options of switches that replace the file's options.
    pub fn parse_with(text: &str, switches: &Given) -> Result<FabricLayout, ConfigError> {
        let mut file: FabricFile = toml::from_str(text).map_err(|error| ConfigError::at(text, &error))?;
        for (protocol, options) in switches {
            let options = options.iter().map(|(name, text)| (name.clone(), OptionText(text.clone())));
            file.switches.entry(protocol.clone()).or_default().extend(options);
        }
        let layout = FabricLayout::new(&file).map_err(ConfigError::new)?;
        layout.check_shared().map_err(|error| ConfigError::new(error.to_string()))?;
        Ok(layout)
    }
}

impl FabricLayout {
    /// Computes numbers, addresses and ways; the error is one sentence.
    pub fn new(file: &FabricFile) -> Result<FabricLayout, String> {
        check_settings(file)?;
        let shape = Shape::of(file)?;
        let names: Vec<String> = shape.hosts.iter().chain(&shape.switches).cloned().collect();
        let by_name = number(&names)?;
        let find = |name: &String| by_name.get(name).copied().ok_or_else(|| format!("there is no node '{name}'"));
        let links = shape.links.iter().map(|[a, b]| Ok((find(a)?, find(b)?))).collect::<Result<Vec<_>, String>>()?;
        let (hosts, switches) = (shape.hosts.len() as u32, shape.switches.len() as u32);
        let cabling = Cabling { hosts, switches, cables: links };
        let ports = cabling.ports();
        check_cabling(&cabling, &ports, &names)?;
        let levels = levels(&cabling, &ports, &names)?;
        let nodes = names.iter().zip(levels).enumerate().map(|(number, (name, level))| {
            let switch = cabling.switch_index(NodeId(number as u32));
            node(file, name, level, number as u32, switch)
        });
        let nodes: Vec<Node> = nodes.collect();
        check_addresses(file, &nodes, &by_name)?;
        let controller = match &file.controller {
            None => NodeId(names.len() as u32 - 1),
            Some(name) => find(name).map_err(|error| format!("controller: {error}"))?,
        };
        if cabling.switch_index(controller).is_none() {
            return Err(format!("controller: '{}' is a host; jobs are formed at a switch", names[controller.index()]));
        }
        let switch_options = SwitchOptions::read(&of_switches(&file.switches), Defaults::Real);
        let switch_options = switch_options.map_err(|error| error.to_string())?;
        let operators = operators_by_switch(file.operators.as_ref(), &cabling, find)?;
        let servers = server_hosts(file, &cabling, find)?;
        let cables = cables(file, &cabling, find)?;
        Ok(FabricLayout {
            lossless: Thresholds::of(file, &cables)?,
            memory_at: memory_by_switch(&file.memory_at, &cabling, find)?,
            cables,
            nodes,
            cabling,
            ports,
            controller,
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
            quotas: file.quotas.iter().map(QuotaFile::quota).collect(),
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

    /// The limits by which the controller admits jobs: those of each switch.
    pub fn limits(&self) -> Limits {
        Limits {
            planned_trees: Some(self.roots().len() as u16),
            memory_at: self.memory_at.clone(),
            shared: self.shared.clone(),
            quotas: self.quotas.clone(),
            ..Limits::new(self.memory_bytes, 1)
        }
    }

    /// Limits what a rank suggests to what the fabric's queues and shared machines hold.
    pub fn fit(&self, request: &mut JoinRequest) {
        let shortest = self.cables.iter().map(|cable| cable.queue_bytes).min().unwrap_or(0);
        let shared_entries = self.switch_options.derive(request.protocol, |shared| shared.capacity);
        request.fit_fabric(self.elements_per_packet, shortest, shared_entries);
    }

    /// A planner of trees that avoids dead cables.
    pub fn planner(&self, dead_cables: &[usize]) -> TreePlanner {
        let names = self.nodes.iter().map(|node| node.name.clone()).collect();
        let mut planner = TreePlanner::new(self.cabling.clone(), names);
        dead_cables.iter().for_each(|&cable| planner.set_cable(cable, false));
        planner
    }

    /// Bytes for jobs on a switch.
    pub fn memory_of(&self, switch: NodeId) -> u64 {
        self.memory_at.get(&switch).copied().unwrap_or(self.memory_bytes)
    }

    /// An error if the file chooses more for jobs to share than the smallest switch has.
    fn check_shared(&self) -> Result<(), SharedTooLarge> {
        let least = self.switches().map(|switch| self.memory_of(switch)).min().unwrap_or(self.memory_bytes);
        self.shared.check(&self.switch_options, least)
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

/// The bytes of the switches that the file names. `find` finds nodes by name.
fn memory_by_switch(
    at: &BTreeMap<String, Bytes>,
    cabling: &Cabling,
    find: impl Fn(&String) -> Result<NodeId, String>,
) -> Result<BTreeMap<NodeId, u64>, String> {
    let own = |(name, memory): (&String, &Bytes)| {
        let node = find(name).map_err(|error| format!("memory_at: {error}"))?;
        match cabling.switch_index(node) {
            Some(_) => Ok((node, memory.0)),
            None => Err(format!("memory_at: '{name}' is a host, and not a switch")),
        }
    };
    at.iter().map(own).collect()
}

/// The operators that the file allows each switch; empty without `[operators]`. `find` finds nodes by name.
fn operators_by_switch(
    operators: Option<&FabricOperators>,
    cabling: &Cabling,
    find: impl Fn(&String) -> Result<NodeId, String>,
) -> Result<BTreeMap<NodeId, String>, String> {
    let Some(operators) = operators else { return Ok(BTreeMap::new()) };
    let switches = (cabling.hosts..cabling.hosts + cabling.switches).map(NodeId);
    let mut served: BTreeMap<NodeId, String> = switches.map(|switch| (switch, operators.allow.clone())).collect();
    for (name, allow) in &operators.at {
        let node = find(name).map_err(|error| format!("[operators] at: {error}"))?;
        let own = served.get_mut(&node).ok_or_else(|| format!("[operators] at: '{name}' is a host, and no switch"))?;
        own.clone_from(allow);
    }
    Ok(served)
}

/// The hosts where servers may be.
fn server_hosts(
    file: &FabricFile,
    cabling: &Cabling,
    find: impl Fn(&String) -> Result<NodeId, String>,
) -> Result<Vec<NodeId>, String> {
    if file.lossless && !file.servers.is_empty() {
        return Err(
            "servers: these do not wait when a switch tells them to pause; leave out servers or lossless".into()
        );
    }
    let host = |name: &String| match find(name).map_err(|error| format!("servers: {error}"))? {
        node if cabling.switch_index(node).is_none() => Ok(node),
        _ => Err(format!("servers: '{name}' is a switch, and servers are on hosts")),
    };
    file.servers.iter().map(host).collect()
}

#[cfg(test)]
mod tests;

//! The nodes and cables of a fabric: of a leaf-spine network, or of any graph; their names, numbers, levels and addresses.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use tributary_proto::contract::ids::{NodeId, PortSet};

use super::file::FabricFile;
use crate::routes::{Cabling, Port};

/// The most nodes of one fabric.
const MAX_NODES: usize = 1 << 14;
/// The most switches of one fabric: all their dead ports fit one packet of 1,500 bytes.
const MAX_SWITCHES: usize = 64;

/// Names and links before they have numbers.
pub(super) struct Shape {
    pub hosts: Vec<String>,
    pub switches: Vec<String>,
    pub links: Vec<[String; 2]>,
}

impl Shape {
    /// What the file says; the error is one sentence.
    pub fn of(file: &FabricFile) -> Result<Shape, String> {
        let shape = match (&file.leaf_spine, &file.graph) {
            (Some(shape), None) => {
                let (leaves, spines) = (shape.leaves, shape.spines);
                let hosts = leaves.saturating_mul(shape.hosts_per_leaf);
                if leaves == 0 || spines == 0 || hosts == 0 {
                    return Err("leaf_spine: leaves, spines and hosts_per_leaf are at least 1".into());
                }
                if usize::from(leaves) + usize::from(spines) > MAX_SWITCHES || usize::from(hosts) > MAX_NODES {
                    return Err(too_many());
                }
                let below = (0..hosts).map(|host| [format!("host{host}"), leaf(host / shape.hosts_per_leaf)]);
                let between =
                    (0..leaves).flat_map(|low| (0..spines).map(move |high| [leaf(low), format!("spine{high}")]));
                Shape {
                    hosts: (0..hosts).map(|host| format!("host{host}")).collect(),
                    switches: (0..leaves).map(leaf).chain((0..spines).map(|spine| format!("spine{spine}"))).collect(),
                    links: below.chain(between).collect(),
                }
            }
            (None, Some(graph)) => {
                let (hosts, switches) = (graph.hosts.clone(), graph.switches.clone());
                Shape { hosts, switches, links: graph.links.clone() }
            }
            _ => return Err("the fabric's shape is one of [leaf_spine] and [graph]".into()),
        };
        let nodes = shape.hosts.len() + shape.switches.len();
        if shape.switches.len() > MAX_SWITCHES || nodes > MAX_NODES { Err(too_many()) } else { Ok(shape) }
    }
}

fn too_many() -> String {
    format!("a fabric has at most {MAX_SWITCHES} switches and {MAX_NODES} nodes")
}

fn leaf(number: u16) -> String {
    format!("leaf{number}")
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

/// The number of each node, by name.
pub(super) fn number(names: &[String]) -> Result<BTreeMap<String, NodeId>, String> {
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

/// An error if a cable or a node is impossible.
pub(super) fn check_cabling(cabling: &Cabling, ports: &[Vec<Port>], names: &[String]) -> Result<(), String> {
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
pub(super) fn levels(cabling: &Cabling, ports: &[Vec<Port>], names: &[String]) -> Result<Vec<u8>, String> {
    let distances = |from: &[usize]| {
        let mut distance = vec![u8::MAX; cabling.nodes()];
        let mut reached: VecDeque<usize> = from.iter().copied().collect();
        from.iter().for_each(|&node| distance[node] = 0);
        while let Some(node) = reached.pop_front() {
            let next = (distance[node] + 1).min(u8::MAX - 1);
            for port in &ports[node] {
                let distance = &mut distance[port.to.index()];
                if *distance == u8::MAX {
                    *distance = next;
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

/// A node with its addresses.
pub(super) fn node(file: &FabricFile, name: &str, level: u8, number: u32, switch: Option<u32>) -> Node {
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

/// An error if two nodes have one address, or the file names a node that is not there.
pub(super) fn check_addresses(
    file: &FabricFile,
    nodes: &[Node],
    by_name: &BTreeMap<String, NodeId>,
) -> Result<(), String> {
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

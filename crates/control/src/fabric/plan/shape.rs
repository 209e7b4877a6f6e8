//! The nodes and cables of a fabric by name, of a leaf-spine network or of any graph.

use super::super::file::FabricFile;

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
                let above =
                    (0..leaves).flat_map(|low| (0..spines).map(move |high| [leaf(low), format!("spine{high}")]));
                Shape {
                    hosts: (0..hosts).map(|host| format!("host{host}")).collect(),
                    switches: (0..leaves).map(leaf).chain((0..spines).map(|spine| format!("spine{spine}"))).collect(),
                    links: below.chain(above).collect(),
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

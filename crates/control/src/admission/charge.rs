//! What is charged to a switch's memory: by jobs as if they ran on every switch, by planned trees at the switches that
//! they use, and by the machines that all jobs of a protocol share.

use std::collections::BTreeMap;

use tributary_proto::contract::config::{FabricPlan, SharedSwitchConfig};
use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::protocol::{Placement, Protocol};
use tributary_proto::contract::values::Values;
use tributary_proto::protocols;
use tributary_proto::switch_options::SwitchOptions;

use crate::admission::job_shape::JobShape;
use crate::trees::Tree;
use crate::wording::HumanBytes;

/// What a job is charged at each switch of a fabric since its trees were planned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeCharge {
    /// The slots for which its switches have memory.
    pub slots: u16,
    /// Bytes at each switch of its trees.
    pub bytes: BTreeMap<NodeId, u64>,
}

impl TreeCharge {
    /// The most bytes that the job is charged at one switch.
    pub fn most_bytes(&self) -> u64 {
        self.bytes.values().copied().max().unwrap_or(0)
    }
}

/// True if a fabric charges each switch what the trees of a job of this protocol need there, so that jobs over different
/// switches do not crowd each other. Resizable jobs divide the memory as if all of them met at one switch, and jobs
/// without planned trees are at every switch.
pub fn is_charged_by_tree(protocol: &Protocol) -> bool {
    protocol.placement == Placement::Trees && !protocol.resizes
}

impl JobShape {
    /// The bytes that one of the job's trees takes of a switch at which it has this many children. `levels`: the tree has
    /// further switches.
    pub fn tree_bytes(&self, children: usize, levels: bool) -> u64 {
        let children = children as u16;
        let neighbours = if levels { children + 1 } else { 0 };
        let slots = self.slots / self.trees.max(1);
        JobShape { slots, children, neighbours, shards: 1, trees: 1, ..self.clone() }.bytes()
    }

    /// What the job is charged with these trees.
    pub fn tree_charge(&self, trees: &[Tree]) -> TreeCharge {
        let shape = JobShape { trees: trees.len() as u16, ..self.clone() };
        let levels = trees.iter().any(Tree::has_levels);
        let mut bytes = BTreeMap::new();
        for switch in trees.iter().flat_map(|tree| &tree.switches) {
            *bytes.entry(switch.node).or_default() += shape.tree_bytes(switch.children.len(), levels);
        }
        TreeCharge { slots: self.slots, bytes }
    }
}

/// The memory that jobs use of each switch of a fabric, or of a switch that stands alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsedMemory {
    everywhere: u64,
    /// By resizable jobs, whose trees avoid small switches.
    divided: u64,
    at: BTreeMap<NodeId, u64>,
}

impl UsedMemory {
    /// Adds a job of this protocol. One that is not charged by its trees uses `bytes` of each switch.
    pub fn add(&mut self, protocol: &Protocol, by_tree: Option<&TreeCharge>, bytes: impl FnOnce() -> u64) {
        let of_each = match by_tree {
            Some(charge) => {
                charge.bytes.iter().for_each(|(&node, bytes)| *self.at.entry(node).or_default() += bytes);
                return;
            }
            None if protocol.resizes => &mut self.divided,
            None => &mut self.everywhere,
        };
        *of_each = of_each.saturating_add(bytes());
    }

    /// Bytes of a switch. `is_small`: it has less than resizable jobs divide.
    pub fn of(&self, switch: NodeId, is_small: bool) -> u64 {
        let divided = if is_small { 0 } else { self.divided };
        self.everywhere.saturating_add(divided).saturating_add(self.at.get(&switch).copied().unwrap_or(0))
    }

    /// Bytes of the fullest switch.
    pub fn most(&self) -> u64 {
        self.most_of(|_| true)
    }

    fn most_of(&self, counts: impl Fn(&NodeId) -> bool) -> u64 {
        let most = self.at.iter().filter(|(node, _)| counts(node)).map(|(_, &bytes)| bytes).max();
        self.everywhere.saturating_add(self.divided).saturating_add(most.unwrap_or(0))
    }

    /// Memory and what is used of it: of the fullest of the switches with the usual memory, and of each switch with other
    /// memory.
    pub(crate) fn by_switch<'a>(
        &'a self,
        usual: u64,
        other: &'a BTreeMap<NodeId, u64>,
    ) -> impl Iterator<Item = (u64, u64)> + 'a {
        let fullest = (usual, self.most_of(|node| !other.contains_key(node)));
        let others = other.iter().map(move |(&node, &memory)| (memory, self.of(node, memory < usual)));
        [fullest].into_iter().chain(others)
    }
}

/// The bytes of the machine that all jobs of a protocol share at a switch, before it knows any job; by protocol. A machine
/// is charged from the first of these jobs on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharedMemory(BTreeMap<u8, u64>);

/// The operator has chosen more for a protocol's jobs to share than the switch has for all jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the jobs of {protocol} would share {} here, and the switch has {} for all jobs: choose fewer entries for them, or give \
     the switch more memory", HumanBytes(*.bytes), HumanBytes(*.memory_bytes)
)]
pub struct SharedTooLarge {
    /// The protocol's name.
    pub protocol: &'static str,
    /// The bytes of its machine.
    pub bytes: u64,
    /// The switch's bytes for all jobs.
    pub memory_bytes: u64,
}

impl SharedMemory {
    /// The machines of a switch with these options. `elements` gives the elements of four bytes in the longest packet of a
    /// protocol there.
    pub fn of(options: &SwitchOptions, elements: impl Fn(&'static Protocol) -> u16) -> SharedMemory {
        let bytes = |protocol: &'static Protocol| {
            let shared = protocol.shared.as_ref()?;
            let (elements_per_packet, options) = (elements(protocol), options.of(shared));
            let config = SharedSwitchConfig { node: FabricPlan::STAR, elements_per_packet, options };
            Some((protocol.code, (shared.memory)(Values::Elements, &config)))
        };
        SharedMemory(protocols::ALL.iter().copied().filter_map(bytes).collect())
    }

    /// The bytes of a protocol's machine; 0 if its jobs share none.
    pub fn bytes(&self, protocol: &Protocol) -> u64 {
        self.0.get(&protocol.code).copied().unwrap_or(0)
    }

    /// The bytes of the machines of these protocols.
    pub fn bytes_of<'a>(&self, protocols: impl IntoIterator<Item = &'a &'static Protocol>) -> u64 {
        protocols.into_iter().map(|protocol| self.bytes(protocol)).sum()
    }

    /// An error if the operator has chosen a machine that can never be installed. One with default options is refused when
    /// a job needs it.
    pub fn check(&self, options: &SwitchOptions, memory_bytes: u64) -> Result<(), SharedTooLarge> {
        for protocol in protocols::ALL {
            let Some(shared) = &protocol.shared else { continue };
            let bytes = self.bytes(protocol);
            if bytes > memory_bytes && options.of(shared) != shared.options.defaults() {
                return Err(SharedTooLarge { protocol: protocol.name, bytes, memory_bytes });
            }
        }
        Ok(())
    }
}

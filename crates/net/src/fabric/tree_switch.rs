//! The machines of a job's trees at one switch, as one machine for the pipeline. The slot of a packet says which tree it
//! is for, and each tree takes packets only from its own neighbours.

use tributary_control::trees::TreeSwitch;
use tributary_proto::contract::config::{JobConfig, Parent, SwitchConfig};
use tributary_proto::contract::drop_reason::DropReason;
use tributary_proto::contract::ids::{ChildId, GroupId, NodeId, PortId, Rank, TreeId};
use tributary_proto::contract::metric;
use tributary_proto::contract::packet::PacketMut;
use tributary_proto::contract::pipeline::InstalledJob;
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::contract::switch::{Emission, OperatorStatus, PortView, Switch, SwitchReport, Verdict};
use tributary_proto::contract::time::Time;
use tributary_proto::contract::values::Values;

use super::crossbar::Crossbar;
use super::job::FabricJob;

/// The machines of a job at one switch. The pipeline drops packets of the job that come in by any other port than its
/// trees'.
pub fn build(job: &FabricJob, crossbar: &mut Crossbar) -> Option<InstalledJob> {
    let (protocol, config) = (job.job.protocol, &job.job.config);
    let (mut members, mut others, mut trees) = (Vec::new(), Vec::new(), Vec::new());
    for (number, tree) in job.trees.iter().enumerate() {
        let machine = match tree.switch(crossbar.node()) {
            Some(position) => Some(TreeMachine::new(protocol, config, TreeId(number as u16), position, crossbar)?),
            None => None,
        };
        if let Some(machine) = &machine {
            members.extend_from_slice(&machine.children);
            others.extend(machine.parent);
        }
        trees.push(machine);
    }
    for ports in [&mut members, &mut others] {
        ports.sort_unstable();
        ports.dedup();
    }
    others.retain(|port| members.binary_search(port).is_err());
    let machines = trees.iter().any(Option::is_some).then(|| TreeMachines { protocol, job: config.clone(), trees });
    let machine = machines.map(|machines| Box::new(machines) as Box<dyn Switch>);
    Some(InstalledJob { protocol: protocol.code, key: config.key, members, others, machine })
}

/// A job's trees at one switch.
struct TreeMachines {
    protocol: &'static Protocol,
    job: JobConfig,
    /// The trees by number. The entry is `None` for a tree that does not use this switch.
    trees: Vec<Option<TreeMachine>>,
}

/// One tree at one switch.
struct TreeMachine {
    machine: Box<dyn Switch>,
    children: Vec<PortId>,
    parent: Option<PortId>,
    /// The ranks behind each child.
    ranks: Vec<Vec<Rank>>,
}

impl TreeMachine {
    /// `None` if the tree belongs to another fabric, or if the protocol has no machine.
    fn new(
        protocol: &'static Protocol,
        job: &JobConfig,
        shard: TreeId,
        position: &TreeSwitch,
        crossbar: &mut Crossbar,
    ) -> Option<TreeMachine> {
        let neighbours = position.children.iter().map(|child| (child.port, child.node));
        let mut neighbours = neighbours.chain(position.parent.map(|parent| (parent.port, parent.node)));
        if !neighbours.all(|(port, node)| crossbar.leads_to(port, node)) {
            return None;
        }
        let nodes: Vec<NodeId> = position.children.iter().map(|child| child.node).collect();
        let group: GroupId = crossbar.add_group(job.job, nodes.into_iter())?;
        let children: Vec<PortId> = position.children.iter().map(|child| child.port).collect();
        let parent = position.parent.map(|parent| Parent { port: parent.port, child: parent.child });
        let config = SwitchConfig {
            job: job.clone(),
            tree: shard,
            members: children.clone(),
            below: position.children.iter().map(|child| child.below.clone()).collect(),
            group,
            parent,
        };
        let machine = protocol.switch(Values::Elements, &config)?;
        let ranks = position.children.iter().map(|child| child.below.ranks().to_vec()).collect();
        Some(TreeMachine { machine, children, parent: parent.map(|parent| parent.port), ranks })
    }

    fn is_neighbour(&self, port: PortId) -> bool {
        self.children.contains(&port) || self.parent == Some(port)
    }

    /// Adds this tree's report to the sum. For the controller's control plane, every rank is a child of the fabric.
    fn add_to(&self, sum: &mut SwitchReport) {
        let report = self.machine.report();
        sum.slots += report.slots;
        sum.slots_waiting += report.slots_waiting;
        sum.blocks_completed += report.blocks_completed;
        sum.contributions += report.contributions;
        metric::combine(&mut sum.metrics, &report.metrics);
        sum.orders.extend(report.orders);
        let ranks = report.missing.iter().filter_map(|child| self.ranks.get(child.index())).flatten();
        sum.missing.extend(ranks.map(|&rank| ChildId::of_rank(rank)));
    }

    fn memory_bytes(&self) -> usize {
        let ranks: usize = self.ranks.iter().map(|ranks| ranks.capacity() * size_of::<Rank>()).sum();
        self.machine.memory_bytes()
            + self.children.capacity() * size_of::<PortId>()
            + self.ranks.capacity() * size_of::<Vec<Rank>>()
            + ranks
    }
}

impl TreeMachines {
    fn machines(&self) -> impl Iterator<Item = &TreeMachine> {
        self.trees.iter().flatten()
    }
}

impl Switch for TreeMachines {
    fn process(&mut self, now: Time, ingress: PortId, packet: &mut PacketMut<'_>, ports: &dyn PortView) -> Verdict {
        let tree = match self.trees.len() {
            1 => TreeId(0),
            _ => match (self.protocol.tree_of)(&self.job, &packet.bytes[..packet.len]) {
                Some(tree) => tree,
                None => return Verdict::Drop(DropReason::BadField),
            },
        };
        match self.trees.get_mut(tree.index()).and_then(Option::as_mut).filter(|tree| tree.is_neighbour(ingress)) {
            Some(tree) => tree.machine.process(now, ingress, packet, ports),
            None => Verdict::Drop(DropReason::NotAMember),
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        for tree in self.trees.iter_mut().flatten() {
            if tree.machine.poll_timeout().is_some_and(|due| due <= now) {
                tree.machine.handle_timeout(now);
            }
        }
    }

    fn poll_transmit(&mut self, now: Time, buf: &mut [u8]) -> Option<Emission> {
        self.trees.iter_mut().flatten().find_map(|tree| tree.machine.poll_transmit(now, buf))
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.machines().filter_map(|tree| tree.machine.poll_timeout()).min()
    }

    /// All trees get equal shares, as when they were built.
    fn resize(&mut self, slots: u16) {
        self.job.slots = slots;
        let own = slots / self.trees.len().max(1) as u16;
        self.trees.iter_mut().flatten().for_each(|tree| tree.machine.resize(own));
    }

    fn memory_bytes(&self) -> usize {
        let trees: usize = self.machines().map(TreeMachine::memory_bytes).sum();
        size_of::<TreeMachines>() + self.trees.capacity() * size_of::<Option<TreeMachine>>() + trees
    }

    fn report(&self) -> SwitchReport {
        let mut sum = SwitchReport::default();
        self.machines().for_each(|tree| tree.add_to(&mut sum));
        sum.missing.sort_unstable();
        sum.missing.dedup();
        sum
    }

    fn operator_status(&self) -> Option<OperatorStatus> {
        let statuses = self.machines().filter_map(|tree| tree.machine.operator_status());
        statuses.reduce(|sum, more| OperatorStatus {
            instructions: sum.instructions + more.instructions,
            fault: sum.fault.or(more.fault),
        })
    }

    fn is_sealed(&self) -> bool {
        self.machines().any(|tree| tree.machine.is_sealed())
    }

    fn query_kinds(&self) -> u64 {
        self.machines().fold(0, |kinds, tree| kinds | tree.machine.query_kinds())
    }
}

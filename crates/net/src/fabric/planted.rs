//! The machines of a job's trees at one switch, as one machine for the pipeline. The slot of a packet tells which tree
//! the packet is for, and each tree takes packets only from its own neighbours.

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
pub fn plant(job: &FabricJob, crossbar: &mut Crossbar) -> Option<InstalledJob> {
    let (protocol, config) = (job.job.protocol, &job.job.config);
    let (mut members, mut others, mut trees) = (Vec::new(), Vec::new(), Vec::new());
    for (number, tree) in job.trees.iter().enumerate() {
        let planted = match tree.switch(crossbar.node()) {
            Some(place) => Some(Planted::new(protocol, config, TreeId(number as u16), place, crossbar)?),
            None => None,
        };
        if let Some(planted) = &planted {
            members.extend_from_slice(&planted.children);
            others.extend(planted.parent);
        }
        trees.push(planted);
    }
    for ports in [&mut members, &mut others] {
        ports.sort_unstable();
        ports.dedup();
    }
    others.retain(|port| members.binary_search(port).is_err());
    let planted = trees.iter().any(Option::is_some).then(|| TreeMachines { protocol, job: config.clone(), trees });
    let machine = planted.map(|planted| Box::new(planted) as Box<dyn Switch>);
    Some(InstalledJob { protocol: protocol.code, key: config.key, members, others, machine })
}

/// A job's trees at one switch.
struct TreeMachines {
    protocol: &'static Protocol,
    job: JobConfig,
    /// The trees by number. The entry is `None` for a tree that does not use this switch.
    trees: Vec<Option<Planted>>,
}

/// One tree at one switch.
struct Planted {
    machine: Box<dyn Switch>,
    children: Vec<PortId>,
    parent: Option<PortId>,
    /// The ranks behind each child.
    ranks: Vec<Vec<Rank>>,
}

impl Planted {
    /// `None` if the tree belongs to another fabric, or if the protocol has no machine.
    fn new(
        protocol: &'static Protocol,
        job: &JobConfig,
        shard: TreeId,
        place: &TreeSwitch,
        crossbar: &mut Crossbar,
    ) -> Option<Planted> {
        let neighbours = place.children.iter().map(|child| (child.port, child.node));
        let mut neighbours = neighbours.chain(place.parent.map(|parent| (parent.port, parent.node)));
        if !neighbours.all(|(port, node)| crossbar.leads_to(port, node)) {
            return None;
        }
        let nodes: Vec<NodeId> = place.children.iter().map(|child| child.node).collect();
        let group: GroupId = crossbar.add_group(job.job, nodes.into_iter())?;
        let children: Vec<PortId> = place.children.iter().map(|child| child.port).collect();
        let parent = place.parent.map(|parent| Parent { port: parent.port, child: parent.child });
        let config = SwitchConfig {
            job: job.clone(),
            tree: shard,
            members: children.clone(),
            below: place.children.iter().map(|child| child.below.clone()).collect(),
            group,
            parent,
        };
        let machine = protocol.switch(Values::Elements, &config)?;
        let ranks = place.children.iter().map(|child| child.below.ranks().to_vec()).collect();
        Some(Planted { machine, children, parent: parent.map(|parent| parent.port), ranks })
    }

    fn borders(&self, port: PortId) -> bool {
        self.children.contains(&port) || self.parent == Some(port)
    }

    /// Adds this tree's report to the sum. For the seat's control plane, every rank is a child of the fabric.
    fn add_to(&self, sum: &mut SwitchReport) {
        let part = self.machine.report();
        sum.slots += part.slots;
        sum.slots_waiting += part.slots_waiting;
        sum.blocks_completed += part.blocks_completed;
        sum.contributions += part.contributions;
        metric::combine(&mut sum.metrics, &part.metrics);
        sum.orders.extend(part.orders);
        let ranks = part.missing.iter().filter_map(|child| self.ranks.get(child.index())).flatten();
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
    fn planted(&self) -> impl Iterator<Item = &Planted> {
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
        match self.trees.get_mut(tree.index()).and_then(Option::as_mut).filter(|planted| planted.borders(ingress)) {
            Some(planted) => planted.machine.process(now, ingress, packet, ports),
            None => Verdict::Drop(DropReason::NotAMember),
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        for planted in self.trees.iter_mut().flatten() {
            if planted.machine.poll_timeout().is_some_and(|due| due <= now) {
                planted.machine.handle_timeout(now);
            }
        }
    }

    fn poll_transmit(&mut self, now: Time, buf: &mut [u8]) -> Option<Emission> {
        self.trees.iter_mut().flatten().find_map(|planted| planted.machine.poll_transmit(now, buf))
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.planted().filter_map(|planted| planted.machine.poll_timeout()).min()
    }

    /// All trees get equal parts, as they did when they were planted.
    fn resize(&mut self, slots: u16) {
        self.job.slots = slots;
        let own = slots / self.trees.len().max(1) as u16;
        self.trees.iter_mut().flatten().for_each(|planted| planted.machine.resize(own));
    }

    fn memory_bytes(&self) -> usize {
        let trees: usize = self.planted().map(Planted::memory_bytes).sum();
        size_of::<TreeMachines>() + self.trees.capacity() * size_of::<Option<Planted>>() + trees
    }

    fn report(&self) -> SwitchReport {
        let mut sum = SwitchReport::default();
        self.planted().for_each(|planted| planted.add_to(&mut sum));
        sum.missing.sort_unstable();
        sum.missing.dedup();
        sum
    }

    fn operator_status(&self) -> Option<OperatorStatus> {
        let statuses = self.planted().filter_map(|planted| planted.machine.operator_status());
        statuses.reduce(|sum, more| OperatorStatus {
            instructions: sum.instructions + more.instructions,
            fault: sum.fault.or(more.fault),
        })
    }

    fn query_kinds(&self) -> u64 {
        self.planted().fold(0, |kinds, planted| kinds | planted.machine.query_kinds())
    }
}

//! A machine of a host or a switch, which can be copied and compared.

use tributary_proto::contract::config::{
    CoreSlots, HostConfig, Parent, SharedJob, SharedSwitchConfig, SwitchConfig, TimerConfig, TreeLeaf, TreeNode,
};
use tributary_proto::contract::host::Host;
use tributary_proto::contract::ids::{GroupId, NodeId, PortId, Rank, ServerId, TreeId};
use tributary_proto::contract::protocol::Placement;
use tributary_proto::contract::switch::{SharedSwitch, Switch};
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::contract::values::Values;

use crate::bounds::Bounds;
use crate::fingerprint::{Fingerprint, StateHasher};
use crate::topology::Topology;

/// The length of all timeouts of hosts, whatever was measured, so that the length of a round trip makes no difference.
const TIMEOUT: Span = Span::from_millis(1_000);

/// A machine, and what its driver knows about it.
pub enum Machine {
    /// The machine of a rank, which may also be a server.
    Host {
        /// The machine.
        machine: Box<dyn Host>,
        /// How many collectives were submitted.
        submitted: u8,
        /// How many of them are complete.
        completed: u8,
        /// Hashes of their results if results may lack ranks, else 0.
        digests: Vec<u64>,
    },
    /// The machine of a switch for one job.
    Switch(Box<dyn Switch>),
    /// The machine of a switch that jobs share.
    Shared(Box<dyn SharedSwitch>),
}

impl Machine {
    /// A rank's machine before its first collective.
    pub fn host(machine: Box<dyn Host>) -> Machine {
        Machine::Host { machine, submitted: 0, completed: 0, digests: Vec::new() }
    }

    /// A copy in the same state; `None` if the machine cannot be copied.
    pub fn fork(&self) -> Option<Machine> {
        Some(match self {
            Machine::Host { machine, submitted, completed, digests } => Machine::Host {
                machine: machine.state()?.fork(),
                submitted: *submitted,
                completed: *completed,
                digests: digests.clone(),
            },
            Machine::Switch(machine) => Machine::Switch(machine.state()?.fork()),
            Machine::Shared(machine) => Machine::Shared(machine.shared_state()?.fork()),
        })
    }

    /// When its timer expires.
    pub fn due(&self) -> Option<Time> {
        match self {
            Machine::Host { machine, .. } => machine.poll_timeout(),
            Machine::Switch(machine) => machine.poll_timeout(),
            Machine::Shared(machine) => machine.poll_timeout(),
        }
    }

    /// The fingerprint of its state at a time; `None` if the machine has none.
    pub fn fingerprint(&self, now: Time) -> Option<Fingerprint> {
        let mut hasher = StateHasher::default();
        match self {
            Machine::Host { machine, submitted, completed, digests } => {
                digests.iter().for_each(|&digest| hasher.word(digest));
                hasher.word(u64::from(*submitted) << 8 | u64::from(*completed));
                machine.state()?.hash_state(&mut hasher);
            }
            Machine::Switch(machine) => machine.state()?.hash_state(&mut hasher),
            Machine::Shared(machine) => machine.shared_state()?.hash_state(&mut hasher),
        }
        Some(hasher.fingerprint(now))
    }
}

/// Machines before their first input.
impl Machine {
    /// The machine of a node before its first input; `None` if the node has none.
    pub fn at(topology: &Topology, node: NodeId) -> Option<Machine> {
        match (topology.rank_at(node), topology.bounds.protocol.placement) {
            (Some(rank), _) => Some(Machine::of_rank(topology, rank)),
            (None, Placement::Hosts) => None,
            (None, _) if !topology.is_switch(node) => None,
            (None, Placement::Trees) => Machine::of_tree(topology, node),
            (None, Placement::EveryHop) => Machine::of_jobs(topology, node),
        }
    }

    fn of_rank(topology: &Topology, rank: Rank) -> Machine {
        let leaf = topology.tree.as_ref().map(|tree| TreeLeaf { child: tree.positions[rank.index()].child });
        let config = HostConfig {
            job: topology.job(),
            rank,
            trees: leaf.map_or_else(|| TreeLeaf::of_rank(rank), |leaf| vec![leaf]),
            serves: (topology.bounds.servers() > 0).then_some(ServerId(rank.0)),
            slots: CoreSlots::ALL,
            timers: TimerConfig { initial_rto: TIMEOUT, min_rto: TIMEOUT, max_rto: TIMEOUT },
            fabric: topology.fabric(),
        };
        Machine::host(topology.bounds.protocol.host(Values::Fingerprint, &config))
    }

    fn of_tree(topology: &Topology, node: NodeId) -> Option<Machine> {
        let in_tree = topology.tree.as_ref()?.switch(node)?;
        let config = SwitchConfig {
            job: topology.job(),
            tree: TreeId(0),
            members: topology.group(node),
            below: in_tree.children.iter().map(|child| child.below.clone()).collect(),
            group: GroupId(0),
            parent: in_tree.parent.map(|parent| Parent { port: parent.port, child: parent.child }),
        };
        topology.bounds.protocol.switch(Values::Fingerprint, &config).map(Machine::Switch)
    }

    fn of_jobs(topology: &Topology, node: NodeId) -> Option<Machine> {
        let shared = topology.bounds.protocol.shared.as_ref()?;
        let config = SharedSwitchConfig {
            node,
            elements_per_packet: Bounds::ELEMENTS_PER_PACKET,
            options: topology.bounds.switches.of(shared),
        };
        let mut machine = (shared.machine)(Values::Fingerprint, &config);
        let port_of = |host: NodeId| (topology.switch_of(host) == node).then(|| topology.port_to(node, host));
        let ports: Vec<Option<PortId>> = topology.members().into_iter().map(port_of).collect();
        let share_bytes = topology.bounds.protocol.share_bytes(&topology.job(), ports.iter().flatten().count() as u16);
        let trees = Vec::<TreeNode>::new();
        machine.add_job(&SharedJob { job: topology.job(), fabric: topology.fabric(), ports, trees, share_bytes });
        Some(Machine::Shared(machine))
    }
}

//! Installs jobs: their trees into switches, their machines into hosts.

use std::ops::Range;

use tributary_control::trees::{Tree, TreeError, TreeRequest, TreeSwitch};
use tributary_proto::contract::config::{
    CoreSlots, FabricPlan, HostConfig, JobConfig, Parent, SharedSwitchConfig, SwitchConfig, TreeLeaf,
};
use tributary_proto::contract::ids::{GroupId, JobId, JobKey, NodeId, PortId, PortSet, Rank, ServerId, TreeId};
use tributary_proto::contract::pipeline::Pipeline;
use tributary_proto::contract::protocol::Placement;
use tributary_proto::contract::switch::{SharedReport, Switch};
use tributary_proto::contract::values::{FINGERPRINT_LEN, Values};

use crate::engine::custom_op::sum_trees;
use crate::engine::endpoint::Endpoint;
use crate::engine::job::{FirstHops, Job};
use crate::engine::program::{Program, SharedProgram};
use crate::engine::records::{EndpointId, InstallError, JobIndex, JobPlan};
use crate::engine::simulation::Simulation;
use crate::events::{EventId, EventKind};
use crate::rng::{Purpose, Rng};

/// A notice about this many children fits into a program's buffer.
const MAX_CHILDREN: usize = 1024;

/// A tree of a job, from its ranks' hosts to its root.
pub struct PlannedTree {
    lane: usize,
    /// The switch whose sums are whole.
    pub root: NodeId,
    /// Each sender and the switch that sums what it sends, up to the root.
    pub edges: Vec<(NodeId, NodeId)>,
}

/// The rate that a job is expected to send, for the choice among trees: the same for all jobs.
pub(super) const RATE: u64 = 1 << 20;

impl Simulation {
    /// The trees that are planned for a job. If all ranks are below a lower switch than the plan names as a root, that
    /// switch is the root.
    pub fn trees(&self, job: &Job) -> Vec<PlannedTree> {
        let programs = || self.programs.trees.iter().filter(|program| program.job() == job.index);
        let mut trees: Vec<PlannedTree> = programs()
            .filter(|program| program.is_root())
            .map(|root| PlannedTree { lane: root.lane(), root: self.graph.switch(root.switch), edges: Vec::new() })
            .collect();
        trees.sort_unstable_by_key(|tree| tree.lane);
        for program in programs() {
            let (node, lane) = (self.graph.switch(program.switch), program.lane());
            let ports = self.fabric.ports(node);
            let edges = program.children().map(|port| (self.graph.ends(ports[port.index()]).1, node));
            trees.iter_mut().filter(|tree| tree.lane == lane).for_each(|tree| tree.edges.extend(edges.clone()));
        }
        trees
    }

    /// The configuration on which the members and switches of a job agree.
    pub(crate) fn job_config(&self, index: JobIndex, plan: &JobPlan, trees: usize) -> JobConfig {
        JobConfig {
            job: JobId(index.0 + 1),
            protocol: plan.protocol.code,
            key: JobKey(Rng::new(self.settings.seed, Purpose::Keys, u64::from(index.0)).bits()),
            world_size: plan.members.len() as u16,
            slots: plan.slots,
            elements_per_packet: plan.elements_per_packet,
            trees: trees as u16,
            levels: self.has_levels(plan),
            options: plan.options.clone(),
        }
    }

    /// True if some host of the job is not next to the root of a tree.
    fn has_levels(&self, plan: &JobPlan) -> bool {
        let next_to = |root: &u32, host: NodeId| match plan.protocol.placement {
            Placement::EveryHop => self.table.attachment(host).0 == *root,
            Placement::Trees | Placement::Hosts => self.table.is_next_to(*root, host),
        };
        plan.roots.iter().any(|root| plan.members.iter().any(|&host| !next_to(root, host)))
    }

    /// Adds a job. Its ranks submit their first collectives at the plan's start.
    pub fn install(&mut self, plan: JobPlan) -> Result<JobIndex, InstallError> {
        plan.check(self.traffic.jobs.all().len())?;
        let index = self.traffic.jobs.next_index();
        let shards = if plan.protocol.placement == Placement::EveryHop { 1 } else { plan.roots.len() };
        let config = self.job_config(index, &plan, shards);
        let mut fabric = FabricPlan::default();
        let mut trees = Vec::new();
        if plan.protocol.placement == Placement::EveryHop {
            self.check_ports(&plan)?;
            self.check_first_cables(&plan)?;
            fabric = self.fabric_plan(&plan);
            self.install_shared(&plan, &config, &fabric)?;
        } else if plan.protocol.placement == Placement::Trees {
            trees = self.install_trees(&plan, &config)?;
        }
        let first_hops = self.first_hops(&plan.members, &trees);
        for (rank, &member) in plan.members.iter().enumerate() {
            let position = |tree: &Tree| TreeLeaf { child: tree.positions[rank].child };
            let rank = Rank(rank as u16);
            let machine = HostConfig {
                job: config.clone(),
                rank,
                serves: None,
                slots: CoreSlots::ALL,
                trees: if trees.is_empty() { TreeLeaf::of_rank(rank) } else { trees.iter().map(position).collect() },
                timers: plan.timers,
                fabric: fabric.clone(),
            };
            self.add_endpoint(index, rank, member, &plan, &machine);
        }
        let order = (plan.protocol.options.order)(&plan.options);
        let sum_trees =
            plan.custom_op.as_ref().map(|_| sum_trees(order, &trees, config.world_size)).unwrap_or_default();
        let mut job = Job::new(index, plan, config.key, self.graph.hosts(), first_hops);
        job.sum_trees = sum_trees;
        self.failures.watch(index, job.plan.custom_op.as_ref().map(|op| op.data));
        self.traffic.jobs.push(job);
        Ok(index)
    }

    /// Adds a job whose sums are made by servers: by its own members if `dedicated` is empty, else by these hosts. Its
    /// protocol has servers; its roots are not used.
    pub fn install_served(&mut self, plan: JobPlan, dedicated: &[NodeId]) -> Result<JobIndex, InstallError> {
        plan.check(self.traffic.jobs.all().len())?;
        let Some(server) = plan.protocol.server else {
            return Err(InstallError::NoServers { name: plan.name, protocol: plan.protocol.name });
        };
        let servers = if dedicated.is_empty() { plan.members.clone() } else { dedicated.to_vec() };
        if !usize::from(plan.slots).is_multiple_of(servers.len()) {
            return Err(InstallError::Slots { name: plan.name, slots: plan.slots, trees: servers.len() });
        }
        let index = self.traffic.jobs.next_index();
        let config = self.job_config(index, &plan, servers.len());
        let world_size = plan.members.len();
        for (address, &host) in plan.members.iter().chain(dedicated).enumerate() {
            let rank = Rank(address as u16);
            let number = if dedicated.is_empty() { Some(address) } else { address.checked_sub(world_size) };
            let machine = HostConfig {
                job: config.clone(),
                rank,
                trees: TreeLeaf::of_rank(rank),
                serves: number.map(|number| ServerId(number as u16)),
                slots: CoreSlots::ALL,
                timers: plan.timers,
                fabric: Default::default(),
            };
            let id = EndpointId(self.traffic.endpoints.len() as u32);
            // Only ranks contribute; their first collective is an event.
            let open = address < world_size;
            let make = if open { plan.protocol.host } else { server };
            let machine = make(Values::Fingerprint, &machine);
            self.attach_endpoint(Endpoint::new(host, index, rank, machine, open));
            if open {
                self.schedule_first(id, &plan);
            }
        }
        let mut job = Job::new(index, plan, config.key, self.graph.hosts(), FirstHops::default());
        job.set_servers(servers);
        self.traffic.jobs.push(job);
        Ok(index)
    }

    /// The roots of a job's trees, by number, chosen so that the job shares cables with as few others as possible;
    /// equal choices are in the order of `rng`. If there are fewer roots than trees, some roots have several trees.
    pub fn least_loaded_roots(&self, members: &[NodeId], trees: u16, rng: &mut Rng) -> Result<Vec<u32>, TreeError> {
        let roots = self.least_loaded(members, trees, rng)?;
        Ok(roots.into_iter().cycle().take(usize::from(trees)).collect())
    }

    /// Like [`Simulation::least_loaded_roots`], but there may be fewer roots than trees.
    pub(crate) fn least_loaded(&self, members: &[NodeId], trees: u16, rng: &mut Rng) -> Result<Vec<u32>, TreeError> {
        let wish = TreeRequest { members, trees, rate: RATE, need: &|_| 0 };
        let mut candidates = self.network.candidates(&wish)?;
        rng.shuffle(&mut candidates);
        let chosen = self.network.choose(&wish, &candidates)?;
        Ok(chosen.iter().filter_map(|tree| self.graph.switch_index(tree.root())).collect())
    }

    /// Plans the trees under a job's roots. Trees take their turns at the cables of hosts that have several.
    pub(crate) fn plan_trees(&self, index: JobIndex, plan: &JobPlan) -> Result<Vec<Tree>, InstallError> {
        let by_first = plan.protocol.placement == Placement::EveryHop && self.table.any_has_several_cables();
        let network = if by_first { &self.network.by_first_cables() } else { &self.network };
        let first = usize::from(index.0) * plan.roots.len();
        let of_root = |&root: &u32| self.graph.switch(root);
        let tree = |(turn, root)| network.tree_in_turn(&plan.members, root, turn);
        let trees: Result<Vec<Tree>, TreeError> = (first..).zip(plan.roots.iter().map(of_root)).map(tree).collect();
        trees.map_err(|error| InstallError::Tree(plan.name.clone(), error))
    }

    /// Installs the job's machines in switches.
    fn install_trees(&mut self, plan: &JobPlan, config: &JobConfig) -> Result<Vec<Tree>, InstallError> {
        let trees = self.plan_trees(JobIndex(config.job.0 - 1), plan)?;
        let most = trees.iter().flat_map(|tree| &tree.switches).map(|switch| switch.children.len()).max();
        if let Some(children) = most.filter(|&children| children > MAX_CHILDREN) {
            return Err(InstallError::TooManyChildren(plan.name.clone(), children));
        }
        self.network.add_load(&trees, RATE);
        for (lane, tree) in trees.iter().enumerate() {
            for switch in &tree.switches {
                self.install_switch(plan, config, TreeId(lane as u16), switch);
            }
        }
        Ok(trees)
    }

    /// Checks that switches that remember ports can distinguish all of theirs.
    fn check_ports(&self, plan: &JobPlan) -> Result<(), InstallError> {
        let most =
            self.switches.iter().map(|switch| self.fabric.ports(switch.forwarding.node).len()).max().unwrap_or(0);
        match most {
            ports if ports > PortSet::CAPACITY => Err(InstallError::Ports(plan.name.clone(), ports)),
            _ => Ok(()),
        }
    }

    /// Checks that packets that use the first cables of hosts reach each other.
    fn check_first_cables(&self, plan: &JobPlan) -> Result<(), InstallError> {
        let first = |host: NodeId| self.table.attachment(host).0;
        let (from, several) = (plan.members[0], self.table.any_has_several_cables());
        let is_out_of_reach = |to: &&NodeId| {
            let there = first(**to);
            there != first(from) && self.table.next_hops(first(from), self.graph.switch(there)).0.is_empty()
        };
        let (name, protocol) = (&plan.name, plan.protocol.name);
        match plan.members.iter().filter(|_| several).find(is_out_of_reach) {
            Some(&to) => Err(InstallError::FirstCables { name: name.clone(), protocol, from, to }),
            None => Ok(()),
        }
    }

    /// How a job's members send to switches: into their trees, by the cables that these take.
    fn first_hops(&self, members: &[NodeId], trees: &[Tree]) -> FirstHops {
        if trees.is_empty() || !members.iter().any(|&member| self.table.has_several_cables(member)) {
            let switch = |&member: &NodeId| self.graph.switch(self.table.attachment(member).0);
            return FirstHops { switches: members.iter().map(switch).collect(), nics: Vec::new() };
        }
        let mut hops = FirstHops::default();
        for tree in trees {
            for (member, position) in members.iter().zip(&tree.positions) {
                let children = &tree.switch(position.switch).expect("a switch of the tree").children;
                let up = self.fabric.port(position.switch, children[position.child.index()].port.0).reverse();
                let nic = self.fabric.ports(*member).iter().position(|&link| link == up).expect("the host's cable");
                hops.switches.push(position.switch);
                hops.nics.push(nic as u16);
            }
        }
        hops
    }

    fn install_switch(&mut self, plan: &JobPlan, config: &JobConfig, tree: TreeId, planned: &TreeSwitch) {
        let switch = &mut self.switches[(planned.node.0 - self.graph.hosts()) as usize];
        let members: Vec<PortId> = planned.children.iter().map(|child| child.port).collect();
        let group: GroupId = switch.forwarding.add_group(members.clone());
        let parent = planned.parent.map(|parent| Parent { port: parent.port, child: parent.child });
        let below = planned.children.iter().map(|child| child.below.clone()).collect();
        let config = SwitchConfig { job: config.clone(), tree, members, below, group, parent };
        let max_slots = config.job.slots / config.job.trees;
        let (index, protocol, values) = (switch.forwarding.index, plan.protocol, plan.values());
        let program = Program { switch: index, protocol, values, config, max_slots, is_removed: false };
        program.install(switch);
        self.programs.trees.push(program);
    }

    /// Puts another machine in place of a job's in each switch of its trees, as a simulator of hardware. `make` gets the
    /// switch's number.
    pub fn replace_machines(&mut self, job: JobIndex, make: &mut dyn FnMut(u32, &SwitchConfig) -> Box<dyn Switch>) {
        for program in self.programs.trees.iter().filter(|program| program.job() == job) {
            let machine = make(program.switch, &program.config);
            program.install_machine(&mut self.switches[program.switch as usize], Some(machine));
        }
    }

    /// Resets the programs of a switch to their state before the first packet. Those of sparse tensors go: which elements
    /// a switch sends up in which packet depends on arrival, so the switch above it could not tell a new program's packets
    /// from those of the former one, and would combine both. (A real switch that starts again has lost all of its jobs.)
    pub(crate) fn reinstall(&mut self, switch: u32) {
        let (jobs, node) = (&self.traffic.jobs, &mut self.switches[switch as usize]);
        let here = self.programs.trees.iter_mut().filter(|program| program.switch == switch && program.is_installed());
        for program in here {
            match jobs.get(program.job()).plan.sparse {
                Some(_) => program.uninstall(node),
                None => program.install(node),
            }
        }
        self.reset_shared(switch);
        let switch = &mut self.switches[switch as usize];
        switch.clear_cores(&mut self.fabric);
        switch.accelerator.iter_mut().for_each(|accelerator| accelerator.clear(&mut self.fabric));
    }

    fn add_endpoint(&mut self, job: JobIndex, rank: Rank, host: NodeId, plan: &JobPlan, config: &HostConfig) {
        let id = EndpointId(self.traffic.endpoints.len() as u32);
        let machine = plan.protocol.host(plan.values(), config);
        self.attach_endpoint(Endpoint::new(host, job, rank, machine, true));
        if self.fabric.owns(host) {
            self.schedule_first(id, plan);
        }
    }

    /// Schedules a rank's first collective, unless a training step submits it.
    fn schedule_first(&mut self, id: EndpointId, plan: &JobPlan) {
        if plan.operations.is_empty() {
            self.fabric.queue.push(plan.start.max(self.fabric.now), EventId::new(EventKind::Submit, id.0));
        }
    }

    /// Attaches an endpoint to its host.
    pub(crate) fn attach_endpoint(&mut self, endpoint: Endpoint) {
        let longest = endpoint.machine.max_packet_len().max(FINGERPRINT_LEN);
        let scratch = &mut self.traffic.scratch;
        scratch.resize(scratch.len().max(longest), 0);
        self.open += u64::from(endpoint.open && self.fabric.owns(endpoint.host));
        let host = &mut self.hosts[endpoint.host.index()];
        if host.endpoints.is_empty() {
            for link in self.fabric.ports(host.node) {
                self.first_endpoint[link.reverse().index()] = self.traffic.endpoints.len() as u32;
            }
        }
        host.endpoints.push(EndpointId(self.traffic.endpoints.len() as u32));
        self.traffic.endpoints.push(endpoint);
        self.endpoint_timers.grow(self.traffic.endpoints.len());
    }

    /// Makes every switch handle a job's packets.
    pub(crate) fn install_shared(
        &mut self,
        plan: &JobPlan,
        job: &JobConfig,
        fabric: &FabricPlan,
    ) -> Result<(), InstallError> {
        let trees = self.plan_trees(JobIndex(job.job.0 - 1), plan)?;
        self.programs.shared.push(SharedProgram {
            protocol: plan.protocol,
            job: job.clone(),
            fabric: fabric.clone(),
            attachments: plan.members.iter().map(|&member| self.table.attachment(member)).collect(),
            trees,
        });
        for switch in 0..self.switches.len() {
            self.install_shared_at(switch, self.programs.shared.len() - 1..self.programs.shared.len());
        }
        Ok(())
    }

    /// Gives a switch empty memory for the jobs that share it.
    pub(crate) fn reset_shared(&mut self, switch: u32) {
        let switch = switch as usize;
        if self.programs.shared.is_empty() {
            return;
        }
        let pipeline = &mut self.switches[switch].pipelines[0];
        for program in &self.programs.shared {
            pipeline.remove(program.job.job);
        }
        for program in &self.programs.shared {
            pipeline.unshare(program.protocol.code);
        }
        self.install_shared_at(switch, 0..self.programs.shared.len());
    }

    fn install_shared_at(&mut self, switch: usize, programs: Range<usize>) {
        let settings = &self.settings.shared;
        let switch = &mut self.switches[switch];
        if switch.pipelines.is_empty() {
            switch.pipelines.push(Pipeline::default());
        }
        for program in &self.programs.shared[programs] {
            let SharedProgram { protocol, .. } = program;
            let Some(shared) = &protocol.shared else { continue };
            let plan = program.plan(switch);
            let pipeline = &mut switch.pipelines[0];
            if pipeline.shared(protocol.code).is_none() {
                let config = SharedSwitchConfig {
                    node: switch.forwarding.node,
                    elements_per_packet: settings.elements_per_packet,
                    options: settings.options.of(shared),
                };
                pipeline.share(protocol.code, (shared.machine)(Values::Fingerprint, &config));
            }
            pipeline.install_shared(&plan, Vec::new());
        }
    }

    /// The plan of the fabric for a job's hosts and switches.
    pub(crate) fn fabric_plan(&self, plan: &JobPlan) -> FabricPlan {
        let own_switch = |&host: &NodeId| self.graph.switch(self.table.attachment(host).0);
        FabricPlan {
            hosts: plan.members.clone().into(),
            switches: plan.members.iter().map(own_switch).collect(),
            roots: plan.roots.iter().map(|&root| self.graph.switch(root)).collect(),
        }
    }

    /// The memory that jobs share, switch by switch and protocol by protocol.
    pub fn shared(&self) -> impl Iterator<Item = (NodeId, SharedReport)> + '_ {
        self.switches.iter().flat_map(|switch| switch.shared().map(|(_, report, _)| (switch.forwarding.node, report)))
    }
}

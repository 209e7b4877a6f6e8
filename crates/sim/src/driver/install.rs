//! Puts a job into the network: its trees into switches, its machines into hosts.

use tributary_control::JobShape;
use tributary_control::trees::{Tree, TreeError, TreeRequest, TreeSwitch};
use tributary_proto::contract::config::{FabricPlan, HostConfig, JobConfig, Parent, SwitchConfig, WorkerPlace};
use tributary_proto::contract::ids::{GroupId, JobId, JobKey, NodeId, PortId, PortSet, Rank, TreeId};
use tributary_proto::contract::pipeline::InstalledJob;
use tributary_proto::contract::protocol::{Placement, Protocol};
use tributary_proto::contract::switch::SwitchReport;
use tributary_proto::contract::values::{FINGERPRINT_LEN, Values};

use super::jobs::{Job, JobIndex, JobPlan};
use super::own::sum_trees;
use super::seat::{HostSeat, HostSeatId};
use super::simulation::Simulation;
use super::switch::SwitchNode;
use crate::events::{EventId, EventKind};
use crate::rng::{Purpose, Rng};

/// Why a job cannot be installed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InstallError {
    /// The job has no members.
    #[error("job \"{0}\" has no hosts")]
    NoMembers(String),
    /// The job has too many members.
    #[error("job \"{0}\" has {1} hosts; a job has at most {most} ranks", most = JobConfig::MAX_WORLD)]
    TooManyMembers(String, usize),
    /// The job has more children than one switch sums for.
    #[error("job \"{0}\" has {1} hosts and switches below one switch, which sums for at most 1,024")]
    TooManyChildren(String, usize),
    /// A switch has more ports than a descriptor can distinguish.
    #[error("job \"{0}\" needs switches of at most 256 ports; one has {1}")]
    Ports(String, usize),
    /// There are more jobs than numbers for them.
    #[error("job \"{0}\" is one too many: at most 65,534 jobs fit")]
    TooManyJobs(String),
    /// The pool does not divide among the trees.
    #[error("job \"{name}\" has {slots} slots and {trees} trees: slots must be a multiple of the trees, and not 0")]
    Slots {
        /// The job.
        name: String,
        /// Its slots.
        slots: u16,
        /// Its trees.
        trees: usize,
    },
    /// The job has servers, but its protocol has none.
    #[error("job \"{name}\" has servers, and {protocol} has no use for any")]
    NoServers {
        /// The job.
        name: String,
        /// Its protocol.
        protocol: &'static str,
    },
    /// The job has more trees than a packet can distinguish, or none.
    #[error("job \"{0}\" has {1} trees; 1 to 255 are possible")]
    Trees(String, usize),
    /// A tree cannot be planned.
    #[error("job \"{0}\": {1}")]
    Tree(String, TreeError),
    /// Packets have no elements, or too many.
    #[error("job \"{0}\" has {1} elements in a packet; 1 to 16,000 are possible")]
    Elements(String, u16),
}

/// Packets with so many elements fit into 65,535 bytes with their headers, for any type.
const MOST_ELEMENTS: u16 = 16_000;
/// A notice about so many children fits into a program's buffer.
const MOST_CHILDREN: usize = 1024;
const MOST_TREES: usize = 255;
/// The rate that a job is expected to send, for the choice among trees: the same for all jobs.
pub(super) const RATE: u64 = 1 << 20;

pub(super) fn check(plan: &JobPlan, installed: usize) -> Result<(), InstallError> {
    let name = || plan.name.clone();
    if installed >= usize::from(u16::MAX) - 1 {
        return Err(InstallError::TooManyJobs(name()));
    }
    match plan.members.len() {
        0 => return Err(InstallError::NoMembers(name())),
        members if members > usize::from(JobConfig::MAX_WORLD) => {
            return Err(InstallError::TooManyMembers(name(), members));
        }
        _ => {}
    }
    let trees = if plan.protocol.placement == Placement::EveryHop { 1 } else { plan.roots.len() };
    if !(1..=MOST_TREES).contains(&trees) {
        return Err(InstallError::Trees(name(), trees));
    }
    if plan.slots == 0 || !usize::from(plan.slots).is_multiple_of(trees) {
        return Err(InstallError::Slots { name: name(), slots: plan.slots, trees });
    }
    if !(1..=MOST_ELEMENTS).contains(&plan.elements_per_packet) {
        return Err(InstallError::Elements(name(), plan.elements_per_packet));
    }
    Ok(())
}

/// The program of a switch for one tree of one job.
pub struct Program {
    /// The switch, by number.
    pub(super) switch: u32,
    protocol: &'static Protocol,
    values: Values,
    config: SwitchConfig,
    /// The most packets of its tree for which it may ever have room.
    most: u16,
    /// Its job has left.
    is_gone: bool,
}

impl Program {
    /// How many bytes it holds in the switch.
    pub(super) fn memory_bytes(&self, switch: &SwitchNode) -> usize {
        let report = switch.pipelines[self.config.tree.index()].report(self.config.job.job);
        report.map_or(0, |report| report.memory_bytes)
    }

    /// The state of its machine, and how many bytes it holds.
    pub(super) fn state(&self, switch: &SwitchNode) -> Option<(SwitchReport, usize)> {
        let report = switch.pipelines[self.config.tree.index()].report(self.config.job.job)?;
        Some((report.machine?, report.memory_bytes))
    }

    /// The job to which it belongs.
    pub(super) fn job(&self) -> JobIndex {
        JobIndex(self.config.job.job.0 - 1)
    }

    /// The number of its tree in the job.
    pub(super) fn lane(&self) -> usize {
        self.config.tree.index()
    }

    /// True if it is the root of its tree.
    pub(super) fn is_root(&self) -> bool {
        self.config.parent.is_none()
    }

    /// The ports that lead to its children and to its parent.
    pub(super) fn ports(&self) -> impl Iterator<Item = PortId> + '_ {
        self.config.members.iter().copied().chain(self.config.parent.iter().map(|parent| parent.port))
    }

    /// True if it is there and takes memory.
    pub(super) fn is_there(&self) -> bool {
        !self.is_gone
    }

    /// How many packets of its tree it has room for.
    pub(super) fn room(&self) -> u16 {
        self.config.job.slots / self.config.job.trees
    }

    /// True if its share of the switch's memory may change.
    pub(super) fn resizes(&self) -> bool {
        self.protocol.resizes
    }

    /// The shape that a real switch charges for: one tree, with the elements that a simulated packet stands for.
    pub(super) fn shape(&self) -> JobShape {
        JobShape { slots: self.most, ..shape(self.protocol, &self.config.job, self.config.members.len()) }
    }

    /// Gives it room for so many packets of its tree, and starts it again.
    pub(super) fn set_room(&mut self, room: u16, switch: &mut SwitchNode) {
        self.config.job.slots = room * self.config.job.trees;
        self.install(switch);
    }

    /// Gives it room for so many packets from now on, while its job goes on.
    pub(super) fn resize(&mut self, room: u16, switch: &mut SwitchNode) {
        self.config.job.slots = room * self.config.job.trees;
        switch.pipelines[self.config.tree.index()].resize(self.config.job.job, room);
    }

    /// Removes it, since its job has left.
    pub(super) fn uninstall(&mut self, switch: &mut SwitchNode) {
        self.is_gone = true;
        switch.pipelines[self.config.tree.index()].remove(self.config.job.job);
        switch.exits.remove_group(self.config.group);
    }

    fn install(&self, switch: &mut SwitchNode) {
        let (config, lane) = (&self.config, self.config.tree.index());
        while switch.pipelines.len() <= lane {
            switch.pipelines.push(Default::default());
        }
        let installed = InstalledJob {
            protocol: self.protocol.code,
            key: config.job.key,
            members: config.members.clone(),
            others: config.parent.iter().map(|parent| parent.port).collect(),
            machine: self.protocol.switch(self.values, config),
        };
        switch.pipelines[lane].install(config.job.job, installed);
    }
}

/// The shape that a switch with so many children charges for one tree of a job.
pub(super) fn shape(protocol: &'static Protocol, job: &JobConfig, children: usize) -> JobShape {
    let JobConfig { world, slots, elements_per_packet, trees, levels, ref options, .. } = *job;
    JobShape {
        protocol,
        slots: slots / trees,
        elements_per_packet,
        world_size: world,
        children: children as u16,
        neighbours: u16::from(levels),
        shards: 1,
        trees: 1,
        servers: 0,
        options: options.clone(),
    }
}

impl Simulation {
    /// How many trees are planned for a job.
    pub fn tree_count(&self, job: &Job) -> usize {
        if job.plan.protocol.placement == Placement::Trees { job.plan.roots.len() } else { 0 }
    }

    /// The switches at the roots of a job's trees, tree by tree. If all ranks are below a lower switch than the plan
    /// names, it is that switch.
    pub fn tree_roots(&self, job: &Job) -> Vec<u32> {
        let tops = self.programs.iter().filter(|program| program.job() == job.index && program.is_root());
        let mut tops: Vec<(usize, u32)> = tops.map(|program| (program.lane(), program.switch)).collect();
        tops.sort_unstable();
        tops.into_iter().map(|(_, switch)| switch).collect()
    }

    /// The configuration on which the members and switches of a job agree.
    pub(super) fn job_config(&self, index: JobIndex, plan: &JobPlan, trees: usize) -> JobConfig {
        JobConfig {
            job: JobId(index.0 + 1),
            protocol: plan.protocol.code,
            key: JobKey(Rng::new(self.settings.seed, Purpose::Keys, u64::from(index.0)).bits()),
            world: plan.members.len() as u16,
            slots: plan.slots,
            elements_per_packet: plan.elements_per_packet,
            trees: trees as u16,
            levels: self.has_levels(plan),
            options: plan.options.clone(),
        }
    }

    /// True if some host of the job is not next to the root of a tree.
    fn has_levels(&self, plan: &JobPlan) -> bool {
        let next_to = |root: &u32, host: NodeId| self.table.attachment(host).0 == *root;
        plan.roots.iter().any(|root| plan.members.iter().any(|&host| !next_to(root, host)))
    }

    /// Adds a job. Its ranks submit their first collectives at the plan's start.
    pub fn install(&mut self, plan: JobPlan) -> Result<JobIndex, InstallError> {
        check(&plan, self.traffic.jobs.all().len())?;
        let index = self.traffic.jobs.next_index();
        let shards = if plan.protocol.placement == Placement::EveryHop { 1 } else { plan.roots.len() };
        let config = self.job_config(index, &plan, shards);
        let mut fabric = FabricPlan::default();
        let mut trees = Vec::new();
        if plan.protocol.placement == Placement::EveryHop {
            self.check_ports(&plan)?;
            fabric = self.fabric_plan(&plan);
            self.share(&plan, &config, &fabric)?;
        } else if plan.protocol.placement == Placement::Trees {
            trees = self.install_trees(&plan, &config)?;
        }
        let first_switch = |member: &NodeId| self.graph.switch(self.table.attachment(*member).0);
        let first_switches = plan.members.iter().map(first_switch).collect();
        for (rank, &member) in plan.members.iter().enumerate() {
            let place = |tree: &Tree| WorkerPlace { child: tree.positions[rank].child };
            let rank = Rank(rank as u16);
            let machine = HostConfig {
                job: config.clone(),
                rank,
                serves: None,
                trees: if trees.is_empty() { WorkerPlace::of_rank(rank) } else { trees.iter().map(place).collect() },
                timers: plan.timers,
                fabric: fabric.clone(),
            };
            self.seat(index, rank, member, &plan, &machine);
        }
        let order = (plan.protocol.options.order)(&plan.options);
        let sum_trees = plan.own.as_ref().map(|_| sum_trees(order, &trees, config.world)).unwrap_or_default();
        let mut job = Job::new(index, plan, config.key, self.graph.hosts(), first_switches);
        job.sum_trees = sum_trees;
        self.failures.watch(index, job.plan.own.as_ref().map(|own| own.data));
        self.traffic.jobs.push(job);
        Ok(index)
    }

    /// The roots of a job's trees, by number, chosen so that the job shares cables with as few others as possible;
    /// equal choices are in the order of `rng`. If there are fewer roots than trees, some roots have several trees.
    pub fn least_loaded_roots(&self, members: &[NodeId], trees: u16, rng: &mut Rng) -> Result<Vec<u32>, TreeError> {
        let roots = self.least_loaded(members, trees, rng)?;
        Ok(roots.into_iter().cycle().take(usize::from(trees)).collect())
    }

    /// The same; there may be fewer roots than trees.
    pub(super) fn least_loaded(&self, members: &[NodeId], trees: u16, rng: &mut Rng) -> Result<Vec<u32>, TreeError> {
        let wish = TreeRequest { members, trees, rate: RATE, need: &|_| 0 };
        let mut candidates = self.network.candidates(&wish)?;
        rng.shuffle(&mut candidates);
        let chosen = self.network.choose(&wish, &candidates)?;
        Ok(chosen.iter().filter_map(|tree| self.graph.switch_index(tree.root())).collect())
    }

    /// Plans the trees under a job's roots.
    pub(super) fn plan_trees(&self, plan: &JobPlan) -> Result<Vec<Tree>, InstallError> {
        let tree = |&root: &u32| self.network.tree(&plan.members, self.graph.switch(root));
        let trees: Result<Vec<Tree>, TreeError> = plan.roots.iter().map(tree).collect();
        trees.map_err(|error| InstallError::Tree(plan.name.clone(), error))
    }

    /// Installs the job's machines in switches.
    fn install_trees(&mut self, plan: &JobPlan, config: &JobConfig) -> Result<Vec<Tree>, InstallError> {
        let trees = self.plan_trees(plan)?;
        let most = trees.iter().flat_map(|tree| &tree.switches).map(|switch| switch.children.len()).max();
        if let Some(children) = most.filter(|&children| children > MOST_CHILDREN) {
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

    /// Checks that switches that remember ports can distinguish so many.
    fn check_ports(&self, plan: &JobPlan) -> Result<(), InstallError> {
        let most = self.switches.iter().map(|switch| self.fabric.ports(switch.exits.node).len()).max().unwrap_or(0);
        match most {
            ports if ports > PortSet::CAPACITY => Err(InstallError::Ports(plan.name.clone(), ports)),
            _ => Ok(()),
        }
    }

    fn install_switch(&mut self, plan: &JobPlan, config: &JobConfig, tree: TreeId, place: &TreeSwitch) {
        let switch = &mut self.switches[(place.node.0 - self.graph.hosts()) as usize];
        let members: Vec<PortId> = place.children.iter().map(|child| child.port).collect();
        let group: GroupId = switch.exits.add_group(members.clone());
        let parent = place.parent.map(|parent| Parent { port: parent.port, child: parent.child });
        let below = place.children.iter().map(|child| child.below.clone()).collect();
        let config = SwitchConfig { job: config.clone(), tree, members, below, group, parent };
        let most = config.job.slots / config.job.trees;
        let (index, protocol, values) = (switch.exits.index, plan.protocol, plan.values());
        let program = Program { switch: index, protocol, values, config, most, is_gone: false };
        program.install(switch);
        self.programs.push(program);
    }

    /// Resets the programs of a switch to their state before the first packet.
    pub(super) fn reinstall(&mut self, switch: u32) {
        for program in self.programs.iter().filter(|program| program.switch == switch && program.is_there()) {
            program.install(&mut self.switches[switch as usize]);
        }
        self.reset_shared(switch);
        self.switches[switch as usize].clear_cores(&mut self.fabric);
    }

    fn seat(&mut self, job: JobIndex, rank: Rank, host: NodeId, plan: &JobPlan, config: &HostConfig) {
        let id = HostSeatId(self.traffic.seats.len() as u32);
        let machine = plan.protocol.host(plan.values(), config);
        self.take_seat(HostSeat::new(host, job, rank, machine, true));
        if self.fabric.owns(host) {
            self.fabric.queue.push(plan.start.max(self.fabric.now), EventId::new(EventKind::Source, id.0));
        }
    }

    /// Gives a machine a seat at its host.
    pub(super) fn take_seat(&mut self, seat: HostSeat) {
        let longest = seat.machine.max_packet_len().max(FINGERPRINT_LEN);
        let scratch = &mut self.traffic.scratch;
        scratch.resize(scratch.len().max(longest), 0);
        self.open += u64::from(seat.open && self.fabric.owns(seat.host));
        let host = &mut self.hosts[seat.host.index()];
        if host.seats.is_empty() {
            self.seat_behind[host.uplink.reverse().index()] = self.traffic.seats.len() as u32;
        }
        host.seats.push(HostSeatId(self.traffic.seats.len() as u32));
        self.traffic.seats.push(seat);
        self.seat_timers.grow(self.traffic.seats.len());
    }
}

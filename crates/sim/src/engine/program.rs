//! The programs of switches: a machine for each tree of a job, and jobs in memory that all jobs of a protocol share; and
//! what is measured of them.

use tributary_control::JobShape;
use tributary_control::trees::Tree;
use tributary_proto::contract::config::{FabricPlan, JobConfig, Parent, SharedJob, SwitchConfig, TreeNode};
use tributary_proto::contract::ids::{JobId, NodeId, PortId, Rank};
use tributary_proto::contract::metric::{self, Metric};
use tributary_proto::contract::options::Defaults;
use tributary_proto::contract::pipeline::InstalledJob;
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::contract::switch::{Switch, SwitchReport};
use tributary_proto::contract::values::Values;
use tributary_proto::switch_options::SwitchOptions;

use super::job::Job;
use super::records::JobIndex;
use super::switch::SwitchNode;
use crate::cores::steps::Spent;

/// All programs of a run.
#[derive(Default)]
pub(super) struct Programs {
    /// Those of trees.
    pub trees: Vec<Program>,
    /// Those of jobs in shared memory.
    pub shared: Vec<SharedProgram>,
    /// The metrics of jobs that have left.
    pub past_metrics: Vec<SwitchMetrics>,
    /// The most memory that programs of one switch held before a job left.
    pub max_memory: usize,
}

/// The program of a switch for one tree of one job.
pub struct Program {
    /// The switch, by number.
    pub(super) switch: u32,
    pub(super) protocol: &'static Protocol,
    pub(super) values: Values,
    pub(super) config: SwitchConfig,
    /// The most slots that it may ever have.
    pub(super) max_slots: u16,
    /// Its job has left.
    pub(super) is_removed: bool,
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

    /// The ports that lead to its children.
    pub(super) fn children(&self) -> impl Iterator<Item = PortId> + Clone + '_ {
        self.config.members.iter().copied()
    }

    /// The ports that lead to its children and to its parent.
    pub(super) fn ports(&self) -> impl Iterator<Item = PortId> + '_ {
        self.children().chain(self.config.parent.iter().map(|parent| parent.port))
    }

    /// True if it is installed and takes memory.
    pub(super) fn is_installed(&self) -> bool {
        !self.is_removed
    }

    /// How many slots it has, one for each packet of its tree.
    pub(super) fn slots(&self) -> u16 {
        self.config.job.slots / self.config.job.trees
    }

    /// True if its share of the switch's memory may change.
    pub(super) fn resizes(&self) -> bool {
        self.protocol.resizes
    }

    /// The shape that a real switch charges for: one tree, with the elements that a simulated packet stands for.
    pub(super) fn shape(&self) -> JobShape {
        JobShape { slots: self.max_slots, ..shape(self.protocol, &self.config.job, self.config.members.len()) }
    }

    /// Gives it a number of slots, and starts it again.
    pub(super) fn reinstall_with(&mut self, slots: u16, switch: &mut SwitchNode) {
        self.config.job.slots = slots * self.config.job.trees;
        self.install(switch);
    }

    /// Changes its number of slots while its job goes on.
    pub(super) fn resize(&mut self, slots: u16, switch: &mut SwitchNode) {
        self.config.job.slots = slots * self.config.job.trees;
        switch.pipelines[self.config.tree.index()].resize(self.config.job.job, slots);
    }

    /// Removes it, since its job has left.
    pub(super) fn uninstall(&mut self, switch: &mut SwitchNode) {
        self.is_removed = true;
        switch.pipelines[self.config.tree.index()].remove(self.config.job.job);
        switch.forwarding.remove_group(self.config.group);
    }

    pub(super) fn install(&self, switch: &mut SwitchNode) {
        self.install_machine(switch, self.protocol.switch(self.values, &self.config));
    }

    pub(super) fn install_machine(&self, switch: &mut SwitchNode, machine: Option<Box<dyn Switch>>) {
        let (config, lane) = (&self.config, self.config.tree.index());
        while switch.pipelines.len() <= lane {
            switch.pipelines.push(Default::default());
        }
        let installed = InstalledJob {
            protocol: self.protocol.code,
            key: config.job.key,
            members: config.members.clone(),
            others: config.parent.iter().map(|parent| parent.port).collect(),
            machine,
        };
        switch.pipelines[lane].install(config.job.job, installed);
    }
}

/// The shape that a switch with `children` children charges for one tree of a job.
pub(super) fn shape(protocol: &'static Protocol, job: &JobConfig, children: usize) -> JobShape {
    let JobConfig { world_size, slots, elements_per_packet, trees, levels, ref options, .. } = *job;
    JobShape {
        protocol,
        slots: slots / trees,
        elements_per_packet,
        world_size,
        children: children as u16,
        neighbours: u16::from(levels),
        shards: 1,
        trees: 1,
        servers: 0,
        options: options.clone(),
    }
}

/// The settings of memory that jobs share, the same in every switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedSettings {
    /// The operators' options, by protocol.
    pub options: SwitchOptions,
    /// How many elements of four bytes the longest packet has.
    pub elements_per_packet: u16,
}

impl Default for SharedSettings {
    fn default() -> SharedSettings {
        SharedSettings { options: SwitchOptions::defaults(Defaults::Simulated), elements_per_packet: 256 }
    }
}

/// A job whose packets every switch handles, in memory that jobs share.
pub struct SharedProgram {
    pub(super) protocol: &'static Protocol,
    pub(super) job: JobConfig,
    pub(super) fabric: FabricPlan,
    /// For each rank, the number of the host's switch and the port there.
    pub(super) attachments: Vec<(u32, u16)>,
    /// A tree to each of the chosen roots, in the order of the roots.
    pub(super) trees: Vec<Tree>,
}

impl SharedProgram {
    /// The job's number on the wire.
    pub(super) fn job_id(&self) -> JobId {
        self.job.job
    }

    /// The job's plan for one switch.
    pub(super) fn plan(&self, switch: &SwitchNode) -> SharedJob {
        let local = |&(number, port): &(u32, u16)| (number == switch.forwarding.index).then_some(PortId(port));
        let ports: Vec<Option<PortId>> = self.attachments.iter().map(local).collect();
        let children = ports.iter().flatten().count() as u16;
        let roots = self.fabric.roots.iter().zip(&self.trees);
        let position = |(&root, tree): (&NodeId, &Tree)| {
            let planned = tree.switch(switch.forwarding.node)?;
            Some(TreeNode {
                root,
                children: planned.children.iter().map(|child| child.port).collect(),
                below: planned.children.iter().map(|child| child.below.clone()).collect(),
                parent: planned.parent.map(|parent| Parent { port: parent.port, child: parent.child }),
            })
        };
        SharedJob {
            job: self.job.clone(),
            fabric: self.fabric.clone(),
            ports,
            trees: roots.filter_map(position).collect(),
            share_bytes: self.protocol.share_bytes(&self.job, children),
        }
    }
}

/// How much of one switch's memory is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Occupancy {
    /// Slots whose sums are not complete, and the held slots of memory that jobs share.
    pub slots: u64,
    /// Bytes that programs hold for these slots.
    pub bytes: u64,
    /// Packets that wait for a core, if programs run on cores.
    pub waiting: u64,
    /// Bytes of the packet memory in use.
    pub input_bytes: u64,
    /// Bytes of blocks in clusters.
    pub working_bytes: u64,
}

impl Occupancy {
    pub(super) fn add(&mut self, used: u32, all: u32, bytes: usize) {
        self.slots += u64::from(used);
        self.bytes += bytes as u64 * u64::from(used) / u64::from(all.max(1));
    }
}

/// What the cores of one switch have done since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handled {
    /// Bytes of packets whose handlers have ended.
    pub bytes: u64,
    /// Picoseconds in which cores waited for locks.
    pub lock_waiting: u64,
    /// Picoseconds of the cores' steps.
    pub spent: Spent,
}

/// A protocol's metrics in one switch.
#[derive(Clone, Debug, PartialEq)]
pub struct SwitchMetrics {
    /// The switch's number.
    pub switch: u32,
    /// The protocol.
    pub protocol: &'static str,
    /// The job; `None` for memory that all jobs share.
    pub job: Option<JobIndex>,
    /// The figures.
    pub metrics: Vec<Metric>,
}

/// A value of a job over time: what its switches hold for it, or a metric of one rank's machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gauge {
    /// The job.
    pub job: JobIndex,
    /// The rank; `None` for all switches together.
    pub rank: Option<Rank>,
    /// The value's name.
    pub name: &'static str,
}

/// The name of the number of slots with incomplete sums that all switches together hold for a job.
pub const SLOTS_IN_USE: &str = "slots_in_use";

/// The metrics of a job's programs in one switch, if they have any.
pub(super) fn metrics_of(switch: &SwitchNode, job: &Job) -> Option<SwitchMetrics> {
    let mut metrics = Vec::new();
    let id = JobId(job.index.0 + 1);
    let reports = switch.pipelines.iter().filter_map(|pipeline| pipeline.report(id)?.machine);
    reports.for_each(|report| metric::combine(&mut metrics, &report.metrics));
    let (switch, protocol, job) = (switch.forwarding.index, job.plan.protocol.name, Some(job.index));
    (!metrics.is_empty()).then_some(SwitchMetrics { switch, protocol, job, metrics })
}

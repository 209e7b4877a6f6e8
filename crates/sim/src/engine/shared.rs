//! The machines that all jobs of a protocol share in every switch, for protocols whose jobs share memory.

use tributary_control::trees::Tree;
use tributary_proto::contract::config::{FabricPlan, JobConfig, Parent, SharedJob, SharedSwitchConfig, TreePlace};
use tributary_proto::contract::ids::{JobId, NodeId, PortId};
use tributary_proto::contract::options::Defaults;
use tributary_proto::contract::pipeline::Pipeline;
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::contract::switch::SharedReport;
use tributary_proto::contract::values::Values;
use tributary_proto::switch_options::SwitchOptions;

use super::install::InstallError;
use super::jobs::JobPlan;
use super::simulation::Simulation;
use super::switch::SwitchNode;

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
    protocol: &'static Protocol,
    job: JobConfig,
    fabric: FabricPlan,
    /// For each rank, the number of the host's switch and the port there.
    attachments: Vec<(u32, u16)>,
    /// A tree to each of the chosen roots, in the order of the roots.
    trees: Vec<Tree>,
}

impl SharedProgram {
    /// The job's number on the wire.
    pub(super) fn job_id(&self) -> JobId {
        self.job.job
    }

    /// The job's plan for one switch.
    fn plan(&self, switch: &SwitchNode) -> SharedJob {
        let local = |&(number, port): &(u32, u16)| (number == switch.forwarding.index).then_some(PortId(port));
        let ports: Vec<Option<PortId>> = self.attachments.iter().map(local).collect();
        let children = ports.iter().flatten().count() as u16;
        let roots = self.fabric.roots.iter().zip(&self.trees);
        let position = |(&root, tree): (&NodeId, &Tree)| {
            let planned = tree.switch(switch.forwarding.node)?;
            Some(TreePlace {
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

impl Simulation {
    /// Makes every switch handle a job's packets.
    pub(super) fn install_shared(
        &mut self,
        plan: &JobPlan,
        job: &JobConfig,
        fabric: &FabricPlan,
    ) -> Result<(), InstallError> {
        let trees = self.plan_trees(plan)?;
        self.shared_programs.push(SharedProgram {
            protocol: plan.protocol,
            job: job.clone(),
            fabric: fabric.clone(),
            attachments: plan.members.iter().map(|&member| self.table.attachment(member)).collect(),
            trees,
        });
        for switch in 0..self.switches.len() {
            self.install_shared_at(switch, self.shared_programs.len() - 1..self.shared_programs.len());
        }
        Ok(())
    }

    /// Gives a switch empty memory for the jobs that share it.
    pub(super) fn reset_shared(&mut self, switch: u32) {
        let switch = switch as usize;
        if self.shared_programs.is_empty() {
            return;
        }
        let pipeline = &mut self.switches[switch].pipelines[0];
        for program in &self.shared_programs {
            pipeline.remove(program.job.job);
        }
        for program in &self.shared_programs {
            pipeline.unshare(program.protocol.code);
        }
        self.install_shared_at(switch, 0..self.shared_programs.len());
    }

    fn install_shared_at(&mut self, switch: usize, programs: std::ops::Range<usize>) {
        let settings = &self.settings.shared;
        let switch = &mut self.switches[switch];
        if switch.pipelines.is_empty() {
            switch.pipelines.push(Pipeline::default());
        }
        for program in &self.shared_programs[programs] {
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
    pub(super) fn fabric_plan(&self, plan: &JobPlan) -> FabricPlan {
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

//! What every switch holds for all jobs of a protocol together, where a protocol's jobs share memory.

use tributary_proto::collective::values::Values;
use tributary_proto::contract::config::{FabricPlan, SharedSwitchConfig};
use tributary_proto::contract::ids::{JobId, JobKey, NodeId};
use tributary_proto::contract::options::Defaults;
use tributary_proto::contract::pipeline::{InstalledJob, Pipeline};
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::contract::switch::ArrayReport;
use tributary_proto::switch_options::SwitchOptions;

use super::jobs::JobPlan;
use super::simulation::Simulation;

/// The same for every switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedSettings {
    /// What operators have chosen, protocol by protocol.
    pub options: SwitchOptions,
    /// Elements of four bytes in the longest packet that they sum.
    pub elements_per_packet: u16,
}

impl Default for SharedSettings {
    fn default() -> SharedSettings {
        SharedSettings { options: SwitchOptions::defaults(Defaults::Simulated), elements_per_packet: 256 }
    }
}

/// A job whose packets every switch handles.
pub struct Sharer {
    protocol: &'static Protocol,
    job: JobId,
    key: JobKey,
}

impl Simulation {
    /// Lets every switch handle a job's packets.
    pub(super) fn share(&mut self, protocol: &'static Protocol, job: JobId, key: JobKey) {
        self.sharers.push(Sharer { protocol, job, key });
        for switch in 0..self.switches.len() {
            self.share_in(switch, self.sharers.len() - 1..self.sharers.len());
        }
    }

    /// Gives a switch empty memory for the jobs that share it.
    pub(super) fn reset_shared(&mut self, switch: u32) {
        let switch = switch as usize;
        if self.sharers.is_empty() {
            return;
        }
        let pipeline = &mut self.switches[switch].pipelines[0];
        for sharer in &self.sharers {
            pipeline.remove(sharer.job);
        }
        self.sharers.iter().for_each(|sharer| pipeline.unshare(sharer.protocol.code));
        self.share_in(switch, 0..self.sharers.len());
    }

    fn share_in(&mut self, switch: usize, sharers: std::ops::Range<usize>) {
        let settings = &self.settings.shared;
        let switch = &mut self.switches[switch];
        if switch.pipelines.is_empty() {
            switch.pipelines.push(Pipeline::default());
        }
        let pipeline = &mut switch.pipelines[0];
        for Sharer { protocol, job, key } in &self.sharers[sharers] {
            if pipeline.array(protocol.code).is_none()
                && let Some(shared) = &protocol.shared
            {
                let config = SharedSwitchConfig {
                    node: switch.exits.node,
                    elements_per_packet: settings.elements_per_packet,
                    options: settings.options.of(shared),
                };
                pipeline.share(protocol.code, (shared.machine)(Values::Fingerprint, &config));
            }
            let (members, others) = (Vec::new(), Vec::new());
            let installed = InstalledJob { protocol: protocol.code, key: *key, members, others, machine: None };
            pipeline.install(*job, installed);
        }
    }

    /// What a job's hosts know of the fabric.
    pub(super) fn fabric_plan(&self, plan: &JobPlan) -> FabricPlan {
        let own_switch = |&host: &NodeId| self.graph.switch(self.table.attachment(host).0);
        FabricPlan {
            hosts: plan.members.clone().into(),
            switches: plan.members.iter().map(own_switch).collect(),
            roots: plan.roots.iter().map(|&root| self.graph.switch(root)).collect(),
        }
    }

    /// The memory that jobs share, switch by switch.
    pub fn arrays(&self) -> impl Iterator<Item = (NodeId, ArrayReport)> + '_ {
        self.switches.iter().flat_map(|switch| switch.arrays().map(|(array, _)| (switch.exits.node, array)))
    }
}

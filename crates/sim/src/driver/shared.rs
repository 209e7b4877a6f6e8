//! What every switch holds for all jobs of a protocol together, where a protocol's jobs share memory.

use std::sync::Arc;

use tributary_proto::collective::values::Values;
use tributary_proto::contract::config::{FabricPlan, FlushTimeout, SharedSwitchConfig};
use tributary_proto::contract::ids::{JobId, JobKey, NodeId};
use tributary_proto::contract::pipeline::{InstalledJob, Pipeline};
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::contract::switch::ArrayReport;
use tributary_proto::contract::time::Span;

use super::jobs::JobPlan;
use super::simulation::Simulation;

/// The same for every switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedSettings {
    /// Entries of the static array.
    pub descriptors: u32,
    /// Equal parts of it, of which each job uses one.
    pub partitions: u16,
    /// Elements that an entry holds.
    pub elements_per_packet: u16,
    /// How long a partial sum waits for more.
    pub timeout: FlushTimeout,
    /// An entry that nobody has needed for so long is free again.
    pub lease: Span,
    /// A block that failed so often is summed by hosts.
    pub reissues: u8,
}

impl Default for SharedSettings {
    /// Canary's prototype (§5.1), with the elements of its evaluation and the timeout of §3.2.2.
    fn default() -> SharedSettings {
        SharedSettings {
            descriptors: 32_768,
            partitions: 1,
            elements_per_packet: 256,
            timeout: FlushTimeout::Fixed(Span::from_micros(1)),
            lease: Span::from_millis(20),
            reissues: 3,
        }
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
        let config = SharedSwitchConfig {
            node: switch.exits.node,
            descriptors: settings.descriptors,
            partitions: settings.partitions,
            elements_per_packet: settings.elements_per_packet,
            timeout: settings.timeout,
            lease: settings.lease,
        };
        if switch.pipelines.is_empty() {
            switch.pipelines.push(Pipeline::default());
        }
        let pipeline = &mut switch.pipelines[0];
        for Sharer { protocol, job, key } in &self.sharers[sharers] {
            if pipeline.array(protocol.code).is_none()
                && let Some(machine) = protocol.shared_switch(Values::Fingerprint, &config)
            {
                pipeline.share(protocol.code, machine);
            }
            let (members, others) = (Vec::new(), Vec::new());
            let installed = InstalledJob { protocol: protocol.code, key: *key, members, others, machine: None };
            pipeline.install(*job, installed);
        }
    }

    /// What a job's hosts know of the fabric. Trees end in the switches of its plan, or else next to the leaders.
    pub(super) fn fabric_plan(&self, plan: &JobPlan) -> FabricPlan {
        let own_switch = |&host: &NodeId| self.graph.switch(self.table.attachment(host).0);
        let roots_on_way = plan.roots.is_empty();
        let roots: Arc<[NodeId]> = match &plan.roots[..] {
            [] => plan.members.iter().map(own_switch).collect(),
            roots => roots.iter().map(|&root| self.graph.switch(root)).collect(),
        };
        let reissues = self.settings.shared.reissues;
        FabricPlan { hosts: plan.members.clone().into(), roots, roots_on_way, reissues }
    }

    /// The memory that jobs share, switch by switch.
    pub fn arrays(&self) -> impl Iterator<Item = (NodeId, ArrayReport)> + '_ {
        self.switches.iter().flat_map(|switch| switch.arrays().map(|(array, _)| (switch.exits.node, array)))
    }
}

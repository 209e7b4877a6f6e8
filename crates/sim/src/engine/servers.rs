//! Installs a job with servers: hosts sum, switches only forward.

use tributary_proto::contract::config::{HostConfig, WorkerPlace};
use tributary_proto::contract::ids::{NodeId, Rank, ServerId};
use tributary_proto::contract::values::Values;

use super::endpoint::{Endpoint, EndpointId};
use super::install::{InstallError, check};
use super::jobs::{Job, JobIndex, JobPlan};
use super::simulation::Simulation;
use crate::events::{EventId, EventKind};

impl Simulation {
    /// Adds a job whose sums are made by servers: by its own members if `dedicated` is empty, else by these hosts. Its
    /// protocol has servers; its roots are not used.
    pub fn install_served(&mut self, plan: JobPlan, dedicated: &[NodeId]) -> Result<JobIndex, InstallError> {
        check(&plan, self.traffic.jobs.all().len())?;
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
                trees: WorkerPlace::of_rank(rank),
                serves: number.map(|number| ServerId(number as u16)),
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
                self.fabric.queue.push(plan.start.max(self.fabric.now), EventId::new(EventKind::Submit, id.0));
            }
        }
        let mut job = Job::new(index, plan, config.key, self.graph.hosts(), Vec::new());
        job.set_servers(servers);
        self.traffic.jobs.push(job);
        Ok(index)
    }
}

//! Puts a job with parameter servers into the network: its hosts sum, switches only forward.

use tributary_proto::collective::values::Fingerprint;
use tributary_proto::contract::config::HostConfig;
use tributary_proto::contract::ids::{ChildId, NodeId, Rank};
use tributary_proto::ps::{PsHost, Servers};

use super::install::{InstallError, check};
use super::jobs::{Job, JobIndex, JobPlan};
use super::seat::{Seat, SeatId};
use super::simulation::Simulation;
use crate::events::{EventId, EventKind};

impl Simulation {
    /// Adds a job whose sums are made by servers: by its own members if `dedicated` is empty, else by these hosts. The
    /// plan's protocol is SwitchML, whose packets and machines they use; its roots are of no use.
    pub fn install_served(&mut self, plan: JobPlan, dedicated: &[NodeId]) -> Result<JobIndex, InstallError> {
        check(&plan, self.traffic.jobs.all().len())?;
        let servers = if dedicated.is_empty() { plan.members.len() } else { dedicated.len() };
        if !usize::from(plan.slots).is_multiple_of(servers) {
            return Err(InstallError::Slots { name: plan.name, slots: plan.slots, trees: servers });
        }
        let index = self.traffic.jobs.next_index();
        let config = self.job_config(index, &plan, servers);
        let place = if dedicated.is_empty() { Servers::Colocated } else { Servers::Dedicated };
        for (address, &host) in plan.members.iter().chain(dedicated).enumerate() {
            let rank = Rank(address as u16);
            let machine = HostConfig {
                job: config.clone(),
                rank,
                child: ChildId::of_rank(rank),
                timers: plan.timers,
                fabric: Default::default(),
            };
            let id = SeatId(self.traffic.seats.len() as u32);
            let machine = Box::new(PsHost::<Fingerprint>::new(&machine, place));
            // Only ranks bring something; their first collective is an event.
            let open = address < plan.members.len();
            self.take_seat(Seat::new(host, index, rank, machine, open));
            if open {
                self.fabric.queue.push(plan.start.max(self.fabric.now), EventId::new(EventKind::Source, id.0));
            }
        }
        let mut job = Job::new(index, plan, config.key, self.graph.hosts(), Vec::new());
        job.add_servers(dedicated);
        job.servers = Some(servers);
        self.traffic.jobs.push(job);
        Ok(index)
    }
}

//! A job leaves: its programs are removed from the switches and its machines from the hosts, and their reports are kept.

use tributary_proto::contract::drop_reason::DropReason;
use tributary_proto::contract::host::{Collective, Host, HostEvent, HostStats, SubmitError};
use tributary_proto::contract::ids::{JobId, OpId};
use tributary_proto::contract::packet::{Addr, Packet, Transmit};
use tributary_proto::contract::protocol::Placement;
use tributary_proto::contract::time::Time;

use super::install::RATE;
use super::jobs::JobIndex;
use super::simulation::Simulation;

impl Simulation {
    /// Removes a job whose ranks have all ended. Packets of it that are still in flight are dropped where they arrive.
    pub(super) fn remove_job(&mut self, index: JobIndex) {
        self.most_memory = self.most_memory.max(self.switch_memory_bytes());
        self.keep_reports(index);
        let job = self.traffic.jobs.get(index);
        let id = JobId(index.0 + 1);
        match job.plan.protocol.placement {
            Placement::Hosts => {}
            Placement::Trees => {
                let trees = self.plan_trees(&job.plan).unwrap_or_default();
                self.network.take_load(&trees, RATE);
                let (programs, switches) = (&mut self.programs, &mut self.switches);
                for program in programs.iter_mut().filter(|program| program.job() == index) {
                    program.uninstall(&mut switches[program.switch as usize]);
                }
            }
            Placement::EveryHop => {
                self.shared_programs.retain(|program| program.job_id() != id);
                for switch in &mut self.switches {
                    switch.pipelines.first_mut().map(|pipeline| pipeline.remove(id));
                }
            }
        }
        self.set_switch_timers();
        for (number, endpoint) in
            self.traffic.endpoints.iter_mut().enumerate().filter(|(_, endpoint)| endpoint.job == index)
        {
            endpoint.silence();
            let stats = endpoint.machine.stats().clone();
            endpoint.machine = Box::new(DepartedHost(stats));
            self.endpoint_timers.set(number as u32, None);
            self.hosts[endpoint.host.index()].endpoints.retain(|other| other.0 != number as u32);
        }
    }

    /// Keeps the reports of this partition's switches about a job, before they forget it.
    fn keep_reports(&mut self, index: JobIndex) {
        let fabric = &self.fabric;
        let local = |switch: u32| fabric.owns(self.graph.switch(switch));
        let metrics: Vec<_> = self.switch_metrics_of(index).into_iter().filter(|of| local(of.switch)).collect();
        let drops = self.drops_in_switches(self.traffic.jobs.get(index));
        self.past_metrics.extend(metrics);
        self.traffic.jobs.get_mut(index).switch_drops.add(&drops);
    }

    /// Bytes that programs still hold for jobs that have left.
    pub fn leaked_bytes(&self) -> usize {
        let has_left = |job: JobIndex| {
            self.traffic.jobs.get(job).lifetime.as_ref().is_some_and(|lifetime| lifetime.left.is_some())
        };
        let programs = self.programs.iter().filter(|program| has_left(program.job()));
        programs.map(|program| program.memory_bytes(&self.switches[program.switch as usize])).sum()
    }
}

/// Replaces the machine of a rank that has left, and keeps its counts.
struct DepartedHost(HostStats);

impl Host for DepartedHost {
    fn submit(&mut self, _: Time, _: Collective) -> Result<OpId, SubmitError> {
        unreachable!("a rank that has left submits nothing")
    }
    fn handle_packet(&mut self, _: Time, _: Addr, _: Packet<'_>) -> Result<(), DropReason> {
        Err(DropReason::UnknownJob)
    }
    fn handle_timeout(&mut self, _: Time) {}
    fn abort(&mut self, _: Time) {}
    fn poll_transmit(&mut self, _: Time, _: &mut [u8]) -> Option<Transmit> {
        None
    }
    fn poll_event(&mut self) -> Option<HostEvent> {
        None
    }
    fn poll_timeout(&self) -> Option<Time> {
        None
    }
    fn max_packet_len(&self) -> usize {
        0
    }
    fn stats(&self) -> &HostStats {
        &self.0
    }
}

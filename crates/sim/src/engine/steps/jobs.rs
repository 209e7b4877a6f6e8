//! Jobs that come and go: they arrive, wait for hosts and for memory of switches, run, and leave.
//!
//! All partitions of a run on several threads must do the same at the same instant. So jobs are scheduled only at the end
//! of a window ([`Simulation::schedule_jobs`]): a job whose last rank has ended during the window leaves then, and waiting
//! jobs may start. The windows follow from the network alone, and are the same with one thread.

use tributary_proto::contract::drop_reason::DropReason;
use tributary_proto::contract::host::{Collective, Host, HostEvent, HostStats, SubmitError};
use tributary_proto::contract::ids::{JobId, NodeId, OpId};
use tributary_proto::contract::packet::{Addr, Packet, Transmit};
use tributary_proto::contract::protocol::Placement;
use tributary_proto::contract::time::Time;

use super::install::RATE;
use crate::engine::cluster::{Arrival, Cluster, Wait};
use crate::engine::faults::Action;
use crate::engine::records::{EndpointId, JobIndex, JobLifetime, JobPlan};
use crate::engine::simulation::Simulation;
use crate::rng::{Purpose, Rng};
use crate::topology::window_end;

impl Simulation {
    /// Schedules the arrivals of jobs, earliest first. `memory`: the memory of each switch for programs, if it is bounded.
    pub fn schedule_arrivals(&mut self, arrivals: Vec<Arrival>, memory: Option<u64>) {
        let mut times: Vec<Time> = arrivals.iter().map(|arrival| arrival.time).collect();
        times.dedup();
        self.open += arrivals.len() as u64;
        self.cluster = Some(Box::new(Cluster::new(&self.graph, memory, arrivals)));
        times.into_iter().for_each(|time| self.plan(time, Action::ScheduleJobs));
    }

    /// Jobs that come and go, if there are any.
    pub fn cluster(&self) -> Option<&Cluster> {
        self.cluster.as_deref()
    }

    /// A rank has nothing more to do, or gives up.
    pub(crate) fn finish_endpoint(&mut self, id: EndpointId) {
        let endpoint = &mut self.traffic.endpoints[id.0 as usize];
        if !std::mem::replace(&mut endpoint.open, false) {
            return;
        }
        self.open -= 1;
        let job = endpoint.job;
        self.end_step_of(id);
        let Some(cluster) = self.cluster.as_mut().filter(|cluster| cluster.running.contains_key(&job.0)) else {
            return;
        };
        if self.fabric.is_partitioned() {
            cluster.ended.push(job);
        } else {
            let now = self.fabric.now;
            let round = cluster.lookahead.map_or(Time(now.0 + 1), |lookahead| window_end(now, lookahead));
            self.note_ended(&[job], round);
        }
    }

    /// Notes that ranks have ended, in any partition, during the window that ends at `round`, when whole jobs leave.
    /// Returns that time if a job leaves.
    pub fn note_ended(&mut self, ended: &[JobIndex], round: Time) -> Option<Time> {
        let cluster = self.cluster.as_mut()?;
        let mut leaves = false;
        for job in ended {
            if let Some(left) = cluster.running.get_mut(&job.0) {
                *left -= 1;
                leaves |= *left == 0;
            }
        }
        if leaves && cluster.next_round != Some(round) {
            cluster.next_round = Some(round);
            self.plan(round, Action::ScheduleJobs);
        }
        leaves.then_some(round)
    }

    /// Removes jobs that have ended, and starts waiting jobs that fit, in the order of their arrival.
    pub(crate) fn schedule_jobs(&mut self) {
        let Some(mut cluster) = self.cluster.take() else { return };
        let now = self.fabric.now;
        let due = |round: &Time| *round <= now;
        if cluster.next_round.as_ref().is_some_and(due) {
            let gone: Vec<u16> = cluster.running.iter().filter(|&(_, &left)| left == 0).map(|(&job, _)| job).collect();
            for job in gone {
                cluster.running.remove(&job);
                self.release_job(JobIndex(job), &mut cluster);
            }
        }
        while cluster.arrivals.front().is_some_and(|next| next.time <= now) {
            let next = cluster.arrivals.pop_front();
            cluster.waiting.extend(next);
        }
        while let Some(first) = cluster.waiting.pop_front() {
            match self.start_job(&first, &mut cluster) {
                Ok(()) => {}
                Err(_) if !cluster.running.is_empty() => {
                    cluster.waiting.push_front(first);
                    break;
                }
                Err(wait) => {
                    cluster.refused.push((first.plan.name, wait.sentence(first.workers)));
                    self.open -= u64::from(self.fabric.owns(NodeId(0)));
                }
            }
        }
        self.cluster = Some(cluster);
    }

    /// Gives a job hosts, trees and memory, if there are enough.
    fn start_job(&mut self, arrival: &Arrival, cluster: &mut Cluster) -> Result<(), Wait> {
        let members = cluster.find_hosts(arrival).ok_or(Wait::Hosts)?;
        let now = self.fabric.now;
        let index = self.traffic.jobs.next_index();
        let mut plan = JobPlan { members, start: now + arrival.plan.compute, ..arrival.plan.clone() };
        if arrival.trees > 0 {
            let mut rng = Rng::new(self.settings.seed, Purpose::Roots, u64::from(index.0));
            let roots = self.least_loaded(&plan.members, arrival.trees, &mut rng);
            plan.roots = roots.map_err(|error| Wait::Memory(error.to_string()))?;
            plan.slots *= plan.roots.len() as u16;
        }
        self.check_fits(&plan, cluster.memory).map_err(|error| Wait::Memory(error.to_string()))?;
        let (ranks, members) = (plan.members.len() as u32, plan.members.clone());
        let installed = self.install(plan).map_err(|error| Wait::Memory(error.to_string()))?;
        debug_assert_eq!(installed, index, "jobs have their numbers in the order in which they begin");
        self.spread_memory(index, cluster.memory);
        members.iter().for_each(|host| cluster.workers[host.index()] += 1);
        cluster.running.insert(index.0, ranks);
        let lifetime = JobLifetime { model: arrival.model.clone(), arrived: arrival.time, placed: now, left: None };
        self.traffic.jobs.get_mut(index).lifetime = Some(lifetime);
        Ok(())
    }

    /// Takes back the hosts and memory of a job.
    fn release_job(&mut self, index: JobIndex, cluster: &mut Cluster) {
        let now = self.fabric.now;
        self.remove_job(index);
        // The run waits for the job until it has left; one partition counts that.
        self.open -= u64::from(self.fabric.owns(NodeId(0)));
        let job = self.traffic.jobs.get_mut(index);
        if let Some(lifetime) = &mut job.lifetime {
            lifetime.left = Some(now);
        }
        job.members.iter().for_each(|host| cluster.workers[host.index()] -= 1);
        self.spread_memory(index, cluster.memory);
    }

    /// Removes a job whose ranks have all ended. Packets of it that are still in flight are dropped where they arrive.
    pub(crate) fn remove_job(&mut self, index: JobIndex) {
        self.programs.max_memory = self.programs.max_memory.max(self.switch_memory_bytes());
        self.keep_reports(index);
        let job = self.traffic.jobs.get(index);
        let id = JobId(index.0 + 1);
        match job.plan.protocol.placement {
            Placement::Hosts => {}
            Placement::Trees => {
                let trees = self.plan_trees(index, &job.plan).unwrap_or_default();
                self.network.take_load(&trees, RATE);
                let (programs, switches) = (&mut self.programs.trees, &mut self.switches);
                for program in programs.iter_mut().filter(|program| program.job() == index) {
                    program.uninstall(&mut switches[program.switch as usize]);
                }
            }
            Placement::EveryHop => {
                self.programs.shared.retain(|program| program.job_id() != id);
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
        self.programs.past_metrics.extend(metrics);
        self.traffic.jobs.get_mut(index).switch_drops.add(&drops);
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

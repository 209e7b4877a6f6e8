//! Jobs that come and go: they arrive, wait for hosts and for memory of switches, run, and leave.
//!
//! All partitions of a run on several threads must do the same at the same instant. So jobs are scheduled only at the end
//! of a window ([`Simulation::schedule_jobs`]): a job whose last rank has ended during the window leaves then, and waiting
//! jobs may start. The windows follow from the network alone, and are the
//! same with one thread.

use std::collections::{BTreeMap, VecDeque};

use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::time::{Span, Time};

use super::actions::Action;
use super::endpoint::EndpointId;
use super::jobs::{JobIndex, JobPlan};
use super::partitions::{lookahead, window_end};
use super::placement::HostGroups;
use super::simulation::Simulation;
use crate::rng::{Purpose, Rng};
use crate::topology::Graph;

/// A job before it has hosts.
#[derive(Clone, Debug, PartialEq)]
pub struct Arrival {
    /// When it arrives.
    pub time: Time,
    /// The job's plan, without members, roots and start, and with the slots of one tree.
    pub plan: JobPlan,
    /// How many workers it needs.
    pub workers: u16,
    /// How many trees it should have; 0 if none are planned.
    pub trees: u16,
    /// The model that it trains.
    pub model: String,
    /// Which hosts it may use.
    pub limits: HostLimits,
}

/// Which hosts a job may run on, and how many workers each may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostLimits {
    /// For each host, whether the job may use it.
    pub may_use: Vec<bool>,
    /// How many workers of all jobs one host may have.
    pub workers_per_host: u16,
}

/// The times of a job that comes and goes.
#[derive(Clone, Debug, PartialEq)]
pub struct JobLifetime {
    /// The model.
    pub model: String,
    /// When it arrived.
    pub arrived: Time,
    /// When it got its hosts.
    pub placed: Time,
    /// When it returned its hosts.
    pub left: Option<Time>,
}

/// Jobs that come and go, and the hosts that they use.
pub struct Cluster {
    groups: HostGroups,
    lookahead: Option<Span>,
    /// For each host, how many workers are there.
    workers: Vec<u16>,
    /// The memory of each switch for jobs' programs, if it is bounded.
    pub(super) memory: Option<u64>,
    arrivals: VecDeque<Arrival>,
    waiting: VecDeque<Arrival>,
    /// For each running job, how many ranks have not ended.
    running: BTreeMap<u16, u32>,
    /// Jobs of ranks that have ended here, which other partitions may not know yet.
    ended: Vec<JobIndex>,
    /// The last scheduling that was planned because a job has ended.
    next_round: Option<Time>,
    /// Jobs that do not fit even into an empty network, and why.
    refused: Vec<(String, String)>,
    /// How many jobs there are in all.
    total: usize,
}

impl Cluster {
    fn new(graph: &Graph, memory: Option<u64>, arrivals: Vec<Arrival>) -> Cluster {
        Cluster {
            groups: HostGroups::new(graph),
            lookahead: lookahead(graph),
            workers: vec![0; graph.hosts() as usize],
            memory,
            total: arrivals.len(),
            arrivals: arrivals.into(),
            waiting: VecDeque::new(),
            running: BTreeMap::new(),
            ended: Vec::new(),
            next_round: None,
            refused: Vec::new(),
        }
    }

    /// How many jobs there are in all, including those that have not arrived.
    pub fn total(&self) -> usize {
        self.total
    }

    /// Jobs that have not arrived yet, earliest first.
    pub fn arrivals(&self) -> impl Iterator<Item = &Arrival> {
        self.arrivals.iter()
    }

    /// Jobs that could not run, and why.
    pub fn refused(&self) -> &[(String, String)] {
        &self.refused
    }

    /// How many workers are on hosts.
    pub fn workers(&self) -> u64 {
        self.workers.iter().map(|&workers| u64::from(workers)).sum()
    }

    fn find_hosts(&self, arrival: &Arrival) -> Option<Vec<NodeId>> {
        let HostLimits { may_use, workers_per_host } = &arrival.limits;
        let free = |host: u32| match may_use[host as usize] {
            true => workers_per_host.saturating_sub(self.workers[host as usize]),
            false => 0,
        };
        self.groups.find(arrival.workers.into(), free)
    }
}

/// Why a job has to wait.
enum Wait {
    Hosts,
    Memory(String),
}

impl Wait {
    fn sentence(self, workers: u16) -> String {
        match self {
            Wait::Hosts => format!("its {workers} workers do not fit on the hosts that it may use"),
            Wait::Memory(sentence) => sentence,
        }
    }
}

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
    pub(super) fn finish_endpoint(&mut self, id: EndpointId) {
        let endpoint = &mut self.traffic.endpoints[id.0 as usize];
        if !std::mem::replace(&mut endpoint.open, false) {
            return;
        }
        self.open -= 1;
        let job = endpoint.job;
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

    /// The ranks that have ended in this partition since the last call, each by its job.
    pub fn take_ended(&mut self) -> Vec<JobIndex> {
        self.cluster.as_mut().map_or_else(Vec::new, |cluster| std::mem::take(&mut cluster.ended))
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
    pub(super) fn schedule_jobs(&mut self) {
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
}

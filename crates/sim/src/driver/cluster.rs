//! Jobs that come and go: they arrive, wait for hosts and for memory of switches, run, and leave.
//!
//! All parts of a run on several threads must do the same at the same instant. So what happens during a window is
//! looked at when the window is over: a job whose last rank has ended during a window leaves at the window's end
//! ([`Simulation::turn`]), and jobs that wait may come then. The windows follow from the network alone, and are the
//! same with one thread.

use std::collections::{BTreeMap, VecDeque};

use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::time::{Span, Time};

use super::actions::Action;
use super::jobs::{JobIndex, JobPlan};
use super::parts::{look_ahead, window_end};
use super::placement::Places;
use super::seat::HostSeatId;
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
    /// Which hosts it may share.
    pub tenants: Tenants,
}

/// Which hosts a job may run on, and how many workers each may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenants {
    /// For each host, whether the job may use it.
    pub may_use: Vec<bool>,
    /// How many workers of all jobs one host may have.
    pub workers_per_host: u16,
}

/// The times of a job that comes and goes.
#[derive(Clone, Debug, PartialEq)]
pub struct Stay {
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
    places: Places,
    look_ahead: Option<Span>,
    /// For each host, how many workers are there.
    workers: Vec<u16>,
    /// The memory of each switch for jobs' programs, if it is bounded.
    pub(super) memory: Option<u64>,
    arrivals: VecDeque<Arrival>,
    waiting: VecDeque<Arrival>,
    /// For each running job, how many ranks have not ended.
    running: BTreeMap<u16, u32>,
    /// Jobs of ranks that have ended here, of which other parts may not know.
    ended: Vec<JobIndex>,
    /// The last turn that was planned because a job has ended.
    turn: Option<Time>,
    /// Jobs that no empty network has room for, and why.
    refused: Vec<(String, String)>,
    /// How many jobs there are in all.
    total: usize,
}

impl Cluster {
    fn new(graph: &Graph, memory: Option<u64>, arrivals: Vec<Arrival>) -> Cluster {
        Cluster {
            places: Places::new(graph),
            look_ahead: look_ahead(graph),
            workers: vec![0; graph.hosts() as usize],
            memory,
            total: arrivals.len(),
            arrivals: arrivals.into(),
            waiting: VecDeque::new(),
            running: BTreeMap::new(),
            ended: Vec::new(),
            turn: None,
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

    fn find(&self, arrival: &Arrival) -> Option<Vec<NodeId>> {
        let Tenants { may_use, workers_per_host } = &arrival.tenants;
        let room = |host: u32| match may_use[host as usize] {
            true => workers_per_host.saturating_sub(self.workers[host as usize]),
            false => 0,
        };
        self.places.find(arrival.workers.into(), room)
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
    /// Lets these jobs arrive, earliest first. `memory`: the memory of each switch for programs, if it is bounded.
    pub fn expect(&mut self, arrivals: Vec<Arrival>, memory: Option<u64>) {
        let mut times: Vec<Time> = arrivals.iter().map(|arrival| arrival.time).collect();
        times.dedup();
        self.open += arrivals.len() as u64;
        self.cluster = Some(Box::new(Cluster::new(&self.graph, memory, arrivals)));
        times.into_iter().for_each(|time| self.plan(time, Action::Turn));
    }

    /// Jobs that come and go, if there are any.
    pub fn cluster(&self) -> Option<&Cluster> {
        self.cluster.as_deref()
    }

    /// A rank has nothing more to do, or gives up.
    pub(super) fn close(&mut self, id: HostSeatId) {
        let seat = &mut self.traffic.seats[id.0 as usize];
        if !std::mem::replace(&mut seat.open, false) {
            return;
        }
        self.open -= 1;
        let job = seat.job;
        let Some(cluster) = self.cluster.as_mut().filter(|cluster| cluster.running.contains_key(&job.0)) else {
            return;
        };
        if self.fabric.is_part() {
            cluster.ended.push(job);
        } else {
            let now = self.fabric.now;
            let turn = cluster.look_ahead.map_or(Time(now.0 + 1), |look_ahead| window_end(now, look_ahead));
            self.note_ended(&[job], turn);
        }
    }

    /// The ranks that have ended in this part since the last call, each by its job.
    pub fn take_ended(&mut self) -> Vec<JobIndex> {
        self.cluster.as_mut().map_or_else(Vec::new, |cluster| std::mem::take(&mut cluster.ended))
    }

    /// Notes that ranks have ended, in any part, during the window that ends at `turn`, when whole jobs leave. Returns
    /// that time if a job leaves.
    pub fn note_ended(&mut self, ended: &[JobIndex], turn: Time) -> Option<Time> {
        let cluster = self.cluster.as_mut()?;
        let mut leaves = false;
        for job in ended {
            if let Some(left) = cluster.running.get_mut(&job.0) {
                *left -= 1;
                leaves |= *left == 0;
            }
        }
        if leaves && cluster.turn != Some(turn) {
            cluster.turn = Some(turn);
            self.plan(turn, Action::Turn);
        }
        leaves.then_some(turn)
    }

    /// Removes jobs that have ended, and begins waiting jobs for which there is room, in the order of their arrival.
    pub(super) fn turn(&mut self) {
        let Some(mut cluster) = self.cluster.take() else { return };
        let now = self.fabric.now;
        let due = |turn: &Time| *turn <= now;
        if cluster.turn.as_ref().is_some_and(due) {
            let gone: Vec<u16> = cluster.running.iter().filter(|&(_, &left)| left == 0).map(|(&job, _)| job).collect();
            for job in gone {
                cluster.running.remove(&job);
                self.leave(JobIndex(job), &mut cluster);
            }
        }
        while cluster.arrivals.front().is_some_and(|next| next.time <= now) {
            let next = cluster.arrivals.pop_front();
            cluster.waiting.extend(next);
        }
        while let Some(first) = cluster.waiting.pop_front() {
            match self.begin(&first, &mut cluster) {
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
    fn begin(&mut self, arrival: &Arrival, cluster: &mut Cluster) -> Result<(), Wait> {
        let members = cluster.find(arrival).ok_or(Wait::Hosts)?;
        let now = self.fabric.now;
        let index = self.traffic.jobs.next_index();
        let mut plan = JobPlan { members, start: now + arrival.plan.compute, ..arrival.plan.clone() };
        if arrival.trees > 0 {
            let mut rng = Rng::new(self.settings.seed, Purpose::Roots, u64::from(index.0));
            let roots = self.least_loaded(&plan.members, arrival.trees, &mut rng);
            plan.roots = roots.map_err(|error| Wait::Memory(error.to_string()))?;
            plan.slots *= plan.roots.len() as u16;
        }
        self.check_room(&plan, cluster.memory).map_err(|error| Wait::Memory(error.to_string()))?;
        let (ranks, members) = (plan.members.len() as u32, plan.members.clone());
        let installed = self.install(plan).map_err(|error| Wait::Memory(error.to_string()))?;
        debug_assert_eq!(installed, index, "jobs have their numbers in the order in which they begin");
        self.spread_memory(index, cluster.memory);
        members.iter().for_each(|host| cluster.workers[host.index()] += 1);
        cluster.running.insert(index.0, ranks);
        let stay = Stay { model: arrival.model.clone(), arrived: arrival.time, placed: now, left: None };
        self.traffic.jobs.get_mut(index).stay = Some(stay);
        Ok(())
    }

    /// Takes back what a job has.
    fn leave(&mut self, index: JobIndex, cluster: &mut Cluster) {
        let now = self.fabric.now;
        self.dismiss(index);
        // The run waits for the job until it has left; one part counts that.
        self.open -= u64::from(self.fabric.owns(NodeId(0)));
        let job = self.traffic.jobs.get_mut(index);
        if let Some(stay) = &mut job.stay {
            stay.left = Some(now);
        }
        job.members.iter().for_each(|host| cluster.workers[host.index()] -= 1);
        self.spread_memory(index, cluster.memory);
    }
}

//! What programs in switches report: occupancy, the work of cores, metrics, and dropped packets.

use tributary_proto::contract::drop_reason::DropCounters;
use tributary_proto::contract::ids::JobId;
use tributary_proto::protocols;

use crate::cores::counters::Counters;
use crate::engine::endpoint::Endpoint;
use crate::engine::job::Job;
use crate::engine::program::{Gauge, Handled, Occupancy, SLOTS_IN_USE, SwitchMetrics, metrics_of};
use crate::engine::records::JobIndex;
use crate::engine::simulation::Simulation;

impl Simulation {
    /// The occupancy of each switch, by number.
    pub fn occupancy(&self) -> Vec<Occupancy> {
        let mut switches = vec![Occupancy::default(); self.switches.len()];
        for program in &self.programs.trees {
            if let Some((machine, bytes)) = program.state(&self.switches[program.switch as usize]) {
                switches[program.switch as usize].add(machine.slots_waiting, machine.slots, bytes);
            }
        }
        for (occupancy, switch) in switches.iter_mut().zip(&self.switches) {
            switch.shared().for_each(|(_, report, bytes)| occupancy.add(report.slots_in_use, report.slots, bytes));
        }
        for (occupancy, switch) in switches.iter_mut().zip(&self.switches) {
            if let Some(counters) = switch.cores().map(|cores| cores.counters()) {
                occupancy.waiting = counters.queued.value();
                occupancy.input_bytes = counters.input_bytes.value();
                occupancy.working_bytes = counters.working_bytes.value();
            }
        }
        switches
    }

    /// The work of each switch's cores, by number; zero for switches without cores.
    pub fn handled(&self) -> Vec<Handled> {
        let of = |counters: &Counters| Handled {
            bytes: counters.handled_bytes,
            lock_waiting: counters.lock_waiting,
            spent: counters.busy,
        };
        self.switches.iter().filter_map(|switch| Some(of(switch.cores()?.counters()))).collect()
    }

    /// The gauges of jobs and their present values; always the same gauges in the same order.
    pub fn gauges(&self) -> Vec<(Gauge, f64)> {
        let jobs = self.traffic.jobs.all();
        let slots_in_use =
            |job: &Job| (Gauge { job: job.index, rank: None, name: SLOTS_IN_USE }, self.slots_in_use_by(job) as f64);
        // Jobs that come and go are not in every sample.
        let is_static = |endpoint: &&Endpoint| self.traffic.jobs.get(endpoint.job).lifetime.is_none();
        let endpoints = self.traffic.endpoints.iter().filter(is_static);
        let of_ranks = endpoints.flat_map(|endpoint| {
            let gauge = |name| Gauge { job: endpoint.job, rank: Some(endpoint.rank), name };
            endpoint.machine.metrics().into_iter().map(move |metric| (gauge(metric.name), metric.value.as_f64()))
        });
        jobs.iter().filter(|job| self.is_counted(job)).map(slots_in_use).chain(of_ranks).collect()
    }

    /// True if slots are counted for a job. A machine that jobs share may have to go through all of its entries to count
    /// one job's, at each step, so slots are counted only if ranks measure something too.
    fn is_counted(&self, job: &Job) -> bool {
        if job.lifetime.is_some() {
            return false;
        }
        let first = self.traffic.endpoints.iter().find(|endpoint| endpoint.job == job.index);
        job.plan.protocol.shared.is_none() || first.is_some_and(|endpoint| !endpoint.machine.metrics().is_empty())
    }

    /// How many slots with incomplete sums of a job all switches have.
    fn slots_in_use_by(&self, job: &Job) -> u64 {
        let id = JobId(job.index.0 + 1);
        let pipelines = self.switches.iter().flat_map(|switch| &switch.pipelines);
        let machines = pipelines.filter_map(|pipeline| pipeline.report(id)?.machine);
        machines.map(|machine| u64::from(machine.slots_waiting)).sum()
    }

    /// The metrics of protocols in switches: of each job that has a machine there, and of memory that jobs share.
    pub fn switch_metrics(&self) -> Vec<SwitchMetrics> {
        let mut all = Vec::new();
        for switch in &self.switches {
            let number = switch.forwarding.index;
            all.extend(switch.shared().filter_map(|(code, report, _)| {
                let protocol = protocols::with_code(code)?.name;
                Some(SwitchMetrics { switch: number, protocol, job: None, metrics: report.figures() })
            }));
            all.extend(self.traffic.jobs.all().iter().filter_map(|job| metrics_of(switch, job)));
        }
        all.extend(self.programs.past_metrics.iter().cloned());
        // Shared memory comes first, because it has no job.
        all.sort_by_key(|of| (of.switch, of.job));
        all
    }

    /// The metrics of one job that is installed.
    pub(crate) fn switch_metrics_of(&self, job: JobIndex) -> Vec<SwitchMetrics> {
        self.switches.iter().filter_map(|switch| metrics_of(switch, self.traffic.jobs.get(job))).collect()
    }

    /// A job's packets that its programs in switches dropped. A switch that died has forgotten its drops.
    pub fn drops_in_switches(&self, job: &Job) -> DropCounters {
        let id = JobId(job.index.0 + 1);
        let mut sum = job.switch_drops.clone();
        let reports =
            self.switches.iter().flat_map(|switch| &switch.pipelines).filter_map(|pipeline| pipeline.report(id));
        reports.for_each(|report| sum.add(&report.drops));
        sum
    }
}

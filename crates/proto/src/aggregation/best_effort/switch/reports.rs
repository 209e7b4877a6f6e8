//! A switch's reports for people: about the memory that jobs share, and about each job.

use super::BestEffortSwitch;
use super::aggregators::Counters;
use super::job::{Job, State};
use crate::contract::config::SharedJob;
use crate::contract::ids::{ChildId, JobId};
use crate::contract::metric::Metric;
use crate::contract::state::SharedSwitchState;
use crate::contract::switch::{SharedReport, SharedSwitch, SwitchReport};
use crate::heap::insert_exactly;

/// The names and meanings of the figures.
fn figures(counters: &Counters, in_use: u32, outstanding: u64) -> Vec<Metric> {
    let Counters { results, marked, overflowed, released, .. } = *counters;
    vec![
        Metric::gauge("aggregators_in_use", in_use.into(), "Aggregators in use now."),
        Metric::gauge("outstanding", outstanding as f64, "Gradients that went on unsummed and have not come yet."),
        Metric::counter("results", results, "Results that went by."),
        Metric::counter("overflowed", overflowed, "Gradients that went on unsummed, for lack of a free aggregator."),
        Metric::counter("released", released, "Aggregators that left before they were complete."),
        Metric::counter("aecn_marks", marked, "Results that were marked because memory is short."),
    ]
}

impl BestEffortSwitch {
    /// Adds up what the chosen jobs hold.
    pub(super) fn account(&self, of: impl Fn(JobId) -> bool) -> SwitchReport {
        let mut report = SwitchReport::default();
        for job in self.jobs.iter().filter(|job| of(job.id)) {
            report.slots += job.in_use;
            report.slots_waiting += job.in_use;
            report.blocks_completed += job.counters.results;
            report.contributions += job.counters.contributions;
        }
        report
    }
}

impl SharedSwitch for BestEffortSwitch {
    fn add_job(&mut self, plan: &SharedJob) {
        self.remove_job(plan.job.job);
        let at = self.jobs.partition_point(|job| job.id < plan.job.job);
        insert_exactly(&mut self.jobs, at, Job::new(plan));
    }

    fn remove_job(&mut self, job: JobId) {
        let Ok(at) = self.job_at(job) else { return };
        for position in self.jobs[at].positions() {
            if matches!(position.state, State::Summing | State::Releasing) {
                self.aggregators.free(position.entry);
            }
        }
        let job = self.jobs.remove(at);
        self.jobs.shrink_to_fit();
        self.departed.add(&job.counters);
    }

    fn report_job(&self, job: JobId) -> SwitchReport {
        let mut report = self.account(|other| other == job);
        let Ok(at) = self.job_at(job) else { return report };
        let job = &self.jobs[at];
        report.lag = job.lag();
        report.missing = report.lag.map(|lag| ChildId::of_rank(lag.rank)).into_iter().collect();
        report.metrics = figures(&job.counters, job.in_use, job.outstanding);
        let behind = job.last().map_or(0, |(_, behind)| behind);
        report.metrics.push(Metric::gauge("behind_blocks", behind.into(), "Blocks from the first rank to the last."));
        report
    }

    fn report_shared(&self) -> SharedReport {
        let mut all = self.departed;
        self.jobs.iter().for_each(|job| all.add(&job.counters));
        let outstanding = self.jobs.iter().map(|job| job.outstanding).sum();
        let mut metrics = figures(&all, self.aggregators.in_use, outstanding);
        metrics.push(Metric::counter("expired", self.expired, "Aggregators that nobody touched for a lease."));
        SharedReport {
            slots: self.aggregators.len(),
            slots_in_use: self.aggregators.in_use,
            slots_peak: self.aggregators.peak,
            metrics,
        }
    }

    fn shared_state(&self) -> Option<&dyn SharedSwitchState> {
        Some(self)
    }
}

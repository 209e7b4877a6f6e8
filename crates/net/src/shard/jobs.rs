//! What a shard keeps of its jobs: rates, the progress of ranks, and the machines that jobs share.

use std::collections::BTreeMap;

use tributary_proto::contract::config::{Below, SharedSwitchConfig};
use tributary_proto::contract::drop_reason::DropReason;
use tributary_proto::contract::ids::{ChildId, JobId, JobKey, NodeId};
use tributary_proto::contract::metric::{self, Metric, MetricValue};
use tributary_proto::contract::pipeline::{JobReport, Pipeline};
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::contract::switch::SharedReport;
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::contract::values::Values;
use tributary_proto::contract::wire::Common;
use tributary_proto::switch_options::SwitchOptions;

use super::ShardJob;
use crate::pool_size::longest_elements;
use crate::progress::{Progress, RankProgress};

/// Installed jobs, by ascending id.
#[derive(Default)]
pub struct Jobs(Vec<Job>);

struct Job {
    id: JobId,
    key: JobKey,
    /// The worker or switch behind each child.
    below: Vec<Below>,
    rates: Rates,
    progress: RankProgress,
}

impl Jobs {
    /// Adds a job that was not installed before.
    pub fn begin(&mut self, id: JobId, key: JobKey, world_size: u16, below: Vec<Below>) {
        let at = self.0.partition_point(|other| other.id < id);
        self.0.insert(at, Job { id, key, below, rates: Rates::default(), progress: RankProgress::new(world_size) });
    }

    /// Removes a job.
    pub fn remove(&mut self, id: JobId) {
        self.0.retain(|job| job.id != id);
    }

    /// Records a member's report of a rank's progress. A child speaks for the ranks below it only.
    pub fn on_progress(
        &mut self,
        now: Time,
        common: &Common,
        child: Option<ChildId>,
        progress: Progress,
    ) -> Result<(), DropReason> {
        let job = self.0.iter_mut().find(|job| job.id == common.job).ok_or(DropReason::UnknownJob)?;
        if job.key != common.key {
            return Err(DropReason::WrongKey);
        }
        let speaks = |child: ChildId| {
            job.below.get(child.index()).is_some_and(|below| below.ranks().binary_search(&progress.rank).is_ok())
        };
        if child.is_some_and(|child| !speaks(child)) {
            return Err(DropReason::NotAMember);
        }
        job.progress.record(now, progress)
    }

    /// Each job as an operator sees it.
    pub fn report(&mut self, now: Time, pipeline: &Pipeline) -> Vec<ShardJob> {
        let of = |Job { id, rates, progress, .. }: &mut Job| {
            let report = pipeline.report(*id)?;
            rates.update(now, &report);
            let (packets_per_s, blocks_per_s) = (rates.packets_per_s, rates.blocks_per_s);
            let (absent, progress) = (Vec::new(), progress.clone());
            Some(ShardJob { id: *id, packets_per_s, blocks_per_s, report, absent, progress })
        };
        self.0.iter_mut().filter_map(of).collect()
    }
}

/// Samples that follow each other faster than this share one interval.
const INTERVAL: Span = Span::from_millis(500);

/// Rates over the last interval.
#[derive(Default)]
struct Rates {
    packets_per_s: f64,
    blocks_per_s: f64,
    last: Option<Sample>,
}

struct Sample {
    at: Time,
    packets: u64,
    blocks: u64,
}

impl Rates {
    /// Takes the present counters.
    fn update(&mut self, now: Time, report: &JobReport) {
        let blocks = report.machine.as_ref().map_or(0, |machine| machine.blocks_completed);
        let sample = Sample { at: now, packets: report.packets, blocks };
        if let Some(last) = &self.last {
            let interval = now.since(last.at);
            if interval < INTERVAL {
                return;
            }
            let per_s = |count: u64| count as f64 / interval.as_secs_f64();
            self.packets_per_s = per_s(sample.packets.saturating_sub(last.packets));
            self.blocks_per_s = per_s(sample.blocks.saturating_sub(last.blocks));
        }
        self.last = Some(sample);
    }
}

/// The machines that jobs share. What a machine has counted stays counted when it is removed because other jobs need its
/// memory.
pub struct SharedMachines {
    /// The switch as the machines know it.
    node: NodeId,
    /// The most elements in a packet of any job; if there is none, what fits the longest packet.
    elements_per_packet: Option<u16>,
    options: SwitchOptions,
    /// The counters of removed machines, by protocol code.
    past: BTreeMap<u8, Vec<Metric>>,
}

impl SharedMachines {
    /// No machine yet.
    pub fn new(node: NodeId, elements_per_packet: Option<u16>, options: SwitchOptions) -> SharedMachines {
        SharedMachines { node, elements_per_packet, options, past: BTreeMap::new() }
    }

    /// Installs the machine that the jobs of a protocol share, unless it is there.
    pub fn install(&self, protocol: &'static Protocol, pipeline: &mut Pipeline) {
        let Some(shared) = protocol.shared.as_ref().filter(|_| !pipeline.has_shared(protocol.code)) else { return };
        let elements_per_packet = self.elements_per_packet.unwrap_or_else(|| longest_elements(protocol));
        let config = SharedSwitchConfig { node: self.node, elements_per_packet, options: self.options.of(shared) };
        pipeline.share(protocol.code, (shared.machine)(Values::Elements, &config));
    }

    /// The bytes of the machine that the jobs of a protocol share, unless it is there already.
    pub fn bytes_of_new(&self, protocol: &'static Protocol, pipeline: &Pipeline) -> u64 {
        let shared = protocol.shared.as_ref().filter(|_| !pipeline.has_shared(protocol.code));
        shared.map_or(0, |shared| {
            let elements_per_packet = self.elements_per_packet.unwrap_or_else(|| longest_elements(protocol));
            let config = SharedSwitchConfig { node: self.node, elements_per_packet, options: self.options.of(shared) };
            (shared.memory)(Values::Elements, &config)
        })
    }

    /// Removes the machine that the jobs of a protocol share, after the last of these jobs; false if there is none.
    pub fn remove(&mut self, protocol: u8, pipeline: &mut Pipeline) -> bool {
        if let Some(report) = pipeline.shared(protocol) {
            let past = self.past.entry(protocol).or_default();
            metric::combine(past, &report.metrics);
            // Gauges of a removed machine are zero.
            for metric in past {
                if let MetricValue::Gauge(value) = &mut metric.value {
                    *value = 0.0;
                }
            }
        }
        pipeline.unshare(protocol)
    }

    /// Code, state and bytes of each machine; a removed one has no bytes.
    pub fn report(&self, pipeline: &Pipeline) -> Vec<(u8, SharedReport, usize)> {
        let mut all: BTreeMap<u8, (SharedReport, usize)> = BTreeMap::new();
        for (&code, past) in &self.past {
            all.insert(code, (SharedReport { metrics: past.clone(), ..SharedReport::default() }, 0));
        }
        for (code, report, bytes) in pipeline.all_shared() {
            let mut metrics = self.past.get(&code).cloned().unwrap_or_default();
            metric::combine(&mut metrics, &report.metrics);
            all.insert(code, (SharedReport { metrics, ..report }, bytes));
        }
        all.into_iter().map(|(code, (report, bytes))| (code, report, bytes)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tributary_proto::contract::drop_reason::DropCounters;

    fn report(packets: u64) -> JobReport {
        let (drops, last_seen) = (DropCounters::default(), Vec::new());
        JobReport { machine: None, fault: None, memory_bytes: 0, packets, drops, last_seen, others_last_seen: None }
    }

    #[test]
    fn a_rate_is_the_difference_over_the_interval_between_two_samples() {
        let mut rates = Rates::default();
        rates.update(Time::ZERO, &report(100));
        assert_eq!(rates.packets_per_s, 0.0);
        rates.update(Time::ZERO + Span::from_millis(2_000), &report(500));
        assert_eq!(rates.packets_per_s, 200.0);
        rates.update(Time::ZERO + Span::from_millis(2_001), &report(900));
        assert_eq!(rates.packets_per_s, 200.0, "one millisecond is too short an interval");
    }
}

//! Switches in a report: the protocols' own metrics, and the processors of switches with cores.

use serde::Serialize;
use tributary_proto::contract::metric::{self, Metric, MetricValue};

use crate::cores::counters::Level;
use crate::cores::steps::Kind;
use crate::engine::{JobIndex, Simulation, SwitchCores, SwitchMetrics};

/// The metrics of memory that all jobs of a protocol share, over all switches.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SharedMetrics {
    /// The protocol.
    pub protocol: &'static str,
    /// Its figures.
    pub metrics: Vec<MetricReport>,
}

/// One metric over all switches: the sum of a counter, or the largest value of a gauge.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MetricReport {
    /// Its name within its protocol.
    pub name: &'static str,
    /// `counter` or `gauge`.
    pub kind: &'static str,
    /// Its meaning.
    pub help: &'static str,
    /// The value.
    pub value: f64,
}

/// One figure in one switch.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricRow {
    /// The switch's number.
    pub switch: u32,
    /// The protocol.
    pub protocol: &'static str,
    /// The job's name; empty for shared memory.
    pub job: String,
    /// The figure.
    pub metric: MetricReport,
}

impl From<&Metric> for MetricReport {
    fn from(metric: &Metric) -> MetricReport {
        let kind = match metric.value {
            MetricValue::Counter(_) => "counter",
            MetricValue::Gauge(_) => "gauge",
        };
        MetricReport { name: metric.name, kind, help: metric.help, value: metric.value.as_f64() }
    }
}

/// Every figure in every switch.
pub fn metric_rows(simulation: &Simulation, all: &[SwitchMetrics]) -> Vec<MetricRow> {
    let name = |job: JobIndex| simulation.traffic.jobs.get(job).plan.name.clone();
    let row = |of: &SwitchMetrics, metric: &Metric| MetricRow {
        switch: of.switch,
        protocol: of.protocol,
        job: of.job.map(name).unwrap_or_default(),
        metric: metric.into(),
    };
    all.iter().flat_map(|of| of.metrics.iter().map(move |metric| row(of, metric))).collect()
}

/// The figures of one job over all switches.
pub fn of_job(all: &[SwitchMetrics], job: JobIndex) -> Vec<MetricReport> {
    over_all_switches(all.iter().filter(|of| of.job == Some(job)))
}

/// The metrics of shared memory over all switches, protocol by protocol.
pub fn of_shared(all: &[SwitchMetrics]) -> Vec<SharedMetrics> {
    let mut protocols: Vec<&'static str> = Vec::new();
    let shared = || all.iter().filter(|of| of.job.is_none());
    for of in shared() {
        if !protocols.contains(&of.protocol) {
            protocols.push(of.protocol);
        }
    }
    let metrics = |protocol| over_all_switches(shared().filter(|of| of.protocol == protocol));
    protocols.into_iter().map(|protocol| SharedMetrics { protocol, metrics: metrics(protocol) }).collect()
}

fn over_all_switches<'a>(all: impl Iterator<Item = &'a SwitchMetrics>) -> Vec<MetricReport> {
    let mut sum = Vec::new();
    all.for_each(|of| metric::combine(&mut sum, &of.metrics));
    sum.iter().map(MetricReport::from).collect()
}

/// One switch's processor.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CoresReport {
    /// The switch's number.
    pub switch: u32,
    /// Handlers that have ended.
    pub packets: u64,
    /// Packets that did not fit into the packet memory.
    pub refused: u64,
    /// Packets that were marked because the packet memory was filling.
    pub marked: u64,
    /// The share of the cores' time in which they had a handler.
    pub busy: f64,
    /// Gigabits handled in a second, over the time in which there were packets.
    pub handled_gbps: f64,
    /// Packets that waited for a core, on average.
    pub queue_mean: f64,
    /// The most packets that waited for one subset.
    pub queue_peak: u64,
    /// Bytes of the packet memory, on average.
    pub input_mean_bytes: f64,
    /// The most bytes of the packet memory.
    pub input_peak_bytes: u64,
    /// Bytes of blocks, on average.
    pub working_mean_bytes: f64,
    /// The most bytes of blocks.
    pub working_peak_bytes: u64,
    /// Buffers that began when their cluster's memory was full.
    pub crowded: u64,
    /// Cycles of waiting for locks.
    pub lock_waiting_cycles: u64,
    /// Cycles of steps, by kind.
    pub cycles: Vec<KindCycles>,
    /// True if the cycles of some job's custom operator are estimated.
    pub estimated: bool,
}

/// Cycles of one kind of step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct KindCycles {
    /// The kind.
    pub kind: &'static str,
    /// Its cycles.
    pub cycles: u64,
}

impl CoresReport {
    /// Cycles of all handlers, including waiting.
    pub fn service_cycles(&self) -> u64 {
        self.lock_waiting_cycles + self.cycles.iter().map(|kind| kind.cycles).sum::<u64>()
    }
}

/// The reports of processors that handled packets.
pub fn cores_reports(simulation: &Simulation) -> Vec<CoresReport> {
    let now = simulation.fabric.now.0;
    let used = simulation.cores().filter(|(_, cores)| cores.counters().finished + cores.counters().refused > 0);
    let mut cycles = simulation.traffic.jobs.all().iter().filter_map(|job| job.plan.custom_op.as_ref()?.cycles);
    let estimated = cycles.any(|cycles| cycles.estimated);
    used.map(|(switch, cores)| CoresReport { estimated, ..cores_report(switch, cores, now) }).collect()
}

fn cores_report(switch: u32, cores: &SwitchCores, now: u64) -> CoresReport {
    let (counters, spec) = (cores.counters(), cores.spec());
    let cycles = |picoseconds: u64| picoseconds / spec.cycle;
    let mean = |level: &Level| level.mean(now);
    let kind = |kind: Kind| KindCycles { kind: kind.name(), cycles: cycles(counters.of(kind)) };
    CoresReport {
        switch,
        packets: counters.finished,
        refused: counters.refused,
        marked: counters.marked,
        busy: counters.service() as f64 / (now.max(1) as f64 * f64::from(spec.shape.all_cores())),
        handled_gbps: counters.handled_gbps(),
        queue_mean: mean(&counters.queued),
        queue_peak: cores.processor().longest_queue(),
        input_mean_bytes: mean(&counters.input_bytes),
        input_peak_bytes: counters.input_bytes.peak(),
        working_mean_bytes: mean(&counters.working_bytes),
        working_peak_bytes: counters.working_bytes.peak(),
        crowded: counters.crowded,
        lock_waiting_cycles: cycles(counters.lock_waiting),
        cycles: Kind::ALL.into_iter().map(kind).collect(),
        estimated: false,
    }
}

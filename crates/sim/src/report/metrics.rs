//! The protocols' own metrics in switches, for reports and tables.

use serde::Serialize;
use tributary_proto::contract::metric::{self, Metric, MetricValue};

use crate::engine::{JobIndex, Simulation, SwitchMetrics};

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
pub fn rows(simulation: &Simulation, all: &[SwitchMetrics]) -> Vec<MetricRow> {
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

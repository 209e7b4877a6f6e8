//! The machines that all jobs of a protocol share in a switch, as operators see them. A machine gives way when no job uses it
//! and others need its memory; what it has counted is still counted then.

use std::collections::BTreeMap;

use tributary_proto::contract::metric::{self, Metric, MetricValue};
use tributary_proto::contract::pipeline::Pipeline;
use tributary_proto::contract::switch::SharedReport;

/// What machines have counted that have given way, by their protocol's code.
#[derive(Default)]
pub struct Sharers(BTreeMap<u8, Vec<Metric>>);

impl Sharers {
    /// Gives up what the jobs of a protocol share, after the last of these jobs; false if nothing was shared.
    pub fn give_up(&mut self, pipeline: &mut Pipeline, protocol: u8) -> bool {
        if let Some(report) = pipeline.shared(protocol) {
            let past = self.0.entry(protocol).or_default();
            metric::combine(past, &report.metrics);
            // What it measured is nothing again.
            for metric in past {
                if let MetricValue::Gauge(value) = &mut metric.value {
                    *value = 0.0;
                }
            }
        }
        pipeline.unshare(protocol)
    }

    /// Code, state and bytes of each machine; one that has given way has no bytes.
    pub fn report(&self, pipeline: &Pipeline) -> Vec<(u8, SharedReport, usize)> {
        let mut all: BTreeMap<u8, (SharedReport, usize)> = BTreeMap::new();
        for (&code, past) in &self.0 {
            all.insert(code, (SharedReport { metrics: past.clone(), ..SharedReport::default() }, 0));
        }
        for (code, report, bytes) in pipeline.all_shared() {
            let mut metrics = self.0.get(&code).cloned().unwrap_or_default();
            metric::combine(&mut metrics, &report.metrics);
            all.insert(code, (SharedReport { metrics, ..report }, bytes));
        }
        all.into_iter().map(|(code, (report, bytes))| (code, report, bytes)).collect()
    }
}

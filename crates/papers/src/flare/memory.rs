//! §4.3: the working memory by Little's law, and in the processor, whose packets arrive at random.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::bench::Bench;
use super::service::{Case, Cases, block_apart, equation_1, equation_2};
use super::timelines::DesignName;
use crate::{Context, Experiment, Finding, Findings, ReproduceError};

/// The buffers that each case holds.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct WorkingMemory(Cases);

/// The counts of one run: mean buffers, and buffers by Little's law with the measured latency and with the model's
/// latency.
struct Counted {
    held: f64,
    law: f64,
    model: f64,
    /// The measured latency divided by the model's.
    latency: f64,
    /// The mean buffers of a block.
    buffers: f64,
}

/// M: the buffers of a block.
fn buffers_of(design: DesignName, children: f64) -> f64 {
    match design {
        DesignName::Buffers(count) => count.into(),
        DesignName::Tree => (children - 1.0) / children.log2(),
    }
}

impl Experiment for WorkingMemory {
    /// Findings, for each case: `<case>-buffers`, mean buffers of all blocks divided by M B/P times the mean latency of
    /// a block, from its first packet's handler to its sum; `<case>-latency`, that latency divided by the model's
    /// (P - 1) δ_c + (Q + 1) τ; `<case>-model`, mean buffers divided by the model's with its own latency;
    /// `<case>-of-block`, mean buffers of a block; `<case>-published-of-block`, M.
    fn run(&self, context: &Context<'_>) -> Result<Findings, ReproduceError> {
        let mut findings = Findings::default();
        for (case, counted) in self.0.each(context, |case, bench| self.count(case, &bench))? {
            let mut value = |key: &str, of: &dyn Fn(&Counted) -> f64| {
                let values: Vec<f64> = counted.iter().map(of).collect();
                findings.value(format!("{}-{key}", case.name), Finding::over("seeds", &values));
            };
            value("buffers", &|one| one.held / one.law);
            value("latency", &|one| one.latency);
            value("model", &|one| one.held / one.model);
            value("of-block", &|one| one.buffers);
            value("published-of-block", &|_| buffers_of(case.design, case.children as f64));
            let cause =
                "a block has no buffer before its first packet, and the model's latency is that of the worst case";
            findings.cause(format!("{}-model", case.name), cause);
            let cause = "how many copies wait for their siblings depends on how far apart packets come and on how many cores a block \
                         has; the estimate divides sums by levels and knows neither";
            findings.cause(format!("{}-of-block", case.name), cause);
        }
        Ok(findings)
    }
}

impl WorkingMemory {
    fn count(&self, case: &Case, bench: &Bench) -> Result<Counted, ReproduceError> {
        if case.children < 2 {
            return Err(ReproduceError::Bad(format!("{}: children are two at least", case.name)));
        }
        let length = self.0.combine as f64;
        let (begun, sums) = lives(bench);
        let blocks = sums.len() as f64;
        let latency = sums.iter().map(|(block, at)| at - begun[block]).sum::<u64>() as f64 / blocks;
        // Times are in L and packets take L, so the law needs no unit.
        let (cores, children) = (f64::from(case.cores), case.children as f64);
        let service = equation_2(case, self.0.cluster, false);
        let rate = (cores / service).min(1.0 / case.apart) / children;
        let model_latency = (children - 1.0) * block_apart(case) + (equation_1(case, service) + 1.0) * service;
        let held = bench.processor.counters().working_bytes.mean(bench.end());
        let buffers = buffers_of(case.design, children);
        // The rate at which blocks arrived: packets are as far apart as asked, and few are under way at the end.
        let came = 1.0 / (children * case.apart + case.rest / case.staggered as f64);
        Ok(Counted {
            held,
            law: buffers * came * latency / length,
            model: buffers * rate * model_latency,
            latency: latency / length / model_latency,
            buffers: held / (blocks * latency / bench.end() as f64),
        })
    }
}

/// When each block's first handler began, and when its sum was sent.
fn lives(bench: &Bench) -> (BTreeMap<u64, u64>, BTreeMap<u64, u64>) {
    let (mut begun, mut sums) = (BTreeMap::<u64, u64>::new(), BTreeMap::new());
    for one in &bench.finished {
        let block = one.packet.block;
        begun.entry(block).and_modify(|at| *at = one.started.min(*at)).or_insert(one.started);
        if one.sent.is_some() {
            sums.insert(block, one.ended);
        }
    }
    (begun, sums)
}

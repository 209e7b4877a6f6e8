//! Equations 1 and 2: the time of a handler if others want the same buffer, and the queues that follow from it; and §4.3: the
//! working memory by Little's law. Each is compared with the processor, whose packets arrive at random.

use std::collections::BTreeMap;

use serde::Deserialize;
use tributary_sim::cores::model::{Costs, Design, Handling};

use super::bench::{self, Bench, DesignName, Stream, shape};
use crate::{Context, Experiment, Finding, Findings, ReproduceError};

/// The cases, and their common parameters.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cases {
    /// L: cycles to combine.
    pub combine: u64,
    /// C: cores of a cluster.
    pub cluster: u32,
    /// Blocks of each case.
    pub blocks: u64,
    /// The cases.
    pub cases: Vec<Case>,
}

impl Cases {
    /// Runs each case with each seed, and counts.
    pub fn each<T: Send>(
        &self,
        context: &Context<'_>,
        count: impl Fn(&Case, Bench) -> Result<T, ReproduceError> + Sync,
    ) -> Result<Vec<(&Case, Vec<T>)>, ReproduceError> {
        let points: Vec<(&Case, u64)> =
            self.cases.iter().flat_map(|case| (1..=context.seeds).map(move |seed| (case, seed))).collect();
        let counted = context
            .watch
            .all(&points, |&(case, seed)| count(case, case.run(self.combine, self.cluster, self.blocks, seed)?))?;
        let mut counted = counted.into_iter();
        let mut next = || counted.by_ref().take(context.seeds as usize).collect();
        Ok(self.cases.iter().map(|case| (case, next())).collect())
    }
}

/// A way to send, to schedule and to sum.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Findings are named after it.
    pub name: String,
    /// How packets are summed.
    pub design: DesignName,
    /// K.
    pub cores: u32,
    /// S: 1, or C.
    pub subset: u32,
    /// P: packets of a block.
    pub children: u64,
    /// δ / L: the time from packet to packet.
    pub gap: f64,
    /// Blocks whose packets take turns: δ_c / δ.
    pub staggered: u64,
    /// The additional time between blocks that take turns and the next ones, in L.
    #[serde(default)]
    pub rest: f64,
    /// Packets arrive at equal intervals.
    #[serde(default)]
    pub steady: bool,
}

impl Case {
    /// Runs `blocks` blocks on clusters of `cluster` cores, which each take `combine` cycles to combine.
    pub fn run(&self, combine: u64, cluster: u32, blocks: u64, seed: u64) -> Result<Bench, ReproduceError> {
        if self.staggered == 0 || self.children == 0 || combine == 0 || blocks == 0 {
            return Err(ReproduceError::Bad(format!("{}: numbers are one at least", self.name)));
        }
        let length = combine as f64;
        let stream = Stream {
            blocks,
            children: self.children,
            staggered: self.staggered,
            gap: self.gap * length,
            random: !self.steady,
            rest: self.rest * length,
        };
        let design = Design::from(self.design);
        // §6.3 says that a copy into a tree's buffer is negligible; the first packet of a single buffer takes L like
        // the others.
        let copy = if design == Design::Tree { 0 } else { combine };
        let costs = Costs { start: 0, copy, combine, merge: combine, send: 0 };
        let handling = Handling { design, children: self.children as u32, buffer_bytes: 1, costs };
        let mut bench = Bench::plain(shape(self.cores, cluster, self.subset)?, handling);
        bench.run(&stream.arrivals(seed))?;
        Ok(bench)
    }
}

/// The mean service time of a handler in L: equation 2 and the additions of §6.2 and §6.3, as printed, or with the sum
/// of the contended times corrected.
pub fn equation_2(case: &Case, cluster: u32, printed: bool) -> f64 {
    let (cores, children) = (f64::from(cluster), case.children as f64);
    let contended = if printed { (cores - 1.0) / 2.0 } else { (cores + 1.0) / 2.0 };
    match case.design {
        DesignName::Tree => (children - 1.0) / children,
        DesignName::Buffers(buffers) => {
            let buffers = f64::from(buffers);
            let is_free = case.subset == 1 || buffers * block_gap(case) >= 1.0;
            (if is_free { 1.0 } else { contended }) + (buffers - 1.0) / children
        }
    }
}

/// δ_c in L, which never exceeds K δ.
pub fn block_gap(case: &Case) -> f64 {
    case.gap * (case.staggered as f64).min(case.cores.into())
}

/// Equation 1: the packets that wait for a core, from its service time in L.
pub fn equation_1(case: &Case, service: f64) -> f64 {
    let [cores, subset, children] = [case.cores.into(), case.subset.into(), case.children as f64];
    bench::equation_1([cores, subset, children], [case.gap, block_gap(case), service])
}

/// Equation 2 and its consequences, for each case.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct Service(Cases);

/// The counts of one run of a case, times in L.
struct Counted {
    service: f64,
    wait: f64,
    queue: f64,
    packets: f64,
    rate: f64,
}

impl Experiment for Service {
    /// Findings, for each case, times in L: `<case>-service` and its part `<case>-wait`, means over packets;
    /// `<case>-printed` and `<case>-right`, the measured service time divided by equation 2's, as printed and
    /// corrected; `<case>-queue`, the most packets that wait for a subset, divided by its cores; `<case>-packets`, the
    /// most in the switch; `<case>-equation-queue` and `-equation-packets`, by equation 1; `<case>-rate`, packets that
    /// the switch served in L cycles, divided by its cores, and `<case>-equation-rate`, the lesser of 1/τ and the rate
    /// of arrival.
    fn run(&self, context: &Context<'_>) -> Result<Findings, ReproduceError> {
        let mut findings = Findings::default();
        for (case, counted) in self.0.each(context, |case, bench| self.count(case, &bench))? {
            let over =
                |of: &dyn Fn(&Counted) -> f64| Finding::over("seeds", &counted.iter().map(of).collect::<Vec<_>>());
            let (printed, right) = (equation_2(case, self.0.cluster, true), equation_2(case, self.0.cluster, false));
            let mut value = |key: &str, value: Finding| findings.value(format!("{}-{key}", case.name), value);
            value("service", over(&|one| one.service));
            value("wait", over(&|one| one.wait));
            value("printed", over(&|one| one.service / printed));
            value("right", over(&|one| one.service / right));
            value("queue", over(&|one| one.queue));
            value("packets", over(&|one| one.packets));
            value("rate", over(&|one| one.rate));
            let queue = equation_1(case, right);
            value("equation-queue", queue.into());
            value("equation-packets", ((queue + 1.0) * f64::from(case.cores)).into());
            value("equation-rate", (1.0 / printed).min(1.0 / (case.gap * f64::from(case.cores))).into());
            explain(case, over(&|one| one.wait).median, right, &mut findings);
        }
        Ok(findings)
    }
}

/// Why a case's numbers may differ from the equations'.
fn explain(case: &Case, wait: f64, right: f64, findings: &mut Findings) {
    let service = format!(
        "{wait:.3} L of it are waiting for the lock. The mean of L, 2 L, ... C L is L (C + 1) / 2, and the printed L (C - 1) / 2 is \
         the waiting in it. The equation knows nothing of cores that become free and take the block's next packet, nor of gaps \
         that are shorter than their mean"
    );
    findings.cause(format!("{}-service", case.name), service);
    findings.cause(
        format!("{}-rate", case.name),
        format!("with L (C + 1) / 2 it would be {:.4}; the time depends on the packets of a block too", 1.0 / right),
    );
    findings.cause(format!("{}-packets", case.name), bench::FEWER_PACKETS);
}

impl Service {
    fn count(&self, case: &Case, bench: &Bench) -> Result<Counted, ReproduceError> {
        let length = self.0.combine as f64;
        let shape = shape(case.cores, self.0.cluster, case.subset)?;
        let counters = bench.processor.counters();
        let packets = counters.finished as f64;
        let subsets = 0..shape.all_cores() / shape.subset_cores();
        let queue = subsets.map(|subset| bench.processor.queue(subset).peak()).max().unwrap_or(0);
        Ok(Counted {
            service: counters.service() as f64 / packets / length,
            wait: counters.lock_waiting as f64 / packets / length,
            queue: queue as f64 / f64::from(shape.subset_cores()),
            packets: counters.packets.peak() as f64,
            rate: packets * length / bench.end() as f64 / f64::from(case.cores),
        })
    }
}

/// The buffers that each case has in use.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct WorkingMemory(Cases);

/// The counts of one run: mean buffers, and buffers by Little's law with the measured latency and with the model's
/// latency.
struct MemoryCounts {
    in_use: f64,
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
            let mut value = |key: &str, of: &dyn Fn(&MemoryCounts) -> f64| {
                let values: Vec<f64> = counted.iter().map(of).collect();
                findings.value(format!("{}-{key}", case.name), Finding::over("seeds", &values));
            };
            value("buffers", &|one| one.in_use / one.law);
            value("latency", &|one| one.latency);
            value("model", &|one| one.in_use / one.model);
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
    fn count(&self, case: &Case, bench: &Bench) -> Result<MemoryCounts, ReproduceError> {
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
        let rate = (cores / service).min(1.0 / case.gap) / children;
        let model_latency = (children - 1.0) * block_gap(case) + (equation_1(case, service) + 1.0) * service;
        let in_use = bench.processor.counters().working_bytes.mean(bench.end());
        let buffers = buffers_of(case.design, children);
        // The rate at which blocks arrived: packets arrive at the given gaps, and few are in flight at the end.
        let came = 1.0 / (children * case.gap + case.rest / case.staggered as f64);
        Ok(MemoryCounts {
            in_use,
            law: buffers * came * latency / length,
            model: buffers * rate * model_latency,
            latency: latency / length / model_latency,
            buffers: in_use / (blocks * latency / bench.end() as f64),
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

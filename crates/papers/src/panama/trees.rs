//! PANAMA figure 9: a job's aggregation time over all its trees, over each tree alone, and in a ring, while other hosts
//! send long flows under DCTCP.

use serde::Deserialize;
use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::protocols;
use tributary_sim::config::{Config, SwitchName};
use tributary_sim::engine::Simulation;
use tributary_sim::experiment::build;
use tributary_sim::rng::{Purpose, Rng};

use crate::finding::{Figure, Finding, Series};
use crate::{Context, Experiment, Findings, ReproduceError};

/// More bytes than a flow sends before the job is done.
const ENDLESS: u64 = 1 << 40;
/// The time between two checks of the job.
const INTERVAL: Span = Span::from_millis(1);

/// What is run.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trees {
    /// The network and one job, which begins when the flows' windows are steady.
    pub setup: Config,
    /// How many of the other hosts send a long flow each, run by run.
    pub senders: Vec<usize>,
    /// The lines of the figure.
    pub lines: Vec<Line>,
}

/// A way to run the job.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// Findings are named after it.
    pub name: String,
    /// The protocol with which it reduces, if not the job's.
    #[serde(default)]
    pub protocol: Option<String>,
    /// The roots of its trees; empty for a ring.
    #[serde(default)]
    pub roots: Vec<SwitchName>,
}

/// Microseconds by line, number of senders and seed.
struct Times<'a> {
    trees: &'a Trees,
    seeds: usize,
    all: Vec<f64>,
}

impl Experiment for Trees {
    /// Findings `<line>-<senders>` (microseconds), `all-over-best-<senders>` (the line of several trees divided by the
    /// best of the others, seed by seed) and `worst-tree-over-ring` (over all single trees, numbers of senders and
    /// seeds).
    fn run(&self, context: &Context<'_>) -> Result<Findings, ReproduceError> {
        let points = self.points(context.seeds);
        let all = context.watch.all(&points, |&(line, senders, seed)| self.latency(context, line, senders, seed))?;
        let times = Times { trees: self, seeds: context.seeds as usize, all };
        let mut findings = Findings::default();
        let mut series: Vec<Series> = self.lines.iter().map(|line| Series::new(&line.name, Vec::new())).collect();
        for (at, &senders) in self.senders.iter().enumerate() {
            let mut texts = Vec::new();
            for (line, drawn) in series.iter_mut().enumerate() {
                let found = Finding::over("seeds", times.of(line, at));
                drawn.points.push([senders as f64, found.median]);
                drawn.ranges.push([found.low, found.high]);
                texts.push(format!("{} {:.0} us", drawn.name, found.median));
                findings.value(format!("{}-{senders}", drawn.name), found);
            }
            let cause = format!("{senders} hosts send long flows: {}", texts.join(", "));
            findings.cause(format!("all-over-best-{senders}"), &*cause);
            findings.value(format!("all-over-best-{senders}"), Finding::over("seeds", &times.all_over_best(at)));
            findings.note(cause + ".");
        }
        findings.value("worst-tree-over-ring", times.worst_tree_over_ring());
        findings.figures.push(Figure {
            title: "Aggregation latency beside long flows".into(),
            x: "hosts that send long flows".into(),
            y: "aggregation latency (us)".into(),
            log_x: false,
            series,
            marks: Vec::new(),
        });
        Ok(findings)
    }
}

impl Times<'_> {
    /// The times of all seeds.
    fn of(&self, line: usize, senders: usize) -> &[f64] {
        &self.all[(line * self.trees.senders.len() + senders) * self.seeds..][..self.seeds]
    }

    /// The lines with a number of trees that is chosen; a ring has 0.
    fn lines(&self, is_meant: impl Fn(usize) -> bool) -> impl Iterator<Item = usize> {
        let lines = self.trees.lines.iter().enumerate();
        lines.filter(move |(_, line)| is_meant(line.roots.len())).map(|(number, _)| number)
    }

    fn all_over_best(&self, senders: usize) -> Vec<f64> {
        let best = |seed: usize, is_meant: fn(usize) -> bool| {
            self.lines(is_meant).map(|line| self.of(line, senders)[seed]).fold(f64::INFINITY, f64::min)
        };
        (0..self.seeds).map(|seed| best(seed, |trees| trees > 1) / best(seed, |trees| trees < 2)).collect()
    }

    fn worst_tree_over_ring(&self) -> f64 {
        let ratios = self.lines(|trees| trees == 1).flat_map(|tree| {
            self.lines(|trees| trees == 0).flat_map(move |ring| {
                let senders = 0..self.trees.senders.len();
                senders.flat_map(move |at| self.of(tree, at).iter().zip(self.of(ring, at)).map(|(a, b)| a / b))
            })
        });
        ratios.fold(0.0, f64::max)
    }
}

impl Trees {
    fn points(&self, seeds: u64) -> Vec<(&Line, usize, u64)> {
        let of =
            |line| self.senders.iter().flat_map(move |&senders| (1..=seeds).map(move |seed| (line, senders, seed)));
        self.lines.iter().flat_map(of).collect()
    }

    fn config(&self, line: &Line, seed: u64) -> Result<Config, ReproduceError> {
        let mut config = Config { seed, ..self.setup.clone() };
        let [job] = &mut config.jobs[..] else {
            return Err(ReproduceError::Bad("the figure is about one job".into()));
        };
        if let Some(name) = &line.protocol {
            let unknown = || ReproduceError::Bad(format!("\"{name}\" is not a protocol"));
            job.protocol = protocols::named(name).ok_or_else(unknown)?;
        }
        job.roots = (!line.roots.is_empty()).then(|| line.roots.clone());
        Ok(config)
    }

    /// Microseconds from the first submission to the last result.
    fn latency(&self, context: &Context<'_>, line: &Line, senders: usize, seed: u64) -> Result<f64, ReproduceError> {
        let config = self.config(line, seed)?;
        let mut sim = build(&config).map_err(|error| ReproduceError::Bad(error.to_string()))?;
        start_flows(&mut sim, senders, seed)?;
        let (mut until, end) = (Time::ZERO, Time::ZERO + config.end.0);
        while until < end && !sim.traffic.jobs.all()[0].is_complete() {
            until += INTERVAL;
            sim.run(until);
            context.watch.check()?;
        }
        (context.watch.traced)(&format!("{:016x}", sim.fabric.trace_hash()));
        let job = &sim.traffic.jobs.all()[0];
        let wrong = |why: String| {
            let what = format!("{} beside {senders} flows, seed {seed}", line.name);
            ReproduceError::Wrong { what, why }
        };
        if let Some(error) = job.errors.first() {
            return Err(wrong(job.sentence(error)));
        }
        let mut spans = job.iterations.iter().filter_map(|iteration| Some(iteration.end?.since(iteration.start?)));
        match spans.next_back() {
            Some(span) if job.is_complete() => Ok(1e6 * span.as_secs_f64()),
            _ => Err(wrong(format!("it is not done after {} s", config.end.0.as_secs_f64()))),
        }
    }
}

/// Starts flows between hosts without a rank, the same for every line of a seed.
fn start_flows(sim: &mut Simulation, senders: usize, seed: u64) -> Result<(), ReproduceError> {
    let ranks = &sim.traffic.jobs.all()[0].plan.members;
    let mut others: Vec<NodeId> = (0..sim.graph().hosts()).map(NodeId).filter(|host| !ranks.contains(host)).collect();
    if senders > 0 && (senders > others.len() || others.len() < 2) {
        let hosts = others.len();
        return Err(ReproduceError::Bad(format!("{senders} hosts are to send flows, and {hosts} have no rank")));
    }
    let mut rng = Rng::new(seed, Purpose::Background, 0);
    rng.shuffle(&mut others);
    for (number, &from) in others.iter().enumerate().take(senders) {
        let step = 1 + rng.below(others.len() as u32 - 1) as usize;
        let to = others[(number + step) % others.len()];
        let started = sim.start_flow(from, to, ENDLESS);
        started.ok_or_else(|| ReproduceError::Bad("a flow has more packets than have numbers".into()))?;
    }
    Ok(())
}

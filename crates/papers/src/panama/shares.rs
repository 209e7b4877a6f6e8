//! PANAMA figure 10: the shares of a job and of a DCTCP flow on a cable that both need.

use serde::Deserialize;
use tributary_control::config::OptionTable;
use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::time::{Span, Time};
use tributary_sim::config::{Bytes, Config, Duration};
use tributary_sim::engine::Simulation;
use tributary_sim::experiment::build;

use crate::finding::{Figure, Series};
use crate::{Context, Experiment, Findings, ReproduceError};

/// What is run.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shares {
    /// The network and one job, which begins at its `start`; the run ends at `end`.
    pub setup: Config,
    /// The flow, which starts at the beginning.
    pub flow: Flow,
    /// The time between two measurements.
    pub interval: Duration,
    /// The lines of the figure.
    pub lines: Vec<Line>,
}

/// A long flow under DCTCP.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flow {
    /// The host that sends.
    pub from: u32,
    /// The host that receives.
    pub to: u32,
    /// More bytes than it can send.
    pub bytes: Bytes,
}

/// A way to run the job.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// Findings are named after it.
    pub name: String,
    /// The job's options.
    #[serde(default)]
    pub options: OptionTable,
    /// How many aggregation trees there are, all with the root that the job names.
    #[serde(default = "one")]
    pub trees: usize,
}

fn one() -> usize {
    1
}

/// The rates in each interval, Gbit/s on the cable: of the job, and of the flow.
type Rates = Vec<[f64; 2]>;

impl Experiment for Shares {
    /// Findings `<line>-job` and `<line>-flow`: the rate of each over the last half of the time in which both run,
    /// divided by half of the cable's rate.
    fn run(&self, context: &Context<'_>) -> Result<Findings, ReproduceError> {
        let runs = context.watch.all(&self.lines, |line| self.record(context, line))?;
        let mut findings = Findings::default();
        for (line, rates) in self.lines.iter().zip(&runs) {
            let [job, flow] = self.last_half(rates);
            let fair = self.setup.network.rate.0.0 as f64 / 2e9;
            for (who, rate) in [("job", job), ("flow", flow)] {
                let key = format!("{}-{who}", line.name);
                findings.cause(&*key, format!("the job sends {job:.3} Gbit/s, the flow {flow:.3} Gbit/s"));
                findings.value(key, rate / fair);
            }
            findings.note(format!("{}: the job sends {job:.3} Gbit/s, the flow {flow:.3} Gbit/s.", line.name));
            findings.figures.push(self.figure(line, rates));
        }
        findings
            .note("Both are counted on the cables of the hosts that send: bytes on the link, headers and framing too.");
        Ok(findings)
    }
}

impl Shares {
    fn config(&self, line: &Line) -> Result<Config, ReproduceError> {
        let mut config = self.setup.clone();
        let [job] = &mut config.jobs[..] else {
            return Err(ReproduceError::Bad("two share a cable: one job and one flow".into()));
        };
        job.options = line.options.clone();
        if let Some(roots) = &mut job.roots {
            *roots = roots.iter().cycle().take(line.trees).cloned().collect();
        }
        Ok(config)
    }

    fn record(&self, context: &Context<'_>, line: &Line) -> Result<Rates, ReproduceError> {
        let config = self.config(line)?;
        let bad = |error: String| ReproduceError::Bad(error);
        let mut sim = build(&config).map_err(|error| bad(error.to_string()))?;
        let rank = sim.traffic.jobs.all()[0].plan.members[0];
        let (from, to) = (NodeId(self.flow.from), NodeId(self.flow.to));
        if from.0.max(to.0) >= sim.graph().hosts() || from == to {
            return Err(bad(format!("a flow from {} to {} needs two hosts that are there", from.0, to.0)));
        }
        let started = sim.start_flow(from, to, self.flow.bytes.0);
        started
            .ok_or_else(|| bad(format!("a flow of {} bytes has more packets than have numbers", self.flow.bytes.0)))?;
        let sent = |sim: &Simulation| [rank, from].map(|host| sim.fabric.counters(sim.fabric.port(host, 0)).bytes);
        let (mut rates, mut before) = (Rates::new(), sent(&sim));
        let (mut until, interval) = (Time::ZERO, self.interval.0);
        while until < Time::ZERO + config.end.0 {
            until += interval;
            sim.run(until);
            let now = sent(&sim);
            rates.push([0, 1].map(|who| 8e-9 * (now[who] - before[who]) as f64 / interval.as_secs_f64()));
            before = now;
            context.watch.check()?;
        }
        self.check(line, &sim)?;
        (context.watch.traced)(&format!("{:016x}", sim.fabric.trace_hash()));
        Ok(rates)
    }

    /// Checks that the job made no error, and did not end before the run.
    fn check(&self, line: &Line, sim: &Simulation) -> Result<(), ReproduceError> {
        let job = &sim.traffic.jobs.all()[0];
        let wrong = |why: String| Err(ReproduceError::Wrong { what: line.name.clone(), why });
        match job.errors.first() {
            Some(error) => wrong(format!("{error:?}")),
            None if job.is_complete() => wrong("the job ends before the run: its tensor is too short".into()),
            None => Ok(()),
        }
    }

    /// The mean rates over the last half of the time in which both run.
    fn last_half(&self, rates: &Rates) -> [f64; 2] {
        let together = self.setup.end.0.0.saturating_sub(self.setup.jobs[0].start.0.0);
        let intervals = (together / 2 / self.interval.0.0.max(1)).max(1) as usize;
        let last = &rates[rates.len().saturating_sub(intervals)..];
        [0, 1].map(|who| last.iter().map(|rate| rate[who]).sum::<f64>() / last.len().max(1) as f64)
    }

    fn figure(&self, line: &Line, rates: &Rates) -> Figure {
        let ms = |at: usize| 1e3 * Span(self.interval.0.0 * (at as u64 + 1)).as_secs_f64();
        let series = |name: &str, who: usize| {
            Series::new(name, rates.iter().enumerate().map(|(at, rate)| [ms(at), rate[who]]).collect())
        };
        Figure {
            title: format!("A flow under DCTCP and a job on one cable: {}", line.name),
            x: "time (ms)".into(),
            y: "throughput (Gbit/s)".into(),
            log_x: false,
            series: vec![series("job", 0), series("flow", 1)],
            marks: Vec::new(),
        }
    }
}

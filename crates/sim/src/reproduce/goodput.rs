//! Canary's figures 2, 7a, 8 and 10: goodput of allreduces on a fat tree, alone and under background traffic.

use serde::Deserialize;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use tributary_proto::registry::Protocol;

use super::finding::{Figure, Finding, Series, spread};
use super::{Context, Findings, ReproduceError};
use crate::config::{Bytes, Config, Duration, Hosts, JobSection, Network, Share, Timeouts, TrafficSection};
use crate::experiment::{RunError, run_watched};

/// What is run.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Goodput {
    /// The network.
    pub network: Network,
    /// A run fails after so much simulated time.
    pub end: Duration,
    /// The tensor of each allreduce.
    pub tensor: Bytes,
    /// Elements of a packet.
    pub elements_per_packet: u16,
    /// Pool size of a job over all trees; what the bandwidth-delay product needs if left out.
    #[serde(default)]
    pub slots: Option<u16>,
    /// Retransmission timeouts.
    pub rto: Timeouts,
    /// Bytes of a background message, on links; then the peer changes.
    pub message: Bytes,
    /// A background host begins its next message when it has received as many bytes as it has sent.
    #[serde(default)]
    pub exchange: bool,
    /// The lines of the figure.
    pub lines: Vec<Line>,
    /// The places on its x axis.
    pub points: Vec<Point>,
    /// What the x axis shows.
    pub axis: String,
}

/// One line of the figure.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// Findings are named after it.
    pub name: String,
    /// How it reduces.
    pub protocol: String,
    /// Its aggregation trees.
    #[serde(default = "one")]
    pub trees: u16,
}

fn one() -> u16 {
    1
}

/// One place on the x axis.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// Findings are named after it.
    pub x: f64,
    /// Share of the hosts that reduce, percent.
    pub hosts: f64,
    /// Among how many jobs they are divided evenly.
    #[serde(default = "one")]
    pub jobs: u16,
    /// The other hosts send, in a run of its own.
    pub congested: bool,
}

/// One run.
struct Run<'a> {
    line: &'a Line,
    point: &'a Point,
    congested: bool,
    seed: u64,
}

/// What a run found.
struct Measured {
    /// Mean over jobs, Gbit/s.
    goodput: f64,
    /// Packets that its hosts sent again, share of all.
    again: f64,
    /// Mean and greatest utilisation of links.
    mean_use: f64,
    most_use: f64,
}

impl Goodput {
    /// For each line and point the findings `<line>-<x>-idle` and `<line>-<x>-congested` (Gbit/s), `<line>-<x>-drop`
    /// (percent lost to congestion), `<line>-<x>-retained` (congested over idle) and, for each pair of lines,
    /// `<line>-over-<other>-<x>-idle` and `-congested`; `<line>-change` is the last point's idle goodput over the first's.
    pub fn run(&self, context: &Context<'_>) -> Result<Findings, ReproduceError> {
        let mut runs = Vec::new();
        for line in &self.lines {
            for point in &self.points {
                let both = if point.congested { &[false, true][..] } else { &[false][..] };
                for &congested in both {
                    runs.extend((1..=context.seeds).map(|seed| Run { line, point, congested, seed }));
                }
            }
        }
        let results = context.watch.all(&runs, |run| self.measure(context, run))?;
        let mut findings = Findings::default();
        let mut figures = [Vec::new(), Vec::new()];
        for line in &self.lines {
            let mut drawn = [Vec::new(), Vec::new()];
            for point in &self.points {
                for congested in [false, true] {
                    let of = |run: &Run<'_>| run.line == line && run.point == point && run.congested == congested;
                    let found: Vec<&Measured> =
                        runs.iter().zip(&results).filter(|(run, _)| of(run)).map(|(_, r)| r).collect();
                    if let Some(mean) = self.note(&mut findings, line, point, congested, &found) {
                        drawn[usize::from(congested)].push([point.x, mean]);
                    }
                }
            }
            for (figure, points) in figures.iter_mut().zip(drawn) {
                if !points.is_empty() {
                    figure.push(Series { name: line.name.clone(), points });
                }
            }
        }
        self.compare(&mut findings);
        for (title, series) in
            ["Goodput without background traffic", "Goodput under background traffic"].iter().zip(figures)
        {
            if !series.is_empty() {
                let (title, x, y) = (title.to_string(), self.axis.clone(), "goodput (Gbit/s)".into());
                findings.figures.push(Figure { title, x, y, log_x: false, series });
            }
        }
        Ok(findings)
    }

    /// Keeps one bar of the figure; gives its mean.
    fn note(
        &self,
        findings: &mut Findings,
        line: &Line,
        point: &Point,
        congested: bool,
        found: &[&Measured],
    ) -> Option<f64> {
        if found.is_empty() {
            return None;
        }
        let each = |figure: fn(&Measured) -> f64| spread(&found.iter().map(|r| figure(r)).collect::<Vec<_>>());
        let (mean, range) = each(|r| r.goodput);
        let state = if congested { "congested" } else { "idle" };
        findings.value(format!("{}-{}-{state}-again", line.name, point.x), 100.0 * each(|r| r.again).0);
        findings.value(format!("{}-{}-{state}", line.name, point.x), mean);
        findings.note(format!(
            "{}, {} {}, {state}: {mean:.1} Gbit/s ({:.1} to {:.1} over {} seeds); {:.2} % of packets sent again; links \
             {:.1} % busy on average, {:.1} % at most.",
            line.name,
            self.axis,
            point.x,
            range.low,
            range.high,
            found.len(),
            100.0 * each(|r| r.again).0,
            100.0 * each(|r| r.mean_use).0,
            100.0 * each(|r| r.most_use).1.high,
        ));
        Some(mean)
    }

    /// The findings that follow from others.
    fn compare(&self, findings: &mut Findings) {
        let mean = |findings: &Findings, key: String| findings.values.get(&key).map(|value| value.low);
        for line in &self.lines {
            let at = |findings: &Findings, point: Option<&Point>| {
                point.and_then(|point| mean(findings, format!("{}-{}-idle", line.name, point.x)))
            };
            if let (Some(first), Some(last)) = (at(findings, self.points.first()), at(findings, self.points.last())) {
                findings.value(format!("{}-change", line.name), 100.0 * (last / first - 1.0));
                let told = format!("{first:.1} Gbit/s at the first point, {last:.1} at the last");
                let again = self.points.last().map_or(String::new(), |point| again(findings, &[line], point, "idle"));
                findings.cause(format!("{}-change", line.name), format!("{told}{again}"));
            }
            for point in &self.points {
                let key = format!("{}-{}", line.name, point.x);
                let (idle, congested) =
                    (mean(findings, format!("{key}-idle")), mean(findings, format!("{key}-congested")));
                if let (Some(idle), Some(congested)) = (idle, congested) {
                    findings.value(format!("{key}-drop"), Finding::from(100.0 * (1.0 - congested / idle)));
                    let told = format!("{idle:.1} Gbit/s idle, {congested:.1} congested");
                    let again = again(findings, &[line], point, "congested");
                    findings.cause(format!("{key}-drop"), format!("{told}{again}"));
                }
                for other in self.lines.iter().filter(|other| *other != line) {
                    for state in ["idle", "congested"] {
                        let ours = mean(findings, format!("{key}-{state}"));
                        let theirs = mean(findings, format!("{}-{}-{state}", other.name, point.x));
                        if let (Some(ours), Some(theirs)) = (ours, theirs) {
                            let key = format!("{}-over-{}-{}-{state}", line.name, other.name, point.x);
                            let told = format!("{} {ours:.1} Gbit/s, {} {theirs:.1}", line.name, other.name);
                            let told = told + &again(findings, &[line, other], point, state);
                            let told = told + &self.ring_steps(other, point, theirs);
                            findings.cause(&*key, told);
                            findings.value(key, ours / theirs);
                        }
                    }
                }
            }
        }
    }

    /// What the steps of a ring take, if the line is one.
    fn ring_steps(&self, line: &Line, point: &Point, goodput_gbps: f64) -> String {
        if line.protocol != Protocol::Ring.name() {
            return String::new();
        }
        let graph = self.network.build().map_or(0, |graph| graph.hosts());
        let n = (f64::from(graph) * point.hosts / 100.0).round() / f64::from(point.jobs);
        let bits = 8.0 * self.tensor.0 as f64;
        let (steps, all_us) = (2.0 * (n - 1.0), bits / goodput_gbps * 1e-3);
        format!(
            "; the ring's {steps:.0} steps take {:.2} us each, of which a step's data at line rate {:.2} us: the rest is \
             latency and waiting, which larger tensors hide",
            all_us / steps,
            bits / n / self.network.rate.0.0 as f64 * 1e6
        )
    }

    fn measure(&self, context: &Context<'_>, run: &Run<'_>) -> Result<Measured, ReproduceError> {
        let what = format!("{} at {} {}, seed {}", run.line.name, self.axis, run.point.x, run.seed);
        let config = self.config(run)?;
        let stop = context.watch.stop;
        let report = run_watched(&config, &mut |_| match stop.load(Ordering::Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        });
        let report = match report {
            Ok(report) => report,
            Err(RunError::Stopped(_)) => return Err(ReproduceError::Stopped),
            Err(RunError::Config(error)) => return Err(ReproduceError::Bad(error.to_string())),
        };
        if let Some(why) = report.failure() {
            return Err(ReproduceError::Wrong { what, why });
        }
        let goodputs: Vec<f64> = report.jobs.iter().filter_map(|job| job.goodput_gbps).collect();
        let (sent, again) = report
            .jobs
            .iter()
            .fold((0, 0), |(sent, again), job| (sent + job.packets_sent, again + job.retransmissions));
        let uses: Vec<f64> = report.link_rows.iter().map(|row| row.utilisation).collect();
        let (mean_use, range) = spread(&uses);
        Ok(Measured {
            goodput: spread(&goodputs).0,
            again: again as f64 / sent.max(1) as f64,
            mean_use,
            most_use: range.high,
        })
    }

    /// The run as a file for `tributary sim run` would describe it.
    fn config(&self, run: &Run<'_>) -> Result<Config, ReproduceError> {
        let bad = |error: String| ReproduceError::Bad(error);
        let protocol = Protocol::from_name(&run.line.protocol)
            .ok_or_else(|| bad(format!("\"{}\" is no protocol", run.line.protocol)))?;
        let graph = self.network.build().map_err(|error| bad(error.to_string()))?;
        let hosts = (f64::from(graph.hosts()) * run.point.hosts / 100.0).round() as u32 / u32::from(run.point.jobs);
        let section = JobSection {
            name: None,
            protocol,
            hosts: Hosts::Count(hosts.max(2)),
            placement: Default::default(),
            tensor: self.tensor,
            dtype: tributary_numeric::DType::I32,
            op: tributary_numeric::ReduceOp::Sum,
            iterations: 1,
            start: Duration::default(),
            compute: Duration::default(),
            elements_per_packet: self.elements_per_packet,
            slots: self.slots,
            trees: run.line.trees,
            roots: None,
            rto: self.rto,
            timeout: None,
        };
        let background = TrafficSection {
            pattern: crate::config::Pattern::Uniform,
            hosts: Hosts::Rest,
            placement: Default::default(),
            transport: None,
            message: Some(self.message),
            sizes: None,
            packet: Bytes(4 * u64::from(self.elements_per_packet) + 98),
            load: Share(1.0),
            exchange: self.exchange,
            start: Duration::default(),
            until: None,
        };
        Ok(Config {
            seed: run.seed,
            end: self.end,
            network: self.network.clone(),
            jobs: vec![section; usize::from(run.point.jobs)],
            traffic: if run.congested { vec![background] } else { Vec::new() },
            faults: Vec::new(),
            transport: Default::default(),
            switches: Default::default(),
        })
    }
}

/// What was sent again, if anything. The paper tells of no drops in its simulated network.
fn again(findings: &Findings, lines: &[&Line], point: &Point, state: &str) -> String {
    let shares: Vec<String> = lines
        .iter()
        .filter_map(|line| {
            let share = findings.values.get(&format!("{}-{}-{state}-again", line.name, point.x))?.low;
            (share >= 0.005).then(|| format!("{share:.1} % of {}'s packets", line.name))
        })
        .collect();
    match shares.is_empty() {
        true => "; nothing was sent again".into(),
        false => {
            format!("; {} were sent again (full queues drop here), which explains a part at most", shares.join(" and "))
        }
    }
}

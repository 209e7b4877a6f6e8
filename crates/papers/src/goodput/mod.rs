//! Goodput of allreduces, mostly on a fat tree, alone and under background traffic.

mod compare;
mod measure;

use std::collections::BTreeMap;

use serde::Deserialize;
use tributary_control::config::OptionTable;
use tributary_sim::config::{Bytes, Config, Duration, Network, NoiseSection, Timeouts};

use self::compare::Samples;
use self::measure::{Measured, Run};
use crate::finding::{Figure, Finding, Series, mean};
use crate::{Context, Experiment, Findings, ReproduceError};

/// What is run.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Goodput {
    /// The network.
    pub network: Network,
    /// A run fails after this much simulated time.
    pub end: Duration,
    /// The tensor of each allreduce.
    pub tensor: Bytes,
    /// Elements of a packet.
    pub elements_per_packet: u16,
    /// The pool of a job over all trees; if left out, what the bandwidth-delay product needs.
    #[serde(default)]
    pub slots: Option<u16>,
    /// Bytes on a link around each vector, for all protocols; if left out, our own.
    #[serde(default)]
    pub framing: Option<Bytes>,
    /// Retransmission timeouts.
    pub rto: Timeouts,
    /// Bytes of a background message on links; after each message the peer changes.
    pub message: Bytes,
    /// A background host begins its next message when it has received as many bytes as it has sent.
    #[serde(default)]
    pub exchange: bool,
    /// The lines of the figure.
    pub lines: Vec<Line>,
    /// The points on its x axis.
    pub points: Vec<Point>,
    /// The name of the x axis.
    pub axis: String,
    /// The figure on the y axis.
    #[serde(default)]
    pub shows: Shows,
    /// The x axis is logarithmic.
    #[serde(default)]
    pub log_x: bool,
}

/// The figure on the y axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shows {
    /// Tensor bits divided by completion time.
    #[default]
    Goodput,
    /// Completion time.
    Runtime,
    /// How busy links are, the mean over all of them.
    Use,
}

impl Shows {
    /// The one that is shown.
    fn of(self, goodput: Finding, time: &[f64], links: &[f64]) -> Finding {
        match self {
            Shows::Goodput => goodput,
            Shows::Runtime => Finding::over("seeds", time),
            Shows::Use => Finding::over("seeds", links),
        }
    }
}

/// One line of the figure.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// Findings are named after it.
    pub name: String,
    /// The protocol with which it reduces.
    pub protocol: String,
    /// Its aggregation trees, for a protocol with planned trees.
    #[serde(default)]
    pub trees: Option<u16>,
    /// Its protocol's options, by name; options left out have their defaults.
    #[serde(default)]
    pub options: OptionTable,
    /// Its own pool size, if it has one.
    #[serde(default)]
    pub slots: Option<u16>,
    /// How many steps its hosts take one after another for each other host, if they pass chunks of the tensor around.
    #[serde(default)]
    pub steps_per_peer: Option<f64>,
    /// The options of memory that jobs share in switches, by protocol.
    #[serde(default)]
    pub switches: BTreeMap<String, OptionTable>,
}

impl Line {
    /// The key of its goodput at a point.
    fn key(&self, point: &Point, state: &str) -> String {
        format!("{}-{}-{state}", self.name, point.x)
    }
}

fn one() -> u16 {
    1
}

/// A point on the x axis.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// Findings are named after it.
    pub x: f64,
    /// Percent of the hosts that reduce.
    pub hosts: f64,
    /// How many jobs these hosts are evenly divided among.
    #[serde(default = "one")]
    pub jobs: u16,
    /// There is also a run in which the other hosts send.
    pub congested: bool,
    /// The tensor, if points differ in it.
    #[serde(default)]
    pub tensor: Option<Bytes>,
    /// The delays of hosts, if points differ in them.
    #[serde(default)]
    pub noise: Option<NoiseSection>,
    /// The pool of a job, if points differ in it.
    #[serde(default)]
    pub slots: Option<u16>,
    /// The options of switches, if points differ in them; they replace the line's options.
    #[serde(default)]
    pub switches: BTreeMap<String, OptionTable>,
}

impl Experiment for Goodput {
    /// For each line and point the findings `<line>-<x>-idle` and `<line>-<x>-congested` (Gbit/s), the same with `-time`
    /// (microseconds) and `-use` (percent of all links; `-use-hosts` and `-use-core` of some), `<line>-<x>-drop` (percent
    /// lost to congestion) and, for each pair of lines, `<line>-over-<other>-<x>-idle` and `-congested`, with `best` for
    /// the best of the other lines of its protocol; `<line>-change` is the last point's idle goodput against the first's,
    /// `<line>-<x>-over-<y>-idle` and so on one point's over another's, `<line>-<x>-over-first-idle-time` and so on its
    /// time over the first point's, `<line>-spread-idle` and `-congested` the greatest over the least of all points.
    /// Where switches of a line share memory among jobs, there are `-stragglers` (for each block), `-memory` (bytes of
    /// vectors), `-collisions` and `-restorations` too. Ranges are over seeds.
    fn run(&self, context: &Context<'_>) -> Result<Findings, ReproduceError> {
        let runs = self.runs(context.seeds);
        let results = self.results(context, &runs)?;
        let (mut findings, mut samples) = (Findings::default(), Samples::default());
        for (congested, title) in [(false, "without background traffic"), (true, "under background traffic")] {
            let mut series = Vec::new();
            for line in &self.lines {
                let mut drawn = Series::new(&line.name, Vec::new());
                for point in &self.points {
                    let of = |run: &Run<'_>| run.line == line && run.point == point && run.congested == congested;
                    let found: Vec<&Measured> =
                        runs.iter().zip(&results).filter(|(run, _)| of(run)).map(|(_, r)| r).collect();
                    if found.is_empty() {
                        continue;
                    }
                    let state = if congested { "congested" } else { "idle" };
                    let bar = self.note(&mut findings, &mut samples, line, point, state, &found);
                    drawn.points.push([point.x, bar.median]);
                    drawn.ranges.push([bar.low, bar.high]);
                }
                if !drawn.points.is_empty() {
                    series.push(drawn);
                }
            }
            if !series.is_empty() {
                findings.figures.push(self.figure(title, series));
            }
        }
        self.compare(&mut samples, &mut findings);
        samples.report(&mut findings);
        Ok(findings)
    }

    fn run_count(&self, seeds: u64) -> usize {
        self.runs(seeds).len()
    }
}

impl Goodput {
    /// Every line at every point, alone and, if wanted, under background traffic, with every seed.
    fn runs(&self, seeds: u64) -> Vec<Run<'_>> {
        let mut runs = Vec::new();
        for line in &self.lines {
            for point in &self.points {
                let both = if point.congested { &[false, true][..] } else { &[false][..] };
                for &congested in both {
                    runs.extend((1..=seeds).map(|seed| Run { line, point, congested, seed }));
                }
            }
        }
        runs
    }

    /// The results of runs. Runs that another experiment has made are reused.
    fn results(&self, context: &Context<'_>, runs: &[Run<'_>]) -> Result<Vec<Measured>, ReproduceError> {
        let described = runs.iter().map(|run| self.config(run)).collect::<Result<Vec<Config>, _>>()?;
        let text = |config| toml::to_string(config).map_err(|error| ReproduceError::Bad(error.to_string()));
        let files = described.iter().map(text).collect::<Result<Vec<String>, _>>()?;
        let indices: Vec<usize> = (0..runs.len()).collect();
        context.watch.all_announced(&indices, |&index| {
            let question = format!("goodput\n{}", files[index]);
            context.memory.once(&question, || self.measure(context, &runs[index], &described[index]))
        })
    }

    fn figure(&self, title: &str, series: Vec<Series>) -> Figure {
        let (what, y) = match self.shows {
            Shows::Goodput => ("Goodput", "goodput (Gbit/s)"),
            Shows::Runtime => ("Runtime", "runtime (us)"),
            Shows::Use => ("Use of links", "mean over links (%)"),
        };
        let (title, x, marks) = (format!("{what} {title}"), self.axis.clone(), Vec::new());
        Figure { title, x, y: y.into(), log_x: self.log_x, series, marks }
    }

    /// Keeps one bar of the figure; returns its median and its range.
    fn note(
        &self,
        findings: &mut Findings,
        samples: &mut Samples,
        line: &Line,
        point: &Point,
        state: &str,
        found: &[&Measured],
    ) -> Finding {
        let each = |figure: fn(&Measured) -> f64| found.iter().map(|r| figure(r)).collect::<Vec<_>>();
        let percent = |figure: fn(&Measured) -> f64| found.iter().map(|r| 100.0 * figure(r)).collect::<Vec<_>>();
        let known = |figure: fn(&Measured) -> Option<f64>| found.iter().filter_map(|r| figure(r)).collect::<Vec<_>>();
        let key = line.key(point, state);
        let goodput = Finding::over("seeds", &each(|r| r.goodput));
        let uses = [percent(|r| r.mean_use), percent(|r| r.host_use), percent(|r| r.core_use)];
        let most_use = percent(|r| r.most_use).into_iter().fold(0.0, f64::max);
        let [all, hosts, core] = [0, 1, 2].map(|index| mean(&uses[index]));
        let links = format!("{hosts:.1} % of hosts' links, {core:.1} % of those between switches");
        findings.cause(format!("{key}-use"), format!("{links}, at {:.1} Gbit/s", goodput.median));
        let mut text = format!(
            "{}, {} {}, {state}: {:.1} Gbit/s ({:.1} to {:.1} over {} seeds), {:.1} us; {:.2} % of packets sent again; \
             links {all:.1} % busy on average, {hosts:.1} % at hosts, {core:.1} % between switches, {most_use:.1} % at \
             most",
            line.name,
            self.axis,
            point.x,
            goodput.median,
            goodput.low,
            goodput.high,
            found.len(),
            mean(&each(|r| r.runtime_us)),
            mean(&percent(|r| r.again)),
        );
        text += &rest(found);
        findings.note(text + ".");
        let time = each(|r| r.runtime_us);
        let [all, hosts, core] = uses;
        let bar = self.shows.of(goodput, &time, &all);
        let measured = [
            ("", each(|r| r.goodput)),
            ("-use", all),
            ("-use-hosts", hosts),
            ("-use-core", core),
            ("-time", time),
            ("-again", percent(|r| r.again)),
        ];
        let of_arrays = [
            ("-stragglers", known(|r| r.stragglers)),
            ("-memory", known(|r| r.slot_bytes)),
            ("-collisions", known(|r| r.collisions)),
            ("-restorations", known(|r| r.restorations)),
        ];
        let of_arrays = of_arrays.into_iter().filter(|(_, values)| !values.is_empty());
        for (of, values) in measured.into_iter().chain(of_arrays) {
            samples.put(format!("{key}{of}"), values);
        }
        bar
    }
}

/// The rest of a note, if they were measured.
fn rest(found: &[&Measured]) -> String {
    let known = |figure: fn(&Measured) -> Option<f64>| found.iter().filter_map(|r| figure(r)).collect::<Vec<_>>();
    let mut text = String::new();
    let greatest = |values: &[f64]| values.iter().copied().reduce(f64::max);
    let (stragglers, bytes) = (known(|r| r.stragglers), known(|r| r.slot_bytes));
    if let (Some(stragglers), Some(bytes)) = (greatest(&stragglers), greatest(&bytes)) {
        text += &format!("; up to {stragglers:.1} stragglers a block, {:.0} kB in use in a switch", bytes / 1e3);
    }
    let [collisions, restorations] = [known(|r| r.collisions), known(|r| r.restorations)];
    if let Some(most) = greatest(&collisions).filter(|&most| most > 0.0) {
        let restored = greatest(&restorations).unwrap_or(0.0);
        text += &format!("; up to {most:.0} collisions, {restored:.0} packets that restored a subtree");
    }
    let background = known(|r| r.background_gbps);
    if !background.is_empty() {
        text += &format!("; a background host receives {:.1} Gbit/s", mean(&background));
    }
    text
}

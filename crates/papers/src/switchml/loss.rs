//! SwitchML's figures 6 and 7: how much loss on every link lengthens the aggregation of a tensor, and the packets that a worker
//! sends over time meanwhile.

use serde::Deserialize;
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::switchml::PROTOCOL;

use super::rack::{LossyRack, RackJob};
use super::ring;
use crate::finding::{Figure, Finding, Series, mean};
use crate::{Context, Experiment, Findings, ReproduceError};

/// What is run.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Loss {
    /// The job, without its loss.
    #[serde(flatten)]
    pub setup: LossyRack,
    /// Percent of packets that every link loses.
    pub losses: Vec<f64>,
}

/// A line of figure 6.
#[derive(Clone, Copy)]
struct Line {
    name: &'static str,
    protocol: &'static Protocol,
    to_the_letter: bool,
}

/// One line at one loss.
struct Point {
    loss: f64,
    /// Aggregation times, by seed.
    tat: Vec<f64>,
    /// Packets that all ranks sent again, by seed.
    again: Vec<f64>,
}

/// A line's points; the first is without loss.
type Points = (Line, Vec<Point>);

impl Experiment for Loss {
    /// Findings `<line>-<percent>` (time divided by the same line's without loss) and `ring-over-<line>-<percent>`. Lines are
    /// `paper` (Algorithms 3 and 4 to the letter), `switchml` (ours) and `ring`.
    fn run(&self, context: &Context<'_>) -> Result<Findings, ReproduceError> {
        let line = |name, protocol, to_the_letter| Line { name, protocol, to_the_letter };
        let lines = [line("paper", &PROTOCOL, true), line("switchml", &PROTOCOL, false), line("ring", ring()?, false)];
        let losses = || std::iter::once(0.0).chain(self.losses.iter().copied());
        let seeds = |loss: f64| 1..=if loss > 0.0 { context.seeds } else { 1 };
        let job = |line: &Line, loss, seed| RackJob {
            to_the_letter: line.to_the_letter,
            ..self.setup.job(line.protocol, loss, seed)
        };
        let job = &job;
        let jobs: Vec<RackJob> = lines
            .iter()
            .flat_map(|line| losses().flat_map(move |loss| seeds(loss).map(move |seed| job(line, loss, seed))))
            .collect();
        let mut runs = context
            .watch
            .all(&jobs, |job| {
                let run = job.run(context.watch)?;
                let again: u64 = run.stats.iter().map(|stats| stats.retransmissions).sum();
                Ok((run.tat.as_secs_f64(), again as f64))
            })?
            .into_iter();
        let mut point = |loss: f64| {
            let (tat, again) = runs.by_ref().take(seeds(loss).count()).unzip();
            Point { loss, tat, again }
        };
        let found: Vec<Points> = lines.map(|line| (line, losses().map(&mut point).collect())).into();
        Ok(self.findings(&found))
    }
}

impl Loss {
    fn findings(&self, found: &[Points]) -> Findings {
        let mut findings = Findings::default();
        let mut series = Vec::new();
        for (Line { name, .. }, points) in found {
            let base = points[0].tat[0];
            let mut line = Series::new(*name, Vec::new());
            for point in &points[1..] {
                let inflation: Vec<f64> = point.tat.iter().map(|tat| tat / base).collect();
                let key = format!("{name}-{}", point.loss);
                findings.cause(&*key, self.cause(point, base));
                let range = Finding::over("seeds", &inflation);
                findings.value(key, range);
                line.points.push([point.loss, range.median]);
                line.ranges.push([range.low, range.high]);
            }
            findings.note(format!("{name} without loss takes {:.3} ms.", 1e3 * base));
            series.push(line);
        }
        self.compare(&mut findings, found);
        findings.note(
            "The line paper has Algorithms 3 and 4 to the letter: a timer for each packet, and nothing else. Ours also sends a slot \
             again as soon as results of later packets overtake it, and after the timeout only where nothing overtakes. The \
             paper's libraries over TCP are not simulated: our ring, with its own acknowledgements, stands for them.",
        );
        findings.figures.push(Figure {
            title: format!("Inflation of the aggregation time by loss, {} Gbit/s", self.setup.gbit),
            x: "packets lost on each link (%)".into(),
            y: "time over time without loss".into(),
            log_x: true,
            series,
            marks: Vec::new(),
        });
        findings
    }

    /// The ring, the last line, over each of the others.
    fn compare(&self, findings: &mut Findings, found: &[Points]) {
        let Some(((_, ring), others)) = found.split_last() else { return };
        for (line, points) in others {
            for (ours, ring) in points.iter().zip(ring).skip(1) {
                let key = format!("ring-over-{}-{}", line.name, ours.loss);
                let ratios: Vec<f64> = ring.tat.iter().zip(&ours.tat).map(|(ring, ours)| ring / ours).collect();
                findings.value(&*key, Finding::over("seeds", &ratios));
                let [ring, ours] = [ring, ours].map(|point| 1e3 * mean(&point.tat));
                findings.cause(key, format!("ring takes {ring:.3} ms, {} {ours:.3} ms", line.name));
            }
        }
    }

    fn cause(&self, point: &Point, base: f64) -> String {
        let (tat, again) = (mean(&point.tat), mean(&point.again));
        format!(
            "{:.3} ms instead of {:.3} ms; {again:.0} packets sent again, {:.2} timeouts' worth of time lost",
            1e3 * tat,
            1e3 * base,
            (tat - base) / (self.setup.rto_us as f64 * 1e-6)
        )
    }
}

/// What is run.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timeline {
    /// The job, without its loss.
    #[serde(flatten)]
    pub setup: LossyRack,
    /// Width of a bar of the figure.
    pub interval_us: u64,
    /// Percent of packets that every link loses.
    pub losses: Vec<f64>,
}

/// One run.
struct Recorded {
    /// Packets of worker 0 in each interval.
    packets: Vec<u64>,
    again: u64,
    tat: Span,
}

impl Recorded {
    /// The share of the ideal rate in percent, from the first interval until `share` of all packets are sent.
    fn steady(&self, ideal: f64, share: f64) -> f64 {
        let all: u64 = self.packets.iter().sum();
        let (mut sent, mut intervals) = (0u64, 0u32);
        for &packets in &self.packets {
            if intervals > 0 && (sent + packets) as f64 > share * all as f64 {
                break;
            }
            sent += packets;
            intervals += 1;
        }
        100.0 * sent as f64 / f64::from(intervals.max(1)) / ideal
    }

    /// How many intervals at the end have less than half of the ideal packets.
    fn tail(&self, ideal: f64) -> usize {
        self.packets.iter().rev().take_while(|&&packets| (packets as f64) < 0.5 * ideal).count()
    }
}

/// The mean of some runs in words, and the end of the first.
fn describe(found: &[&Recorded]) -> String {
    let mean = |figure: fn(&Recorded) -> f64| mean(&found.iter().map(|run| figure(run)).collect::<Vec<_>>());
    let (ms, again) = (1e3 * mean(|run| run.tat.as_secs_f64()), mean(|run| run.again as f64));
    let bars = &found[0].packets[found[0].packets.len().saturating_sub(4)..];
    format!("{ms:.1} ms in all, {again:.0} packets of worker 0 sent again; the last bars of the first seed: {bars:?}")
}

impl Experiment for Timeline {
    /// Findings `steady-<percent>` (packets while the first 80 % are sent, percent of the line rate) and
    /// `tail-<percent>` (intervals at the end below half of it), and the same of our own recovery with `ours-` before.
    /// Ranges are over seeds; the figure shows the first seed of the paper's.
    fn run(&self, context: &Context<'_>) -> Result<Findings, ReproduceError> {
        let seeds = |loss: f64| 1..=if loss > 0.0 { context.seeds } else { 1 };
        let points: Vec<(bool, f64, u64)> = [true, false]
            .into_iter()
            .flat_map(|letter| {
                self.losses.iter().flat_map(move |&loss| seeds(loss).map(move |seed| (letter, loss, seed)))
            })
            .collect();
        let runs = context.watch.all(&points, |&(letter, loss, seed)| self.record(context, letter, loss, seed))?;
        let mut findings = Findings::default();
        let packet = f64::from(self.setup.rack.framing_bytes()) + 4.0 * f64::from(self.setup.elements_per_packet);
        let interval = self.interval_us as f64 * 1e-6;
        let ideal = self.setup.gbit as f64 * 1e9 / 8.0 / packet * interval;
        let mut series = Vec::new();
        for (letter, prefix, name) in [(true, "", "loss"), (false, "ours-", "loss, ours")] {
            for &loss in &self.losses {
                let of = |&(&(way, lossy, _), _): &(&(bool, f64, u64), _)| way == letter && lossy == loss;
                let found: Vec<&Recorded> = points.iter().zip(&runs).filter(of).map(|(_, run)| run).collect();
                let over = |figure: &dyn Fn(&Recorded) -> f64| {
                    Finding::over("seeds", &found.iter().map(|run| figure(run)).collect::<Vec<_>>())
                };
                findings.value(format!("{prefix}steady-{loss}"), over(&|run| run.steady(ideal, 0.8)));
                findings.value(format!("{prefix}tail-{loss}"), over(&|run| run.tail(ideal) as f64));
                let text = describe(&found);
                findings.cause(format!("{prefix}steady-{loss}"), &*text);
                let cause = if letter { text.clone() } else { self.no_tail(found[0], &runs[0], &text) };
                findings.cause(format!("{prefix}tail-{loss}"), cause);
                findings.note(format!("{loss} % {name}: {text}"));
                if letter || loss > 0.0 {
                    let bars = found[0].packets.iter().enumerate();
                    let points = bars.map(|(at, &n)| [at as f64 * interval * 1e3, n as f64]);
                    series.push(Series::new(format!("{loss} % {name}"), points.collect()));
                }
            }
        }
        findings.note(format!("The ideal rate is {ideal:.0} packets in {:.1} ms.", 1e3 * interval));
        findings.figures.push(Figure {
            title: "Packets sent by worker 0".into(),
            x: "time (ms)".into(),
            y: format!("packets in {:.1} ms", 1e3 * interval),
            log_x: false,
            series,
            marks: Vec::new(),
        });
        Ok(findings)
    }
}

impl Timeline {
    /// Why the end has no tail: how much time the packets sent again would have cost if each had waited for its
    /// timeout.
    fn no_tail(&self, run: &Recorded, without: &Recorded, text: &str) -> String {
        let waits = run.again as f64 * self.setup.rto_us as f64 * 1e-3 / f64::from(self.setup.slots);
        let longer = 1e3 * (run.tat.as_secs_f64() - without.tat.as_secs_f64());
        format!(
            "{text}. With the first seed, had each packet that worker 0 sent again waited for the timeout, its slots would have \
             stood still for {waits:.1} ms each on average; the run is only {longer:.1} ms longer than without loss: ours sends again as \
             soon as later results overtake, so losses cost slots about a round trip and none falls far behind"
        )
    }

    fn record(
        &self,
        context: &Context<'_>,
        to_the_letter: bool,
        loss: f64,
        seed: u64,
    ) -> Result<Recorded, ReproduceError> {
        let job = RackJob { to_the_letter, ..self.setup.job(&PROTOCOL, loss, seed) };
        let mut sim = job.build()?;
        let (mut packets, mut before) = (Vec::new(), 0);
        let mut until = Time::ZERO;
        loop {
            until += Span::from_micros(self.interval_us);
            let finished = sim.run_until_finished(until);
            let sent = sim.traffic.endpoints[0].machine.stats().packets_sent;
            packets.push(sent - before);
            before = sent;
            if finished {
                break;
            }
            context.watch.check()?;
        }
        let run = job.finish(&sim, context.watch)?;
        // Timers that run out after the end do not belong to the figure.
        packets.truncate((run.tat.0).div_ceil(Span::from_micros(self.interval_us).0) as usize);
        Ok(Recorded { packets, again: run.stats[0].retransmissions, tat: run.tat })
    }
}

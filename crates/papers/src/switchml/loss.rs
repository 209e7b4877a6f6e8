//! SwitchML's figures 6 and 7: how much loss on every link lengthens the aggregation of a tensor, and the packets that a worker
//! sends over time meanwhile.

use serde::Deserialize;
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::switchml::PROTOCOL;

use super::rack::LossyRack;
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

/// One protocol at one loss.
struct Point {
    protocol: &'static Protocol,
    loss: f64,
    /// Aggregation times, by seed.
    tat: Vec<f64>,
    /// Packets that all ranks sent again, by seed.
    again: Vec<f64>,
}

impl Experiment for Loss {
    /// Findings `<protocol>-<percent>` (time divided by the same protocol's without loss) and
    /// `ring-over-switchml-<percent>` (ring's time divided by SwitchML's).
    fn run(&self, context: &Context<'_>) -> Result<Findings, ReproduceError> {
        let mut jobs = Vec::new();
        let ring = ring()?;
        for protocol in [&PROTOCOL, ring] {
            for loss in std::iter::once(0.0).chain(self.losses.iter().copied()) {
                let seeds = if loss > 0.0 { context.seeds } else { 1 };
                jobs.extend((1..=seeds).map(|seed| self.setup.job(protocol, loss, seed)));
            }
        }
        let runs = context.watch.all(&jobs, |job| {
            let run = job.run(context.watch)?;
            let again: u64 = run.stats.iter().map(|stats| stats.retransmissions).sum();
            Ok((run.tat.as_secs_f64(), again as f64))
        })?;
        let mut points: Vec<Point> = Vec::new();
        for (job, (tat, again)) in jobs.iter().zip(runs) {
            let loss = 100.0 * job.loss;
            match points.last_mut() {
                Some(point) if point.protocol == job.protocol && (point.loss - loss).abs() < 1e-9 => {
                    point.tat.push(tat);
                    point.again.push(again);
                }
                _ => points.push(Point { protocol: job.protocol, loss, tat: vec![tat], again: vec![again] }),
            }
        }
        Ok(self.findings(ring, &points))
    }
}

impl Loss {
    fn findings(&self, ring: &'static Protocol, points: &[Point]) -> Findings {
        let mut findings = Findings::default();
        let at = |protocol, loss: f64| {
            points.iter().find(|point| point.protocol == protocol && (point.loss - loss).abs() < 1e-9)
        };
        let mut lines = Vec::new();
        for protocol in [&PROTOCOL, ring] {
            let Some(without) = at(protocol, 0.0) else { continue };
            let base = without.tat[0];
            let mut line = Series::new(protocol.name, Vec::new());
            for point in points.iter().filter(|point| point.protocol == protocol && point.loss > 0.0) {
                let inflation: Vec<f64> = point.tat.iter().map(|tat| tat / base).collect();
                let key = format!("{}-{}", protocol.name, point.loss);
                findings.cause(&*key, self.cause(point, base));
                let range = Finding::over("seeds", &inflation);
                findings.value(key, range);
                line.points.push([point.loss, range.median]);
                line.ranges.push([range.low, range.high]);
            }
            findings.note(format!("{} without loss takes {:.3} ms.", protocol.name, 1e3 * base));
            lines.push(line);
        }
        for &loss in &self.losses {
            if let (Some(ours), Some(ring)) = (at(&PROTOCOL, loss), at(ring, loss)) {
                let key = format!("ring-over-switchml-{loss}");
                let ratios: Vec<f64> = ring.tat.iter().zip(&ours.tat).map(|(ring, ours)| ring / ours).collect();
                findings.value(&*key, Finding::over("seeds", &ratios));
                let [ring, ours] = [ring, ours].map(|point| 1e3 * mean(&point.tat));
                findings.cause(key, format!("ring takes {ring:.3} ms, SwitchML {ours:.3} ms"));
            }
        }
        findings.note(
            "Ours sends a slot again as soon as results of later packets overtake it, and after the timeout only where \
             nothing overtakes; the paper's worker has the timeout alone. Its libraries over TCP are not simulated: our \
             ring, with its own acknowledgements, stands for them.",
        );
        findings.figures.push(Figure {
            title: format!("Inflation of the aggregation time by loss, {} Gbit/s", self.setup.gbit),
            x: "packets lost on each link (%)".into(),
            y: "time over time without loss".into(),
            log_x: true,
            series: lines,
            marks: Vec::new(),
        });
        findings
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

impl Experiment for Timeline {
    /// Findings `steady-<percent>` (packets while the first 80 % are sent, percent of the line rate) and
    /// `tail-<percent>` (intervals at the end below half of it). Ranges are over seeds; the figure shows the first
    /// seed.
    fn run(&self, context: &Context<'_>) -> Result<Findings, ReproduceError> {
        let seeds = |loss: f64| 1..=if loss > 0.0 { context.seeds } else { 1 };
        let points: Vec<(f64, u64)> =
            self.losses.iter().flat_map(|&loss| seeds(loss).map(move |seed| (loss, seed))).collect();
        let runs = context.watch.all(&points, |&(loss, seed)| self.record(context, loss, seed))?;
        let mut findings = Findings::default();
        let packet = f64::from(self.setup.rack.framing_bytes()) + 4.0 * f64::from(self.setup.elements_per_packet);
        let interval = self.interval_us as f64 * 1e-6;
        let ideal = self.setup.gbit as f64 * 1e9 / 8.0 / packet * interval;
        let mut series = Vec::new();
        for &loss in &self.losses {
            let of = |&(&(lossy, _), _): &(&(f64, u64), _)| lossy == loss;
            let found: Vec<&Recorded> = points.iter().zip(&runs).filter(of).map(|(_, run)| run).collect();
            let over = |figure: &dyn Fn(&Recorded) -> f64| {
                Finding::over("seeds", &found.iter().map(|run| figure(run)).collect::<Vec<_>>())
            };
            findings.value(format!("steady-{loss}"), over(&|run| run.steady(ideal, 0.8)));
            findings.value(format!("tail-{loss}"), over(&|run| run.tail(ideal) as f64));
            let [ms, again] = [|run: &Recorded| 1e3 * run.tat.as_secs_f64(), |run: &Recorded| run.again as f64]
                .map(|figure| mean(&found.iter().map(|run| figure(run)).collect::<Vec<_>>()));
            let run = found[0];
            let text = format!(
                "{ms:.1} ms in all, {again:.0} packets of worker 0 sent again; the last bars of the first seed: {:?}",
                &run.packets[run.packets.len().saturating_sub(4)..]
            );
            findings.cause(format!("steady-{loss}"), &*text);
            findings.cause(format!("tail-{loss}"), self.no_tail(run, &runs[0], &text));
            findings.note(format!("{loss} % loss: {text}"));
            let points = run.packets.iter().enumerate().map(|(at, &n)| [at as f64 * interval * 1e3, n as f64]);
            series.push(Series::new(format!("{loss} % loss"), points.collect()));
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

    fn record(&self, context: &Context<'_>, loss: f64, seed: u64) -> Result<Recorded, ReproduceError> {
        let job = self.setup.job(&PROTOCOL, loss, seed);
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

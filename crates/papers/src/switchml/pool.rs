//! SwitchML Figure 9 and appendix C: aggregation time and round trip by pool size.

use std::sync::{Arc, Mutex};

use serde::Deserialize;
use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::switchml::PROTOCOL;
use tributary_sim::net::{PacketEvent, TraceEvent, Tracer};

use super::rack::{Rack, RackJob};
use crate::finding::{Figure, Series};
use crate::{Context, Experiment, Findings, ReproduceError, Watch};

/// What is run.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pool {
    /// Cables and switch, without the hosts' own time.
    pub rack: Rack,
    /// Ranks.
    pub workers: u32,
    /// Elements in the tensor.
    pub elements: u32,
    /// Elements of a packet.
    pub elements_per_packet: u16,
    /// The setups: a rate, and a propagation that includes the hosts' own time.
    pub setups: Vec<Setup>,
    /// Pool sizes, ascending.
    pub slots: Vec<u16>,
}

/// A rate and a delay.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setup {
    /// Findings are named after it.
    pub name: String,
    /// Link rate.
    pub gbit: u64,
    /// Propagation on each cable.
    pub delay_us: f64,
}

/// One pool size.
struct Point {
    slots: u16,
    tat: Span,
    /// The mean time of a slot from a result to the next, including the packet's wait in its worker.
    turn: Span,
}

/// Results that worker 0 gets.
#[derive(Default)]
struct Turns {
    last: Vec<Option<Time>>,
    sum: u64,
    count: u64,
}

struct Clock(Arc<Mutex<Turns>>);

impl Tracer for Clock {
    fn record(&mut self, event: &TraceEvent, payload: &[u8]) {
        if event.node != NodeId(0) || event.kind != PacketEvent::Delivered {
            return;
        }
        let Some(slot) = (PROTOCOL.describe)(payload).slot else { return };
        let mut turns = self.0.lock().expect("nobody else holds it while the simulation runs");
        if let Some(last) = turns.last[slot as usize].replace(event.time) {
            turns.sum += event.time.since(last).0;
            turns.count += 1;
        }
    }
}

impl Experiment for Pool {
    /// For each setup the findings `<name>-knee` (the smallest pool within 2 % of the best time), `<name>-rule` (that
    /// knee divided by the next power of two of BDP / b, with the round trip as measured with the smallest pool),
    /// `<name>-flat` (the largest pool's time divided by the best) and `<name>-growth` (the largest pool's round trip
    /// divided by the one at the knee).
    fn run(&self, context: &Context<'_>) -> Result<Findings, ReproduceError> {
        let jobs: Vec<RackJob> =
            self.setups.iter().flat_map(|setup| self.slots.iter().map(move |&slots| self.job(setup, slots))).collect();
        let points = context.watch.all(&jobs, |job| measure(job, context.watch))?;
        let mut findings = Findings::default();
        let (mut times, mut turns) = (Vec::new(), Vec::new());
        for (setup, points) in self.setups.iter().zip(points.chunks(self.slots.len())) {
            self.judge(setup, points, &mut findings);
            let line = |y: fn(&Point) -> f64| {
                Series::new(&setup.name, points.iter().map(|point| [f64::from(point.slots), y(point)]).collect())
            };
            times.push(line(|point| 1e3 * point.tat.as_secs_f64()));
            turns.push(line(|point| 1e6 * point.turn.as_secs_f64()));
        }
        for (title, y, series) in
            [("Aggregation time by pool size", "TAT (ms)", times), ("Round trip by pool size", "RTT (us)", turns)]
        {
            let (title, x, y) = (title.into(), "slots".into(), y.into());
            findings.figures.push(Figure { title, x, y, log_x: true, series, marks: Vec::new() });
        }
        findings.note(
            "RTT is the mean time from a slot's result to its next result at worker 0: the packet's wait in the worker \
             is part of it, as in the paper.",
        );
        Ok(findings)
    }
}

impl Pool {
    fn judge(&self, setup: &Setup, points: &[Point], findings: &mut Findings) {
        let best = points.iter().map(|point| point.tat).min().expect("there are pool sizes");
        let knee = points.iter().find(|point| point.tat.0 as f64 <= 1.02 * best.0 as f64).expect("the best is one");
        let (first, last) = (&points[0], &points[points.len() - 1]);
        let packet = f64::from(self.rack.framing_bytes()) + 4.0 * f64::from(self.elements_per_packet);
        let bdp_packets = first.turn.as_secs_f64() * setup.gbit as f64 * 1e9 / 8.0 / packet;
        let rule = (bdp_packets.ceil() as u64).next_power_of_two() as f64;
        let name = &setup.name;
        findings.value(format!("{name}-knee"), f64::from(knee.slots));
        findings.value(format!("{name}-rule"), f64::from(knee.slots) / rule);
        findings.value(format!("{name}-flat"), last.tat.0 as f64 / best.0 as f64);
        findings.value(format!("{name}-growth"), last.turn.0 as f64 / knee.turn.0 as f64);
        let text = format!(
            "{name}: the unloaded round trip is {:.1} us, so BDP / b is {bdp_packets:.0} packets of {packet:.0} bytes, \
             next power of two {rule}; the time is flat from {} slots",
            1e6 * first.turn.as_secs_f64(),
            knee.slots
        );
        findings.note(format!("{text}."));
        findings.cause(format!("{name}-knee"), &*text);
        findings.cause(format!("{name}-rule"), text);
    }

    fn job(&self, setup: &Setup, slots: u16) -> RackJob {
        RackJob {
            workers: self.workers,
            elements: self.elements,
            elements_per_packet: self.elements_per_packet,
            slots,
            ..RackJob::ideal(Rack { delay_us: setup.delay_us, ..self.rack }, setup.gbit, &PROTOCOL)
        }
    }
}

fn measure(job: &RackJob, watch: &Watch<'_>) -> Result<Point, ReproduceError> {
    let turns = Arc::new(Mutex::new(Turns { last: vec![None; usize::from(job.slots)], ..Turns::default() }));
    let mut sim = job.build()?;
    sim.fabric.set_tracer(Some(Box::new(Clock(turns.clone()))));
    sim.run_until_finished(Time(u64::MAX));
    let run = job.finish(&sim, watch)?;
    let turns = turns.lock().expect("the simulation is over");
    // In a pool that takes the whole tensor at once, slots have no second turn: the round trip is the whole time.
    let turn = turns.sum.checked_div(turns.count).map_or(run.tat, Span);
    Ok(Point { slots: job.slots, tat: run.tat, turn })
}

//! Figures 2 to 5, and the bytes of an acknowledgement: the paper's examples, run on the machines.

use serde::Deserialize;
use tributary_proto::aggregation::best_effort::Rules;
use tributary_proto::aggregation::best_effort::wire::Kind;
use tributary_proto::congestion::{
    Ack, Controller, CutRule, Fixed, LeadLimit, Limits, Progress, ProgressAware, Settings,
};
use tributary_proto::contract::ids::Rank;

use super::star::{Shape, Star};
use crate::{Context, Experiment, Findings, ReproduceError};

/// Figures 2 and 3: two jobs at one switch, whose workers send a few packets each.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rounds {
    /// Blocks that fit into the switch.
    pub aggregators: u64,
    /// Workers of each job.
    pub workers: Vec<u16>,
    /// The turns before the round, in this order.
    pub before: Vec<Turn>,
    /// The ways to share the link in one round.
    pub ways: Vec<Way>,
}

/// A worker's turn to send.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Turn {
    /// The job.
    pub job: usize,
    /// The worker.
    pub worker: u16,
    /// How many packets it sends, as far as its windows allow.
    pub packets: u32,
}

/// One way to share the link.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Way {
    /// Findings are named after it.
    pub name: String,
    /// How far a rank may be ahead; unbounded if left out.
    #[serde(default)]
    pub ahead: Option<u64>,
    /// The round.
    pub turns: Vec<Turn>,
}

impl Experiment for Rounds {
    /// Findings `<way>-sums`, the sums that the switch completes in the round, and `<way>-overflowed`, the packets that
    /// passed it unsummed, in the round and before.
    fn run(&self, _: &Context<'_>) -> Result<Findings, ReproduceError> {
        let mut findings = Findings::default();
        for way in &self.ways {
            let mut star = self.star(way)?;
            let (mut sent, mut before) = (Vec::new(), 0);
            for (number, turn) in self.before.iter().chain(&way.turns).enumerate() {
                if number == self.before.len() {
                    before = sums(&star);
                }
                let done = self.take(&mut star, turn)?;
                sent.push(format!("worker {} of job {} sends {done}", turn.worker + 1, name_of(turn.job)));
            }
            let overflowed = star.waiting.iter().filter(|packet| packet.kind == Kind::Gradient).count();
            findings.value(format!("{}-sums", way.name), (sums(&star) - before) as f64);
            findings.value(format!("{}-overflowed", way.name), overflowed as f64);
            findings.note(format!("{}: {}.", way.name, sent.join(", ")));
        }
        Ok(findings)
    }
}

fn name_of(job: usize) -> char {
    char::from(b'A' + (job % 26) as u8)
}

/// How many sums wait for their server.
fn sums(star: &Star) -> usize {
    star.waiting.iter().filter(|packet| packet.kind == Kind::Sum).count()
}

impl Rounds {
    fn star(&self, way: &Way) -> Result<Star, ReproduceError> {
        let mut options = vec![("initial_window", "64".to_string()), ("limit", way.ahead.is_some().to_string())];
        options.extend(way.ahead.map(|ahead| ("initial_ahead", ahead.to_string())));
        let (rules, workers, aggregators) = (tributary_proto::pa_atp::RULES, &self.workers[..], self.aggregators);
        Star::new(&Shape { rules, workers, options: &options, aggregators, elements_per_packet: 1, blocks: 64 })
    }

    /// Sends as many packets of a turn as the worker's windows allow; each is acknowledged before the next.
    fn take(&self, star: &mut Star, turn: &Turn) -> Result<u32, ReproduceError> {
        if self.workers.get(turn.job).is_none_or(|&workers| turn.worker >= workers) {
            return Err(ReproduceError::Bad(format!("there is no worker {} of job {}", turn.worker, turn.job)));
        }
        for done in 0..turn.packets {
            if star.send(turn.job, Rank(turn.worker))?.is_none() {
                return Ok(done);
            }
            star.deliver(|packet| packet.kind == Kind::Gack)?;
        }
        Ok(turn.packets)
    }
}

/// Figure 4: how a leader and a straggler cut their windows in the same marked round.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cuts {
    /// AWD.
    pub ahead: u64,
    /// How many rounds have marks on every packet.
    pub marked: u32,
    /// How many rounds without a mark follow; each opens the window by a packet. Then comes the round that cuts.
    pub clear: u32,
    /// How far the leader is ahead of the last result; the straggler is not ahead.
    pub leads: u64,
}

impl Experiment for Cuts {
    /// Findings `before`, `straggler` and `leader`: packets of CWD before the cut, and after the cut of each.
    fn run(&self, _: &Context<'_>) -> Result<Findings, ReproduceError> {
        let mut findings = Findings::default();
        for (name, own) in [("straggler", 0), ("leader", self.leads)] {
            let (before, after) = self.cut(own as f64);
            findings.value("before", before as f64);
            findings.value(name, after as f64);
            findings.cause(
                name,
                format!(
                    "{before} packets become {after}; no window of ours has fewer than two, as the loss of a lone \
                     packet would be found by a timeout alone (A17)"
                ),
            );
        }
        Ok(findings)
    }
}

impl Cuts {
    fn cut(&self, own: f64) -> (u64, u64) {
        let limits = Limits { initial: 2, min: 2, max: u16::MAX.into() };
        let settings = Settings { cut_rule: CutRule::Printed, ..Settings::new(limits) };
        let mut controller = ProgressAware::new(&settings);
        let (mut sent, progress) = (0, Progress { own, average: own.max(1.0), limit: self.ahead as f64 });
        let mut round = |controller: &mut ProgressAware, is_marked: bool| {
            let packets = controller.window();
            sent += packets;
            (sent - packets..sent).for_each(|transmission| {
                // All but the last belong to the round before: a round ends with the first ACK of a packet that was
                // sent in it.
                let (newest, next, marked) = (transmission, sent, is_marked.into());
                controller.on_ack(&Ack { packets: 1, newest, next, marked, progress, ..Ack::default() });
            });
        };
        (0..self.marked).for_each(|_| round(&mut controller, true));
        (0..self.clear).for_each(|_| round(&mut controller, false));
        let before = controller.window();
        let mut rounds = 0;
        while controller.window() >= before && rounds < 4 {
            round(&mut controller, true);
            rounds += 1;
        }
        (before, controller.window())
    }
}

/// Figure 5: how far a worker sends with both windows fixed.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edges {
    /// CWD.
    pub window: u64,
    /// AWD.
    pub ahead: u64,
    /// What was confirmed, moment by moment.
    pub moments: Vec<Moment>,
}

/// What a worker has received by a moment.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Moment {
    /// Gradients up to this one have arrived: the paper's `last_GACK`.
    pub acknowledged: u32,
    /// Blocks up to this one have a result: `last_AACK`.
    pub results: u32,
}

impl Experiment for Edges {
    /// Findings `moment-0` and so on: the sequence number of the last packet that the worker has sent by then.
    fn run(&self, _: &Context<'_>) -> Result<Findings, ReproduceError> {
        let options = [("initial_window", self.window.to_string()), ("initial_ahead", self.ahead.to_string())];
        let mut star = Star::new(&Shape {
            rules: Rules {
                acknowledges: true,
                congestion: |job| Box::new(Fixed { packets: job.options.count("initial_window") }),
                lead_limit: |job| Some(LeadLimit::new(0, job.options.count("initial_ahead") as u16, 125, true)),
            },
            workers: &[2],
            options: &options,
            aggregators: 1024,
            elements_per_packet: 1,
            blocks: 256,
        })?;
        let (worker, other, server) = (Rank(0), Rank(1), Rank(2));
        let (mut newest, mut others) = (0, 0);
        let mut findings = Findings::default();
        for (number, moment) in self.moments.iter().enumerate() {
            while others < moment.results {
                let sent = star.send(0, other)?;
                others = sent.map_or(others, |(_, seq, _)| seq);
                star.deliver(|packet| packet.to == other)?;
                newest = progress(&mut star, worker, server, moment, newest)?;
            }
            newest = progress(&mut star, worker, server, moment, newest)?;
            findings.value(format!("moment-{number}"), f64::from(newest));
        }
        Ok(findings)
    }
}

/// Delivers what a worker receives by a moment, and lets it send; returns the newest number that it has sent.
fn progress(
    star: &mut Star,
    worker: Rank,
    server: Rank,
    moment: &Moment,
    mut newest: u32,
) -> Result<u32, ReproduceError> {
    loop {
        star.deliver(|packet| packet.to == server)?;
        while star.send(0, server)?.is_some() {}
        let up_to = |kind: Kind| if kind == Kind::Gack { moment.acknowledged } else { moment.results };
        star.deliver(|packet| packet.to != worker || packet.seq <= up_to(packet.kind))?;
        match star.send(0, worker)? {
            Some((Kind::Gradient, seq, _)) => newest = newest.max(seq),
            Some(_) => {}
            None => return Ok(newest),
        }
    }
}

/// Section V-C: the share of acknowledgements in the bytes on the way back.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Acknowledgements {
    /// Bytes on a link around each header.
    pub overhead: usize,
    /// Packets.
    pub packets: Vec<PacketSize>,
}

/// A size of packets.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PacketSize {
    /// Findings are named after it.
    pub name: String,
    /// Elements of four bytes.
    pub elements: u16,
}

impl Experiment for Acknowledgements {
    /// Findings `<size>-packet` and `<size>-ack`, in bytes on a link, and `<size>-share`: the percentage of
    /// acknowledgements in the bytes on the way back, where each is followed by a result.
    fn run(&self, _: &Context<'_>) -> Result<Findings, ReproduceError> {
        let mut findings = Findings::default();
        for PacketSize { name, elements } in &self.packets {
            let mut star = Star::new(&Shape {
                rules: tributary_proto::pa_atp::RULES,
                workers: &[2],
                options: &[],
                aggregators: 16,
                elements_per_packet: *elements,
                blocks: 4,
            })?;
            let sent = star.send(0, Rank(0))?.map(|(.., wire_len)| wire_len);
            let gack = star.waiting.iter().find(|packet| packet.kind == Kind::Gack).map(|packet| packet.wire_len);
            let (Some(sent), Some(gack)) = (sent, gack) else {
                return Err(ReproduceError::Wrong { what: "a worker".into(), why: "nothing was acknowledged".into() });
            };
            let (packet, ack) = ((sent + self.overhead) as f64, (gack + self.overhead) as f64);
            findings.value(format!("{name}-packet"), packet);
            findings.value(format!("{name}-ack"), ack);
            findings.value(format!("{name}-share"), 100.0 * ack / (packet + ack));
        }
        Ok(findings)
    }
}

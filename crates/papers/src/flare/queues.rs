//! Figures 4 and 5 and equation 1: packets that wait for cores under hierarchical scheduling, and hosts with as many blocks
//! in flight as the allreduce has buffers.

use std::collections::BTreeMap;

use serde::Deserialize;
use tributary_sim::cores::Shape;
use tributary_sim::cores::model::{Costs, Design, Handling};

use super::bench::{Bench, FEWER_PACKETS, Packet, Stream, equation_1, shape};
use crate::{Context, Experiment, Findings, ReproduceError};

/// What is run.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Queues {
    /// K.
    pub cores: u32,
    /// P: packets of a block.
    pub children: u64,
    /// τ: cycles of a handler.
    pub service: u64,
    /// δ: cycles from packet to packet.
    pub gap: u64,
    /// How many rounds there are; in each round, as many blocks as there are cores send their packets in a row.
    pub rounds: u64,
    /// The scenarios.
    pub scenarios: Vec<Scenario>,
}

/// One way to send and to schedule.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Findings are named after it.
    pub name: String,
    /// S: 1, or all cores.
    pub subset: u32,
    /// Blocks whose packets take turns: δ_c / δ.
    pub staggered: u64,
}

impl Experiment for Queues {
    /// Findings, for each scenario: `<name>-queue`, the most packets that wait for core 0 (or all cores of its subset);
    /// `<name>-packets`, the most in the switch; `<name>-burst` and `<name>-idle`, the time from the first packet of a
    /// block at its home until after the last, and from there to the next block's first; `<name>-equation-queue` and
    /// `-equation-packets`, by equation 1.
    fn run(&self, _: &Context<'_>) -> Result<Findings, ReproduceError> {
        let mut findings = Findings::default();
        for scenario in &self.scenarios {
            let Scenario { name, subset, staggered } = scenario;
            let shape = super::bench::shape(self.cores, self.cores, *subset)?;
            if *staggered == 0 || self.children == 0 || self.gap == 0 || self.service == 0 {
                return Err(ReproduceError::Bad("children, times and blocks that take turns are one at least".into()));
            }
            let costs = Costs { combine: self.service, ..Costs::default() };
            let children = self.children as u32;
            let handling = Handling { design: Design::Unbuffered, children, buffer_bytes: 0, costs };
            let arrivals = self.arrivals(*staggered);
            let mut bench = Bench::new(shape, handling);
            bench.run(&arrivals)?;
            findings.value(format!("{name}-queue"), bench.processor.queue(0).peak() as f64);
            findings.value(format!("{name}-packets"), bench.processor.counters().packets.peak() as f64);
            let (burst, idle) = self.bursts(shape, &arrivals);
            findings.value(format!("{name}-burst"), burst as f64);
            findings.value(format!("{name}-idle"), idle as f64);
            let times = [self.gap, self.gap * staggered, self.service].map(|cycles| cycles as f64);
            let [cores, subset, children] = [self.cores.into(), shape.subset_cores().into(), self.children as f64];
            let queue = equation_1([cores, subset, children], times);
            findings.value(format!("{name}-equation-queue"), queue);
            findings.value(format!("{name}-equation-packets"), (queue + 1.0) * cores);
            findings.cause(format!("{name}-packets"), FEWER_PACKETS);
        }
        Ok(findings)
    }
}

impl Queues {
    /// One packet after the other, of blocks that take turns.
    fn arrivals(&self, staggered: u64) -> Vec<(u64, Packet)> {
        let blocks = self.rounds * u64::from(self.cores) * staggered;
        let (children, gap) = (self.children, self.gap as f64);
        Stream { blocks, children, staggered, gap, random: false, rest: 0.0 }.arrivals(1)
    }

    /// How long a burst of packets to home 0 lasts, including a packet's time after the last one, and how long no
    /// packet comes then.
    fn bursts(&self, shape: Shape, arrivals: &[(u64, Packet)]) -> (u64, u64) {
        let subsets = u64::from(shape.subsets());
        let home: Vec<_> = arrivals.iter().filter(|(_, packet)| packet.block.is_multiple_of(subsets)).collect();
        let step = home.get(1).map_or(0, |second| second.0 - home[0].0);
        let end = home.windows(2).find(|pair| pair[1].0 - pair[0].0 > step);
        end.map_or((0, 0), |pair| (pair[0].0 + step - home[0].0, pair[1].0 - pair[0].0 - step))
    }
}

/// Hosts around one switch.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Buffers {
    /// The hosts.
    pub hosts: Vec<Host>,
    /// How many packets each host sends.
    pub packets: u64,
    /// Cores of the switch.
    pub cores: u32,
    /// The allreduce's buffers: how many blocks a host may have in flight.
    pub buffers: u64,
    /// Cycles from one packet of a host to its next.
    pub gap: u64,
    /// Cycles to copy the first packet of a block.
    pub copy: u64,
    /// Cycles to combine a later one.
    pub combine: u64,
    /// How packets are scheduled.
    pub ways: Vec<Way>,
}

/// A host.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Its number.
    pub host: u32,
    /// When it sends its first packet.
    pub starts: u64,
}

/// A way to schedule packets.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Way {
    /// Findings are named after it.
    pub name: String,
    /// S: 1, or all cores.
    pub subset: u32,
}

impl Experiment for Buffers {
    /// Findings, for each way: `<name>-first-core` and `-first-child`, of the first handler; `<name>-queue`, the most
    /// packets that wait for a core of one subset; `<name>-least-queue`, the same for the subset with the shortest
    /// queue; `<name>-buffers`, the most blocks in the working memory; `<name>-after`, cycles from the sum of block 0
    /// to the first packet of the block that needs its buffer; `<name>-paused`, cycles that this packet's host had to
    /// wait; `<name>-sums`, how many blocks are summed.
    fn run(&self, _: &Context<'_>) -> Result<Findings, ReproduceError> {
        if self.hosts.is_empty() || self.packets == 0 || self.buffers == 0 || self.gap == 0 {
            return Err(ReproduceError::Bad("hosts, packets, buffers and times are one at least".into()));
        }
        let mut findings = Findings::default();
        for Way { name, subset } in &self.ways {
            let costs = Costs { start: 0, copy: self.copy, combine: self.combine, merge: self.combine, send: 0 };
            let children = self.hosts.len() as u32;
            let handling = Handling { design: Design::Buffers(1), children, buffer_bytes: 1, costs };
            let shape = shape(self.cores, self.cores, *subset)?;
            let mut bench = Bench::new(shape, handling);
            let sent = self.send(&mut bench)?;
            let mut value = |key: &str, value: f64| findings.value(format!("{name}-{key}"), value);
            let first = bench.finished.iter().min_by_key(|one| one.started);
            value("first-core", first.map_or(f64::NAN, |one| one.core.into()));
            value("first-child", first.map_or(f64::NAN, |one| one.packet.child.into()));
            let subsets = 0..shape.all_cores() / shape.subset_cores();
            let peaks: Vec<u64> = subsets.map(|subset| bench.processor.queue(subset).peak()).collect();
            value("queue", peaks.iter().max().map_or(0.0, |&peak| peak as f64));
            value("least-queue", peaks.iter().min().map_or(0.0, |&peak| peak as f64));
            value("buffers", bench.processor.counters().working_bytes.peak() as f64);
            let summed =
                bench.finished.iter().find(|one| one.sent.is_some() && one.packet.block == 0).map(|one| one.ended);
            if let (Some(summed), Some(&(begun, due))) = (summed, sent.get(&self.buffers)) {
                value("after", begun as f64 - summed as f64);
                value("paused", (begun - due) as f64);
            }
            value("sums", bench.finished.iter().filter(|one| one.sent.is_some()).count() as f64);
            let latency = summed.unwrap_or(0) - sent.get(&0).map_or(0, |sent| sent.0);
            findings.note(format!("{name}: block 0 takes {latency} cycles from its first packet to its sum."));
        }
        Ok(findings)
    }
}

impl Buffers {
    /// Lets hosts send, each as soon as it may. Returns for each block's first packet when it was sent, and when it
    /// would have been sent without waiting.
    fn send(&self, bench: &mut Bench) -> Result<BTreeMap<u64, (u64, u64)>, ReproduceError> {
        let mut sent = BTreeMap::new();
        // The next block of each host, and its time.
        let mut next: Vec<(u64, u64)> = self.hosts.iter().map(|host| (0, host.starts)).collect();
        let mut now = 0;
        while next.iter().any(|&(block, _)| block < self.packets) {
            bench.finished.extend(bench.processor.advance(now));
            for (index, host) in self.hosts.iter().enumerate() {
                let (block, due) = next[index];
                let needs = block.checked_sub(self.buffers);
                let summed =
                    |block: u64| bench.finished.iter().any(|one| one.sent.is_some() && one.packet.block == block);
                if block < self.packets && due <= now && needs.is_none_or(summed) {
                    bench.arrive(now, Packet { block, child: host.host, bytes: 1 })?;
                    sent.entry(block).or_insert((now, due));
                    next[index] = (block + 1, now + self.gap);
                }
            }
            now += 1;
        }
        bench.run(&[])?;
        Ok(sent)
    }
}

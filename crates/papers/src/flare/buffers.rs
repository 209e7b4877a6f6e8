//! Figure 4: hosts with as many blocks under way as the allreduce has buffers, and what the switch holds meanwhile.

use std::collections::BTreeMap;

use serde::Deserialize;
use tributary_sim::cores::model::{Costs, Design, Handling};

use super::bench::{Bench, Packet, shape};
use crate::{Context, Experiment, Findings, ReproduceError};

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
    /// The allreduce's buffers: how many blocks a host may have under way.
    pub buffers: u64,
    /// Cycles from one packet of a host to its next.
    pub apart: u64,
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
        if self.hosts.is_empty() || self.packets == 0 || self.buffers == 0 || self.apart == 0 {
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
            for (place, host) in self.hosts.iter().enumerate() {
                let (block, due) = next[place];
                let needs = block.checked_sub(self.buffers);
                let summed =
                    |block: u64| bench.finished.iter().any(|one| one.sent.is_some() && one.packet.block == block);
                if block < self.packets && due <= now && needs.is_none_or(summed) {
                    bench.arrive(now, Packet { block, child: host.host, bytes: 1 })?;
                    sent.entry(block).or_insert((now, due));
                    next[place] = (block + 1, now + self.apart);
                }
            }
            now += 1;
        }
        bench.run(&[])?;
        Ok(sent)
    }
}

//! Flows that arrive as a Poisson process: each host begins flows of random sizes to random others, at a given load.
//!
//! Every host has a process of its own. Together they are one process of all hosts' rate whose senders are uniform, so
//! the pairs are random too.

use std::sync::Arc;

use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::time::Time;

use super::SizeTable;
use crate::rng::{Purpose, Rng};
use crate::topology::Rate;

/// Hosts that send flows to each other.
#[derive(Debug)]
pub struct PoissonGroup {
    /// Who takes part; at least two.
    pub hosts: Vec<NodeId>,
    /// How long flows are.
    pub sizes: SizeTable,
    /// The share of a host's rate that its flows' data fill, headers not counted.
    pub load: f64,
    /// Every host's rate.
    pub rate: Rate,
    /// No flow begins before this ...
    pub start: Time,
    /// ... nor from this on. Without it, flows begin for ever.
    pub until: Option<Time>,
}

impl PoissonGroup {
    /// One source for each host. `which` tells groups of one run apart.
    pub fn sources(self, seed: u64, which: u64) -> Vec<(NodeId, PoissonSource)> {
        let gap = self.sizes.mean() * 8e12 / (self.load * self.rate.0 as f64);
        let group = Arc::new(self);
        let source = |place: usize, host: NodeId| {
            let rng = Rng::new(seed, Purpose::Arrivals, which << 32 | u64::from(host.0));
            let ended = Ended::No;
            let mut source = PoissonSource { group: group.clone(), place, gap, rng, next: group.start, ended };
            source.advance();
            (host, source)
        };
        group.hosts.iter().enumerate().map(|(place, &host)| source(place, host)).collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    No,
    Now,
    Said,
}

/// One host's part.
#[derive(Clone, Debug)]
pub struct PoissonSource {
    group: Arc<PoissonGroup>,
    place: usize,
    /// Mean picoseconds from one flow to the next.
    gap: f64,
    rng: Rng,
    next: Time,
    ended: Ended,
}

impl PoissonSource {
    /// It will end by itself.
    pub fn ends(&self) -> bool {
        self.group.until.is_some()
    }

    /// When the next flow begins, or the source ends.
    pub fn next(&self) -> Option<Time> {
        match self.ended {
            Ended::No => Some(self.group.until.map_or(self.next, |until| until.min(self.next))),
            Ended::Now | Ended::Said => None,
        }
    }

    /// A flow that begins by `now`: to whom, and how many bytes.
    pub fn pop(&mut self, now: Time) -> Option<(NodeId, u64)> {
        if self.ended == Ended::No && self.group.until.is_some_and(|until| until <= now && until <= self.next) {
            self.ended = Ended::Now;
        }
        if self.ended != Ended::No || now < self.next {
            return None;
        }
        let others = self.group.hosts.len() as u32 - 1;
        let other = self.rng.below(others) as usize;
        let to = self.group.hosts[other + usize::from(other >= self.place)];
        let bytes = self.group.sizes.draw(&mut self.rng);
        self.advance();
        Some((to, bytes))
    }

    /// True once, after the end.
    pub fn has_just_ended(&mut self) -> bool {
        let now = self.ended == Ended::Now;
        if now {
            self.ended = Ended::Said;
        }
        now
    }

    fn advance(&mut self) {
        let gap = (self.rng.exponential() * self.gap).round();
        self.next = Time(self.next.0.saturating_add(gap as u64));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::FlowSizes;
    use tributary_proto::contract::time::Span;

    fn group(load: f64, until: Option<Time>) -> Vec<(NodeId, PoissonSource)> {
        let hosts = (0..10).map(NodeId).collect();
        let (rate, sizes) = (Rate(10_000_000_000), FlowSizes::WebSearch.table());
        PoissonGroup { hosts, sizes, load, rate, start: Time::ZERO, until }.sources(1, 0)
    }

    #[test]
    fn the_load_is_the_one_that_was_asked_for() {
        let end = Time::ZERO + Span::from_millis(20_000);
        let (mut bytes, mut flows) = (0, 0u64);
        for (host, mut source) in group(0.4, Some(end)) {
            while let Some((to, size)) = source.pop(end) {
                assert_ne!(host, to);
                bytes += size;
                flows += 1;
            }
            assert!(source.has_just_ended() && !source.has_just_ended());
        }
        let load = bytes as f64 * 8.0 / (10.0 * 10e9 * 20.0);
        assert!((load - 0.4).abs() < 0.01, "{load} from {flows} flows");
    }

    #[test]
    fn gaps_vary_as_a_poisson_process_does() {
        let (_, mut source) = group(0.5, None).remove(0);
        let mut gaps = Vec::new();
        let mut last = Time::ZERO;
        for _ in 0..20_000 {
            let next = source.next().unwrap();
            gaps.push(next.since(last).as_secs_f64());
            last = next;
            source.pop(next).unwrap();
        }
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.03, "an exponential's deviation is its mean");
        assert!((mean / (FlowSizes::WebSearch.table().mean() * 8.0 / 5e9) - 1.0).abs() < 0.03);
    }
}

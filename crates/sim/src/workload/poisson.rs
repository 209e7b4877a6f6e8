//! Flows that arrive as a Poisson process: each host begins flows of random sizes to random other hosts, or to random
//! hosts of another set, at a given load.
//!
//! Every sender has its own process. Together they are one process with all senders' rate, whose senders are uniform,
//! so the pairs are random too.

use std::sync::Arc;

use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::time::Time;

use super::SizeTable;
use crate::rng::{Purpose, Rng};

/// Hosts that send flows to each other.
#[derive(Debug)]
pub struct PoissonGroup {
    /// The senders.
    pub senders: Vec<NodeId>,
    /// The receivers. A sender sends nothing to itself, so there must be a receiver that is not this sender.
    pub receivers: Vec<NodeId>,
    /// The sizes of flows.
    pub sizes: SizeTable,
    /// Only flows of at least the first and fewer than the second number of bytes are sent.
    pub between: Option<[u64; 2]>,
    /// The share of `rate` that the data of a sender's flows fill, without headers.
    pub load: f64,
    /// Every sender's rate, bits per second.
    pub rate: f64,
    /// No flow begins before this.
    pub start: Time,
    /// No flow begins from this time on; without it, flows begin until the run ends.
    pub until: Option<Time>,
}

impl PoissonGroup {
    /// One source for each host. `number` distinguishes the groups of one run.
    pub fn sources(self, seed: u64, number: u64) -> Vec<(NodeId, PoissonSource)> {
        let gap = self.sizes.mean() * 8e12 / (self.load * self.rate);
        let group = Arc::new(self);
        let source = |host: NodeId| {
            let rng = Rng::new(seed, Purpose::Arrivals, number << 32 | u64::from(host.0));
            let self_index = group.receivers.iter().position(|&receiver| receiver == host);
            let mut source =
                PoissonSource { group: group.clone(), self_index, gap, rng, next: group.start, ended: Ended::No };
            source.advance();
            (host, source)
        };
        group.senders.iter().map(|&host| source(host)).collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    No,
    Now,
    Reported,
}

/// The source of one host.
#[derive(Clone, Debug)]
pub struct PoissonSource {
    group: Arc<PoissonGroup>,
    /// The sender's index among the receivers, if it is one.
    self_index: Option<usize>,
    /// Mean picoseconds from one flow to the next.
    gap: f64,
    rng: Rng,
    next: Time,
    ended: Ended,
}

impl PoissonSource {
    /// True if it will end by itself.
    pub fn ends(&self) -> bool {
        self.group.until.is_some()
    }

    /// When the next flow begins, or the source ends.
    pub fn next(&self) -> Option<Time> {
        match self.ended {
            Ended::No => Some(self.group.until.map_or(self.next, |until| until.min(self.next))),
            Ended::Now | Ended::Reported => None,
        }
    }

    /// A flow that begins by `now`: its receiver and its bytes.
    pub fn pop(&mut self, now: Time) -> Option<(NodeId, u64)> {
        if self.ended == Ended::No && self.group.until.is_some_and(|until| until <= now && until <= self.next) {
            self.ended = Ended::Now;
        }
        loop {
            if self.ended != Ended::No || now < self.next {
                return None;
            }
            let (to, bytes) = self.draw();
            if self.group.between.is_none_or(|[least, limit]| (least..limit).contains(&bytes)) {
                return Some((to, bytes));
            }
            if self.group.until.is_some_and(|until| until <= now && until <= self.next) {
                self.ended = Ended::Now;
            }
        }
    }

    /// Draws the next flow, whether or not it is sent.
    fn draw(&mut self) -> (NodeId, u64) {
        let others = self.group.receivers.len() as u32 - u32::from(self.self_index.is_some());
        let other = self.rng.below(others) as usize;
        let to = self.group.receivers[other + usize::from(self.self_index.is_some_and(|index| other >= index))];
        let bytes = self.group.sizes.draw(&mut self.rng);
        self.advance();
        (to, bytes)
    }

    /// True once, at the first call after the end.
    pub fn has_just_ended(&mut self) -> bool {
        let now = self.ended == Ended::Now;
        if now {
            self.ended = Ended::Reported;
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
        let hosts: Vec<NodeId> = (0..10).map(NodeId).collect();
        let (receivers, rate, sizes) = (hosts.clone(), 10e9, FlowSizes::WebSearch.table());
        PoissonGroup { senders: hosts, receivers, sizes, between: None, load, rate, start: Time::ZERO, until }
            .sources(1, 0)
    }

    #[test]
    fn between_two_sets_flows_go_from_the_one_to_the_other_and_the_load_is_of_every_senders_rate() {
        let end = Time::ZERO + Span::from_millis(20_000);
        let (senders, receivers) = (vec![NodeId(0), NodeId(1)], vec![NodeId(1), NodeId(5), NodeId(6)]);
        let (rate, sizes) = (5e9, FlowSizes::WebSearch.table());
        let (between, start, until) = (None, Time::ZERO, Some(end));
        let group = PoissonGroup { senders, receivers, sizes, between, load: 0.6, rate, start, until };
        let (mut bytes, mut flows_to) = (0, [[0u32; 7]; 2]);
        for (host, mut source) in group.sources(1, 0) {
            while let Some((to, size)) = source.pop(end) {
                flows_to[host.index()][to.index()] += 1;
                bytes += size;
            }
        }
        let load = bytes as f64 * 8.0 / (10e9 * 20.0);
        assert!((load - 0.6).abs() < 0.03, "{load}");
        let used = flows_to.map(|row| row.map(|flows| flows > 100));
        assert_eq!(used[0], [false, true, false, false, false, true, true], "all receivers, and nobody else");
        assert_eq!(used[1], [false, false, false, false, false, true, true], "a sender sends nothing to itself");
    }

    #[test]
    fn the_load_is_the_configured_one() {
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

    #[test]
    fn flows_of_some_sizes_are_those_that_all_flows_would_be() {
        let end = Time::ZERO + Span::from_millis(500);
        let drawn = |between| {
            let hosts: Vec<NodeId> = (0..4).map(NodeId).collect();
            let (receivers, sizes) = (hosts.clone(), FlowSizes::DataMining.table().scaled(100));
            let (load, start, until) = (0.3, Time::ZERO, Some(end));
            let group = PoissonGroup { senders: hosts, receivers, sizes, between, load, rate: 10e9, start, until };
            let mut flows = Vec::new();
            for (host, mut source) in group.sources(1, 0) {
                while let Some(at) = source.next() {
                    flows.extend(source.pop(at).map(|(to, bytes)| (at, host, to, bytes)));
                }
                assert!(source.has_just_ended());
            }
            flows
        };
        let all = drawn(None);
        let (short, long) = (drawn(Some([0, 400_000])), drawn(Some([400_000, u64::MAX])));
        assert!(!long.is_empty() && short.len() > long.len());
        let mut both = [short, long].concat();
        both.sort_unstable();
        let mut all = all;
        all.sort_unstable();
        assert_eq!(both, all);
    }
}

//! Flows that begin together: the answers to a query, and a message from every host to every other.

use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::time::{Span, Time};

use super::ListedFlow;
use crate::rng::{Purpose, Rng};

/// Queries of an incast: at each, some senders answer one receiver at the same moment, as the workers of a partition-aggregate
/// application do (DCTCP §2.1).
#[derive(Clone, Debug)]
pub struct Queries {
    /// Hosts that may answer.
    pub senders: Vec<NodeId>,
    /// Hosts that may ask.
    pub receivers: Vec<NodeId>,
    /// How many senders answer a query; fewer than `senders`, so that whoever asks may be one of these.
    pub fan_in: u32,
    /// Bytes of an answer.
    pub bytes: u64,
    /// When the queries are.
    pub times: Vec<Time>,
}

impl Queries {
    /// The times from `start` on, one every `every`, before `until`; only the first if there is no `every`.
    pub fn times(start: Time, every: Option<Span>, until: Option<Time>) -> Vec<Time> {
        let next = |at: &Time| Some(*at + every?);
        let is_early = |at: &Time| until.is_none_or(|until| *at < until);
        std::iter::successors(Some(start), next).take_while(is_early).collect()
    }

    /// The flows of all queries, by time. Who asks is drawn from the receivers, and who answers from the other senders, all
    /// with the same probability.
    pub fn flows(&self, seed: u64, pattern: u64) -> Vec<ListedFlow> {
        let mut rng = Rng::new(seed, Purpose::Queries, pattern);
        let mut flows = Vec::with_capacity(self.times.len() * self.fan_in as usize);
        for &at in &self.times {
            let to = self.receivers[rng.below(self.receivers.len() as u32) as usize];
            let mut others: Vec<NodeId> = self.senders.iter().copied().filter(|&sender| sender != to).collect();
            // The first steps of a Fisher-Yates shuffle.
            for drawn in 0..self.fan_in as usize {
                let other = drawn + rng.below((others.len() - drawn) as u32) as usize;
                others.swap(drawn, other);
                flows.push(ListedFlow { at, from: others[drawn], to, bytes: self.bytes });
            }
        }
        flows
    }
}

/// A flow from every host to every other, all at one time. Each host begins with the host after itself, so that the first
/// packets of all go to different hosts.
pub fn all_to_all(hosts: &[NodeId], bytes: u64, at: Time) -> Vec<ListedFlow> {
    let peers = |from: usize| (1..hosts.len()).map(move |ahead| (from, (from + ahead) % hosts.len()));
    let pairs = (0..hosts.len()).flat_map(peers);
    pairs.map(|(from, to)| ListedFlow { at, from: hosts[from], to: hosts[to], bytes }).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn us(us: u64) -> Time {
        Time::ZERO + Span::from_micros(us)
    }

    #[test]
    fn queries_repeat_until_the_end_or_come_once() {
        assert_eq!(Queries::times(us(5), Some(Span::from_micros(10)), Some(us(25))), [us(5), us(15)]);
        assert_eq!(Queries::times(us(5), None, Some(us(25))), [us(5)]);
        assert_eq!(Queries::times(us(5), None, None), [us(5)]);
    }

    #[test]
    fn distinct_senders_answer_each_query_and_never_the_one_who_asks() {
        let hosts: Vec<NodeId> = (0..9).map(NodeId).collect();
        let times: Vec<Time> = (0..200).map(us).collect();
        let queries = Queries { senders: hosts.clone(), receivers: hosts, fan_in: 8, bytes: 7, times };
        let flows = queries.flows(1, 0);
        for query in flows.chunks(8) {
            let senders: BTreeSet<NodeId> = query.iter().map(|flow| flow.from).collect();
            assert!(senders.len() == 8 && !senders.contains(&query[0].to), "{query:?}");
            assert!(query.iter().all(|flow| (flow.at, flow.to, flow.bytes) == (query[0].at, query[0].to, 7)));
        }
        let receivers: BTreeSet<NodeId> = flows.iter().map(|flow| flow.to).collect();
        assert_eq!(receivers.len(), 9, "every host asks at some time");
        assert_ne!(flows, queries.flows(2, 0), "another seed draws others");
    }

    #[test]
    fn every_host_sends_to_every_other_and_first_to_different_ones() {
        let hosts = [4, 7, 9].map(NodeId);
        let flows = all_to_all(&hosts, 5, us(1));
        let pairs: Vec<(u32, u32)> = flows.iter().map(|flow| (flow.from.0, flow.to.0)).collect();
        assert_eq!(pairs, [(4, 7), (4, 9), (7, 9), (7, 4), (9, 4), (9, 7)]);
    }
}

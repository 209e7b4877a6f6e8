//! Training steps as graphs: what each rank computes and exchanges in a step, and how far each rank has come.
//!
//! A collective of a step is an operation of its group's job. As on a real host, a rank computes one thing at a time,
//! and the collectives of a group begin in the graph's order; groups do not wait for each other.

use std::collections::BTreeMap;
use std::sync::Arc;

use tributary_proto::contract::ids::{NodeId, OpId};
use tributary_proto::contract::time::{Span, Time};

use super::records::{EndpointId, JobIndex};

/// A training step that all ranks repeat.
#[derive(Clone, Debug, PartialEq)]
pub struct StepGraph {
    /// The name in reports.
    pub name: String,
    /// The hosts, by rank.
    pub members: Vec<NodeId>,
    /// How often ranks repeat it.
    pub iterations: u32,
    /// When ranks begin.
    pub start: Time,
    /// What ranks do. The nodes of a stream, and those that compute, begin in this order.
    pub nodes: Vec<StepNode>,
    /// The names of streams: the collectives of a group that go one way.
    pub streams: Vec<String>,
    /// For each stream, the ranks of its groups.
    pub groups: Vec<Vec<Vec<usize>>>,
    /// The jobs that carry its collectives.
    pub jobs: Vec<JobIndex>,
    /// What goes another way than its protocol's, a sentence each.
    pub notes: Vec<String>,
}

/// One thing that ranks do in a step.
#[derive(Clone, Debug, PartialEq)]
pub struct StepNode {
    /// Its name, such as "backward 3".
    pub name: String,
    /// What it is.
    pub work: StepWork,
    /// The nodes that must be complete at the rank before, by number.
    pub after: Vec<u32>,
    /// Which ranks do it, by rank; empty if all do.
    pub ranks: Vec<bool>,
}

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepWork {
    /// The rank computes for this long.
    Compute(Span),
    /// A collective on a stream, of this many bytes.
    Collective {
        /// The stream, by number.
        stream: u16,
        /// The bytes of its whole tensor.
        bytes: u64,
    },
}

impl StepNode {
    fn is_done_by(&self, rank: usize) -> bool {
        self.ranks.get(rank).copied().unwrap_or(true)
    }
}

/// A rank's end of a stream.
#[derive(Clone, Debug)]
pub struct RankStream {
    /// Its nodes, in order.
    pub nodes: Arc<[u32]>,
    /// How its collectives travel.
    pub way: Way,
    /// How many of the nodes have begun in this iteration.
    pub(super) begun: usize,
}

/// How the collectives of a stream travel.
#[derive(Clone, Debug)]
pub enum Way {
    /// As operations of a job.
    Job {
        /// The rank's endpoint.
        endpoint: EndpointId,
        /// For each operation of an iteration, its node.
        node_of: Arc<[u32]>,
    },
    /// As flows between pairs of ranks.
    Flows(Exchange),
}

/// A rank's end of a stream whose data goes from rank to rank: in each round a rank sends to one other and receives
/// from one, and the next round begins when it has done both.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// The stream's lane: the flows of two ranks on one lane arrive in the order in which they began.
    pub lane: u8,
    /// The hosts of the group.
    pub peers: Arc<[NodeId]>,
    /// This rank's position among them.
    pub position: usize,
    /// For each node of the stream, what is transferred.
    pub transfers: Arc<[Transfer]>,
    /// Under way: the position of the node in the stream, the round, and whether what was sent has arrived.
    pub(super) current: Option<(usize, usize, bool)>,
    /// For each peer, the flows that came from there and that no round has waited for yet.
    pub(super) received: BTreeMap<NodeId, u32>,
}

/// What the ranks of a group send to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// Each sends this many bytes to each other.
    EachToEach(u64),
    /// In each of this many rounds, each sends this many bytes to the next one of a ring.
    Around(u64, usize),
    /// The rank at this position sends this many bytes to each other.
    FromRoot(usize, u64),
    /// This rank's only round.
    One(Round),
}

/// What a rank sends and receives in a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// The receiver of what it sends, and the bytes.
    pub send: Option<(NodeId, u64)>,
    /// The sender of what it receives.
    pub receive: Option<NodeId>,
}

impl Exchange {
    /// A rank's end before its first exchange.
    pub fn new(lane: u8, peers: Arc<[NodeId]>, position: usize, transfers: Arc<[Transfer]>) -> Exchange {
        Exchange { lane, peers, position, transfers, current: None, received: BTreeMap::new() }
    }

    /// A round of the node at a position of the stream, if there is one.
    pub(super) fn round(&self, node: usize, round: usize) -> Option<Round> {
        let (ranks, me) = (self.peers.len(), self.position);
        let rounds = match self.transfers[node] {
            Transfer::One(_) => 1,
            Transfer::Around(_, rounds) => rounds,
            Transfer::EachToEach(_) | Transfer::FromRoot(..) => ranks - 1,
        };
        if round >= rounds {
            return None;
        }
        let ahead = (round + 1) % ranks;
        let (to, from) = ((me + ahead) % ranks, (me + ranks - ahead) % ranks);
        Some(match self.transfers[node] {
            Transfer::One(only) => only,
            Transfer::Around(bytes, _) => Round {
                send: Some((self.peers[(me + 1) % ranks], bytes)),
                receive: Some(self.peers[(me + ranks - 1) % ranks]),
            },
            Transfer::EachToEach(bytes) => {
                Round { send: Some((self.peers[to], bytes)), receive: Some(self.peers[from]) }
            }
            Transfer::FromRoot(root, bytes) => Round {
                send: (me == root).then_some((self.peers[to], bytes)),
                receive: (from == root).then_some(self.peers[from]),
            },
        })
    }

    /// True if the round is over: what was sent has arrived, and what had to come has come.
    pub(super) fn ends_round(&mut self) -> bool {
        let Some((node, round, sent)) = self.current else { return false };
        if !sent {
            return false;
        }
        let Some(from) = self.round(node, round).and_then(|round| round.receive) else { return true };
        let Some(received) = self.received.get_mut(&from).filter(|received| **received > 0) else { return false };
        *received -= 1;
        true
    }
}

impl RankStream {
    /// A stream before its first collective.
    pub fn new(nodes: Arc<[u32]>, way: Way) -> RankStream {
        RankStream { nodes, way, begun: 0 }
    }
}

/// When a rank began and completed a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StepSpan {
    /// The iteration.
    pub iteration: u32,
    /// The node.
    pub node: u32,
    /// When it began: a collective, when the rank submitted it.
    pub start: Time,
    /// When it was complete at the rank.
    pub end: Time,
}

/// A rank in its steps.
#[derive(Clone, Debug)]
pub struct StepRank {
    /// The graph, by number.
    pub graph: usize,
    /// The rank.
    pub rank: usize,
    /// Its host.
    pub host: NodeId,
    /// Its streams; `None` where it is in no group.
    pub streams: Vec<Option<RankStream>>,
    /// What it has done so far.
    pub spans: Vec<StepSpan>,
    /// When each iteration was complete.
    pub ends: Vec<Time>,
    /// True until it has completed all iterations or given up.
    pub open: bool,
    /// For each node, how much of what it waits for is not complete.
    pub(super) blocked: Vec<u32>,
    /// For each node, when it began.
    pub(super) began: Vec<Time>,
    /// For each node, how many of its operations are not complete.
    pub(super) operations: Vec<u32>,
    /// What it computes now, and until when.
    pub(super) computing: Option<(u32, Time)>,
    /// How many of the nodes that compute have begun in this iteration.
    pub(super) computed: usize,
    /// How many nodes are not complete in this iteration.
    pub(super) left: usize,
    pub(super) iteration: u32,
}

/// Something that happened to a rank's collectives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepNews {
    /// An operation of a stream's job is complete.
    Operation(u16, OpId),
    /// A flow that it sent on a lane has arrived.
    Sent(u8),
    /// A flow came from a host on a lane.
    Received(u8, NodeId),
}

/// All training steps of a run.
#[derive(Default)]
pub struct StepGraphs {
    /// How many lanes of hosts' transports they use.
    pub lanes: u8,
    /// The graphs, in the file's order.
    pub graphs: Vec<StepGraph>,
    /// All ranks of all graphs.
    pub ranks: Vec<StepRank>,
    /// For each graph, the nodes that compute, and for each node those that wait for it.
    pub(super) order: Vec<Order>,
    /// For each rank, what has happened since it was last woken.
    pub(super) news: Vec<Vec<StepNews>>,
    /// The rank and the stream of each endpoint.
    pub(super) of_endpoint: BTreeMap<EndpointId, (u32, u16)>,
    /// The rank that uses a lane of a host's transport.
    pub(super) of_lane: BTreeMap<(NodeId, u8), u32>,
}

/// A graph's nodes in the forms that ranks need.
#[derive(Clone, Debug)]
pub(super) struct Order {
    pub computes: Vec<u32>,
    pub followers: Vec<Vec<u32>>,
}

impl Order {
    pub(super) fn of(graph: &StepGraph) -> Order {
        let mut followers = vec![Vec::new(); graph.nodes.len()];
        for (number, node) in graph.nodes.iter().enumerate() {
            node.after.iter().for_each(|&before| followers[before as usize].push(number as u32));
        }
        let computes = (0..graph.nodes.len() as u32)
            .filter(|&node| matches!(graph.nodes[node as usize].work, StepWork::Compute(_)))
            .collect();
        Order { computes, followers }
    }
}

impl StepRank {
    /// A rank before its first iteration.
    pub(super) fn new(number: usize, graph: &StepGraph, rank: usize, streams: Vec<Option<RankStream>>) -> StepRank {
        let nodes = graph.nodes.len();
        StepRank {
            graph: number,
            rank,
            host: graph.members[rank],
            streams,
            spans: Vec::new(),
            ends: Vec::new(),
            open: true,
            blocked: vec![0; nodes],
            began: vec![Time::ZERO; nodes],
            operations: vec![0; nodes],
            computing: None,
            computed: 0,
            left: 0,
            iteration: 0,
        }
    }

    /// Begins an iteration.
    pub(super) fn begin(&mut self, graph: &StepGraph) {
        self.left = graph.nodes.len();
        self.computed = 0;
        for (number, node) in graph.nodes.iter().enumerate() {
            self.blocked[number] = node.after.len() as u32;
        }
        for stream in self.streams.iter_mut().flatten() {
            stream.begun = 0;
            if let Way::Job { node_of, .. } = &stream.way {
                node_of.iter().for_each(|&node| self.operations[node as usize] += 1);
            }
        }
    }

    /// True if the rank has anything to do for a node.
    pub(super) fn does(&self, graph: &StepGraph, node: u32) -> bool {
        let node = &graph.nodes[node as usize];
        match node.work {
            StepWork::Compute(_) => node.is_done_by(self.rank),
            StepWork::Collective { stream, .. } => self.streams[usize::from(stream)].is_some(),
        }
    }

    /// Completes a node, and with it those behind it for which this rank has nothing to do.
    pub(super) fn complete(&mut self, graph: &StepGraph, order: &Order, node: u32, now: Time) {
        if self.does(graph, node) {
            let start = self.began[node as usize];
            self.spans.push(StepSpan { iteration: self.iteration, node, start, end: now });
        }
        let mut complete = vec![node];
        while let Some(node) = complete.pop() {
            self.left -= 1;
            for &next in &order.followers[node as usize] {
                self.blocked[next as usize] -= 1;
                if self.blocked[next as usize] == 0 && !self.does(graph, next) {
                    complete.push(next);
                }
            }
        }
    }

    /// The nodes that wait for nothing and for which this rank has nothing to do.
    pub(super) fn idle_at_first(&self, graph: &StepGraph) -> Vec<u32> {
        let nodes = 0..graph.nodes.len() as u32;
        nodes.filter(|&node| graph.nodes[node as usize].after.is_empty() && !self.does(graph, node)).collect()
    }
}

//! What begins flows at a host: at random, or from a list.

use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::time::Time;

use super::list::FlowList;
use super::poisson::PoissonSource;

/// What begins flows at a host.
#[derive(Clone, Debug)]
pub enum FlowSource {
    /// Flows that arrive at random.
    Poisson(PoissonSource),
    /// Flows that a file lists.
    List(FlowList),
}

impl FlowSource {
    /// True if it will end by itself.
    pub fn ends(&self) -> bool {
        match self {
            FlowSource::Poisson(source) => source.ends(),
            FlowSource::List(_) => true,
        }
    }

    /// When the next flow begins, or the source ends.
    pub fn next(&self) -> Option<Time> {
        match self {
            FlowSource::Poisson(source) => source.next(),
            FlowSource::List(list) => list.next(),
        }
    }

    /// A flow that begins by `now`: its receiver and its bytes.
    pub fn pop(&mut self, now: Time) -> Option<(NodeId, u64)> {
        match self {
            FlowSource::Poisson(source) => source.pop(now),
            FlowSource::List(list) => list.pop(now),
        }
    }

    /// True once, at the first call after the end.
    pub fn has_just_ended(&mut self) -> bool {
        match self {
            FlowSource::Poisson(source) => source.has_just_ended(),
            FlowSource::List(list) => list.has_just_ended(),
        }
    }
}

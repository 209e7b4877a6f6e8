//! Draws the traffic beside the jobs of a scenario.

use tributary_proto::contract::time::Span;

use super::{Draw, Ending};
use crate::config::{Bytes, Duration, Hosts, Pattern, Share, Sizes, TrafficSection};
use crate::workload::FlowSizes;

impl Draw {
    /// Packets without a transport, until the scenario heals.
    pub(super) fn traffic(&mut self, heal: Span) -> TrafficSection {
        TrafficSection {
            hosts: Hosts::All,
            message: Some(Bytes(self.of(&[2_000, 64_000]))),
            load: Share(self.of(&[0.01, 0.1, 0.3])),
            until: Some(Duration(heal)),
            ..TrafficSection::new(Pattern::Uniform)
        }
    }

    /// Flows under DCTCP. Flows that arrive until the scenario heals must finish, if no node dies.
    pub(super) fn flows(&mut self, heal: Span, ending: Ending) -> TrafficSection {
        let message = self.of(&[Some(1), Some(3_000), Some(100_000), None]);
        TrafficSection {
            hosts: Hosts::All,
            message: message.map(Bytes),
            sizes: message.is_none().then_some(Sizes::Published(FlowSizes::Hadoop)),
            load: Share(if message == Some(1) { 1e-5 } else { self.of(&[0.0002, 0.002]) }),
            until: (ending == Ending::AllHeals).then_some(Duration(heal)),
            ..TrafficSection::new(Pattern::Poisson)
        }
    }

    /// Flows under DCTCP that begin together. They end by themselves, which takes that all nodes live.
    pub(super) fn flows_together(&mut self, hosts: u32, heal: Span) -> TrafficSection {
        let flows = TrafficSection {
            message: Some(Bytes(self.of(&[1, 2_000, 30_000]))),
            sizes: None,
            load: Share(1.0),
            start: Duration(Span(self.between(0, heal.0 - 1))),
            until: None,
            ..self.flows(heal, Ending::AllHeals)
        };
        match self.0.chance(0.5) {
            true => TrafficSection { pattern: Pattern::AllToAll, ..flows },
            false => TrafficSection {
                pattern: Pattern::Incast,
                fan_in: Some(self.between(1, u64::from(hosts) - 1) as u32),
                every: Some(Duration(Span(heal.0 / 3 + 1))),
                until: Some(Duration(heal)),
                ..flows
            },
        }
    }
}

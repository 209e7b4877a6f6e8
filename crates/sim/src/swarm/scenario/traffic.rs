//! Draws the traffic beside the jobs of a scenario.

use tributary_proto::contract::time::Span;

use super::{Draw, Ending};
use crate::config::{Bytes, Duration, Hosts, Pattern, Placement, Share, Sizes, TrafficSection};
use crate::workload::FlowSizes;

impl Draw {
    /// Packets without a transport, until the scenario heals.
    pub(super) fn traffic(&mut self, heal: Span) -> TrafficSection {
        TrafficSection {
            from: None,
            to: None,
            rate: None,
            pattern: Pattern::Uniform,
            hosts: Hosts::All,
            placement: Placement::Random,
            transport: None,
            message: Some(Bytes(self.of(&[2_000, 64_000]))),
            sizes: None,
            flows: None,
            fan_in: None,
            every: None,
            scale: 1,
            between: None,
            packet: Bytes(1090),
            load: Share(self.of(&[0.01, 0.1, 0.3])),
            exchange: false,
            start: Duration::default(),
            until: Some(Duration(heal)),
        }
    }

    /// Flows under DCTCP. Flows that arrive until the scenario heals must finish, if no node dies.
    pub(super) fn flows(&mut self, heal: Span, ending: Ending) -> TrafficSection {
        let message = self.of(&[Some(1), Some(3_000), Some(100_000), None]);
        TrafficSection {
            from: None,
            to: None,
            rate: None,
            pattern: Pattern::Poisson,
            hosts: Hosts::All,
            placement: Placement::Random,
            transport: None,
            message: message.map(Bytes),
            sizes: message.is_none().then_some(Sizes::Published(FlowSizes::Hadoop)),
            flows: None,
            fan_in: None,
            every: None,
            scale: 1,
            between: None,
            packet: Bytes(1090),
            load: Share(if message == Some(1) { 1e-5 } else { self.of(&[0.0002, 0.002]) }),
            exchange: false,
            start: Duration::default(),
            until: (ending == Ending::AllHeals).then_some(Duration(heal)),
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

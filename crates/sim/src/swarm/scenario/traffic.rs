//! Draws what is beside the jobs of a scenario: traffic, and training steps.

use std::collections::BTreeMap;

use tributary_control::config::OptionTable;
use tributary_numeric::DType;
use tributary_proto::contract::time::Span;
use tributary_proto::protocols;

use super::{Draw, END, Ending};
use crate::config::{
    Bytes, Duration, Hosts, JobSection, LayerSection, Network, NodeSection, Pattern, Share, Sizes, StepCollective,
    StepKind, StepSection, Timeouts, TrafficSection, TransportSection,
};
use crate::net::Service;
use crate::routing::Balancing;
use crate::transport::{Recovery, Spray};
use crate::workload::FlowSizes;

/// The patterns that are drawn of flows under a transport.
const UNDER_A_TRANSPORT: [Pattern; 3] = [Pattern::Poisson, Pattern::Incast, Pattern::AllToAll];

/// How flows that may be spread over paths are.
const SPRAYS: [Spray; 3] = [Spray::Flow, Spray::Packet, Spray::Reps];

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

    /// Other controllers and recoveries of flows, and buffers that queues share, in some scenarios whose queues are long
    /// enough for senders that do not yield to losses.
    pub(super) fn congestion(&mut self, network: &mut Network, traffic: &mut [TrafficSection]) {
        if network.queue.0 < 100_000 {
            return;
        }
        if network.lossless.is_none() && self.0.chance(0.1) {
            network.shared_buffer = Some(Bytes(self.of(&[100_000, 1_000_000])));
            network.shared_alpha = Some(self.of(&[0.5, 1.0, 8.0]));
        }
        let mut names = vec!["cubic", "swift", "timely"];
        names.extend(network.mark_above.map(|_| "dcqcn"));
        // Paths of other graphs may have more switches than packets have space for.
        names.extend((network.graph.is_none() && !super::shapes::is_direct(network)).then_some("hpcc"));
        let [_, balancing] = network.balancing();
        for section in traffic.iter_mut().filter(|section| UNDER_A_TRANSPORT.contains(&section.pattern)) {
            if self.0.chance(0.3) {
                let congestion_control = Some(self.of(&names).to_string());
                let recovery = (!balancing.goes_by_packet() && self.0.chance(0.5)).then_some(Recovery::GoBackN);
                let spray = (balancing == Balancing::Ecmp && recovery.is_none()).then(|| self.of(&SPRAYS));
                section.transport_settings =
                    Some(TransportSection { congestion_control, recovery, spray, ..TransportSection::default() });
            }
        }
    }

    /// Two classes of packets, in some scenarios: of jobs, and of flows.
    pub(super) fn classes(&mut self, network: &mut Network, jobs: &mut [JobSection], traffic: &mut [TrafficSection]) {
        if !self.0.chance(if network.lossless.is_some() { 0.5 } else { 0.1 }) {
            return;
        }
        let weights = Service::Weights(vec![1, self.of(&[1, 7])]);
        network.service = Some(if self.0.chance(0.5) { Service::Strict } else { weights });
        jobs.iter_mut().for_each(|job| job.priority = self.between(0, 1) as u8);
        for section in traffic.iter_mut().filter(|section| UNDER_A_TRANSPORT.contains(&section.pattern)) {
            let settings = section.transport_settings.get_or_insert_default();
            settings.priority = Some(self.between(0, 1) as u8);
        }
    }

    /// A training step, in some scenarios that may have one.
    pub(super) fn steps(&mut self, hosts: u32, possible: bool) -> Vec<StepSection> {
        let has_step = possible && self.0.chance(0.15);
        if has_step { vec![self.step(hosts)] } else { Vec::new() }
    }

    /// One of any kind, on hosts that jobs may use, too.
    fn step(&mut self, hosts: u32) -> StepSection {
        let ranks = self.some_hosts(hosts);
        let kind = self.of(&[StepKind::Ddp, StepKind::Fsdp, StepKind::Hsdp, StepKind::Graph]);
        let shards: Vec<u16> =
            (1..=ranks.len() as u16).filter(|&shard| (ranks.len() as u16).is_multiple_of(shard)).collect();
        let shard = self.of(&shards);
        let layers = (0..self.between(1, 4)).map(|_| self.layer()).collect();
        let nodes = if kind == StepKind::Graph { self.nodes(ranks.len() as u16) } else { Vec::new() };
        StepSection {
            name: None,
            kind,
            protocol: self.of(protocols::ALL),
            hosts: Hosts::List(ranks),
            iterations: self.between(1, 3) as u32,
            layers: if kind == StepKind::Graph { Vec::new() } else { layers },
            dtype: DType::F32,
            bucket: Bytes(self.of(&[1, 20_000, 1_000_000])),
            first_bucket: Bytes(self.of(&[1, 5_000])),
            overlap: self.0.chance(0.7),
            accumulate: self.between(1, 2) as u32,
            shard: (kind == StepKind::Hsdp).then_some(shard),
            optimizer: Duration(Span::from_nanos(self.of(&[0, 20_000]))),
            groups: BTreeMap::new(),
            nodes,
            options: OptionTable::new(),
            host_path: false,
            elements_per_packet: 256,
            rto: Timeouts::default(),
            slots: None,
            trees: None,
            servers: None,
            timeout: Some(END),
        }
    }

    fn layer(&mut self) -> LayerSection {
        LayerSection {
            name: None,
            parameters: self.of(&[0, 1, 300, 10_000]),
            backward: Duration(Span::from_nanos(self.of(&[0, 1, 40_000]))),
            forward: None,
            count: 1,
        }
    }

    /// Collectives of all kinds, each after one before it or after none.
    fn nodes(&mut self, ranks: u16) -> Vec<NodeSection> {
        use StepCollective::{AllGather, AllReduce, AllToAll, Barrier, Broadcast, Reduce, ReduceScatter, Send};
        let mut nodes: Vec<NodeSection> = Vec::new();
        for number in 0..self.between(1, 6) {
            let kind = self.of(&[AllGather, AllReduce, AllToAll, Barrier, Broadcast, Reduce, ReduceScatter, Send]);
            let computes = self.0.chance(0.3) || kind == Send && ranks < 2;
            let last = (number > 0 && self.0.chance(0.7)).then(|| format!("{}", self.0.below(number as u32)));
            let bytes = 4 * u64::from(ranks) * self.between(1, 1_000);
            let pairs = (0..ranks).map(|rank| [rank, (rank + 1) % ranks]).collect();
            let is_send = !computes && kind == Send;
            nodes.push(NodeSection {
                name: number.to_string(),
                compute: computes.then_some(Duration(Span::from_nanos(7_000))),
                collective: (!computes).then_some(kind),
                bytes: (!computes && kind != Barrier).then_some(Bytes(bytes)),
                group: None,
                root: None,
                ranks: None,
                pairs: is_send.then_some(pairs),
                after: last.into_iter().collect(),
            });
        }
        nodes
    }
}

//! A few small jobs that come and go, in some scenarios that heal.

use tributary_numeric::{DType, ReduceOp};
use tributary_proto::contract::protocol::{Placement, Protocol};
use tributary_proto::contract::tensor::Spec;
use tributary_proto::contract::time::Span;
use tributary_proto::protocols;

use super::{Draw, END};
use crate::config::{Bytes, Duration, Hosts, Network, Share, SmallModels, Timeouts, TrainingSection};

/// The average bytes of the models' gradients.
const MODEL_BYTES: f64 = 211e6;

impl Draw {
    /// One section, in a tenth of all scenarios.
    pub(super) fn trainings(&mut self, hosts: u32, heal: Span, network: &Network) -> Vec<TrainingSection> {
        if hosts < 2 || !self.0.chance(0.1) {
            return Vec::new();
        }
        let protocol = self.training_protocol();
        let trees = (protocol.placement == Placement::Trees).then(|| self.between(1, 4) as u16);
        let most = self.between(2, u64::from(hosts)) as u16;
        let least = self.between(1, u64::from(most)) as u16;
        let (scale, iterations) = (self.of(&[20_000, 200_000, 2_000_000]), self.between(1, 3) as u32);
        let jobs = self.between(1, 8) as f64;
        // The load with which about `jobs` jobs arrive until the scenario heals.
        let mean = f64::from(least + most) / 2.0 - 1.0;
        let bits = jobs * 16.0 * mean * f64::from(iterations) * MODEL_BYTES / f64::from(scale);
        let load = bits / (network.rate.0.0 as f64 * f64::from(hosts) * heal.as_secs_f64());
        let small = SmallModels { below: Bytes(40_000_000), protocol: self.training_protocol() };
        vec![TrainingSection {
            name: None,
            protocol,
            hosts: Hosts::All,
            workers_per_host: self.of(&[1, 1, 3]),
            workers: [least, most],
            models: Default::default(),
            scale,
            small_models: (self.0.chance(0.3) && protocol.placement == Placement::Trees).then_some(small),
            op: ReduceOp::Sum,
            iterations,
            load: Share(load.min(1.0)),
            start: Duration::default(),
            until: Duration(heal),
            options: Default::default(),
            elements_per_packet: self.of(&[31, 256, 360]),
            slots: trees.map(|trees| trees * self.between(1, 64) as u16),
            trees,
            rto: Timeouts::default(),
            timeout: Some(END),
        }]
    }

    /// A protocol without servers that sums floats.
    fn training_protocol(&mut self) -> &'static Protocol {
        let sum = Spec::allreduce(1, DType::F32, ReduceOp::Sum);
        let can = |protocol: &Protocol| (protocol.can)(&sum, &protocol.options.defaults()).is_ok();
        let possible: Vec<&Protocol> =
            protocols::ALL.iter().copied().filter(|protocol| protocol.server.is_none() && can(protocol)).collect();
        self.of(&possible)
    }
}

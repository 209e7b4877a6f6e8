//! PANAMA §4.1 and figure 6a: a worker and an accelerator, packet by packet, with real elements and no network.

use serde::Deserialize;
use tributary_numeric::ReduceOp;
use tributary_proto::contract::config::{Below, HostConfig, JobConfig, SwitchConfig};
use tributary_proto::contract::host::{Collective, Host};
use tributary_proto::contract::ids::{GroupId, JobId, JobKey, PortId, Rank, TreeId};
use tributary_proto::contract::packet::{Ecn, PacketMut};
use tributary_proto::contract::switch::{NoQueues, Switch, Verdict};
use tributary_proto::contract::time::Time;
use tributary_proto::contract::values::Values;
use tributary_proto::panama::wire::{HEADER_LEN, Header};
use tributary_proto::panama::{PROTOCOL, Panama};
use tributary_proto::tensors::{ElementTensor, InPlaceStorage};

use crate::{Context, Experiment, Findings, ReproduceError};

/// §4.1: which packets go to which tree.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Turns {
    /// Aggregation trees.
    pub trees: u16,
    /// How many packets the worker sends, at most 9: `p1`, `p2` and so on.
    pub packets: u16,
}

/// Figure 6a: one packet from each port.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Accelerator {
    /// The ports, all of which are in the bitmap.
    pub ports: u16,
}

/// A job of packets with one element each.
fn job(world_size: u16, trees: u16) -> JobConfig {
    JobConfig {
        job: JobId(1),
        key: JobKey(1),
        protocol: PROTOCOL.code,
        world_size,
        slots: 2 * trees,
        elements_per_packet: 1,
        trees,
        levels: false,
        options: PROTOCOL.options.defaults(),
    }
}

/// A worker that sums these values with the other workers; one element a packet.
fn worker(job: &JobConfig, rank: u16, values: &[f32]) -> Result<Box<dyn Host>, ReproduceError> {
    let config = HostConfig::worker(job.clone(), Rank(rank));
    let mut worker = PROTOCOL.host(Values::Elements, &config);
    let tensor = Box::new(ElementTensor::new(InPlaceStorage::new(values.to_vec()), ReduceOp::Sum));
    let submitted = worker.submit(Time::ZERO, Collective { tensor, deadline: None });
    submitted.map_err(|error| ReproduceError::Wrong { what: "a worker".into(), why: error.to_string() })?;
    Ok(worker)
}

/// The packets that a worker sends now.
fn sent(worker: &mut Box<dyn Host>) -> Vec<Vec<u8>> {
    let mut buf = vec![0; worker.max_packet_len()];
    let next = || worker.poll_transmit(Time::ZERO, &mut buf).map(|transmit| buf[..transmit.len].to_vec());
    std::iter::from_fn(next).collect()
}

impl Experiment for Turns {
    /// Findings `tree-1`, `tree-2` ...: the numbers of each tree's packets as digits, 15 for `p1` and `p5`.
    fn run(&self, _: &Context<'_>) -> Result<Findings, ReproduceError> {
        if !(1..=9).contains(&self.packets) || self.trees == 0 {
            return Err(ReproduceError::Bad("1 to 9 packets over one tree at least have a digit each".into()));
        }
        let values = vec![1.0; usize::from(self.packets)];
        let packets = sent(&mut worker(&job(2, self.trees), 0, &values)?);
        let mut numbers = vec![0.0; usize::from(self.trees)];
        for (index, packet) in packets.iter().enumerate() {
            let header = Header::parse(packet).map_err(|reason| ReproduceError::Wrong {
                what: format!("packet {}", index + 1),
                why: reason.name().into(),
            })?;
            let of_tree = &mut numbers[usize::from(header.tid)];
            *of_tree = 10.0 * *of_tree + (index + 1) as f64;
        }
        let mut findings = Findings::default();
        for (tree, number) in numbers.into_iter().enumerate() {
            findings.value(format!("tree-{}", tree + 1), number);
        }
        findings.note("A tree's number has the digits of its packets: 15 is p1 and p5.");
        Ok(findings)
    }
}

impl Experiment for Accelerator {
    /// Findings `results-before`, the results before the last port's packet; `results`; `sum`, of the ports' numbers
    /// from 1 on; and `expected-vid`.
    fn run(&self, _: &Context<'_>) -> Result<Findings, ReproduceError> {
        if self.ports == 0 {
            return Err(ReproduceError::Bad("an accelerator has a port at least".into()));
        }
        let job = job(self.ports, 1);
        let mut accelerator = Panama::new(Values::Elements, &self.config(&job));
        let (mut before, mut results, mut sum) = (0, 0, f64::NAN);
        for port in 0..self.ports {
            before = results;
            for mut bytes in sent(&mut worker(&job, port, &[f32::from(port + 1)])?) {
                let mut packet = PacketMut::new(&mut bytes, Ecn::Capable);
                if accelerator.process(Time::ZERO, PortId(port), &mut packet, &NoQueues) == Verdict::Group(GroupId(0)) {
                    results += 1;
                    sum = result(&packet);
                }
            }
        }
        let mut findings = Findings::default();
        findings.value("results-before", f64::from(before));
        findings.value("results", f64::from(results));
        findings.value("sum", sum);
        findings.value("expected-vid", f64::from(accelerator.expected()));
        findings.note("The packets are in tests/golden/panama_fig6a.hex, for other values.");
        Ok(findings)
    }
}

impl Accelerator {
    fn config(&self, job: &JobConfig) -> SwitchConfig {
        SwitchConfig {
            job: job.clone(),
            tree: TreeId(0),
            members: (0..self.ports).map(PortId).collect(),
            below: Below::workers(self.ports),
            group: GroupId(0),
            parent: None,
        }
    }
}

/// The one element of a result.
fn result(packet: &PacketMut<'_>) -> f64 {
    let vector = &packet.bytes[HEADER_LEN..packet.len];
    vector.try_into().map_or(f64::NAN, |bytes| f64::from(f32::from_be_bytes(bytes)))
}

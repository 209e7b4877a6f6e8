//! Figure 12: how two hosts cut sparse data into packets, and how a switch sums these; with the machines.

use serde::Deserialize;
use tributary_numeric::ReduceOp;
use tributary_proto::contract::tensor::Tensor;
use tributary_proto::flare::sparse::wire::{HEADER_LEN, Header, Kind};
use tributary_proto::tensors::SparseElements;

use super::network::{Network, Setting};
use crate::{Context, Experiment, Findings, ReproduceError};

/// The figure's data.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Packets {
    /// The elements of each host; zeros are not sent.
    pub hosts: Vec<Vec<i16>>,
    /// Elements that a block spans.
    pub span: u32,
    /// Elements of four bytes in a packet, which then holds as many pairs of an index and a two-byte element.
    pub elements_per_packet: u16,
}

/// Bytes of an index and of an element.
const PAIR_LEN: usize = 4;

impl Experiment for Packets {
    /// Findings `packets-H-B`, `last-H-B` and `counter-H-B` for host H and block B: its packets, the elements of the
    /// last one, and the number of packets that the last one states; `sum-B`, elements of the sum of a block; `right`,
    /// hosts whose result is right.
    fn run(&self, _: &Context<'_>) -> Result<Findings, ReproduceError> {
        let size = self.hosts.first().map_or(0, Vec::len);
        if self.span == 0 || self.hosts.iter().any(|host| host.len() != size) {
            return Err(ReproduceError::Bad("hosts bring as many elements each, in blocks of one at least".into()));
        }
        let racks = [(0..self.hosts.len() as u16).collect()];
        let span = self.span.to_string();
        let options = [("sparse", "array"), ("span", span.as_str())];
        let elements_per_packet = self.elements_per_packet;
        let mut network =
            Network::new(&Setting { racks: &racks, options: &options, elements_per_packet, loss: 0.0, seed: 1 })?;
        let tensors = self.hosts.iter().map(|host| tensor(host)).collect::<Result<_, _>>()?;
        let results = network.run(tensors)?;
        let mut findings = Findings::default();
        for (host, sent) in network.sent.iter().enumerate() {
            describe(host, sent, &mut findings)?;
        }
        let sum: Vec<i16> = (0..size).map(|index| self.hosts.iter().map(|host| host[index]).sum()).collect();
        let mut right = 0;
        for (host, result) in results.into_iter().enumerate() {
            let result = SparseElements::<i16>::from_tensor(result);
            let (indices, values) = result.map(|elements| elements.result().take()).unwrap_or_default();
            let mut dense = vec![0; size];
            indices.iter().zip(values).for_each(|(&index, value)| dense[index as usize] = value);
            right += u32::from(dense == sum);
            for block in (0..size as u32).step_by(self.span as usize).filter(|_| host == 0) {
                let elements = indices.iter().filter(|&&index| (block..block + self.span).contains(&index)).count();
                findings.value(format!("sum-{}", block / self.span), elements as f64);
            }
        }
        findings.value("right", f64::from(right));
        Ok(findings)
    }
}

/// A host's elements that are not zero.
fn tensor(host: &[i16]) -> Result<Box<dyn Tensor>, ReproduceError> {
    let there = || host.iter().enumerate().filter(|(_, value)| **value != 0);
    let indices: Vec<i64> = there().map(|(index, _)| index as i64).collect();
    let values = there().map(|(_, &value)| value).collect();
    let elements = SparseElements::new(&indices, values, host.len(), ReduceOp::Sum);
    elements
        .map(|elements| Box::new(elements) as Box<dyn Tensor>)
        .map_err(|error| ReproduceError::Bad(error.to_string()))
}

/// The packets that a host has sent, block by block.
fn describe(host: usize, sent: &[Vec<u8>], findings: &mut Findings) -> Result<(), ReproduceError> {
    let mut blocks = std::collections::BTreeMap::<u16, Vec<(Header, usize)>>::new();
    for packet in sent.iter().filter(|packet| Kind::of(packet) == Ok(Kind::Shard)) {
        let header = Header::parse(packet).map_err(|reason| ReproduceError::Wrong {
            what: format!("a packet of host {host}"),
            why: reason.name().into(),
        })?;
        blocks.entry(header.idx).or_default().push((header, (packet.len() - HEADER_LEN) / PAIR_LEN));
    }
    for (block, mut packets) in blocks {
        packets.sort_by_key(|(header, _)| header.shard);
        packets.dedup_by_key(|(header, _)| header.shard);
        let (last, elements) = packets[packets.len() - 1];
        findings.value(format!("packets-{host}-{block}"), packets.len() as f64);
        findings.value(format!("last-{host}-{block}"), elements as f64);
        findings.value(format!("counter-{host}-{block}"), f64::from(last.count));
    }
    Ok(())
}

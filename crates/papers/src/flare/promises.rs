//! Flare's promises for its sums (table 1, §2.4, §6.3): any type and operator, sparse data, and the same bits again.
//! They are compared with sums that are computed here along the stated tree.

use std::collections::BTreeSet;

use serde::Deserialize;
use tributary_numeric::{DType, Element, ReduceOp, codec};
use tributary_proto::aggregation::reference;
use tributary_proto::contract::sum_tree::SumTree;
use tributary_proto::contract::tensor::Tensor;
use tributary_proto::tensors::{ElementTensor, SparseElements, VecStorage};
use tributary_sim::rng::{Purpose, Rng};

use super::network::{Network, Setting};
use crate::{Context, Experiment, Findings, ReproduceError};

/// Elements of four bytes in a packet.
const ELEMENTS_PER_PACKET: u16 = 16;

/// §6.3: the bits of sums over arrivals, losses and placements.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bits {
    /// The ranks of each rack, in each placement; the first placement has one rack, in which arrivals and losses vary.
    pub placements: Vec<Vec<Vec<u16>>>,
    /// Elements of float32 that each rank contributes.
    pub elements: u32,
    /// How many runs of each kind there are.
    pub runs: u64,
    /// The share of packets that is lost in every other run.
    pub loss: f64,
}

/// Table 1: features F1 and F2.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Features {
    /// Ranks around one switch.
    pub ranks: u16,
    /// Elements that each contributes.
    pub elements: u32,
    /// Shares of elements that are present, for sparse data.
    pub densities: Vec<f64>,
    /// The share of packets that is lost.
    pub loss: f64,
}

fn setting<'a>(racks: &'a [Vec<u16>], options: &'a [(&'a str, &'a str)], loss: f64, seed: u64) -> Setting<'a> {
    Setting { racks, options, elements_per_packet: ELEMENTS_PER_PACKET, loss, seed }
}

/// A rank's numbers, of very different magnitudes, so that their sum depends on the order.
fn numbers(rank: usize, elements: u32) -> Vec<f32> {
    let mut rng = Rng::new(1, Purpose::Numbers, rank as u64);
    (0..elements).map(|_| (rng.unit() - 0.5) as f32 * 10f32.powi(rng.below(9) as i32 - 4)).collect()
}

fn dense<T: Element>(input: &[T], op: ReduceOp) -> Box<dyn Tensor> {
    Box::new(ElementTensor::new(VecStorage::new(input.to_vec()), op))
}

fn output(tensor: &dyn Tensor, dtype: DType) -> Vec<u8> {
    let elements = tensor.spec().elements as usize;
    let mut bytes = vec![0; dtype.size() * elements];
    tensor.read_output(0..elements, &mut bytes);
    bytes
}

/// The result, which must be the same on all ranks.
fn agreed(results: &[Vec<u8>]) -> Result<Vec<u8>, ReproduceError> {
    match results.iter().all(|result| result == &results[0]) {
        true => Ok(results[0].clone()),
        false => Err(ReproduceError::Wrong { what: "a sum".into(), why: "ranks have different bits".into() }),
    }
}

fn big_endian<T: Element>(input: &[T]) -> Vec<u8> {
    let mut bytes = vec![0; T::DTYPE.size() * input.len()];
    codec::write_native(input, &mut bytes);
    bytes
}

impl Experiment for Bits {
    /// Findings, as numbers of different results: `arrivals` without loss, `losses`, `levels`, `placements` over one
    /// tree of ranks, `tree-placements` over the trees of the switches, and `unasked`; and `stated`, the share of the
    /// runs of the first four that have the bits of the stated expression, of `runs-of-four`.
    fn run(&self, context: &Context<'_>) -> Result<Findings, ReproduceError> {
        let Some(star) = self.placements.first().filter(|placement| placement.len() == 1) else {
            return Err(ReproduceError::Bad("the first placement has one rack".into()));
        };
        let inputs: Vec<Vec<f32>> = (0..star[0].len()).map(|rank| numbers(rank, self.elements)).collect();
        let vectors: Vec<Vec<u8>> = inputs.iter().map(|input| big_endian(input)).collect();
        let stated = |tree: &SumTree| reference(DType::F32, ReduceOp::Sum, &vectors, tree).unwrap_or_default();
        let over_ranks = stated(&SumTree::star(inputs.len() as u16));
        let racks = &self.placements[self.placements.len() - 1];
        let of_racks = |ranks: &Vec<u16>| SumTree::Switch(ranks.iter().map(|&rank| SumTree::Rank(rank)).collect());
        let of_switches = stated(&SumTree::Switch(racks.iter().map(of_racks).collect()));
        let mut findings = Findings::default();
        let mut as_stated = 0;
        let mut count =
            |key: &str, options: [(&str, &str); 1], loss: f64, where_: &[Vec<Vec<u16>>], expected: &[u8]| {
                let mut different = BTreeSet::new();
                for seed in 0..self.runs {
                    let racks = &where_[seed as usize % where_.len()];
                    let mut network = Network::new(&setting(racks, &options, loss, seed))?;
                    let results = network.run(inputs.iter().map(|input| dense(input, ReduceOp::Sum)).collect())?;
                    let results: Vec<Vec<u8>> = results.iter().map(|tensor| output(&**tensor, DType::F32)).collect();
                    let result = agreed(&results)?;
                    as_stated += u32::from(result == expected);
                    different.insert(result);
                    if context.watch.stop.load(std::sync::atomic::Ordering::Relaxed) {
                        return Err(ReproduceError::Stopped);
                    }
                }
                findings.value(key, different.len() as f64);
                Ok(())
            };
        let tree = [("reproducible", "tree")];
        count("arrivals", tree, 0.0, std::slice::from_ref(star), &over_ranks)?;
        count("losses", tree, self.loss, std::slice::from_ref(star), &over_ranks)?;
        count("levels", tree, self.loss, std::slice::from_ref(racks), &of_switches)?;
        count("placements", [("reproducible", "ranks")], self.loss, &self.placements, &over_ranks)?;
        // Without a promise there are no stated bits.
        count("tree-placements", tree, 0.0, &self.placements, &[])?;
        count("unasked", [("design", "single")], 0.0, std::slice::from_ref(star), &[])?;
        findings.value("stated", f64::from(as_stated) / (4 * self.runs).max(1) as f64);
        findings.note(format!(
            "Each of {} runs delivers packets in an order of its own; {} ranks bring {} float32 each.",
            self.runs,
            inputs.len(),
            self.elements
        ));
        Ok(findings)
    }
}

impl Experiment for Features {
    /// Findings `operators`, the share of all meaningful pairs of a type and an operator whose sum over the network is
    /// right; `pairs`, how many pairs there are; and `sparse`, the share of densities at which a sparse sum is right.
    fn run(&self, _: &Context<'_>) -> Result<Findings, ReproduceError> {
        let mut all = Vec::new();
        all.extend(self.operators(|value| value)?);
        all.extend(self.operators(f64::from)?);
        all.extend(self.operators(tributary_numeric::f16::from_f32)?);
        all.extend(self.operators(tributary_numeric::bf16::from_f32)?);
        all.extend(self.operators(|value| value as i8)?);
        all.extend(self.operators(|value| value as u8)?);
        all.extend(self.operators(|value| value as i16)?);
        all.extend(self.operators(|value| value as i32)?);
        all.extend(self.operators(|value| value as i64)?);
        let mut findings = Findings::default();
        findings.value("pairs", all.len() as f64);
        findings.value("operators", share(&all));
        let sparse = self.densities.iter().map(|&density| self.sparse(density)).collect::<Result<Vec<_>, _>>()?;
        findings.value("sparse", share(&sparse));
        findings.note(
            "CustomOps that people write themselves are not among these: they do not travel to simulated switches.",
        );
        Ok(findings)
    }
}

fn share(right: &[bool]) -> f64 {
    right.iter().filter(|right| **right).count() as f64 / right.len().max(1) as f64
}

impl Features {
    fn racks(&self) -> [Vec<u16>; 1] {
        [(0..self.ranks).collect()]
    }

    /// For each operator on a type, whether it gives the bits of the expression.
    fn operators<T: Element>(&self, make: impl Fn(f32) -> T) -> Result<Vec<bool>, ReproduceError> {
        let inputs: Vec<Vec<T>> = (0..usize::from(self.ranks))
            .map(|rank| numbers(rank, self.elements).into_iter().map(|value| make(100.0 * value)).collect())
            .collect();
        let vectors: Vec<Vec<u8>> = inputs.iter().map(|input| big_endian(input)).collect();
        let mut right = Vec::new();
        for op in ReduceOp::ALL.into_iter().filter(|op| op.takes(T::DTYPE)) {
            let (racks, options) = (self.racks(), [("reproducible", "tree")]);
            let mut network = Network::new(&setting(&racks, &options, self.loss, 1))?;
            let results = network.run(inputs.iter().map(|input| dense(input, op)).collect())?;
            let results: Vec<Vec<u8>> = results.iter().map(|tensor| output(&**tensor, T::DTYPE)).collect();
            let expected = reference(T::DTYPE, op, &vectors, &SumTree::star(self.ranks));
            right.push(Some(agreed(&results)?) == expected);
        }
        Ok(right)
    }

    /// Whether a sum of sparse whole numbers is right: indices and values.
    fn sparse(&self, density: f64) -> Result<bool, ReproduceError> {
        let mut rng = Rng::new(2, Purpose::Numbers, (density * 1e6) as u64);
        let mut expected = std::collections::BTreeMap::<u32, i32>::new();
        let mut tensors: Vec<Box<dyn Tensor>> = Vec::new();
        for _ in 0..self.ranks {
            let drawn: Vec<(u32, i32)> = (0..self.elements)
                .filter(|_| rng.chance(density))
                .collect::<Vec<_>>()
                .into_iter()
                .map(|index| (index, rng.below(2001) as i32 - 1000))
                .collect();
            drawn.iter().for_each(|&(index, value)| *expected.entry(index).or_default() += value);
            let indices: Vec<i64> = drawn.iter().map(|&(index, _)| index.into()).collect();
            let values = drawn.into_iter().map(|(_, value)| value).collect();
            let elements = SparseElements::new(&indices, values, self.elements as usize, ReduceOp::Sum);
            tensors.push(Box::new(elements.map_err(|error| ReproduceError::Bad(error.to_string()))?));
        }
        let (racks, options) = (self.racks(), [("sparse", "hash"), ("hash_slots", "16")]);
        let mut network = Network::new(&setting(&racks, &options, self.loss, 1))?;
        let expected: (Vec<u32>, Vec<i32>) = expected.into_iter().unzip();
        let results = network.run(tensors)?;
        let is_right = |tensor: Box<dyn Tensor>| {
            SparseElements::<i32>::from_tensor(tensor).is_some_and(|elements| elements.result().take() == expected)
        };
        Ok(results.into_iter().all(is_right))
    }
}

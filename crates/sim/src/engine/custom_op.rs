//! Custom operators (Flare §3): the elements that ranks contribute, and the expected results.
//!
//! The operator is the module that real switches run. It reaches the machines in the job's options ([`CustomOp::provide`]).
//! If elements are real, a switch's machine takes its [`Instance`](tributary_proto::contract::custom_op::Instance) from
//! there and calls it once a packet. The driver runs the same module to compute what each block must be, along the tree
//! that the job's options promise.

use std::fmt;
use std::sync::Arc;

use tributary_control::trees::Tree;
use tributary_operators::{UserOperator, reduce};
use tributary_proto::contract::custom_op::{self as contract, CustomOp as _};
use tributary_proto::contract::options::Options;
use tributary_proto::contract::sum_tree::{SumOrder, SumTree};
use tributary_proto::contract::tensor::{Primitive, Spec};
use tributary_proto::contract::values::Values;

use crate::cores::operators::OperatorCycles;
use crate::rng::{Purpose, Rng};

/// How many bytes of each rank are drawn and combined at once for the expected results.
const CHUNK_BYTES: usize = 64 * 1024;

/// The data of ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Data {
    /// Words that stand for elements and are added, whatever the operator: they show that each contribution is there
    /// once.
    #[default]
    Fingerprints,
    /// Real elements, which the operator combines.
    Real,
}

/// The magnitudes of the blocks of floats that fingerprints stand for: protocols that sum in fixed point scale by them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Magnitudes {
    /// The same for all blocks, as those of gradients are nearly.
    #[default]
    Steady,
    /// Drawn for each block, among 32 powers of two.
    Random,
}

impl Magnitudes {
    /// True for the choice that files leave out.
    pub(crate) fn is_steady(&self) -> bool {
        *self == Magnitudes::Steady
    }
}

impl Data {
    /// True for the choice that files leave out.
    pub(crate) fn is_fingerprints(&self) -> bool {
        *self == Data::Fingerprints
    }
}

/// A job's custom operator.
#[derive(Clone)]
pub struct CustomOp {
    /// The module, compiled and tested.
    pub operator: Arc<UserOperator>,
    /// The data that it combines.
    pub data: Data,
    /// Its cycles, if switches have cores.
    pub cycles: Option<OperatorCycles>,
}

impl fmt::Debug for CustomOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of {:?}", self.operator, self.data)
    }
}

/// Two are equal if their modules and data are.
impl PartialEq for CustomOp {
    fn eq(&self, other: &CustomOp) -> bool {
        (self.operator.hash(), self.data) == (other.operator.hash(), other.data)
    }
}

impl CustomOp {
    /// The operator as machines know it.
    pub fn shared(&self) -> Arc<dyn contract::CustomOp> {
        self.operator.clone()
    }

    /// The options, with the module that machines combine with.
    pub fn provide(&self, options: Options) -> Options {
        options.provided(&[self.shared()])
    }

    /// How machines represent vectors.
    pub fn values(&self) -> Values {
        match self.data {
            Data::Fingerprints => Values::Fingerprint,
            Data::Real => Values::Elements,
        }
    }
}

/// The trees along which a job's blocks may be combined, without duplicates.
pub(super) fn sum_trees(order: SumOrder, trees: &[Tree], world_size: u16) -> Vec<SumTree> {
    let mut all = Vec::new();
    for tree in trees.iter().filter(|_| order == SumOrder::Switches).map(Tree::sum_tree) {
        if !all.contains(&tree) {
            all.push(tree);
        }
    }
    // If vectors are combined as they come, the operator gives the same result along any tree.
    if all.is_empty() { vec![SumTree::star(world_size)] } else { all }
}

/// The contributions of a job's ranks to one collective.
pub(super) struct Contributions<'a> {
    pub operator: &'a UserOperator,
    pub spec: Spec,
    pub world_size: u16,
    /// A number that names the job and the collective.
    pub collective: u64,
}

impl Contributions<'_> {
    /// The contribution of a rank.
    pub fn by(&self, rank: u16) -> Vec<u8> {
        self.chunks().flat_map(|(chunk, bytes)| self.chunk(rank, chunk, bytes)).collect()
    }

    /// The results of all contributions along each of some trees; empty if the operator fails here too.
    pub fn results(&self, trees: &[SumTree]) -> Arc<[Vec<u8>]> {
        if let Primitive::Broadcast(root) = self.spec.primitive {
            return [self.by(root.0)].into();
        }
        let mut results = vec![Vec::new(); trees.len()];
        for (chunk, bytes) in self.chunks() {
            let vectors: Vec<Vec<u8>> = (0..self.world_size).map(|rank| self.chunk(rank, chunk, bytes)).collect();
            let vectors: Vec<&[u8]> = vectors.iter().map(Vec::as_slice).collect();
            for (result, tree) in results.iter_mut().zip(trees) {
                match reduce(self.operator, &vectors, tree) {
                    Some(Ok(combined)) => result.extend(combined),
                    _ => return Arc::new([]),
                }
            }
        }
        results.into()
    }

    /// Chunks by number, with their bytes.
    fn chunks(&self) -> impl Iterator<Item = (u64, usize)> + use<> {
        let (all, each) = (self.spec.elements as usize * self.spec.dtype.size(), self.chunk_bytes());
        (0..).zip((0..all).step_by(each).map(move |from| each.min(all - from)))
    }

    fn chunk_bytes(&self) -> usize {
        let size = self.operator.element_size();
        (CHUNK_BYTES / size).max(1) * size
    }

    fn chunk(&self, rank: u16, chunk: u64, bytes: usize) -> Vec<u8> {
        let seed = Rng::new(self.collective, Purpose::Numbers, u64::from(rank) << 32 | chunk).bits();
        let size = self.operator.element_size();
        let mut drawn = self.operator.sample(seed >> 1, bytes.div_ceil(size));
        // A broadcast's words need not be whole elements.
        drawn.truncate(bytes);
        drawn
    }
}

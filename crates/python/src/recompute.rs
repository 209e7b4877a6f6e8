//! The bits of a sum, computed on one machine.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tributary_numeric::{DType, ReduceOp};
use tributary_proto::contract::sum_tree::SumTree;

use crate::protocol::named;

/// The order of additions: a rank, or a list of what a switch adds.
#[derive(FromPyObject)]
pub enum Tree {
    Rank(u16),
    Switch(Vec<Tree>),
}

impl From<Tree> for SumTree {
    fn from(tree: Tree) -> SumTree {
        match tree {
            Tree::Rank(rank) => SumTree::Rank(rank),
            Tree::Switch(children) => SumTree::Switch(children.into_iter().map(SumTree::from).collect()),
        }
    }
}

/// The bits of a protocol's sum of these vectors, in the order of ranks; all big-endian and of the same length.
#[pyfunction]
pub fn recompute<'py>(
    py: Python<'py>,
    protocol: &str,
    dtype: &str,
    op: &str,
    vectors: Vec<Vec<u8>>,
    tree: Tree,
) -> PyResult<Bound<'py, PyBytes>> {
    let wrong = |sentence: String| PyValueError::new_err(sentence);
    let recompute = named(protocol)?
        .recompute
        .ok_or_else(|| wrong(format!("the bits of a sum under {protocol} do not follow from a tree alone")))?;
    let dtype = DType::from_name(dtype).ok_or_else(|| wrong(format!("\"{dtype}\" is not an element type")))?;
    let op = ReduceOp::from_name(op).ok_or_else(|| wrong(format!("\"{op}\" is not an operator")))?;
    let tree = tree.into();
    let sum = py.detach(|| recompute(dtype, op, &vectors, &tree));
    let nothing = || wrong(format!("{op} of {dtype} over {} ranks has no meaning along this tree", vectors.len()));
    sum.map(|sum| PyBytes::new(py, &sum)).ok_or_else(nothing)
}

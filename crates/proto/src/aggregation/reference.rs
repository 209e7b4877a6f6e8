//! The bits of a sum where each switch combines along the tree over its children's places ([`super::ordered`]),
//! computed by recursion over the vectors of all ranks, without a network.
//!
//! "Reproducible" means: the same inputs and the same tree give the same bits. With this function, anyone who knows the
//! tree can check it.

use tributary_numeric::{Combine, DType, ReduceOp, native};

use crate::contract::sum_tree::SumTree;

/// The sum as lanes.
fn lanes(tree: &SumTree, vectors: &[Vec<u8>], combine: &Combine) -> Option<Vec<u8>> {
    match tree {
        SumTree::Rank(rank) => {
            let vector = vectors.get(usize::from(*rank))?;
            let mut lanes = vec![0; vector.len() / combine.wire_size * combine.lane_size];
            (combine.store)(&mut lanes, vector);
            Some(lanes)
        }
        SumTree::Switch(children) => adder_tree(children, vectors, combine),
    }
}

/// A node of more than one place splits at the largest power of two below their number; lower places are on the left.
fn adder_tree(children: &[SumTree], vectors: &[Vec<u8>], combine: &Combine) -> Option<Vec<u8>> {
    if let [child] = children {
        return lanes(child, vectors, combine);
    }
    let (left, right) = children.split_at(children.len().next_power_of_two() / 2);
    let mut lanes = adder_tree(left, vectors, combine)?;
    (combine.merge)(&mut lanes, &adder_tree(right, vectors, combine)?);
    Some(lanes)
}

/// The result over ranks whose data are `vectors`, by rank: big-endian elements of `dtype`, all of one length. `None`
/// if the arguments have no meaning: an operator that the type does not take, a rank without a vector, a switch without
/// children.
pub fn reference(dtype: DType, op: ReduceOp, vectors: &[Vec<u8>], tree: &SumTree) -> Option<Vec<u8>> {
    let combine = native(dtype, op)?;
    if !tree.is_sound() {
        return None;
    }
    let mut lanes = lanes(tree, vectors, combine)?;
    (combine.finish)(&mut lanes, u16::try_from(vectors.len()).ok()?);
    let mut result = vec![0; lanes.len() / combine.lane_size * combine.wire_size];
    (combine.load)(&lanes, &mut result);
    Some(result)
}

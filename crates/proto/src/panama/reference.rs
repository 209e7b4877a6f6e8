//! The bits that a sum has, computed at home: the same adder trees by recursion over the vectors of all ranks.
//!
//! "Reproducible" means this: same inputs, same tree, same bits. Who knows the tree can check.

use tributary_numeric::{Combine, DType, ReduceOp, native};

/// What sums: a rank's data, or a switch's sum over its children in the order of their places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reference {
    /// A rank.
    Rank(u16),
    /// A switch; at least one child.
    Switch(Vec<Reference>),
}

impl Reference {
    /// One switch over all ranks, in their order.
    pub fn star(world: u16) -> Reference {
        Reference::Switch((0..world).map(Reference::Rank).collect())
    }

    /// The sum as lanes.
    fn lanes(&self, vectors: &[Vec<u8>], combine: &Combine) -> Option<Vec<u8>> {
        match self {
            Reference::Rank(rank) => {
                let vector = vectors.get(usize::from(*rank))?;
                let mut lanes = vec![0; vector.len() / combine.wire_size * combine.lane_size];
                (combine.store)(&mut lanes, vector);
                Some(lanes)
            }
            Reference::Switch(children) => adder_tree(children, vectors, combine),
        }
    }
}

/// A node of more than one place splits at the largest power of two below their number; lower places are on the left.
fn adder_tree(children: &[Reference], vectors: &[Vec<u8>], combine: &Combine) -> Option<Vec<u8>> {
    if let [child] = children {
        return child.lanes(vectors, combine);
    }
    let (left, right) = children.split_at(children.len().next_power_of_two() / 2);
    let mut lanes = adder_tree(left, vectors, combine)?;
    (combine.merge)(&mut lanes, &adder_tree(right, vectors, combine)?);
    Some(lanes)
}

/// The result over ranks whose data are `vectors`, by rank: big-endian elements of `dtype`, of one length. `None` of what
/// has no meaning: an operator that the type does not take, a rank that is not there, a switch without children.
pub fn reference(dtype: DType, op: ReduceOp, vectors: &[Vec<u8>], tree: &Reference) -> Option<Vec<u8>> {
    let combine = native(dtype, op)?;
    if !is_sound(tree) {
        return None;
    }
    let mut lanes = tree.lanes(vectors, combine)?;
    (combine.finish)(&mut lanes, u16::try_from(vectors.len()).ok()?);
    let mut result = vec![0; lanes.len() / combine.lane_size * combine.wire_size];
    (combine.load)(&lanes, &mut result);
    Some(result)
}

fn is_sound(tree: &Reference) -> bool {
    match tree {
        Reference::Rank(_) => true,
        Reference::Switch(children) => !children.is_empty() && children.iter().all(is_sound),
    }
}

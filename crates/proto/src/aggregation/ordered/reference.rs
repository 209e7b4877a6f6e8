//! The tree as a short recursion, with which tests compare.

use tributary_numeric::Combine;

/// Combines the vectors, at least one, in the order of their positions along the same tree, by recursion.
pub fn reference(vectors: &[Vec<u8>], combine: &Combine) -> Vec<u8> {
    if let [vector] = vectors {
        let mut lanes = vec![0; vector.len() / combine.wire_size * combine.lane_size];
        (combine.store)(&mut lanes, vector);
        return lanes;
    }
    let (left, right) = vectors.split_at(vectors.len().next_power_of_two() / 2);
    let mut lanes = reference(left, combine);
    (combine.merge)(&mut lanes, &reference(right, combine));
    lanes
}

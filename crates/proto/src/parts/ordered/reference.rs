//! The tree at home: what tests compare with.

use tributary_numeric::Combine;

/// The same tree by recursion over the vectors in the order of their places, at least one: what tests compare with.
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

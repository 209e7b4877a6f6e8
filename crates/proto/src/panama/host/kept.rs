//! Vectors that a rewind may need again, though their results have come and may overwrite the input.
//!
//! The result of a VID proves that every rank had sent that VID, so every rank had all results up to a window before
//! it. So it is enough to keep a window of contributions, up to the highest result. Where sums may lack ranks, a worker
//! keeps results instead, of two windows: results may lie a window ahead of the blocks that the rank has submitted.

use crate::contract::tensor::Spec;
use crate::panama::wire::slot_of;

/// What is known of a kept vector.
#[derive(Clone, Copy, Debug, Hash)]
pub struct Vector {
    vid: u64,
    /// The collective that it belongs to.
    pub spec: Spec,
    /// Bytes in memory.
    pub len: usize,
    /// Bytes on the wire.
    pub wire_len: usize,
    /// How many ranks' data the vector contains.
    pub contributors: u16,
}

/// The vectors of the latest VIDs.
#[derive(Clone, Debug, Hash)]
pub struct Kept {
    vectors: Vec<Option<Vector>>,
    /// Bytes of room for each vector.
    stride: usize,
    bytes: Vec<u8>,
}

impl Kept {
    /// Room for `capacity` vectors of at most `stride` bytes.
    pub fn new(capacity: usize, stride: usize) -> Kept {
        Kept { vectors: vec![None; capacity], stride, bytes: vec![0; capacity * stride] }
    }

    /// How many vectors there is room for.
    pub fn capacity(&self) -> u64 {
        self.vectors.len() as u64
    }

    fn at(&self, vid: u64) -> usize {
        slot_of(vid, self.vectors.len())
    }

    /// Keeps a vector with this many ranks' data; `write` writes it. It replaces the vector that had its room.
    pub fn keep(
        &mut self,
        vid: u64,
        spec: Spec,
        (len, wire_len): (usize, usize),
        contributors: u16,
        write: impl FnOnce(&mut [u8]),
    ) {
        let at = self.at(vid);
        self.vectors[at] = Some(Vector { vid, spec, len, wire_len, contributors });
        write(&mut self.bytes[at * self.stride..][..len]);
    }

    /// The vector of a VID, if it is still kept.
    pub fn get(&self, vid: u64) -> Option<(Vector, &[u8])> {
        let at = self.at(vid);
        let vector = self.vectors[at].filter(|vector| vector.vid == vid)?;
        Some((vector, &self.bytes[at * self.stride..][..vector.len]))
    }

    /// The most bytes that a vector may have.
    pub fn longest(&self) -> usize {
        self.stride
    }
}

#[cfg(test)]
mod tests {
    use tributary_numeric::{DType, ReduceOp};

    use super::*;

    #[test]
    fn a_window_of_vectors_is_kept_and_no_more() {
        let mut kept = Kept::new(3, 2);
        let spec = Spec::allreduce(1, DType::I8, ReduceOp::Sum);
        for vid in 0..5 {
            kept.keep(vid, spec, (1, 1), 1, |bytes| bytes[0] = vid as u8);
        }
        assert!(kept.get(0).is_none() && kept.get(1).is_none());
        for vid in 2..5 {
            assert_eq!(kept.get(vid).map(|(_, bytes)| bytes.to_vec()), Some(vec![vid as u8]));
        }
        assert!(kept.get(5).is_none());
    }
}

//! Contributions that a rewind may want again, though their results have come and may lie where the input was.
//!
//! A result proves that every rank had sent its VID, and so had all results that lie a window before it. So of the
//! contributions up to the highest result a window is enough.

use crate::contract::tensor::Spec;
use crate::panama::vid;

/// What is known of a contribution.
#[derive(Clone, Copy, Debug, Hash)]
pub struct Contribution {
    vid: u64,
    /// The collective.
    pub spec: Spec,
    /// Bytes in memory.
    pub len: usize,
    /// Bytes on the wire.
    pub wire_len: usize,
}

/// The contributions of one window.
#[derive(Clone, Debug, Hash)]
pub struct Kept {
    contributions: Vec<Option<Contribution>>,
    /// Bytes of each.
    stride: usize,
    bytes: Vec<u8>,
}

impl Kept {
    /// For `room` vectors of at most `stride` bytes.
    pub fn new(room: usize, stride: usize) -> Kept {
        Kept { contributions: vec![None; room], stride, bytes: vec![0; room * stride] }
    }

    fn at(&self, vid: u64) -> usize {
        vid::slot(vid, self.contributions.len())
    }

    /// Keeps a vector, which `write` writes, in place of the one a window before it.
    pub fn keep(&mut self, vid: u64, spec: Spec, (len, wire_len): (usize, usize), write: impl FnOnce(&mut [u8])) {
        let at = self.at(vid);
        self.contributions[at] = Some(Contribution { vid, spec, len, wire_len });
        write(&mut self.bytes[at * self.stride..][..len]);
    }

    /// A vector that was kept.
    pub fn get(&self, vid: u64) -> Option<(Contribution, &[u8])> {
        let at = self.at(vid);
        let contribution = self.contributions[at].filter(|contribution| contribution.vid == vid)?;
        Some((contribution, &self.bytes[at * self.stride..][..contribution.len]))
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
            kept.keep(vid, spec, (1, 1), |bytes| bytes[0] = vid as u8);
        }
        assert!(kept.get(0).is_none() && kept.get(1).is_none());
        for vid in 2..5 {
            assert_eq!(kept.get(vid).map(|(_, bytes)| bytes.to_vec()), Some(vec![vid as u8]));
        }
        assert!(kept.get(5).is_none());
    }
}

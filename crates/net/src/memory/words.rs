//! A broadcast's bytes by their address, as the 32-bit words that travel.

use std::ops::Range;
use std::slice;

use tributary_numeric::{BlockExponent, Scale};
use tributary_proto::contract::tensor::{Spec, Tensor};

const WORD: usize = 4;

/// The bytes of a broadcast at one rank. The root reads its bytes, and the others write what comes. The last word may
/// be cut short.
struct Words {
    data: *mut u8,
    bytes: usize,
    spec: Spec,
    is_root: bool,
}

// SAFETY: the memory is plain bytes, which `words`' caller leaves to this value until it is dropped.
unsafe impl Send for Words {}

/// The tensor of a broadcast of the bytes at this address.
///
/// # Safety
/// Until the tensor is dropped, `data` must be readable for `bytes` on the root, where no other code may write them,
/// and writable on other ranks, where no other code may touch them. Without bytes any address will do.
pub unsafe fn words(data: *mut u8, bytes: usize, spec: Spec, is_root: bool) -> Box<dyn Tensor> {
    assert_eq!(bytes.div_ceil(WORD), spec.elements as usize, "a broadcast's words are its bytes");
    let data = if bytes == 0 { std::ptr::dangling_mut() } else { data };
    Box::new(Words { data, bytes, spec, is_root })
}

impl Words {
    fn range(&self, block: &Range<usize>) -> Range<usize> {
        let range = WORD * block.start..(WORD * block.end).min(self.bytes);
        assert!(range.start <= range.end, "block {block:?} of {} bytes", self.bytes);
        range
    }

    /// Writes a block's words, big-endian.
    fn load(&self, block: &Range<usize>, vector: &mut [u8]) {
        let range = self.range(block);
        // SAFETY: inside the memory, which stays valid as `words` demands.
        let bytes = unsafe { slice::from_raw_parts(self.data.add(range.start), range.len()) };
        let (whole, rest) = bytes.as_chunks::<WORD>();
        let (vector, _) = vector.as_chunks_mut::<WORD>();
        for (word, bytes) in vector.iter_mut().zip(whole) {
            *word = u32::from_ne_bytes(*bytes).to_be_bytes();
        }
        if !rest.is_empty() {
            let mut last = [0; WORD];
            last[..rest.len()].copy_from_slice(rest);
            vector[whole.len()] = u32::from_ne_bytes(last).to_be_bytes();
        }
    }

    /// Takes a block's words, big-endian.
    fn store(&mut self, block: &Range<usize>, vector: &[u8]) {
        if self.is_root {
            return;
        }
        let range = self.range(block);
        // SAFETY: inside the memory; `&mut self` makes this the only slice of it.
        let bytes = unsafe { slice::from_raw_parts_mut(self.data.add(range.start), range.len()) };
        let (vector, _) = vector.as_chunks::<WORD>();
        let (whole, rest) = bytes.as_chunks_mut::<WORD>();
        for (bytes, word) in whole.iter_mut().zip(vector) {
            *bytes = u32::from_be_bytes(*word).to_ne_bytes();
        }
        if !rest.is_empty() {
            let last = u32::from_be_bytes(vector[whole.len()]).to_ne_bytes();
            rest.copy_from_slice(&last[..rest.len()]);
        }
    }
}

impl Tensor for Words {
    fn spec(&self) -> Spec {
        self.spec
    }
    fn vector_len(&self, elements: usize) -> usize {
        WORD * elements
    }
    fn exponent(&self, _block: Range<usize>) -> BlockExponent {
        BlockExponent::ZERO
    }
    fn encode(&self, block: Range<usize>, _scale: Scale, vector: &mut [u8]) {
        self.load(&block, vector);
    }
    fn decode(&mut self, block: Range<usize>, _scale: Scale, vector: &[u8]) {
        self.store(&block, vector);
    }

    fn native_len(&self, elements: usize) -> usize {
        WORD * elements
    }
    fn read_input(&self, block: Range<usize>, bytes: &mut [u8]) {
        self.load(&block, bytes);
    }
    fn read_output(&self, block: Range<usize>, bytes: &mut [u8]) {
        self.load(&block, bytes);
    }
    /// Only the root contributes, so a contribution that comes to it is nothing.
    fn accumulate(&mut self, _block: Range<usize>, _bytes: &[u8]) {}
    fn write(&mut self, block: Range<usize>, bytes: &[u8]) {
        self.store(&block, bytes);
    }
    fn divide(&mut self, _block: Range<usize>, _world_size: u16) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use tributary_proto::contract::ids::Rank;

    #[test]
    fn every_number_of_bytes_at_every_address_comes_out_as_it_was() {
        for bytes in 0..23usize {
            for at in 0..4 {
                let mut source: Vec<u8> = (0..at + bytes).map(|i| i as u8 | 0x80).collect();
                let mut copy = vec![0u8; at + bytes + 3];
                let spec = Spec::broadcast(bytes.div_ceil(WORD) as u32, Rank(0));
                // SAFETY: both vectors outlive the tensors.
                let mut tensors = unsafe {
                    let (source, copy) = (source.as_mut_ptr().add(at), copy.as_mut_ptr().add(at));
                    [words(source, bytes, spec, true), words(copy, bytes, spec, false)]
                };
                for start in (0..spec.elements as usize).step_by(2) {
                    let block = start..(start + 2).min(spec.elements as usize);
                    let mut vector = vec![0xFF; WORD * block.len()];
                    tensors[0].encode(block.clone(), Scale::integer(2), &mut vector);
                    tensors.iter_mut().for_each(|tensor| tensor.decode(block.clone(), Scale::integer(2), &vector));
                }
                drop(tensors);
                assert_eq!(copy[at..at + bytes], source[at..]);
                assert_eq!(copy[at + bytes..], [0; 3], "nothing is written behind the end");
            }
        }
    }
}

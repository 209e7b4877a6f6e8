//! A tensor in vectors, as plain as can be.

use std::ops::Range;

use tributary_numeric::{BlockExponent, DType, ReduceOp, Scale};
use tributary_proto::tensor::{Spec, Tensor};

/// Input and output are the same memory, so that a block that is encoded after it was decoded is seen.
pub struct PlainTensor {
    pub spec: Spec,
    pub words: Vec<u32>,
}

impl PlainTensor {
    pub fn i32(values: Vec<i32>) -> PlainTensor {
        let spec = Spec { elements: values.len() as u32, dtype: DType::I32, op: ReduceOp::Sum };
        PlainTensor { spec, words: values.into_iter().map(|value| value as u32).collect() }
    }

    pub fn f32(values: Vec<f32>) -> PlainTensor {
        let spec = Spec { elements: values.len() as u32, dtype: DType::F32, op: ReduceOp::Sum };
        PlainTensor { spec, words: values.into_iter().map(f32::to_bits).collect() }
    }

    fn is_float(&self) -> bool {
        self.spec.dtype.is_float()
    }
}

impl Tensor for PlainTensor {
    fn spec(&self) -> Spec {
        self.spec
    }
    fn vector_len(&self, elements: usize) -> usize {
        4 * elements
    }
    fn exponent(&self, block: Range<usize>) -> BlockExponent {
        let largest = self.words[block].iter().map(|&word| f32::from_bits(word).abs()).fold(0.0, f32::max);
        let exponent = if largest == 0.0 { i16::MIN } else { largest.log2().ceil() as i16 };
        BlockExponent { exponent, non_finite: false }
    }
    fn encode(&self, block: Range<usize>, scale: Scale, vector: &mut [u8]) {
        assert_eq!(vector.len(), 4 * block.len());
        let factor = f64::from(scale.shift).exp2();
        for (word, bytes) in self.words[block].iter().zip(vector.chunks_exact_mut(4)) {
            let integer =
                if self.is_float() { (f64::from(f32::from_bits(*word)) * factor).round() as i32 } else { *word as i32 };
            bytes.copy_from_slice(&integer.to_be_bytes());
        }
    }
    fn decode(&mut self, block: Range<usize>, scale: Scale, vector: &[u8]) {
        assert_eq!(vector.len(), 4 * block.len());
        let (factor, is_float) = (f64::from(-scale.shift).exp2(), self.is_float());
        for (word, bytes) in self.words[block].iter_mut().zip(vector.chunks_exact(4)) {
            let integer = i32::from_be_bytes(bytes.try_into().unwrap());
            *word = if is_float { ((f64::from(integer) * factor) as f32).to_bits() } else { integer as u32 };
        }
    }
    fn native_len(&self, elements: usize) -> usize {
        4 * elements
    }
    fn read_input(&self, _block: Range<usize>, _bytes: &mut [u8]) {
        unimplemented!()
    }
    fn read_output(&self, block: Range<usize>, bytes: &mut [u8]) {
        for (word, bytes) in self.words[block].iter().zip(bytes.chunks_exact_mut(4)) {
            bytes.copy_from_slice(&word.to_ne_bytes());
        }
    }
    fn accumulate(&mut self, _block: Range<usize>, _bytes: &[u8]) {
        unimplemented!()
    }
    fn write(&mut self, _block: Range<usize>, _bytes: &[u8]) {
        unimplemented!()
    }
    fn divide(&mut self, _block: Range<usize>, _world: u16) {
        unimplemented!()
    }
}

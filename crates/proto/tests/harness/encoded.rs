//! Fixed point at home: what a collective gives if its hosts encode and decode, whatever travels.

use tributary_numeric::{BlockExponent, Element, ReduceOp, Scale, codec};

/// The result as if hosts encoded each block with the scale of its largest magnitude, and decoded the sum.
pub fn encoded_by_hosts<T: Element>(inputs: &[Vec<T>], op: ReduceOp, block_elements: usize) -> Vec<u8> {
    let (world_size, elements) = (inputs.len() as u16, inputs[0].len());
    let mut output = vec![T::default(); elements];
    for start in (0..elements).step_by(block_elements) {
        let block = start..(start + block_elements).min(elements);
        let exponents = inputs.iter().map(|input| codec::exponent(&input[block.clone()]));
        let scale = Scale::new(exponents.fold(BlockExponent::ZERO, BlockExponent::join), world_size);
        let mut sum = vec![0u32; block.len()];
        for input in inputs {
            let mut words = vec![0; 4 * block.len()];
            codec::encode(&input[block.clone()], scale, &mut words);
            for (sum, word) in sum.iter_mut().zip(words.as_chunks().0) {
                *sum = sum.wrapping_add(u32::from_be_bytes(*word));
            }
        }
        let sum: Vec<u8> = sum.into_iter().flat_map(u32::to_be_bytes).collect();
        codec::decode(&sum, scale, op, &mut output[block]);
    }
    let mut bytes = vec![0; T::DTYPE.size() * elements];
    codec::write_native(&output, &mut bytes);
    bytes
}

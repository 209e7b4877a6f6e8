//! Real elements: any memory that can lend blocks of its input and its output.

use std::ops::Range;

use tributary_numeric::{BlockExponent, Element, ReduceOp, Scale, codec};

use crate::contract::ids::Rank;
use crate::contract::tensor::{Primitive, Spec, Tensor};

/// The same block of input and output.
pub enum Operands<'a, T> {
    /// Two separate blocks: an input and an output.
    Separate(&'a [T], &'a mut [T]),
    /// One block, which is both.
    Same(&'a mut [T]),
}

/// Memory that holds the input and the output of one collective, separately or as the same elements. Blocks
/// are always inside `0..len()`.
pub trait Storage: Send {
    /// The type of the elements.
    type Element: Element;

    /// Number of elements of the input, and of the output.
    fn len(&self) -> usize;
    /// True if there are no elements.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// True if input and output are separate.
    fn is_separate(&self) -> bool;
    /// A block of the input.
    fn input(&self, block: Range<usize>) -> &[Self::Element];
    /// A block of the output, to read.
    fn output(&self, block: Range<usize>) -> &[Self::Element];
    /// A block of the output, to write.
    fn output_mut(&mut self, block: Range<usize>) -> &mut [Self::Element];
    /// A block of the input and of the output at once.
    fn operands(&mut self, block: Range<usize>) -> Operands<'_, Self::Element>;
    /// A block of the input, and apart from it where the caller wants what codes lose of that; `None` if nowhere.
    fn loss(&mut self, _block: Range<usize>) -> Option<Operands<'_, Self::Element>> {
        None
    }
}

/// A vector for the input and another for the output.
#[derive(Clone, Debug)]
pub struct VecStorage<T> {
    input: Vec<T>,
    output: Vec<T>,
}

impl<T: Element> VecStorage<T> {
    /// The input, and an output of zeros.
    pub fn new(input: Vec<T>) -> VecStorage<T> {
        let output = vec![T::default(); input.len()];
        VecStorage { input, output }
    }

    /// The output.
    pub fn into_output(self) -> Vec<T> {
        self.output
    }
}

impl<T: Element> Storage for VecStorage<T> {
    type Element = T;

    fn len(&self) -> usize {
        self.input.len()
    }
    fn is_separate(&self) -> bool {
        true
    }
    fn input(&self, block: Range<usize>) -> &[T] {
        &self.input[block]
    }
    fn output(&self, block: Range<usize>) -> &[T] {
        &self.output[block]
    }
    fn output_mut(&mut self, block: Range<usize>) -> &mut [T] {
        &mut self.output[block]
    }
    fn operands(&mut self, block: Range<usize>) -> Operands<'_, T> {
        Operands::Separate(&self.input[block.clone()], &mut self.output[block])
    }
}

/// One vector that is input first and output afterwards.
#[derive(Clone, Debug)]
pub struct InPlaceStorage<T>(Vec<T>);

impl<T: Element> InPlaceStorage<T> {
    /// The input, which the output replaces block by block.
    pub fn new(data: Vec<T>) -> InPlaceStorage<T> {
        InPlaceStorage(data)
    }

    /// The output.
    pub fn into_output(self) -> Vec<T> {
        self.0
    }
}

impl<T: Element> Storage for InPlaceStorage<T> {
    type Element = T;

    fn len(&self) -> usize {
        self.0.len()
    }
    fn is_separate(&self) -> bool {
        false
    }
    fn input(&self, block: Range<usize>) -> &[T] {
        &self.0[block]
    }
    fn output(&self, block: Range<usize>) -> &[T] {
        &self.0[block]
    }
    fn output_mut(&mut self, block: Range<usize>) -> &mut [T] {
        &mut self.0[block]
    }
    fn operands(&mut self, block: Range<usize>) -> Operands<'_, T> {
        Operands::Same(&mut self.0[block])
    }
}

/// A [`Tensor`] over real elements.
#[derive(Clone, Debug)]
pub struct ElementTensor<S> {
    storage: S,
    elements: u32,
    op: ReduceOp,
    primitive: Primitive,
}

impl<S: Storage> ElementTensor<S> {
    /// The collective `op` over all of `storage`, which holds at most 2^32 - 1 elements.
    pub fn new(storage: S, op: ReduceOp) -> ElementTensor<S> {
        let elements = u32::try_from(storage.len()).expect("the caller splits larger tensors");
        ElementTensor { storage, elements, op, primitive: Primitive::Allreduce }
    }

    /// The collective as a reduce, whose result is for one rank.
    pub fn to(self, rank: Rank) -> ElementTensor<S> {
        ElementTensor { primitive: Primitive::Reduce(rank), ..self }
    }

    /// The collective as a broadcast of one rank's elements: of `i32`, and with the sum as operator.
    pub fn from(self, rank: Rank) -> ElementTensor<S> {
        ElementTensor { primitive: Primitive::Broadcast(rank), ..self }
    }

    /// The memory.
    pub fn storage(&self) -> &S {
        &self.storage
    }

    /// The memory, handed back to the caller.
    pub fn into_storage(self) -> S {
        self.storage
    }
}

impl<S: Storage + 'static> Tensor for ElementTensor<S> {
    fn spec(&self) -> Spec {
        Spec { elements: self.elements, dtype: S::Element::DTYPE, op: self.op, primitive: self.primitive }
    }

    fn leaves_input(&self) -> bool {
        self.storage.is_separate()
    }

    fn vector_len(&self, elements: usize) -> usize {
        4 * elements
    }
    fn exponent(&self, block: Range<usize>) -> BlockExponent {
        codec::exponent(self.storage.input(block))
    }
    fn norm(&self, block: Range<usize>) -> BlockExponent {
        codec::norm(self.storage.input(block))
    }
    fn encode(&self, block: Range<usize>, scale: Scale, vector: &mut [u8]) {
        codec::encode(self.storage.input(block), scale, vector);
    }
    fn encode_with_loss(&mut self, block: Range<usize>, scale: Scale, vector: &mut [u8]) {
        match self.storage.loss(block.clone()) {
            Some(Operands::Separate(input, loss)) => codec::encode_with_loss(input, scale, vector, loss),
            _ => codec::encode(self.storage.input(block), scale, vector),
        }
    }
    fn decode(&mut self, block: Range<usize>, scale: Scale, vector: &[u8]) {
        codec::decode(vector, scale, self.op, self.storage.output_mut(block));
    }

    fn native_len(&self, elements: usize) -> usize {
        S::Element::DTYPE.size() * elements
    }
    fn read_input(&self, block: Range<usize>, bytes: &mut [u8]) {
        codec::write_native(self.storage.input(block), bytes);
    }
    fn read_output(&self, block: Range<usize>, bytes: &mut [u8]) {
        codec::write_native(self.storage.output(block), bytes);
    }
    fn accumulate(&mut self, block: Range<usize>, bytes: &[u8]) {
        match self.storage.operands(block) {
            Operands::Separate(input, output) => codec::accumulate_native(self.op, input, bytes, output),
            Operands::Same(data) => codec::accumulate_native_in_place(self.op, data, bytes),
        }
    }
    fn write(&mut self, block: Range<usize>, bytes: &[u8]) {
        codec::read_native(bytes, self.storage.output_mut(block));
    }
    fn divide(&mut self, block: Range<usize>, world_size: u16) {
        if self.op == ReduceOp::Avg {
            codec::divide(self.storage.output_mut(block), world_size);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both families of calls, with the two storages side by side: only the tensor's blocks are touched, and the
    /// results are equal.
    #[test]
    fn in_place_and_separate_storage_give_the_same() {
        let input: Vec<f32> = (0..100).map(|i| i as f32 - 50.0).collect();
        let mut separate = ElementTensor::new(VecStorage::new(input.clone()), ReduceOp::Avg);
        let mut same = ElementTensor::new(InPlaceStorage::new(input.clone()), ReduceOp::Avg);
        exchange(&mut separate);
        exchange(&mut same);
        let output = separate.into_storage().into_output();
        assert_eq!(output, same.into_storage().into_output());
        // Two ranks with the same input: the average is the input.
        assert_eq!(output, input);
    }

    /// A second rank with the same input; fixed point for the first half, native for the second.
    fn exchange(tensor: &mut dyn Tensor) {
        let scale = Scale::new(tensor.exponent(0..50), 2);
        let mut vector = vec![0; tensor.vector_len(50)];
        tensor.encode(0..50, scale, &mut vector);
        let mut lanes = vec![0; 50];
        tributary_numeric::lanes::store_be(&mut lanes, &vector);
        tributary_numeric::lanes::add_be(&mut lanes, &vector);
        tributary_numeric::lanes::load_be(&lanes, &mut vector);
        tensor.decode(0..50, scale, &vector);

        let mut bytes = vec![0; tensor.native_len(50)];
        tensor.read_input(50..100, &mut bytes);
        tensor.accumulate(50..100, &bytes);
        tensor.divide(50..100, 2);
        let mut copy = vec![0; bytes.len()];
        tensor.read_output(50..100, &mut copy);
        assert_eq!(copy, bytes);
        tensor.write(50..100, &copy);
    }
}

//! A caller's tensor by its address. All that is unsafe about memory is here and in the calls that say so.
#![allow(unsafe_code)]

use std::ops::Range;
use std::slice;

use tributary_numeric::{DType, Element, bf16, f16};
use tributary_proto::tensor::{Spec, Tensor};
use tributary_proto::tensors::{ElementTensor, Operands, Storage};

/// Input and output of one collective, apart or the same.
struct RawStorage<T> {
    input: *const T,
    output: *mut T,
    len: usize,
}

// SAFETY: the memory is plain elements, which `tensor`'s caller leaves to this value until it is dropped.
unsafe impl<T: Element> Send for RawStorage<T> {}

impl<T: Element> RawStorage<T> {
    fn check(&self, block: &Range<usize>) {
        assert!(block.start <= block.end && block.end <= self.len, "block {block:?} of {} elements", self.len);
    }
}

impl<T: Element> Storage for RawStorage<T> {
    type Element = T;

    fn len(&self) -> usize {
        self.len
    }

    fn input(&self, block: Range<usize>) -> &[T] {
        self.check(&block);
        // SAFETY: inside the input, which stays valid as `tensor` demands; a write to the same memory needs `&mut`.
        unsafe { slice::from_raw_parts(self.input.add(block.start), block.len()) }
    }

    fn output(&self, block: Range<usize>) -> &[T] {
        self.check(&block);
        // SAFETY: inside the output, as above.
        unsafe { slice::from_raw_parts(self.output.add(block.start), block.len()) }
    }

    fn output_mut(&mut self, block: Range<usize>) -> &mut [T] {
        self.check(&block);
        // SAFETY: inside the output, as above; `&mut self` makes this the only slice of it.
        unsafe { slice::from_raw_parts_mut(self.output.add(block.start), block.len()) }
    }

    fn operands(&mut self, block: Range<usize>) -> Operands<'_, T> {
        self.check(&block);
        if self.input == self.output.cast_const() {
            return Operands::Same(self.output_mut(block));
        }
        // SAFETY: inside both, which do not overlap unless they are the same; `&mut self` makes these the only slices.
        unsafe {
            Operands::Apart(
                slice::from_raw_parts(self.input.add(block.start), block.len()),
                slice::from_raw_parts_mut(self.output.add(block.start), block.len()),
            )
        }
    }
}

/// The tensor at these addresses.
///
/// # Safety
/// Until the tensor is dropped, `input` is readable and `output` writable for `spec.elements` elements of `spec.dtype`,
/// aligned for them, nobody writes the input nor touches the output, and the two are the same or do not overlap.
/// Where there are no elements, any address will do.
pub unsafe fn tensor(input: *const u8, output: *mut u8, spec: Spec) -> Box<dyn Tensor> {
    match spec.dtype {
        DType::F32 => typed::<f32>(input, output, spec),
        DType::F16 => typed::<f16>(input, output, spec),
        DType::BF16 => typed::<bf16>(input, output, spec),
        DType::I32 => typed::<i32>(input, output, spec),
    }
}

fn typed<T: Element>(input: *const u8, output: *mut u8, spec: Spec) -> Box<dyn Tensor> {
    let none = std::ptr::dangling_mut::<T>();
    let (input, output) = if spec.elements == 0 { (none.cast_const(), none) } else { (input.cast(), output.cast()) };
    Box::new(ElementTensor::new(RawStorage { input, output, len: spec.elements as usize }, spec.op))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tributary_numeric::{ReduceOp, Scale};

    #[test]
    fn blocks_are_read_from_the_input_and_written_to_the_output() {
        let (input, mut output) = ([1i32, 2, 3, 4], [0i32; 4]);
        let spec = Spec { elements: 4, dtype: DType::I32, op: ReduceOp::Sum };
        // SAFETY: both arrays outlive the tensor, which is dropped before they are looked at.
        let mut tensor = unsafe { tensor(input.as_ptr().cast(), output.as_mut_ptr().cast(), spec) };
        let mut vector = [0; 8];
        tensor.encode(1..3, Scale::integer(1), &mut vector);
        tensor.decode(2..4, Scale::integer(1), &vector);
        drop(tensor);
        assert_eq!(output, [0, 0, 2, 3]);
    }

    #[test]
    fn no_elements_need_no_memory() {
        let spec = Spec { elements: 0, dtype: DType::F32, op: ReduceOp::Avg };
        // SAFETY: no elements.
        let tensor = unsafe { tensor(std::ptr::null(), std::ptr::null_mut(), spec) };
        assert_eq!(tensor.spec(), spec);
        tensor.encode(0..0, Scale::integer(1), &mut []);
    }
}

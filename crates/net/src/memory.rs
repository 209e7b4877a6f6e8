//! A caller's tensor by its address. All unsafe code about tensors is here, in [`words`] and in `group/submit.rs`.
#![allow(unsafe_code)]

mod words;

use std::ops::Range;
use std::slice;

use tributary_numeric::{BlockExponent, Codes, DType, Element, Scale, bf16, codec, f16};
use tributary_proto::contract::tensor::{Primitive, Spec, Tensor};
use tributary_proto::tensors::{ElementTensor, Operands, Storage};

pub use self::words::words;

/// The input and the output of one collective. They are disjoint, or they are the same.
struct RawStorage<T> {
    input: *const T,
    /// Where element `kept.start` is written.
    output: *mut T,
    /// Where it is written what the codes of the input lose; null if nowhere. It overlaps neither of the others.
    loss: *mut T,
    len: usize,
    /// The elements that the output has.
    kept: Range<usize>,
    /// Owns the output, if it is not the caller's.
    _bounce_buffer: Option<BounceBuffer>,
}

// SAFETY: the memory is plain elements and bytes, which `tensor`'s caller leaves to this value until it is dropped.
unsafe impl<T: Element> Send for RawStorage<T> {}

impl<T: Element> RawStorage<T> {
    fn check(&self, block: &Range<usize>) {
        assert!(block.start <= block.end && block.end <= self.len, "block {block:?} of {} elements", self.len);
    }

    /// Where the block is written.
    fn output_at(&self, block: &Range<usize>) -> *mut T {
        let kept = &self.kept;
        assert!(
            kept.start <= block.start && block.start <= block.end && block.end <= kept.end,
            "{block:?} of {kept:?}"
        );
        // SAFETY: inside the output, which has the elements `kept`.
        unsafe { self.output.add(block.start - kept.start) }
    }
}

impl<T: Element> Storage for RawStorage<T> {
    type Element = T;

    fn len(&self) -> usize {
        self.len
    }

    fn is_separate(&self) -> bool {
        self.kept.is_empty() || self.input.wrapping_add(self.kept.start) != self.output.cast_const()
    }

    fn input(&self, block: Range<usize>) -> &[T] {
        self.check(&block);
        // SAFETY: inside the input, which stays valid as `tensor` demands; a write to the same memory needs `&mut`.
        unsafe { slice::from_raw_parts(self.input.add(block.start), block.len()) }
    }

    fn output(&self, block: Range<usize>) -> &[T] {
        // SAFETY: inside the output, as above.
        unsafe { slice::from_raw_parts(self.output_at(&block), block.len()) }
    }

    fn output_mut(&mut self, block: Range<usize>) -> &mut [T] {
        // SAFETY: inside the output, as above; `&mut self` makes this the only slice of it.
        unsafe { slice::from_raw_parts_mut(self.output_at(&block), block.len()) }
    }

    fn operands(&mut self, block: Range<usize>) -> Operands<'_, T> {
        self.check(&block);
        let output = self.output_at(&block);
        if self.input.wrapping_add(block.start) == output.cast_const() {
            return Operands::Same(self.output_mut(block));
        }
        // SAFETY: inside both, which do not overlap unless they are the same; `&mut self` makes these the only slices.
        unsafe {
            Operands::Separate(
                slice::from_raw_parts(self.input.add(block.start), block.len()),
                slice::from_raw_parts_mut(output, block.len()),
            )
        }
    }

    fn loss(&mut self, block: Range<usize>) -> Option<Operands<'_, T>> {
        if self.loss.is_null() {
            return None;
        }
        self.check(&block);
        // SAFETY: inside memory that is as long as the input and separate; `&mut self` makes this the only slice of it.
        let loss = unsafe { slice::from_raw_parts_mut(self.loss.add(block.start), block.len()) };
        Some(Operands::Separate(self.input(block), loss))
    }
}

/// The tensor at these addresses, of whose result only the elements `kept` are wanted. If these are not all elements, the
/// protocol's hosts must not forward results. What codes lose of the input is written to `memory.loss`, unless that is null.
///
/// # Safety
/// Until the tensor is dropped: `memory.input` must be readable for `spec.elements` elements of `spec.dtype` and
/// `memory.output` writable for `kept.len()`, both aligned for them; no other code may write the input or touch the
/// output; the output must be the part `kept` of the input or not overlap it. `memory.loss` must be null, or as the
/// output of all elements and overlap neither. Without elements any address will do.
pub unsafe fn tensor(memory: Memory, spec: Spec, kept: Range<usize>) -> Box<dyn Tensor> {
    of_type(memory, spec, kept, None)
}

/// The addresses of a tensor's memory.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// What is read.
    pub input: *const u8,
    /// What is written.
    pub output: *mut u8,
    /// Where what the codes of the input lose is written, if it is not null; only where the whole result is wanted.
    pub loss: *mut u8,
}

fn of_type(memory: Memory, spec: Spec, kept: Range<usize>, bounce_buffer: Option<BounceBuffer>) -> Box<dyn Tensor> {
    match spec.dtype {
        DType::F32 => typed::<f32>(memory, spec, kept, bounce_buffer),
        DType::F16 => typed::<f16>(memory, spec, kept, bounce_buffer),
        DType::BF16 => typed::<bf16>(memory, spec, kept, bounce_buffer),
        DType::I32 => typed::<i32>(memory, spec, kept, bounce_buffer),
        DType::F64 => typed::<f64>(memory, spec, kept, bounce_buffer),
        DType::I8 => typed::<i8>(memory, spec, kept, bounce_buffer),
        DType::I16 => typed::<i16>(memory, spec, kept, bounce_buffer),
        DType::I64 => typed::<i64>(memory, spec, kept, bounce_buffer),
        DType::U8 => typed::<u8>(memory, spec, kept, bounce_buffer),
    }
}

/// Like [`tensor`], for protocols whose hosts forward results. A rank that wants only some elements of the result still
/// needs memory for all of it. The tensor has a bounce buffer, and copies the wanted elements when it is dropped.
///
/// # Safety
/// As for [`tensor`].
pub unsafe fn tensor_with_bounce_buffer(memory: Memory, spec: Spec, kept: Range<usize>) -> Box<dyn Tensor> {
    let whole = 0..spec.elements as usize;
    if kept == whole {
        // SAFETY: the caller's promise.
        return unsafe { tensor(memory, spec, kept) };
    }
    assert!(kept.start <= kept.end && kept.end <= whole.end, "{kept:?} of {whole:?}");
    let size = spec.dtype.size();
    // Aligned for every type; it holds the whole, overlaps nothing, and lives as long as the tensor that has it.
    let mut elements = vec![0u64; (whole.len() * size).div_ceil(8)];
    let Memory { output, .. } = memory;
    let memory = Memory { output: elements.as_mut_ptr().cast(), ..memory };
    let kept = kept.start * size..kept.end * size;
    of_type(memory, spec, whole, Some(BounceBuffer { elements, output, kept }))
}

fn typed<T: Element>(
    memory: Memory,
    spec: Spec,
    kept: Range<usize>,
    bounce_buffer: Option<BounceBuffer>,
) -> Box<dyn Tensor> {
    let len = spec.elements as usize;
    assert!(kept.start <= kept.end && kept.end <= len, "{kept:?} of {len} elements");
    let none = std::ptr::dangling_mut::<T>();
    let input = if len == 0 { none.cast_const() } else { memory.input.cast() };
    let output = if kept.is_empty() { none } else { memory.output.cast() };
    let loss = if kept.len() == len { memory.loss.cast() } else { std::ptr::null_mut() };
    let storage = RawStorage { input, output, loss, len, kept: kept.clone(), _bounce_buffer: bounce_buffer };
    let whole = ElementTensor::new(storage, spec.op);
    let whole = match spec.primitive {
        Primitive::Allreduce => whole,
        Primitive::Reduce(root) => whole.to(root),
        Primitive::Broadcast(_) => unreachable!("broadcasts move words without types"),
    };
    if kept.len() == len { Box::new(whole) } else { Box::new(KeptRange { whole, kept }) }
}

/// A tensor of whose result only some elements are wanted: a rank's chunk of a reduce-scatter, or nothing if another rank
/// is the root of a reduce. Every result still arrives, because it frees its slot, but the rest is neither decoded nor
/// copied.
struct KeptRange<T> {
    whole: ElementTensor<RawStorage<T>>,
    kept: Range<usize>,
}

impl<T: Element> KeptRange<T> {
    /// The elements of a block that are wanted. If none are wanted, the range ends before it starts.
    fn wanted(&self, block: &Range<usize>) -> Range<usize> {
        block.start.max(self.kept.start)..block.end.min(self.kept.end)
    }

    /// Each element of a rotated block follows from all of its vector: of a block at the range's end, some are left out.
    fn decode_rotated(&mut self, block: Range<usize>, wanted: Range<usize>, scale: Scale, vector: &[u8]) {
        let mut elements = vec![T::default(); block.len()];
        codec::decode(vector, scale, self.spec().op, &mut elements);
        let elements = &elements[wanted.start - block.start..][..wanted.len()];
        let mut bytes = vec![0; size_of_val(elements)];
        codec::write_native(elements, &mut bytes);
        self.whole.write(wanted, &bytes);
    }
}

impl<T: Element> Tensor for KeptRange<T> {
    fn spec(&self) -> Spec {
        self.whole.spec()
    }
    fn leaves_input(&self) -> bool {
        self.whole.leaves_input()
    }
    fn vector_len(&self, elements: usize) -> usize {
        self.whole.vector_len(elements)
    }
    fn exponent(&self, block: Range<usize>) -> BlockExponent {
        self.whole.exponent(block)
    }
    fn norm(&self, block: Range<usize>) -> BlockExponent {
        self.whole.norm(block)
    }
    fn encode(&self, block: Range<usize>, scale: Scale, vector: &mut [u8]) {
        self.whole.encode(block, scale, vector);
    }
    fn decode(&mut self, block: Range<usize>, scale: Scale, vector: &[u8]) {
        let wanted = self.wanted(&block);
        if wanted.start < wanted.end {
            if wanted != block
                && let Some(Codes::Rotated(_)) = scale.codes
            {
                return self.decode_rotated(block, wanted, scale, vector);
            }
            let size = vector.len() / block.len();
            let (skipped, len) = (size * (wanted.start - block.start), size * wanted.len());
            self.whole.decode(wanted, scale, &vector[skipped..skipped + len]);
        }
    }

    fn native_len(&self, elements: usize) -> usize {
        self.whole.native_len(elements)
    }
    fn read_input(&self, block: Range<usize>, bytes: &mut [u8]) {
        self.whole.read_input(block, bytes);
    }
    fn read_output(&self, _block: Range<usize>, _bytes: &mut [u8]) {
        unreachable!("{FORWARDED}");
    }
    fn accumulate(&mut self, _block: Range<usize>, _bytes: &[u8]) {
        unreachable!("{FORWARDED}");
    }
    fn write(&mut self, block: Range<usize>, bytes: &[u8]) {
        let wanted = self.wanted(&block);
        if wanted.start < wanted.end {
            let skipped = self.whole.native_len(wanted.start - block.start);
            let len = self.whole.native_len(wanted.len());
            self.whole.write(wanted, &bytes[skipped..skipped + len]);
        }
    }
    fn divide(&mut self, _block: Range<usize>, _world_size: u16) {
        unreachable!("{FORWARDED}");
    }
}

/// Memory for the whole result, and where the wanted elements go.
struct BounceBuffer {
    elements: Vec<u64>,
    output: *mut u8,
    /// The bytes of the buffer that are wanted.
    kept: Range<usize>,
}

impl Drop for BounceBuffer {
    fn drop(&mut self) {
        if self.kept.is_empty() {
            return;
        }
        // SAFETY: the kept bytes lie inside the buffer; the output is writable for as many, and does not overlap the buffer.
        unsafe {
            let from = self.elements.as_ptr().cast::<u8>().add(self.kept.start);
            std::ptr::copy_nonoverlapping(from, self.output, self.kept.len());
        }
    }
}

const FORWARDED: &str = "hosts that forward results have memory for all of them";

#[cfg(test)]
mod tests {
    use super::*;
    use tributary_numeric::{CodeWidth, ReduceOp};
    use tributary_proto::contract::ids::Rank;

    fn memory<T>(input: &[T], output: *mut T) -> Memory {
        Memory { input: input.as_ptr().cast(), output: output.cast(), loss: std::ptr::null_mut() }
    }

    /// In place, where the output replaces the input: what the codes of two blocks lose is written beside.
    #[test]
    fn a_tensor_keeps_what_its_codes_lose() {
        let input = [1.0f32, 0.3, -0.004, 0.0];
        let (mut data, mut loss) = (input, [9.0f32; 4]);
        let spec = Spec::allreduce(4, DType::F32, ReduceOp::Sum);
        let at = data.as_mut_ptr();
        let memory = Memory { input: at.cast_const().cast(), output: at.cast(), loss: loss.as_mut_ptr().cast() };
        // SAFETY: both arrays outlive the tensor, which is dropped before they are looked at.
        let mut tensor = unsafe { tensor(memory, spec, 0..4) };
        for block in [0..2, 2..4] {
            let scale = Scale::codes(tensor.exponent(0..4), 1, CodeWidth::Eight);
            let mut vector = [0; 2];
            tensor.encode_with_loss(block.clone(), scale, &mut vector);
            tensor.decode(block, scale, &vector);
        }
        drop(tensor);
        assert_eq!(data, [1.0, 38.0 / 127.0, -1.0 / 127.0, 0.0]);
        for (index, x) in input.into_iter().enumerate() {
            assert!((loss[index] - (x - data[index])).abs() < 1e-7, "{loss:?} of {input:?}");
        }
        assert!(loss[1] != 0.0 && loss[2] != 0.0 && loss[3] == 0.0);
    }

    #[test]
    fn blocks_are_read_from_the_input_and_written_to_the_output() {
        let (input, mut output) = ([1i32, 2, 3, 4], [0i32; 4]);
        let spec = Spec::allreduce(4, DType::I32, ReduceOp::Sum);
        // SAFETY: both arrays outlive the tensor, which is dropped before they are looked at.
        let mut tensor = unsafe { tensor(memory(&input, output.as_mut_ptr()), spec, 0..4) };
        let mut vector = [0; 8];
        tensor.encode(1..3, Scale::integer(1), &mut vector);
        tensor.decode(2..4, Scale::integer(1), &vector);
        drop(tensor);
        assert_eq!(output, [0, 0, 2, 3]);
    }

    #[test]
    fn only_the_kept_elements_are_written() {
        let (input, mut output) = ([1i32, 2, 3, 4, 5, 6], [0i32; 3]);
        let spec = Spec::reduce(6, DType::I32, ReduceOp::Sum, Rank(3));
        // SAFETY: both arrays outlive the tensor, which is dropped before they are looked at; the output holds three.
        let mut tensor = unsafe { tensor(memory(&input, output.as_mut_ptr()), spec, 1..4) };
        assert_eq!(tensor.spec(), spec);
        let mut vector = [0; 24];
        tensor.encode(0..6, Scale::integer(1), &mut vector);
        for block in [0..2, 2..4, 4..6] {
            tensor.decode(block.clone(), Scale::integer(1), &vector[4 * block.start..4 * block.end]);
        }
        drop(tensor);
        assert_eq!(output, [2, 3, 4]);
    }

    #[test]
    fn the_input_is_left_unless_the_output_overlaps_it() {
        let (mut data, mut other) = ([1.0f32; 6], [0.0f32; 6]);
        let spec = Spec::allreduce(6, DType::F32, ReduceOp::Sum);
        let (input, output) = (data.as_mut_ptr(), other.as_mut_ptr());
        for (to, kept, is_left) in [
            (output, 0..6, true),
            (input, 0..6, false),
            (output, 2..4, true),
            (input.wrapping_add(2), 2..4, false),
            (input, 0..0, true),
        ] {
            let at = Memory { input: input.cast_const().cast(), output: to.cast(), loss: std::ptr::null_mut() };
            // SAFETY: the output is the kept part of the input, or another array; nothing is read or written.
            let tensor = unsafe { tensor(at, spec, kept.clone()) };
            assert_eq!(tensor.leaves_input(), is_left, "{kept:?}");
        }
    }

    #[test]
    fn no_elements_need_no_memory() {
        let spec = Spec::allreduce(0, DType::F32, ReduceOp::Avg);
        // SAFETY: no elements.
        let tensor = unsafe { tensor(memory::<f32>(&[], std::ptr::null_mut()), spec, 0..0) };
        assert_eq!(tensor.spec(), spec);
        tensor.encode(0..0, Scale::integer(1), &mut []);
    }
}

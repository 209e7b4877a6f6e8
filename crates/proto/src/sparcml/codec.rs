//! The body of a packet in each of its shapes: its size, and how to write and read it.

use std::ops::Range;

use tributary_numeric as numeric;
use tributary_numeric::{Combine, DType, ReduceOp};

use super::INDEX_LEN;
use super::chunk::{Chunk, Data, is_present};
use crate::aggregation::ordered::VectorFormat;
use crate::contract::numbers::{Encoding, NarrowBlocks, Numbers};
use crate::contract::tensor::{Spec, Tensor};
use crate::contract::values::{FINGERPRINT_LEN, Values};

/// The shape of a packet's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    /// Indices, then their values.
    Sparse,
    /// A bit for each of consecutive indices, then their values.
    Dense,
    /// The values of one block of a dense tensor.
    Full,
}

/// The shape that a chunk is sent in.
pub fn shape(data: &Data) -> Shape {
    match data {
        Data::Sparse { .. } => Shape::Sparse,
        Data::Dense { .. } => Shape::Dense,
        Data::Full { .. } | Data::Brought => Shape::Full,
    }
}

/// Reads a block of a rank's contribution, in the form in which hosts send it.
pub type ReadBlock<'a> = &'a dyn Fn(Range<usize>, &mut [u8]);

/// How the values of one collective travel.
#[derive(Clone, Copy, Debug, Hash)]
pub struct Codec {
    /// The kernels that combine lanes.
    pub combine: &'static Combine,
    /// How blocks of dense tensors are encoded.
    encoding: Encoding,
    /// Bytes of a value on the wire: of finished values and contributions, and of partial sums.
    wire_values: [usize; 2],
    payload_bytes: usize,
}

impl Codec {
    /// The codec of a collective; `None` if its type and operator have no meaning.
    pub fn new(values: Values, payload_bytes: usize, spec: &Spec, is_sparse: bool) -> Option<Codec> {
        let real = numeric::native(spec.dtype, spec.op)?;
        let encoding = Encoding::new(values, Numbers::Float, spec)?;
        let combine = match values {
            _ if !is_sparse => encoding.combine,
            Values::Elements => real,
            // Each rank's value is a hash, so that sums over different sets of ranks differ.
            Values::Fingerprint => numeric::native(DType::I64, ReduceOp::Sum)?,
        };
        Some(Codec { combine, encoding, wire_values: [real.wire_size, real.partial_size], payload_bytes })
    }

    /// Bytes of a value on the wire.
    fn wire_value(&self, format: VectorFormat) -> usize {
        self.wire_values[usize::from(format == VectorFormat::Partial)]
    }

    /// Bytes of the value of one index in a packet buffer.
    fn value_len(&self, format: VectorFormat) -> usize {
        match format {
            VectorFormat::Host => self.combine.wire_size,
            VectorFormat::Partial => self.combine.partial_size,
        }
    }

    /// How many indices a full packet has.
    pub fn capacity(&self, shape: Shape, format: VectorFormat) -> usize {
        let value = self.wire_value(format);
        match shape {
            Shape::Sparse => (self.payload_bytes / (INDEX_LEN + value)).max(1),
            Shape::Dense => (self.payload_bytes * 8 / (8 * value + 1) / 8 * 8).max(8),
            Shape::Full => self.encoding.block_elements(self.payload_bytes, NarrowBlocks::Half) as usize,
        }
    }

    /// True if this many pairs take at least as many bytes as all elements of the chunk, with their bits, would (the
    /// paper's threshold).
    pub fn is_shorter_dense(&self, pairs: usize, chunk: usize) -> bool {
        let value = self.wire_value(VectorFormat::Partial);
        pairs * (INDEX_LEN + value) >= chunk * value + chunk.div_ceil(8)
    }

    /// Bytes of the lanes of a packet with this many elements.
    pub fn lanes_len(&self, shape: Shape, elements: usize) -> usize {
        match shape {
            Shape::Full => self.encoding.values_len(self.combine.lane_size, elements),
            Shape::Sparse | Shape::Dense => elements * self.combine.lane_size,
        }
    }

    /// Bytes of a body with this many indices, in a packet buffer and on the wire.
    pub fn body_len(&self, shape: Shape, format: VectorFormat, count: usize) -> (usize, usize) {
        let before = match shape {
            Shape::Sparse => count * INDEX_LEN,
            Shape::Dense => count.div_ceil(8),
            Shape::Full if format == VectorFormat::Host => {
                return (self.encoding.buffer_len(count), self.encoding.wire_len(count));
            }
            Shape::Full => return (self.encoding.partial_buffer_len(count), self.encoding.partial_wire_len(count)),
        };
        (before + count * self.value_len(format), before + count * self.wire_value(format))
    }

    /// Writes the elements at some positions of a chunk. Positions are numbers of pairs, or distances from the chunk's
    /// first index. `brought` reads a block of a chunk that is still in the tensor.
    pub fn write(
        &self,
        chunk: &Chunk,
        positions: Range<usize>,
        format: VectorFormat,
        brought: ReadBlock<'_>,
        body: &mut [u8],
    ) {
        let size = self.combine.lane_size;
        let (before, lanes) = match &chunk.data {
            Data::Sparse { indices, lanes } => {
                let slots = body.as_chunks_mut::<INDEX_LEN>().0;
                slots.iter_mut().zip(&indices[positions.clone()]).for_each(|(slot, index)| *slot = index.to_be_bytes());
                (positions.len() * INDEX_LEN, &lanes[positions.start * size..positions.end * size])
            }
            Data::Dense { present, lanes } => {
                let bits = &mut body[..positions.len().div_ceil(8)];
                bits.fill(0);
                for (at, position) in positions.clone().enumerate() {
                    bits[at / 8] |= u8::from(is_present(present, position)) << (at % 8);
                }
                (bits.len(), &lanes[positions.start * size..positions.end * size])
            }
            Data::Full { lanes } => {
                let blocks = Blocks::new(self, &chunk.range);
                (0, &lanes[blocks.lanes_before(positions.start)..blocks.lanes_before(positions.end)])
            }
            Data::Brought => {
                let start = chunk.range.start as usize;
                return brought(start + positions.start..start + positions.end, body);
            }
        };
        let vector = &mut body[before..];
        match format {
            VectorFormat::Host => (self.combine.load)(lanes, vector),
            VectorFormat::Partial => (self.combine.load_partial)(lanes, vector),
        }
    }

    /// Appends a body with this many indices to a chunk that grows in the order of its packets; false if the chunk has
    /// another shape or the body does not fit. The body's length is that of [`Codec::body_len`].
    pub fn read(&self, format: VectorFormat, count: usize, body: &[u8], range: &Range<u32>, data: &mut Data) -> bool {
        let shape = shape(data);
        let vector = match data {
            Data::Sparse { indices, .. } => {
                let (before, vector) = body.split_at(count * INDEX_LEN);
                let mut least = indices.last().map_or(range.start, |last| last + 1);
                for index in before.as_chunks().0 {
                    let index = u32::from_be_bytes(*index);
                    if index < least || index >= range.end {
                        return false;
                    }
                    indices.push(index);
                    least = index + 1;
                }
                vector
            }
            Data::Dense { present, lanes } => {
                let (bits, vector) = body.split_at(count.div_ceil(8));
                let first = lanes.len() / self.combine.lane_size;
                if first + count > range.len() {
                    return false;
                }
                present.resize(range.len().div_ceil(64), 0);
                for at in (0..count).filter(|at| bits[at / 8] >> (at % 8) & 1 == 1) {
                    present[(first + at) / 64] |= 1 << ((first + at) % 64);
                }
                vector
            }
            Data::Full { lanes } => {
                if count != Blocks::new(self, range).count_after(lanes.len()) {
                    return false;
                }
                body
            }
            Data::Brought => return false,
        };
        let (Data::Sparse { lanes, .. } | Data::Dense { lanes, .. } | Data::Full { lanes }) = data else {
            return false;
        };
        let before = lanes.len();
        lanes.resize(before + self.lanes_len(shape, count), 0);
        match format {
            VectorFormat::Host => (self.combine.store)(&mut lanes[before..], vector),
            VectorFormat::Partial => (self.combine.store_partial)(&mut lanes[before..], vector),
        }
        true
    }

    /// True if a chunk that was read has all its elements.
    pub fn is_whole(&self, chunk: &Chunk) -> bool {
        let len = chunk.range.len();
        match &chunk.data {
            Data::Sparse { .. } => true,
            Data::Dense { lanes, .. } => lanes.len() == len * self.combine.lane_size,
            Data::Full { lanes } => lanes.len() == Blocks::new(self, &chunk.range).lanes_len(),
            Data::Brought => false,
        }
    }
}

// A chunk of a dense tensor, block by block. Fragments are summed and written as they come, so that each packet brings
// about the same work, and a rank that others wait for never stands still.

/// The blocks of one chunk: each block is a fragment of a message, and has its own lanes.
#[derive(Clone, Debug)]
pub struct Blocks<'a> {
    codec: &'a Codec,
    /// The chunk's elements.
    range: Range<usize>,
    /// Elements of a full block, and bytes of its lanes.
    block: usize,
    block_lanes: usize,
}

impl<'a> Blocks<'a> {
    /// The blocks of the chunk with these elements.
    pub fn new(codec: &'a Codec, range: &Range<u32>) -> Blocks<'a> {
        let block = codec.capacity(Shape::Full, VectorFormat::Host);
        let range = range.start as usize..range.end as usize;
        Blocks { codec, range, block, block_lanes: codec.lanes_len(Shape::Full, block) }
    }

    /// Bytes of the lanes of the chunk's first elements: whole blocks, or all elements.
    pub fn lanes_before(&self, elements: usize) -> usize {
        elements / self.block * self.block_lanes + self.codec.lanes_len(Shape::Full, elements % self.block)
    }

    /// Bytes of all lanes.
    pub fn lanes_len(&self) -> usize {
        self.lanes_before(self.range.len())
    }

    /// The elements whose lanes are at these bytes of the chunk's lanes: whole blocks.
    pub fn elements(&self, lanes: &Range<usize>) -> Range<usize> {
        let before = |at: usize| (at.div_ceil(self.block_lanes) * self.block).min(self.range.len());
        self.range.start + before(lanes.start)..self.range.start + before(lanes.end)
    }

    /// How many elements the fragment has whose lanes follow this many bytes of the chunk's lanes.
    pub fn count_after(&self, lanes: usize) -> usize {
        let first = self.elements(&(lanes..lanes)).start;
        self.block.min(self.range.end - first)
    }

    /// Cuts these elements into blocks.
    fn split(&self, elements: Range<usize>) -> impl Iterator<Item = Range<usize>> + use<> {
        let (end, block) = (elements.end, self.block);
        elements.step_by(block).map(move |first| first..(first + block).min(end))
    }

    /// The lanes at these bytes, from this rank's contribution; `read` reads a block of that.
    pub fn brought(
        &self,
        lanes: &Range<usize>,
        tensor: &dyn Tensor,
        read: impl Fn(Range<usize>, &mut [u8]),
    ) -> Vec<u8> {
        let mut all = vec![0; lanes.len()];
        let (mut rest, mut vector) = (all.as_mut_slice(), Vec::new());
        for block in self.split(self.elements(lanes)) {
            vector.resize(tensor.native_len(block.len()), 0);
            let (lane, after) = rest.split_at_mut(self.codec.lanes_len(Shape::Full, block.len()));
            read(block, &mut vector);
            (self.codec.combine.store)(lane, &vector);
            rest = after;
        }
        all
    }

    /// Writes the result whose lanes begin at byte `start` of the chunk's lanes.
    pub fn write(&self, start: usize, lanes: &[u8], tensor: &mut dyn Tensor) {
        let (mut rest, mut vector) = (lanes, Vec::new());
        for block in self.split(self.elements(&(start..start + lanes.len()))) {
            vector.resize(tensor.native_len(block.len()), 0);
            let (lane, after) = rest.split_at(self.codec.lanes_len(Shape::Full, block.len()));
            (self.codec.combine.load)(lane, &mut vector);
            tensor.write(block, &vector);
            rest = after;
        }
    }

    /// Sums the same lanes of several ranks along a balanced tree, into the first rank's.
    pub fn sum(&self, ranks: &mut [&mut [u8]]) {
        let mut distance = 1;
        while distance < ranks.len() {
            for first in (0..ranks.len() - distance).step_by(2 * distance) {
                let (before, after) = ranks.split_at_mut(first + distance);
                self.merge(before[first], after[0]);
            }
            distance *= 2;
        }
    }

    /// Adds lanes: fingerprints are merged one by one, elements all at once.
    fn merge(&self, sum: &mut [u8], more: &[u8]) {
        let combine = self.codec.combine;
        let step = if combine.lane_size == FINGERPRINT_LEN { FINGERPRINT_LEN } else { sum.len().max(1) };
        sum.chunks_mut(step).zip(more.chunks(step)).for_each(|(sum, more)| (combine.merge)(sum, more));
    }
}

//! The message that a rank sends another rank in one step: chunks, cut into fragments of a packet each. Fragments are
//! written from the chunks whenever they are sent, also when they are sent again.

use std::ops::Range;
use std::sync::Arc;

use super::chunk::{Chunk, Data};
use super::codec::{Codec, ReadBlock, shape};
use super::wire;
use crate::aggregation::vector_format::VectorFormat;
use crate::contract::tensor::Spec;
use crate::contract::time::Time;

/// A message.
#[derive(Clone, Debug, Hash)]
pub struct Message {
    /// The collective.
    pub op: u64,
    /// No rank needs the message after this time.
    pub until: Option<Time>,
    spec: Spec,
    label: u8,
    format: VectorFormat,
    codec: Codec,
    /// Chunks by number, and the first fragment of each.
    chunks: Vec<(u16, Arc<Chunk>, u32)>,
    fragments: u32,
}

/// A packet of a message.
#[derive(Clone, Debug, Hash)]
pub struct Fragment {
    /// The message that it belongs to.
    pub message: Arc<Message>,
    /// The number of the fragment.
    pub number: u32,
}

/// What messages of one collective have in common.
#[derive(Clone, Copy, Debug)]
pub struct Envelope {
    /// The collective.
    pub op: u64,
    /// The collective's deadline.
    pub until: Option<Time>,
    /// The collective's kind.
    pub spec: Spec,
    /// How its values travel.
    pub codec: Codec,
}

/// How many positions of a chunk are cut into fragments.
fn positions(chunk: &Chunk) -> usize {
    match &chunk.data {
        Data::Sparse { indices, .. } => indices.len(),
        Data::Dense { .. } | Data::Full { .. } | Data::Brought => chunk.range.len(),
    }
}

impl Message {
    /// A message of at least one chunk.
    pub fn new(envelope: Envelope, label: u8, format: VectorFormat, chunks: Vec<(u16, Arc<Chunk>)>) -> Message {
        let Envelope { op, until, spec, codec } = envelope;
        let mut fragments = 0;
        let chunks = chunks.into_iter().map(|(number, chunk)| {
            let first = fragments;
            let capacity = codec.capacity(shape(&chunk.data), format);
            // A chunk without elements has a fragment too, because its receiver waits for one.
            fragments += positions(&chunk).div_ceil(capacity).max(1) as u32;
            (number, chunk, first)
        });
        let chunks = chunks.collect();
        Message { op, until, spec, label, format, codec, chunks, fragments }
    }

    /// True if some elements are still in the tensor.
    pub fn is_brought(&self) -> bool {
        self.chunks.iter().any(|(_, chunk, _)| chunk.data == Data::Brought)
    }

    /// How many fragments there are.
    pub fn fragments(&self) -> u32 {
        self.fragments
    }

    fn chunk(&self, fragment: u32) -> (u16, &Chunk, Range<usize>) {
        let after = self.chunks.partition_point(|(_, _, first)| *first <= fragment);
        let (number, chunk, first) = &self.chunks[after - 1];
        let capacity = self.codec.capacity(shape(&chunk.data), self.format);
        let start = (fragment - first) as usize * capacity;
        (*number, chunk, start..(start + capacity).min(positions(chunk)))
    }

    /// Writes a fragment behind the common header, without its position in the link; returns the header, and the
    /// packet's length in memory and on the wire. `brought` reads elements that are still in the tensor.
    pub fn write(&self, fragment: u32, brought: ReadBlock<'_>, buf: &mut [u8]) -> (wire::Data, usize, usize) {
        let (number, chunk, positions) = self.chunk(fragment);
        let (shape, count) = (shape(&chunk.data), positions.len());
        let (len, wire_len) = self.codec.body_len(shape, self.format, count);
        self.codec.write(chunk, positions, self.format, brought, &mut buf[wire::DATA_LEN..][..len]);
        let header = wire::Data {
            spec: self.spec,
            seq: 0,
            op: self.op as u16,
            ack_now: false,
            attempt: 1,
            label: self.label,
            shape,
            format: self.format,
            count: count as u16,
            chunk: number,
            fragment,
            fragments: self.fragments,
        };
        (header, wire::DATA_LEN + len, wire::DATA_LEN + wire_len)
    }
}

//! The message that a rank sends another rank in one step: chunks, cut into fragments of a packet each. Fragments are
//! written from the chunks whenever they are sent, also when they are sent again.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::chunk::{self, Chunk};
use super::codec::{Blocks, Codec, ReadBlock, Shape, shape};
use super::plan::Plan;
use super::wire::{self, Data};
use crate::aggregation::ordered::VectorFormat;
use crate::contract::drop_reason::DropReason;
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
        chunk::Data::Sparse { indices, .. } => indices.len(),
        chunk::Data::Dense { .. } | chunk::Data::Full { .. } | chunk::Data::Brought => chunk.range.len(),
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
        self.chunks.iter().any(|(_, chunk, _)| chunk.data == chunk::Data::Brought)
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

// A message as it comes: its fragments are read in order into their chunks, each as soon as no earlier fragment is
// missing.

/// The fragments of a message that have come.
#[derive(Clone, Debug, Default, Hash)]
pub struct Incoming {
    /// How many fragments there are; 0 before the first has come.
    fragments: u32,
    /// The first fragment that has not been read.
    next: u32,
    /// Fragments that came before that one.
    ahead: BTreeMap<u32, (Data, Box<[u8]>)>,
    /// The chunks that were read, by number.
    chunks: Vec<(u16, Chunk)>,
    /// Some fragment was invalid: the message never completes.
    is_senseless: bool,
    /// The chunk whose news was told last, and how many bytes of its lanes were told; `None` before the first telling.
    reported: (usize, Option<usize>),
}

impl Incoming {
    /// Takes in a fragment whose body has this many bytes on the wire.
    pub fn take(
        &mut self,
        codec: &Codec,
        plan: &Plan,
        data: &Data,
        body: &[u8],
        wire_len: usize,
    ) -> Result<(), DropReason> {
        let count = usize::from(data.count);
        if count > codec.capacity(data.shape, data.format) || self.fragments != 0 && data.fragments != self.fragments {
            return Err(DropReason::BadField);
        }
        if codec.body_len(data.shape, data.format, count) != (body.len(), wire_len) {
            return Err(DropReason::BadLength);
        }
        self.fragments = data.fragments;
        if data.fragment > self.next {
            return match self.ahead.insert(data.fragment, (*data, body.into())) {
                Some(_) => Err(DropReason::Duplicate),
                None => Ok(()),
            };
        }
        if data.fragment < self.next {
            return Err(DropReason::Duplicate);
        }
        self.read(codec, plan, data, body);
        while let Some((data, body)) = self.ahead.remove(&self.next) {
            self.read(codec, plan, &data, &body);
        }
        Ok(())
    }

    /// Appends a fragment to its chunk.
    fn read(&mut self, codec: &Codec, plan: &Plan, data: &Data, body: &[u8]) {
        self.next += 1;
        if self.is_senseless {
            return;
        }
        let is_known = self.chunks.last().is_some_and(|(number, _)| *number == data.chunk);
        if !is_known && data.chunk < plan.chunks && self.chunks.last().is_none_or(|(_, chunk)| codec.is_whole(chunk)) {
            self.chunks.push((data.chunk, empty(codec, plan, data)));
        }
        let last = self.chunks.last_mut().filter(|(number, _)| *number == data.chunk);
        let is_read = last.is_some_and(|(_, chunk)| {
            let fits = super::codec::shape(&chunk.data) == data.shape;
            fits && codec.read(data.format, data.count.into(), body, &chunk.range, &mut chunk.data)
        });
        let is_over = self.next == self.fragments;
        self.is_senseless = !is_read || is_over && self.chunks.last().is_some_and(|(_, chunk)| !codec.is_whole(chunk));
    }

    /// True if no fragment is missing.
    pub fn is_complete(&self) -> bool {
        self.fragments != 0 && self.next == self.fragments && !self.is_senseless
    }

    /// The chunks of a complete message.
    pub fn into_chunks(self) -> Vec<(u16, Chunk)> {
        self.chunks
    }

    /// How many bytes of lanes of a dense tensor's chunk have come.
    pub fn lanes_of(&self, number: u16) -> usize {
        match self.chunks.iter().rev().find(|(of, _)| *of == number).map(|(_, chunk)| &chunk.data) {
            Some(chunk::Data::Full { lanes }) => lanes.len(),
            _ => 0,
        }
    }

    /// The lanes of a dense tensor's chunk that have come: whole blocks.
    pub fn lanes_mut(&mut self, number: u16) -> Option<&mut [u8]> {
        let (_, chunk) = self.chunks.iter_mut().find(|(of, _)| *of == number)?;
        if let chunk::Data::Full { lanes } = &mut chunk.data { Some(lanes) } else { None }
    }

    /// The lanes of a dense tensor that have come since the last call, with their chunk and their beginning in it. Each
    /// chunk is told at least once, even if it has no lanes.
    pub fn news(&mut self) -> Option<(u16, &Chunk, usize, &[u8])> {
        loop {
            let (at, reported) = self.reported;
            let (number, chunk) = self.chunks.get(at)?;
            let chunk::Data::Full { lanes } = &chunk.data else { return None };
            if reported.is_none_or(|reported| reported < lanes.len()) {
                self.reported = (at, Some(lanes.len()));
                let before = reported.unwrap_or(0);
                return Some((*number, chunk, before, &lanes[before..]));
            }
            if at + 1 == self.chunks.len() {
                return None;
            }
            self.reported = (at + 1, None);
        }
    }
}

/// An empty chunk, for the fragment that begins it.
fn empty(codec: &Codec, plan: &Plan, data: &Data) -> Chunk {
    let range = plan.range(data.chunk, data.spec.elements);
    let lanes = Vec::new();
    let data = match data.shape {
        Shape::Sparse => chunk::Data::Sparse { indices: Vec::new(), lanes },
        Shape::Dense => chunk::Data::Dense { present: Vec::new(), lanes },
        // Allocated at full size, so that it does not move while it grows.
        Shape::Full => chunk::Data::Full { lanes: Vec::with_capacity(Blocks::new(codec, &range).lanes_len()) },
    };
    Chunk { range, data }
}

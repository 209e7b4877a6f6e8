//! The message that a rank sends another rank in one step: parts, cut into pieces of a packet each. Pieces are written
//! from the parts whenever they are sent, also when they are sent again.

use std::ops::Range;
use std::sync::Arc;

use super::codec::{Codec, ReadBlock, shape};
use super::part::{Data, Part};
use super::wire;
use crate::aggregation::vector_format::Form;
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
    form: Form,
    codec: Codec,
    /// Parts by number, and the first piece of each.
    parts: Vec<(u16, Arc<Part>, u32)>,
    pieces: u32,
}

/// A packet of a message.
#[derive(Clone, Debug, Hash)]
pub struct Piece {
    /// The message that it belongs to.
    pub message: Arc<Message>,
    /// The number of the piece.
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

/// How many places of a part are cut into pieces.
fn places(part: &Part) -> usize {
    match &part.data {
        Data::Sparse { indices, .. } => indices.len(),
        Data::Dense { .. } | Data::Full { .. } | Data::Brought => part.range.len(),
    }
}

impl Message {
    /// A message of at least one part.
    pub fn new(envelope: Envelope, label: u8, form: Form, held: Vec<(u16, Arc<Part>)>) -> Message {
        let Envelope { op, until, spec, codec } = envelope;
        let mut pieces = 0;
        let parts = held.into_iter().map(|(number, part)| {
            let first = pieces;
            let capacity = codec.capacity(shape(&part.data), form);
            // A part without elements has a piece too, because its receiver waits for one.
            pieces += places(&part).div_ceil(capacity).max(1) as u32;
            (number, part, first)
        });
        let parts = parts.collect();
        Message { op, until, spec, label, form, codec, parts, pieces }
    }

    /// True if some elements are still in the tensor.
    pub fn is_brought(&self) -> bool {
        self.parts.iter().any(|(_, part, _)| part.data == Data::Brought)
    }

    /// How many pieces there are.
    pub fn pieces(&self) -> u32 {
        self.pieces
    }

    fn part(&self, piece: u32) -> (u16, &Part, Range<usize>) {
        let after = self.parts.partition_point(|(_, _, first)| *first <= piece);
        let (number, part, first) = &self.parts[after - 1];
        let capacity = self.codec.capacity(shape(&part.data), self.form);
        let start = (piece - first) as usize * capacity;
        (*number, part, start..(start + capacity).min(places(part)))
    }

    /// Writes a piece behind the common header, without its place in the link; returns the header, and the packet's
    /// length in memory and on the wire. `brought` reads elements that are still in the tensor.
    pub fn write(&self, piece: u32, brought: ReadBlock<'_>, buf: &mut [u8]) -> (wire::Data, usize, usize) {
        let (number, part, places) = self.part(piece);
        let (shape, count) = (shape(&part.data), places.len());
        let (len, wire_len) = self.codec.body_len(shape, self.form, count);
        self.codec.write(part, places, self.form, brought, &mut buf[wire::DATA_LEN..][..len]);
        let header = wire::Data {
            spec: self.spec,
            seq: 0,
            op: self.op as u16,
            ack_now: false,
            attempt: 1,
            label: self.label,
            shape,
            form: self.form,
            count: count as u16,
            part: number,
            piece,
            pieces: self.pieces,
        };
        (header, wire::DATA_LEN + len, wire::DATA_LEN + wire_len)
    }
}

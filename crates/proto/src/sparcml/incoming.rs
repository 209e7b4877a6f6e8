//! A message as it comes: its pieces are read in order into their parts, each as soon as no earlier piece is missing.

use std::collections::BTreeMap;

use super::blocks::Blocks;
use super::codec::{Codec, Shape};
use super::part::{self, Part};
use super::plan::Plan;
use super::wire::Data;
use crate::contract::drop_reason::DropReason;

/// The pieces of a message that have come.
#[derive(Clone, Debug, Default, Hash)]
pub struct Incoming {
    /// How many pieces there are; 0 before the first has come.
    pieces: u32,
    /// The first piece that has not been read.
    next: u32,
    /// Pieces that came before that one.
    ahead: BTreeMap<u32, (Data, Box<[u8]>)>,
    /// The parts that were read, by number.
    parts: Vec<(u16, Part)>,
    /// Some piece was invalid: the message never completes.
    is_senseless: bool,
    /// The part whose news was told last, and how many bytes of its lanes were told; `None` before the first telling.
    told: (usize, Option<usize>),
}

impl Incoming {
    /// Takes in a piece whose body has so many bytes on the wire.
    pub fn take(
        &mut self,
        codec: &Codec,
        plan: &Plan,
        data: &Data,
        body: &[u8],
        wire_len: usize,
    ) -> Result<(), DropReason> {
        let count = usize::from(data.count);
        if count > codec.capacity(data.shape, data.form) || self.pieces != 0 && data.pieces != self.pieces {
            return Err(DropReason::BadField);
        }
        if codec.body_len(data.shape, data.form, count) != (body.len(), wire_len) {
            return Err(DropReason::BadLength);
        }
        self.pieces = data.pieces;
        if data.piece > self.next {
            return match self.ahead.insert(data.piece, (*data, body.into())) {
                Some(_) => Err(DropReason::Duplicate),
                None => Ok(()),
            };
        }
        if data.piece < self.next {
            return Err(DropReason::Duplicate);
        }
        self.read(codec, plan, data, body);
        while let Some((data, body)) = self.ahead.remove(&self.next) {
            self.read(codec, plan, &data, &body);
        }
        Ok(())
    }

    /// Appends a piece to its part.
    fn read(&mut self, codec: &Codec, plan: &Plan, data: &Data, body: &[u8]) {
        self.next += 1;
        if self.is_senseless {
            return;
        }
        let is_known = self.parts.last().is_some_and(|(number, _)| *number == data.part);
        if !is_known && data.part < plan.parts && self.parts.last().is_none_or(|(_, part)| codec.is_whole(part)) {
            self.parts.push((data.part, empty(codec, plan, data)));
        }
        let last = self.parts.last_mut().filter(|(number, _)| *number == data.part);
        let is_read = last.is_some_and(|(_, part)| {
            let fits = super::codec::shape(&part.data) == data.shape;
            fits && codec.read(data.form, data.count.into(), body, &part.range, &mut part.data)
        });
        let is_over = self.next == self.pieces;
        self.is_senseless = !is_read || is_over && self.parts.last().is_some_and(|(_, part)| !codec.is_whole(part));
    }

    /// True if no piece is missing.
    pub fn is_complete(&self) -> bool {
        self.pieces != 0 && self.next == self.pieces && !self.is_senseless
    }

    /// The parts of a complete message.
    pub fn into_parts(self) -> Vec<(u16, Part)> {
        self.parts
    }

    /// How many bytes of lanes of a dense tensor's part have come.
    pub fn lanes_of(&self, number: u16) -> usize {
        match self.parts.iter().rev().find(|(of, _)| *of == number).map(|(_, part)| &part.data) {
            Some(part::Data::Full { lanes }) => lanes.len(),
            _ => 0,
        }
    }

    /// The lanes of a dense tensor's part that have come: whole blocks.
    pub fn lanes_mut(&mut self, number: u16) -> Option<&mut [u8]> {
        let (_, part) = self.parts.iter_mut().find(|(of, _)| *of == number)?;
        if let part::Data::Full { lanes } = &mut part.data { Some(lanes) } else { None }
    }

    /// The lanes of a dense tensor that have come since the last call, with their part and their beginning in it. Each
    /// part is told at least once, even if it has no lanes.
    pub fn news(&mut self) -> Option<(u16, &Part, usize, &[u8])> {
        loop {
            let (at, told) = self.told;
            let (number, part) = self.parts.get(at)?;
            let part::Data::Full { lanes } = &part.data else { return None };
            if told.is_none_or(|told| told < lanes.len()) {
                self.told = (at, Some(lanes.len()));
                let before = told.unwrap_or(0);
                return Some((*number, part, before, &lanes[before..]));
            }
            if at + 1 == self.parts.len() {
                return None;
            }
            self.told = (at + 1, None);
        }
    }
}

/// An empty part, for the piece that begins it.
fn empty(codec: &Codec, plan: &Plan, data: &Data) -> Part {
    let range = plan.range(data.part, data.spec.elements);
    let lanes = Vec::new();
    let data = match data.shape {
        Shape::Sparse => part::Data::Sparse { indices: Vec::new(), lanes },
        Shape::Dense => part::Data::Dense { present: Vec::new(), lanes },
        // Allocated at full size, so that it does not move while it grows.
        Shape::Full => part::Data::Full { lanes: Vec::with_capacity(Blocks::new(codec, &range).lanes_len()) },
    };
    Part { range, data }
}

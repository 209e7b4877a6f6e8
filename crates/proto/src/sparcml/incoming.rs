//! A message as it comes: its pieces, until all are there and become parts.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::codec::{Codec, Shape};
use super::part::{self, Part};
use super::plan::Plan;
use super::wire::Data;
use crate::contract::drop_reason::DropReason;

/// The pieces of a message that have come.
#[derive(Clone, Debug, Default, Hash)]
pub struct Incoming {
    pieces: u32,
    bodies: BTreeMap<u32, (Data, Box<[u8]>)>,
}

impl Incoming {
    /// Takes in a piece, whose body is so long on the wire.
    pub fn take(&mut self, codec: &Codec, data: &Data, body: &[u8], wire_len: usize) -> Result<(), DropReason> {
        let count = usize::from(data.count);
        if count > codec.capacity(data.shape, data.form) {
            return Err(DropReason::BadField);
        }
        if codec.body_len(data.shape, data.form, count) != (body.len(), wire_len) {
            return Err(DropReason::BadLength);
        }
        if !self.bodies.is_empty() && data.pieces != self.pieces {
            return Err(DropReason::BadField);
        }
        self.pieces = data.pieces;
        match self.bodies.insert(data.piece, (*data, body.into())) {
            Some(_) => Err(DropReason::Duplicate),
            None => Ok(()),
        }
    }

    /// True if no piece is missing.
    pub fn is_complete(&self) -> bool {
        !self.bodies.is_empty() && self.bodies.len() == self.pieces as usize
    }

    /// The parts of a complete message; `None` if it makes no sense.
    pub fn parts(self, codec: &Codec, plan: &Plan) -> Option<Vec<(u16, Arc<Part>)>> {
        let mut parts: Vec<(u16, Part)> = Vec::new();
        for (data, body) in self.bodies.into_values() {
            if parts.last().is_none_or(|(number, _)| *number != data.part) {
                if data.part >= plan.parts {
                    return None;
                }
                let lanes = Vec::new();
                let empty = match data.shape {
                    Shape::Sparse => part::Data::Sparse { indices: Vec::new(), lanes },
                    Shape::Dense => part::Data::Dense { present: Vec::new(), lanes },
                    Shape::Full => part::Data::Full { lanes },
                };
                parts.push((data.part, Part { range: plan.range(data.part, data.spec.elements), data: empty }));
            }
            let (_, part) = parts.last_mut()?;
            let fits = super::codec::shape(&part.data) == data.shape;
            if !fits || !codec.read(data.form, data.count.into(), &body, &part.range, &mut part.data) {
                return None;
            }
        }
        let whole = parts.iter().all(|(_, part)| codec.is_whole(&part.data, &part.range));
        whole.then(|| parts.into_iter().map(|(number, part)| (number, Arc::new(part))).collect())
    }
}

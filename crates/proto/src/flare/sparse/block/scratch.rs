//! A packet's pairs all at once: their offsets, places and lanes, in memory that all blocks of a machine share.
//!
//! Kernels are called once a packet and never for one element, and loops over pairs have no branches: values become
//! lanes; the lanes of the pairs' places are gathered, combined with them, and scattered again.

use super::Sizes;
use crate::aggregation::vector_format::Form;
use crate::flare::sparse::layout::{Layout, Pairs};
use crate::heap::heap_bytes;

/// Room for the pairs of one packet.
pub struct Scratch {
    /// The pairs' offsets, or their indices.
    pub offsets: Vec<u32>,
    /// The places of the pairs' elements in the table.
    pub places: Vec<u32>,
    /// The pairs' lanes.
    pub lanes: Vec<u8>,
    /// The lanes at the pairs' places.
    pub held: Vec<u8>,
}

impl Scratch {
    /// Room for any packet of a job.
    pub fn new(sizes: &Sizes) -> Scratch {
        let pairs = || Vec::with_capacity(sizes.pairs);
        let lanes = || Vec::with_capacity(sizes.pair_bytes);
        Scratch { offsets: pairs(), places: pairs(), lanes: lanes(), held: lanes() }
    }

    /// The bytes of such a room.
    pub fn bytes(sizes: &Sizes) -> usize {
        2 * 4 * sizes.pairs + 2 * sizes.pair_bytes
    }

    /// Reads a packet's offsets, and its values as lanes.
    pub fn read(&mut self, layout: &Layout, pairs: &Pairs<'_>, form: Form) {
        self.offsets.clear();
        pairs.append_offsets(0, &mut self.offsets);
        self.lanes.resize(pairs.len() * layout.combine.lane_size, 0);
        match form {
            Form::Host => (layout.combine.store)(&mut self.lanes, pairs.values()),
            Form::Partial => (layout.combine.store_partial)(&mut self.lanes, pairs.values()),
        }
    }

    /// Writes a packet's pairs.
    pub fn write(&self, layout: &Layout, form: Form, body: &mut [u8]) {
        let pairs = self.offsets.len();
        layout.put_offsets(body, &self.offsets, 0);
        let values = layout.values(body, pairs, form);
        match form {
            Form::Host => (layout.combine.load)(&self.lanes, values),
            Form::Partial => (layout.combine.load_partial)(&self.lanes, values),
        }
    }

    /// Bytes on the heap.
    pub fn memory_bytes(&self) -> usize {
        heap_bytes(&self.offsets) + heap_bytes(&self.places) + heap_bytes(&self.lanes) + heap_bytes(&self.held)
    }
}

/// Appends the lanes at some places.
pub fn gather<const SIZE: usize>(table: &[u8], places: impl ExactSizeIterator<Item = usize>, to: &mut Vec<u8>) {
    let (table, before) = (table.as_chunks::<SIZE>().0, to.len());
    to.resize(before + places.len() * SIZE, 0);
    to[before..].as_chunks_mut::<SIZE>().0.iter_mut().zip(places).for_each(|(lane, place)| *lane = table[place]);
}

/// Writes a lane to each place: the combined lane where an element is; elsewhere the lane that came, which makes an
/// element. Returns how many elements are new.
pub fn scatter<const SIZE: usize>(
    (table, present): (&mut [u8], &mut [u64]),
    places: &[u32],
    combined: &[u8],
    come: &[u8],
) -> u32 {
    let table = table.as_chunks_mut::<SIZE>().0;
    let lanes = combined.as_chunks::<SIZE>().0.iter().zip(come.as_chunks::<SIZE>().0);
    let mut fresh = 0;
    for (&place, (combined, come)) in places.iter().zip(lanes) {
        let (word, bit) = (&mut present[place as usize / 64], place % 64);
        let is_there = *word >> bit & 1;
        *word |= 1 << bit;
        table[place as usize] = if is_there == 1 { *combined } else { *come };
        fresh += 1 - is_there as u32;
    }
    fresh
}

/// Calls a function whose constant is the number of bytes of a lane.
macro_rules! with_lane_size {
    ($size:expr, $function:ident($($argument:expr),*)) => {
        match $size {
            1 => $function::<1>($($argument),*),
            2 => $function::<2>($($argument),*),
            4 => $function::<4>($($argument),*),
            8 => $function::<8>($($argument),*),
            other => unreachable!("a lane of a sparse tensor has 1, 2, 4 or 8 bytes, not {other}"),
        }
    };
}
pub(super) use with_lane_size;

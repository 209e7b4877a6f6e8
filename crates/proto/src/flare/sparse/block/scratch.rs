//! A packet's pairs all at once: their offsets, positions and lanes, in memory that all blocks of a machine share.
//!
//! Kernels are called once a packet and never for one element, and loops over pairs have no branches: values become
//! lanes; the lanes of the pairs' positions are gathered, combined with them, and scattered again.

use super::Sizes;
use crate::aggregation::ordered::VectorFormat;
use crate::flare::sparse::layout::{Layout, Pairs};
use crate::heap::heap_bytes;

/// Room for the pairs of one packet.
pub struct Scratch {
    /// The pairs' offsets, or their indices.
    pub offsets: Vec<u32>,
    /// The positions of the pairs' elements in the table.
    pub positions: Vec<u32>,
    /// The pairs' lanes.
    pub lanes: Vec<u8>,
    /// The lanes at the pairs' positions.
    pub current: Vec<u8>,
}

impl Scratch {
    /// Room for any packet of a job.
    pub fn new(sizes: &Sizes) -> Scratch {
        let pairs = || Vec::with_capacity(sizes.pairs);
        let lanes = || Vec::with_capacity(sizes.pair_bytes);
        Scratch { offsets: pairs(), positions: pairs(), lanes: lanes(), current: lanes() }
    }

    /// The bytes of such a room.
    pub fn bytes(sizes: &Sizes) -> usize {
        2 * 4 * sizes.pairs + 2 * sizes.pair_bytes
    }

    /// Reads a packet's offsets, and its values as lanes.
    pub fn read(&mut self, layout: &Layout, pairs: &Pairs<'_>, format: VectorFormat) {
        self.offsets.clear();
        pairs.append_offsets(0, &mut self.offsets);
        self.lanes.resize(pairs.len() * layout.combine.lane_size, 0);
        match format {
            VectorFormat::Host => (layout.combine.store)(&mut self.lanes, pairs.values()),
            VectorFormat::Partial => (layout.combine.store_partial)(&mut self.lanes, pairs.values()),
        }
    }

    /// Writes a packet's pairs.
    pub fn write(&self, layout: &Layout, format: VectorFormat, body: &mut [u8]) {
        let pairs = self.offsets.len();
        layout.put_offsets(body, &self.offsets, 0);
        let values = layout.values(body, pairs, format);
        match format {
            VectorFormat::Host => (layout.combine.load)(&self.lanes, values),
            VectorFormat::Partial => (layout.combine.load_partial)(&self.lanes, values),
        }
    }

    /// Bytes on the heap.
    pub fn memory_bytes(&self) -> usize {
        heap_bytes(&self.offsets) + heap_bytes(&self.positions) + heap_bytes(&self.lanes) + heap_bytes(&self.current)
    }
}

/// Appends the lanes at some positions.
pub fn gather<const SIZE: usize>(table: &[u8], positions: impl ExactSizeIterator<Item = usize>, to: &mut Vec<u8>) {
    let (table, before) = (table.as_chunks::<SIZE>().0, to.len());
    to.resize(before + positions.len() * SIZE, 0);
    to[before..]
        .as_chunks_mut::<SIZE>()
        .0
        .iter_mut()
        .zip(positions)
        .for_each(|(lane, position)| *lane = table[position]);
}

/// Writes a lane to each position: the combined lane where an element is; elsewhere the lane that came, which makes an
/// element. Returns how many elements are new.
pub fn scatter<const SIZE: usize>(
    (table, present): (&mut [u8], &mut [u64]),
    positions: &[u32],
    combined: &[u8],
    come: &[u8],
) -> u32 {
    let table = table.as_chunks_mut::<SIZE>().0;
    let lanes = combined.as_chunks::<SIZE>().0.iter().zip(come.as_chunks::<SIZE>().0);
    let mut fresh = 0;
    for (&position, (combined, come)) in positions.iter().zip(lanes) {
        let (word, bit) = (&mut present[position as usize / 64], position % 64);
        let is_there = *word >> bit & 1;
        *word |= 1 << bit;
        table[position as usize] = if is_there == 1 { *combined } else { *come };
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

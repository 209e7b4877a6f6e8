//! The vector of a packet: 32-bit fixed point, or 16-bit floats, which the machine that sums them converts to fixed
//! point (SwitchML §4.6).

use tributary_numeric::{Combine, Fixed16, ReduceOp, Scale};

use super::wire::{HEADER_LEN, Header};
use crate::contract::drop_reason::DropReason;
use crate::contract::values::Values;

/// Bytes of one element in an accumulator, and of one element in fixed point on the wire.
const LANE: usize = size_of::<u32>();

/// How the elements of one vector lie in its packet.
#[derive(Clone, Copy, Hash)]
pub struct Codec {
    values: Values,
    combine: &'static Combine,
    /// Set for 16-bit floats.
    narrow: Option<(&'static Fixed16, Scale)>,
}

impl Codec {
    /// The form of the vector behind this header.
    #[inline]
    pub fn of(values: Values, header: &Header) -> Codec {
        let scale = || Some(Scale::new(header.scale?, header.hosts));
        let narrow = values.fixed_16(header.spec.dtype).and_then(|kernels| Some((kernels, scale()?)));
        Codec { values, combine: values.fixed(), narrow }
    }

    /// Bytes of this many elements on the wire.
    #[inline]
    pub fn wire_len(&self, elements: usize) -> usize {
        elements * if self.narrow.is_some() { size_of::<u16>() } else { LANE }
    }

    /// Bytes of this many elements in a packet buffer.
    #[inline]
    pub fn buffer_len(&self, elements: usize) -> usize {
        self.values.buffer_len(if self.narrow.is_some() { size_of::<u16>() } else { LANE }, elements)
    }

    /// The number of elements in a packet that has `len` bytes in its buffer and `wire_len` on the wire; an error if no
    /// vector has these lengths.
    #[inline]
    pub fn elements(&self, len: usize, wire_len: usize) -> Result<usize, DropReason> {
        let bytes = wire_len.checked_sub(HEADER_LEN).ok_or(DropReason::BadLength)?;
        let elements = bytes / self.wire_len(1);
        let fits = bytes == self.wire_len(elements) && len == HEADER_LEN + self.buffer_len(elements);
        if fits { Ok(elements) } else { Err(DropReason::BadLength) }
    }

    /// Bytes of accumulator for a vector that has this many bytes in its buffer.
    #[inline]
    pub fn lane_bytes(&self, buffer_len: usize) -> usize {
        match (self.values, self.narrow) {
            (Values::Elements, Some(_)) => buffer_len / size_of::<u16>() * LANE,
            _ => buffer_len,
        }
    }

    /// `lanes <- vector`.
    #[inline]
    pub fn store(&self, lanes: &mut [u8], vector: &[u8]) {
        match self.narrow {
            Some((kernels, scale)) => (kernels.store)(lanes, vector, scale),
            None => (self.combine.store)(lanes, vector),
        }
    }

    /// `lanes <- lanes + vector`.
    #[inline]
    pub fn add(&self, lanes: &mut [u8], vector: &[u8]) {
        match self.narrow {
            Some((kernels, scale)) => (kernels.add)(lanes, vector, scale),
            None => (self.combine.add)(lanes, vector),
        }
    }

    /// `vector <- lanes`, which hold the contributions of all ranks. For 16-bit floats this rounds, and divides for an
    /// average; with fixed point the hosts do both.
    pub fn load(&self, lanes: &[u8], vector: &mut [u8], op: ReduceOp) {
        match self.narrow {
            Some((kernels, scale)) => (kernels.load)(lanes, vector, scale, op),
            None => (self.combine.load)(lanes, vector),
        }
    }
}

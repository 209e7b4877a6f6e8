//! The form of vectors in packets and in accumulators: 32-bit fixed point, integers of any size, or 16-bit floats,
//! which the summing switch or server converts to fixed point (SwitchML section 4.6).

use tributary_numeric::{BlockExponent, Scale};

use crate::contract::drop_reason::DropReason;
use crate::contract::numbers::{Encoding, Numbers};
use crate::contract::tensor::Spec;
use crate::contract::values::{FINGERPRINT_LEN, Values};

/// The form of one block's vectors in packets, and how they are added.
#[derive(Clone, Copy, Hash)]
pub struct Codec {
    encoding: Encoding,
    values: Values,
    spec: Spec,
    scale: Scale,
}

impl Codec {
    /// The form of a block of a collective; `scale` is the vectors' scale, if they have one.
    #[inline]
    pub fn new(values: Values, spec: &Spec, scale: BlockExponent, world_size: u16) -> Result<Codec, DropReason> {
        let encoding = Encoding::new(values, Numbers::Fixed, spec).ok_or(DropReason::BadField)?;
        Ok(Codec { encoding, values, spec: *spec, scale: Scale::new(scale, world_size) })
    }

    /// Bytes in a packet buffer of a rank's vector, or of a result.
    pub fn buffer_len(&self, elements: usize) -> usize {
        self.encoding.buffer_len(elements)
    }

    /// Bytes of such a vector on the wire.
    pub fn wire_len(&self, elements: usize) -> usize {
        self.encoding.wire_len(elements)
    }

    /// Bytes in a packet buffer of a switch's sum.
    pub fn partial_buffer_len(&self, elements: usize) -> usize {
        self.encoding.partial_buffer_len(elements)
    }

    /// Bytes of such a sum on the wire.
    pub fn partial_wire_len(&self, elements: usize) -> usize {
        self.encoding.partial_wire_len(elements)
    }

    /// How many elements a rank's vector has that has this many bytes in its buffer and on the wire; an error if no
    /// vector has.
    #[inline]
    pub fn elements(&self, len: usize, wire_len: usize) -> Result<usize, DropReason> {
        let elements = count(wire_len, self.encoding.wire_len(1));
        let fits = wire_len == self.encoding.wire_len(elements) && len == self.encoding.buffer_len(elements);
        if fits { Ok(elements) } else { Err(DropReason::BadLength) }
    }

    /// The same for a switch's sum.
    #[inline]
    pub fn partial_elements(&self, len: usize, wire_len: usize) -> Result<usize, DropReason> {
        let elements = count(wire_len, self.encoding.partial_wire_len(1));
        let fits =
            wire_len == self.encoding.partial_wire_len(elements) && len == self.encoding.partial_buffer_len(elements);
        if fits { Ok(elements) } else { Err(DropReason::BadLength) }
    }

    /// Bytes of the accumulator of this many elements.
    #[inline]
    pub fn lane_bytes(&self, elements: usize) -> usize {
        match self.values {
            Values::Fingerprint if elements == 0 => 0,
            Values::Fingerprint => FINGERPRINT_LEN,
            Values::Elements => self.encoding.combine.lane_size * elements,
        }
    }

    /// Adds a rank's vector to an accumulator; a `fresh` accumulator holds nothing yet.
    #[inline]
    pub fn take(&self, lanes: &mut [u8], fresh: bool, vector: &[u8]) {
        match (self.encoding.at_switch, fresh) {
            (Some(kernels), true) => (kernels.store)(lanes, vector, self.scale),
            (Some(kernels), false) => (kernels.add)(lanes, vector, self.scale),
            (None, true) => (self.encoding.combine.store)(lanes, vector),
            (None, false) => (self.encoding.combine.add)(lanes, vector),
        }
    }

    /// Adds a switch's sum to an accumulator; a `fresh` accumulator holds nothing yet.
    #[inline]
    pub fn take_partial(&self, lanes: &mut [u8], fresh: bool, vector: &[u8]) {
        match fresh {
            true => (self.encoding.combine.store_partial)(lanes, vector),
            false => (self.encoding.combine.add_partial)(lanes, vector),
        }
    }

    /// Writes an accumulator as a switch's sum.
    #[inline]
    pub fn load_partial(&self, lanes: &[u8], vector: &mut [u8]) {
        (self.encoding.combine.load_partial)(lanes, vector);
    }

    /// Writes an accumulator that has all ranks' vectors as the result.
    pub fn finish(&self, lanes: &mut [u8], world_size: u16, vector: &mut [u8]) {
        match self.encoding.at_switch {
            Some(kernels) => (kernels.load)(lanes, vector, self.scale, self.spec.op),
            None => {
                (self.encoding.combine.finish)(lanes, world_size);
                (self.encoding.combine.load)(lanes, vector);
            }
        }
    }

    /// True if vectors are scaled, so that ranks need an exponent.
    pub fn is_scaled(&self) -> bool {
        self.encoding.is_scaled
    }
}

/// How many elements of this many bytes fit into a vector: types have 1, 2, 4 or 8 bytes, so that nothing needs
/// dividing.
#[inline]
fn count(wire_len: usize, size: usize) -> usize {
    debug_assert!(size.is_power_of_two(), "{size}");
    wire_len >> size.trailing_zeros()
}

/// Bytes of the accumulator for the widest block of a packet.
pub fn widest_lanes(values: Values, elements_per_packet: u16) -> usize {
    match values {
        Values::Fingerprint => FINGERPRINT_LEN,
        // A packet holds at least one element, however short the job's packets are.
        Values::Elements => (4 * usize::from(elements_per_packet)).max(size_of::<u64>()),
    }
}

//! The form of vectors in packets and in accumulators: 32-bit fixed point, integers of any size, or 16-bit floats,
//! which the switch or server that sums brings to fixed point (SwitchML section 4.6).

use tributary_numeric::{BlockExponent, Scale};

use crate::contract::drop_reason::DropReason;
use crate::contract::numbers::{Encoding, Numbers};
use crate::contract::tensor::Spec;
use crate::contract::values::{FINGERPRINT_LEN, Values};

/// How one block's vectors lie in packets, and how they are added.
#[derive(Clone, Copy, Hash)]
pub struct Form {
    encoding: Encoding,
    values: Values,
    spec: Spec,
    scale: Scale,
}

impl Form {
    /// Of a block of a collective whose vectors are scaled by `scale`, if they are.
    #[inline]
    pub fn new(values: Values, spec: &Spec, scale: BlockExponent, world: u16) -> Result<Form, DropReason> {
        let encoding = Encoding::new(values, Numbers::Fixed, spec).ok_or(DropReason::BadField)?;
        Ok(Form { encoding, values, spec: *spec, scale: Scale::new(scale, world) })
    }

    /// Bytes in a packet buffer of a rank's vector, or of a result.
    pub fn buffer_len(&self, elements: usize) -> usize {
        self.encoding.buffer_len(elements)
    }

    /// Bytes on the wire of the same.
    pub fn wire_len(&self, elements: usize) -> usize {
        self.encoding.wire_len(elements)
    }

    /// Bytes in a packet buffer of a switch's sum.
    pub fn partial_buffer_len(&self, elements: usize) -> usize {
        self.encoding.partial_buffer_len(elements)
    }

    /// Bytes on the wire of the same.
    pub fn partial_wire_len(&self, elements: usize) -> usize {
        self.encoding.partial_wire_len(elements)
    }

    /// The elements of a rank's vector of so many bytes in its buffer and on the wire, if it can be one.
    #[inline]
    pub fn elements(&self, len: usize, wire_len: usize) -> Result<usize, DropReason> {
        let elements = wire_len / self.encoding.wire_len(1);
        let fits = wire_len == self.encoding.wire_len(elements) && len == self.encoding.buffer_len(elements);
        if fits { Ok(elements) } else { Err(DropReason::BadLength) }
    }

    /// The elements of a switch's sum likewise.
    #[inline]
    pub fn partial_elements(&self, len: usize, wire_len: usize) -> Result<usize, DropReason> {
        let elements = wire_len / self.encoding.partial_wire_len(1);
        let fits =
            wire_len == self.encoding.partial_wire_len(elements) && len == self.encoding.partial_buffer_len(elements);
        if fits { Ok(elements) } else { Err(DropReason::BadLength) }
    }

    /// Bytes of accumulator.
    #[inline]
    pub fn lane_bytes(&self, elements: usize) -> usize {
        match self.values {
            Values::Fingerprint if elements == 0 => 0,
            Values::Fingerprint => FINGERPRINT_LEN,
            Values::Elements => self.encoding.combine.lane_size * elements,
        }
    }

    /// Brings a rank's vector to an accumulator, which is `fresh` or holds others'.
    #[inline]
    pub fn take(&self, lanes: &mut [u8], fresh: bool, vector: &[u8]) {
        match (self.encoding.at_switch, fresh) {
            (Some(kernels), true) => (kernels.store)(lanes, vector, self.scale),
            (Some(kernels), false) => (kernels.add)(lanes, vector, self.scale),
            (None, true) => (self.encoding.combine.store)(lanes, vector),
            (None, false) => (self.encoding.combine.add)(lanes, vector),
        }
    }

    /// Brings a switch's sum to an accumulator likewise.
    #[inline]
    pub fn take_partial(&self, lanes: &mut [u8], fresh: bool, vector: &[u8]) {
        match fresh {
            true => (self.encoding.combine.store_partial)(lanes, vector),
            false => (self.encoding.combine.add_partial)(lanes, vector),
        }
    }

    /// Writes what an accumulator holds as a switch's sum.
    #[inline]
    pub fn load_partial(&self, lanes: &[u8], vector: &mut [u8]) {
        (self.encoding.combine.load_partial)(lanes, vector);
    }

    /// Writes what an accumulator holds, which has all ranks' vectors, as the result.
    pub fn finish(&self, lanes: &mut [u8], world: u16, vector: &mut [u8]) {
        match self.encoding.at_switch {
            Some(kernels) => (kernels.load)(lanes, vector, self.scale, self.spec.op),
            None => {
                (self.encoding.combine.finish)(lanes, world);
                (self.encoding.combine.load)(lanes, vector);
            }
        }
    }

    /// True if vectors are scaled: ranks need an exponent.
    pub fn is_scaled(&self) -> bool {
        self.encoding.is_scaled
    }
}

/// Bytes of accumulator that the widest block of a packet needs.
pub fn widest_lanes(values: Values, elements_per_packet: u16) -> usize {
    match values {
        Values::Fingerprint => FINGERPRINT_LEN,
        // A packet holds one element at least, however short the job has its packets.
        Values::Elements => (4 * usize::from(elements_per_packet)).max(size_of::<u64>()),
    }
}

//! How a vector of values lies in memory: as real elements, or as a fingerprint that stands for them.
//!
//! With [`Values::Elements`] a vector is in memory as it is on the wire. With [`Values::Fingerprint`] it is
//! [`FINGERPRINT_LEN`] bytes, whatever its length. Fingerprints add up so that a missing, doubled or foreign
//! contribution is always detected: a simulation of thousands of hosts carries no data and still proves every result.
//! The machines are the same for both, and so is their trace of packets.

use tributary_numeric::{self as numeric, Combine, DType, Fixed16, Scale};

use tributary_numeric::splitmix64;

/// Bytes of one fingerprint: three 64-bit words.
pub const FINGERPRINT_LEN: usize = 24;

/// How a machine keeps and sums vectors; a driver chooses once its machines. `elements` is always the number of
/// values on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Values {
    /// Real elements.
    Elements,
    /// Three words in place of the elements, summed modulo 2^64.
    Fingerprint,
}

impl Values {
    /// Bytes in the packet buffer for a vector of `elements`, each of `size` bytes on the wire.
    #[inline]
    pub fn buffer_len(self, size: usize, elements: usize) -> usize {
        match self {
            Values::Elements => size * elements,
            Values::Fingerprint if elements == 0 => 0,
            Values::Fingerprint => FINGERPRINT_LEN,
        }
    }

    /// The kernels that add vectors in fixed point.
    #[inline]
    pub fn fixed(self) -> &'static Combine {
        match self {
            Values::Elements => numeric::fixed(),
            Values::Fingerprint => &FINGERPRINTS,
        }
    }

    /// The kernels that convert vectors of 16-bit floats to fixed point and back; `None` for other types.
    #[inline]
    pub fn fixed_16(self, dtype: DType) -> Option<&'static Fixed16> {
        let kernels = numeric::fixed_16(dtype);
        match self {
            Values::Elements => kernels,
            Values::Fingerprint => kernels.map(|_| &SCALED_FINGERPRINTS),
        }
    }
}

/// Combines fingerprints: whatever the operator, each contribution must be there once.
pub static FINGERPRINTS: Combine = Combine {
    name: "fingerprints",
    wire_size: FINGERPRINT_LEN,
    result_size: FINGERPRINT_LEN,
    lane_size: FINGERPRINT_LEN,
    partial_size: FINGERPRINT_LEN,
    store: copy,
    add,
    add_left: add,
    load: copy_out,
    store_partial: copy,
    add_partial: add,
    add_left_partial: add,
    load_partial: copy_out,
    merge: add,
    finish: |_, _| {},
};

/// Copies opaque elements, a byte at a time. A custom operator combines them; these kernels cannot.
pub static OPAQUE: Combine = Combine {
    name: "custom operator",
    wire_size: 1,
    result_size: 1,
    lane_size: 1,
    partial_size: 1,
    store: copy,
    add: foreign,
    add_left: foreign,
    load: copy_out,
    store_partial: copy,
    add_partial: foreign,
    add_left_partial: foreign,
    load_partial: copy_out,
    merge: foreign,
    finish: |_, _| {},
};

fn foreign(_: &mut [u8], _: &[u8]) {
    unreachable!("custom operators combine opaque elements themselves")
}

/// Fingerprints of 16-bit floats, which a switch converts to fixed point: it multiplies them by a factor of its scale,
/// which stays in the result. So a sum also proves that all switches had the scale that the hosts expect.
pub static SCALED_FINGERPRINTS: Fixed16 = Fixed16 {
    wire_size: FINGERPRINT_LEN,
    store: |lanes, vector, scale| {
        lanes.fill(0);
        add_scaled(lanes, vector, scale);
    },
    add: add_scaled,
    load: |lanes, vector, _, _| copy_out(lanes, vector),
};

/// The factor of a fingerprint's first two words at this scale. It is odd, so that no word is lost.
pub fn scale_factor(scale: Scale) -> u64 {
    splitmix64(1 << 63 | (scale.shift as u32 as u64) << 8 | u64::from(scale.counter_bits)) | 1
}

/// Accumulators of fingerprints are big-endian, as on the wire.
fn copy(lanes: &mut [u8], vector: &[u8]) {
    lanes.copy_from_slice(vector);
}

fn copy_out(lanes: &[u8], vector: &mut [u8]) {
    vector.copy_from_slice(lanes);
}

fn add(lanes: &mut [u8], vector: &[u8]) {
    add_multiplied(lanes, vector, [1; 3]);
}

fn add_scaled(lanes: &mut [u8], vector: &[u8], scale: Scale) {
    let factor = scale_factor(scale);
    add_multiplied(lanes, vector, [factor, factor, 1]);
}

fn add_multiplied(lanes: &mut [u8], vector: &[u8], factors: [u64; 3]) {
    let words = lanes.as_chunks_mut().0.iter_mut().zip(vector.as_chunks().0);
    for ((lane, word), factor) in words.zip(factors) {
        let sum = u64::from_be_bytes(*lane).wrapping_add(u64::from_be_bytes(*word).wrapping_mul(factor));
        *lane = sum.to_be_bytes();
    }
}

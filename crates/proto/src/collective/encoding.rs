//! How the elements of a collective travel, and what adds them: chosen from the collective's type and operator, and from
//! what the job sums floats as.

use tributary_numeric::{self as numeric, Combine, DType, ReduceOp};

use crate::collective::tensor::Spec;
use crate::collective::values::{FINGERPRINT_LEN, FINGERPRINTS, Values};
use crate::contract::options::{Kind, OptionSpec, Options};

/// What a job sums floats as. Integers are integers either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbers {
    /// Floats, in an order that the protocol promises; 16-bit ones travel in two bytes.
    Float,
    /// 32-bit fixed point, whose block exponent ranks agree on (SwitchML §4.6).
    Fixed,
}

impl Numbers {
    /// The option of protocols that leave the choice to people.
    pub const OPTION: OptionSpec = OptionSpec {
        name: "numbers",
        kind: Kind::Choice(&["float", "fixed"]),
        default: "float",
        help: "sum floats as floats, or in 32-bit fixed point as in the paper",
    };

    /// What was chosen.
    pub fn chosen(options: &Options) -> Numbers {
        match options.choice(Numbers::OPTION.name) {
            "fixed" => Numbers::Fixed,
            _ => Numbers::Float,
        }
    }
}

/// How the elements of one collective travel and are summed.
#[derive(Clone, Copy, Debug)]
pub struct Encoding {
    values: Values,
    /// What combines vectors as they are in memory.
    pub combine: &'static Combine,
    /// Vectors are fixed point: ranks agree on an exponent before they send a block.
    pub is_scaled: bool,
    /// The result's bits depend on the order in which vectors are combined.
    pub is_ordered: bool,
    wire_size: usize,
    partial_size: usize,
}

impl Encoding {
    /// The encoding of a collective; `None` of one that has no meaning, or that fixed point cannot hold.
    #[inline]
    pub fn new(values: Values, numbers: Numbers, spec: &Spec) -> Option<Encoding> {
        let Spec { dtype, op, .. } = *spec;
        let is_scaled = dtype.is_float() && numbers == Numbers::Fixed;
        let real = match is_scaled {
            true if numeric::has_fixed_point(dtype, op) => numeric::fixed(),
            true => return None,
            false => numeric::native(dtype, op)?,
        };
        let is_ordered = !is_scaled && is_ordered(dtype, op);
        let combine = if values == Values::Elements { real } else { &FINGERPRINTS };
        let (wire_size, partial_size) = (real.wire_size, real.partial_size);
        Some(Encoding { values, combine, is_scaled, is_ordered, wire_size, partial_size })
    }

    /// Elements of a full block of a packet with so many bytes of vector, at least 1. Where switches are in levels, a
    /// packet between two of them holds the block's partial result, too.
    #[inline]
    pub fn block_elements(&self, payload_bytes: usize, levels: bool) -> u32 {
        let size = if levels { self.partial_size } else { self.wire_size };
        (payload_bytes / size).max(1) as u32
    }

    /// Bytes on the wire of a vector of a host's, or of a result.
    #[inline]
    pub fn wire_len(&self, elements: usize) -> usize {
        self.wire_size * elements
    }

    /// Bytes in a packet buffer of the same.
    #[inline]
    pub fn buffer_len(&self, elements: usize) -> usize {
        self.values.buffer_len(self.wire_size, elements)
    }

    /// Bytes on the wire of a partial result between switches, which loses nothing.
    #[inline]
    pub fn partial_wire_len(&self, elements: usize) -> usize {
        self.partial_size * elements
    }

    /// Bytes in a packet buffer of the same.
    #[inline]
    pub fn partial_buffer_len(&self, elements: usize) -> usize {
        self.values.buffer_len(self.partial_size, elements)
    }

    /// True if partial results are wider than what hosts send.
    #[inline]
    pub fn is_wide(&self) -> bool {
        self.partial_size > self.wire_size
    }
}

/// Bytes of accumulator that the widest encoding needs for a block of a packet with so many bytes of vector: 16-bit floats
/// are summed in 32.
pub fn most_lanes(values: Values, numbers: Numbers, payload_bytes: usize) -> usize {
    match (values, numbers) {
        (Values::Fingerprint, _) => FINGERPRINT_LEN,
        (Values::Elements, Numbers::Fixed) => payload_bytes,
        (Values::Elements, Numbers::Float) => 2 * payload_bytes,
    }
}

/// Integers wrap, and the least and the greatest are the same in any order; sums and products of floats are not.
fn is_ordered(dtype: DType, op: ReduceOp) -> bool {
    dtype.is_float() && matches!(op, ReduceOp::Sum | ReduceOp::Avg | ReduceOp::Prod)
}

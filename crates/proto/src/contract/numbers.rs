//! How the elements of a collective travel, and which kernels add them. Both follow from the collective's type and
//! operator, and from the job's choice of how floats are summed.

use tributary_numeric::thc::MAX_BLOCK;
use tributary_numeric::{self as numeric, BlockExponent, CodeWidth, Combine, DType, Fixed16, ReduceOp, Scale};
use tributary_numeric::{padded, splitmix64};

use crate::contract::custom_op::CustomOps;
use crate::contract::ids::Rank;
use crate::contract::options::{Kind, OptionSpec, Options};
use crate::contract::tensor::Spec;
use crate::contract::values::{FINGERPRINT_LEN, FINGERPRINTS, OPAQUE, Values};

/// How a job sums floats. Integers stay integers either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Numbers {
    /// Floats, in an order that the protocol promises.
    Float,
    /// 32-bit fixed point, with a block exponent that ranks agree on (SwitchML §4.6). Hosts encode binary32. 16-bit
    /// floats travel in their own two bytes, and switches convert them to fixed point and back.
    Fixed,
    /// Codes of 8 bits against the range of a block, on which ranks agree as they do on the exponent of fixed point.
    /// Hosts get the sums of codes in this width.
    Int8(CodeWidth),
    /// Codes of 4 bits of rotated blocks, against the block's norm, on which ranks agree in the same way (THC). Hosts get
    /// the sums of their levels in this width, which follows from the number of ranks.
    Thc4(CodeWidth),
}

impl Numbers {
    /// The option, for protocols that leave the choice to people.
    pub const OPTION: OptionSpec = OptionSpec {
        name: "numbers",
        kind: Kind::Choice(&["float", "fixed", "int8", "thc4"]),
        default: "float",
        help: "sum floats as floats, in 32-bit fixed point as in the paper, or as codes of 8 or (THC) 4 bits",
    };

    /// The option for the width of the sums of codes, for the same protocols.
    pub const DOWN: OptionSpec = OptionSpec {
        name: "down",
        kind: Kind::Choice(&["8", "16"]),
        default: "8",
        help: "with numbers=int8: the bits of a sum on its way down",
    };

    /// The value that was chosen.
    pub fn chosen(options: &Options) -> Numbers {
        match options.choice(Numbers::OPTION.name) {
            "fixed" => Numbers::Fixed,
            "int8" if options.choice(Numbers::DOWN.name) == "16" => Numbers::Int8(CodeWidth::Sixteen),
            "int8" => Numbers::Int8(CodeWidth::Eight),
            "thc4" => Numbers::Thc4(CodeWidth::Eight),
            _ => Numbers::Float,
        }
    }

    /// The value that was chosen, for a job of this many ranks.
    pub fn of_job(options: &Options, world_size: u16) -> Numbers {
        match Numbers::chosen(options) {
            Numbers::Thc4(_) => Numbers::Thc4(CodeWidth::of_levels(world_size)),
            chosen => chosen,
        }
    }

    /// The most ranks that can sum so.
    pub fn most_ranks(self) -> u16 {
        match self {
            Numbers::Thc4(_) => Scale::MAX_WORLD_SIZE_ROTATED,
            Numbers::Float | Numbers::Fixed | Numbers::Int8(_) => Scale::MAX_WORLD_SIZE,
        }
    }

    /// Checks that the width of sums is chosen for codes of 8 bits only.
    pub fn check_together(options: &Options) -> Result<(), String> {
        if options.choice(Numbers::DOWN.name) != "16" {
            return Ok(());
        }
        match Numbers::chosen(options) {
            Numbers::Int8(_) => Ok(()),
            Numbers::Thc4(_) => {
                Err("with numbers=thc4 the ranks decide how wide sums are, 16 bits above 8 ranks: leave down out"
                    .to_owned())
            }
            _ => Err("down=16 is for sums of codes: add numbers=int8, or leave down out".to_owned()),
        }
    }
}

/// How many 16-bit floats a block has. They are summed in 32 bits, and accumulators hold the job's widest block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NarrowBlocks {
    /// As many as fill a packet. Accumulators are then twice as large as a packet's vector.
    Full,
    /// As many as fill a packet with their 32-bit sums. Accumulators are then no larger than a packet's vector.
    /// Switches in levels always use this, since a packet between two switches holds partial sums.
    Half,
}

impl NarrowBlocks {
    /// The option, for protocols that leave the choice to people.
    pub const OPTION: OptionSpec = OptionSpec {
        name: "narrow_blocks",
        kind: Kind::Choice(&["full", "half"]),
        default: "full",
        help: "f16 and bf16 fill packets, or half of each, which halves a switch's memory for the job",
    };

    /// The better choice for a job with switches in levels, or without.
    pub fn fitting(levels: bool) -> NarrowBlocks {
        if levels { NarrowBlocks::Half } else { NarrowBlocks::Full }
    }

    /// The value that was chosen, for a job with switches in levels or without.
    pub fn chosen(options: &Options, levels: bool) -> NarrowBlocks {
        match options.choice(NarrowBlocks::OPTION.name) {
            "full" => NarrowBlocks::fitting(levels),
            _ => NarrowBlocks::Half,
        }
    }

    /// Bytes of accumulator that the widest block needs, in packets with `payload_bytes` of vector.
    pub fn lane_bytes(self, values: Values, payload_bytes: usize) -> usize {
        match (values, self) {
            (Values::Fingerprint, _) => FINGERPRINT_LEN,
            (Values::Elements, NarrowBlocks::Full) => 2 * payload_bytes,
            (Values::Elements, NarrowBlocks::Half) => payload_bytes,
        }
    }
}

/// How the elements of one collective travel and are summed.
#[derive(Clone, Copy, Debug, Hash)]
pub struct Encoding {
    values: Values,
    /// The kernels that combine vectors. If the switch scales the vectors of hosts, they combine partial results only.
    pub combine: &'static Combine,
    /// The kernels that convert hosts' vectors of 16-bit floats to fixed point at a switch, and results back.
    pub at_switch: Option<&'static Fixed16>,
    /// Sums are in fixed point: ranks agree on an exponent before they send a block.
    pub is_scaled: bool,
    /// The result's bits depend on the order in which vectors are combined.
    pub is_ordered: bool,
    /// The number of the custom operator that combines vectors, if one does; for real elements only.
    pub custom_op: Option<u8>,
    /// What floats are summed as.
    numbers: Numbers,
    wire_size: usize,
    result_size: usize,
    partial_size: usize,
    /// The number of elements of a block is a multiple of this.
    granule: usize,
}

impl Encoding {
    /// The encoding of a collective in a job that may have custom operators. `None` as in [`Encoding::new`], and if the
    /// job does not have the operator, or the bytes are not whole elements of the operator.
    #[inline]
    pub fn of_job(values: Values, numbers: Numbers, spec: &Spec, operators: &CustomOps) -> Option<Encoding> {
        match spec.op {
            ReduceOp::Custom(number) => Encoding::opaque(values, spec, number, operators),
            _ => Encoding::new(values, numbers, spec),
        }
    }

    fn opaque(values: Values, spec: &Spec, number: u8, operators: &CustomOps) -> Option<Encoding> {
        let granule = operators.get(number)?.element_size();
        if !spec.op.takes(spec.dtype) || !(spec.elements as usize).is_multiple_of(granule) {
            return None;
        }
        let (combine, custom_op) = match values {
            Values::Elements => (&OPAQUE, Some(number)),
            Values::Fingerprint => (&FINGERPRINTS, None),
        };
        let (is_scaled, is_ordered, at_switch) = (false, true, None);
        Some(Encoding {
            values,
            combine,
            at_switch,
            is_scaled,
            is_ordered,
            custom_op,
            numbers: Numbers::Float,
            wire_size: 1,
            result_size: 1,
            partial_size: 1,
            granule,
        })
    }

    /// The encoding of a collective; `None` if the collective has no meaning, or fixed point or codes cannot hold it.
    #[inline]
    pub fn new(values: Values, numbers: Numbers, spec: &Spec) -> Option<Encoding> {
        let Spec { dtype, op, .. } = *spec;
        let is_scaled = dtype.is_float() && numbers != Numbers::Float;
        let real = match numbers {
            _ if is_scaled && !numeric::has_fixed_point(dtype, op) => return None,
            Numbers::Fixed if is_scaled => numeric::fixed(),
            Numbers::Int8(width) if is_scaled => numeric::codes(width),
            Numbers::Thc4(width) if is_scaled => numeric::rotated(width),
            _ => numeric::native(dtype, op)?,
        };
        let is_ordered = !is_scaled && is_ordered(dtype, op);
        let at_switch = if is_scaled && numbers == Numbers::Fixed { values.fixed_16(dtype) } else { None };
        let combine = if values == Values::Elements { real } else { &FINGERPRINTS };
        let (wire_size, result_size) = match at_switch {
            Some(_) => (dtype.size(), dtype.size()),
            None => (real.wire_size, real.result_size),
        };
        let partial_size = real.partial_size;
        let (custom_op, granule) = (None, 1);
        Some(Encoding {
            values,
            combine,
            at_switch,
            is_scaled,
            is_ordered,
            custom_op,
            numbers,
            wire_size,
            result_size,
            partial_size,
            granule,
        })
    }

    /// True if a block is rotated: ranks agree on its norm rather than on its exponent, and its vector has a power of two of
    /// elements, in units of two, whose bytes the sizes are.
    #[inline]
    pub fn is_rotated(&self) -> bool {
        self.is_scaled && matches!(self.numbers, Numbers::Thc4(_))
    }

    /// How many units of the sizes a block of this many elements has.
    #[inline]
    fn units(&self, elements: usize) -> usize {
        if self.is_rotated() && elements > 0 { padded(elements) / 2 } else { elements }
    }

    /// Elements of a full block in a packet with `payload_bytes` of vector: at least one, and a whole number of an
    /// operator's elements.
    #[inline]
    pub fn block_elements(&self, payload_bytes: usize, narrow: NarrowBlocks) -> u32 {
        let size = match narrow {
            NarrowBlocks::Half => self.partial_size,
            NarrowBlocks::Full => self.wire_size.max(self.result_size),
        };
        let units = payload_bytes / size;
        if self.is_rotated() {
            return (2 << units.max(1).ilog2()).min(MAX_BLOCK) as u32;
        }
        let elements = units;
        (elements - elements % self.granule).max(self.granule) as u32
    }

    /// How a rank scales a block of its stream whose exponent ranks have agreed on, if sums are scaled. The block's number
    /// draws how it is rotated, the same on all ranks and in every run; number and rank draw how it is rounded.
    pub fn scale(&self, exponent: BlockExponent, world_size: u16, block: u64, rank: Rank) -> Scale {
        match self.numbers {
            Numbers::Int8(width) => Scale::codes(exponent, world_size, width),
            Numbers::Thc4(_) => {
                let signs = splitmix64(block);
                Scale::rotated(exponent, world_size, signs, splitmix64(signs ^ (u64::from(rank.0) + 1)))
            }
            Numbers::Float | Numbers::Fixed => Scale::new(exponent, world_size),
        }
    }

    /// Bytes on the wire of a host's vector.
    #[inline]
    pub fn wire_len(&self, elements: usize) -> usize {
        self.wire_size * self.units(elements)
    }

    /// Bytes in a packet buffer of a host's vector.
    #[inline]
    pub fn buffer_len(&self, elements: usize) -> usize {
        self.values.buffer_len(self.wire_size, self.units(elements))
    }

    /// Bytes on the wire of a result: those of a host's vector, except for codes.
    #[inline]
    pub fn result_wire_len(&self, elements: usize) -> usize {
        self.result_size * self.units(elements)
    }

    /// Bytes in a packet buffer of a result.
    #[inline]
    pub fn result_buffer_len(&self, elements: usize) -> usize {
        self.values.buffer_len(self.result_size, self.units(elements))
    }

    /// Bytes on the wire of a partial result between switches, which keeps full precision.
    #[inline]
    pub fn partial_wire_len(&self, elements: usize) -> usize {
        self.partial_size * self.units(elements)
    }

    /// Bytes in a packet buffer of a partial result.
    #[inline]
    pub fn partial_buffer_len(&self, elements: usize) -> usize {
        self.values.buffer_len(self.partial_size, self.units(elements))
    }

    /// Bytes in memory of `elements` elements of one block, each of `size` bytes.
    #[inline]
    pub fn values_len(&self, size: usize, elements: usize) -> usize {
        self.values.buffer_len(size, elements)
    }

    /// True if partial results are wider than the vectors of hosts.
    #[inline]
    pub fn is_wide(&self) -> bool {
        self.partial_size > self.wire_size
    }
}

/// True if the order matters. Integers wrap, and minimum and maximum are the same in any order; sums and products of
/// floats are not.
fn is_ordered(dtype: DType, op: ReduceOp) -> bool {
    dtype.is_float() && matches!(op, ReduceOp::Sum | ReduceOp::Avg | ReduceOp::Prod)
}

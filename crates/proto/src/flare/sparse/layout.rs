//! Blocks of a sparse tensor, and what a packet of pairs holds: indices of the block, then as many values (§7).

use tributary_numeric::{self as numeric, Combine, DType, ReduceOp};

use crate::aggregation::ordered::VectorFormat;
use crate::contract::drop_reason::DropReason;
use crate::contract::options::{Kind, OptionSpec, Options};
use crate::contract::tensor::Spec;
use crate::contract::values::Values;

const SPARSE: &str = "sparse";
const DENSITY: &str = "density_ppm";
const SPAN: &str = "span";
const HASH_SLOTS: &str = "hash_slots";
const SPILL: &str = "spill";

/// The longest block. A switch numbers the pairs of all its children in 30 bits.
const MOST_SPAN: u32 = 1 << 20;
/// The most slots of a hash table.
const MOST_SLOTS: u64 = 1 << 16;
/// How many spilled packets of a block a switch keeps until the next switch, or every host, has them.
const SPILLS_KEPT: usize = 4;

/// What a job of sparse tensors may choose.
pub const OPTIONS: [OptionSpec; 5] = [
    OptionSpec {
        name: SPARSE,
        kind: Kind::Choice(&["off", "auto", "hash", "array"]),
        default: "off",
        help: "the job sums sparse tensors: switches keep them in hash tables or arrays; auto: an array at the root alone",
    },
    OptionSpec {
        name: DENSITY,
        kind: Kind::Count { least: 1, most: 1_000_000 },
        default: "10000",
        help: "elements that a rank brings of a million, about: a block spans this many that they fill a packet",
    },
    OptionSpec {
        name: SPAN,
        kind: Kind::Count { least: 0, most: MOST_SPAN as u64 },
        default: "0",
        help: "elements that a block spans; 0: as density_ppm says",
    },
    OptionSpec {
        name: HASH_SLOTS,
        kind: Kind::Count { least: 1, most: MOST_SLOTS },
        default: "256",
        help: "slots of a block's hash table",
    },
    OptionSpec {
        name: SPILL,
        kind: Kind::Count { least: 0, most: 16_384 },
        default: "0",
        help: "elements that collide before they are sent on; 0: as many as fill a packet",
    },
];

/// The options of a job of sparse tensors with this density.
pub fn of_density(density_ppm: Option<u64>) -> Vec<(&'static str, String)> {
    let density = density_ppm.map(|ppm| (DENSITY, ppm.clamp(1, 1_000_000).to_string()));
    std::iter::once((SPARSE, "auto".to_owned())).chain(density).collect()
}

/// How many packets the sum of a block takes, if all ranks' indices are random.
pub fn packets_of_a_result(options: &Options, world_size: u16, elements_per_packet: u16) -> u64 {
    let Some(choices) = Choices::of(options) else { return 1 };
    let spec = Spec::allreduce(0, DType::F32, ReduceOp::Sum);
    let Some(layout) = Layout::new(Values::Elements, 4 * usize::from(elements_per_packet), &choices, &spec) else {
        return 1;
    };
    let absent = 1.0 - choices.density_ppm as f64 / 1e6;
    // Only multiplications: their bits are the same on every machine.
    let union = 1.0 - (0..world_size).fold(1.0, |product, _| product * absent);
    ((f64::from(layout.span) * union) as u64).div_ceil(layout.capacity(VectorFormat::Host) as u64).max(1)
}

/// Where a switch keeps a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// A table without probing; pairs that collide are sent on.
    Hash,
    /// An array with a position for each index of the block.
    Array,
}

/// What a job has chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choices {
    /// `None` means an array at the root and hash tables below it.
    storage: Option<Storage>,
    density_ppm: u64,
    span: u32,
    /// Slots of a hash table.
    pub hash_slots: u32,
    spill: usize,
}

impl Choices {
    /// Reads a job's options; `None` for a job of dense tensors.
    pub fn of(options: &Options) -> Option<Choices> {
        let storage = match options.choice(SPARSE) {
            "off" => return None,
            "hash" => Some(Storage::Hash),
            "array" => Some(Storage::Array),
            _ => None,
        };
        Some(Choices {
            storage,
            density_ppm: options.count(DENSITY),
            span: options.count(SPAN) as u32,
            hash_slots: options.count(HASH_SLOTS) as u32,
            spill: options.count(SPILL) as usize,
        })
    }

    /// The storage of a switch: of the root, or of a switch below it.
    pub fn storage(&self, is_root: bool) -> Storage {
        self.storage.unwrap_or(if is_root { Storage::Array } else { Storage::Hash })
    }

    /// All storages that switches of the job may have.
    pub fn storages(&self) -> Vec<Storage> {
        self.storage.map_or_else(|| vec![Storage::Hash, Storage::Array], |storage| vec![storage])
    }
}

/// How the pairs of one collective travel, and how long its blocks are.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// The kernels that combine values.
    pub combine: &'static Combine,
    /// How many indices a block has.
    pub span: u32,
    /// Bytes of an index within its block.
    index_len: usize,
    /// Bytes of a value on the wire: from hosts and in results, and between switches.
    wire_values: [usize; 2],
    payload_bytes: usize,
    spill: usize,
}

impl Layout {
    /// The layout for a collective; `None` if its type and operator have no meaning.
    pub fn new(values: Values, payload_bytes: usize, choices: &Choices, spec: &Spec) -> Option<Layout> {
        let real = numeric::native(spec.dtype, spec.op)?;
        let combine = match values {
            Values::Elements => real,
            // Each rank's value is a hash, so that sums over different sets of ranks differ.
            Values::Fingerprint => numeric::native(DType::I64, ReduceOp::Sum)?,
        };
        let wire_values = [real.wire_size, real.partial_size];
        let Choices { density_ppm, span, spill, .. } = *choices;
        let of = |index_len| Layout { combine, span, index_len, wire_values, payload_bytes, spill };
        let spans = |layout: Layout| {
            // A tenth of the room stays free, so that most blocks of a host fit into one packet.
            let mean = layout.capacity(VectorFormat::Host) as u64;
            ((mean - mean / 10) * 1_000_000 / density_ppm).clamp(1, MOST_SPAN.into()) as u32
        };
        const NARROW: u32 = 1 << 16;
        Some(match span {
            0 if spans(of(2)) <= NARROW => Layout { span: spans(of(2)), ..of(2) },
            0 => Layout { span: spans(of(4)), ..of(4) },
            1..=NARROW => of(2),
            _ => of(4),
        })
    }

    fn wire_pair(&self, format: VectorFormat) -> usize {
        self.index_len + self.wire_values[usize::from(format == VectorFormat::Partial)]
    }

    /// Bytes of a value in a packet buffer.
    pub fn value_len(&self, format: VectorFormat) -> usize {
        match format {
            VectorFormat::Host => self.combine.wire_size,
            VectorFormat::Partial => self.combine.partial_size,
        }
    }

    /// How many pairs a full packet has.
    pub fn capacity(&self, format: VectorFormat) -> usize {
        (self.payload_bytes / self.wire_pair(format)).max(1)
    }

    /// How many pairs a spilled packet has.
    pub fn spill(&self) -> usize {
        let full = self.capacity(VectorFormat::Partial);
        if self.spill == 0 { full } else { self.spill.min(full) }
    }

    /// How many collided pairs a switch has room for. When spilled packets are taken, a child's longest packet always
    /// fits.
    pub fn spill_capacity(&self) -> usize {
        self.capacity(VectorFormat::Host).max(self.capacity(VectorFormat::Partial)) + self.kept_spill_capacity()
    }

    /// The same without the room for an incoming packet.
    pub fn kept_spill_capacity(&self) -> usize {
        SPILLS_KEPT * self.spill()
    }

    /// Bytes of this many pairs in a packet buffer.
    pub fn buffer_len(&self, pairs: usize, format: VectorFormat) -> usize {
        pairs * (self.index_len + self.value_len(format))
    }

    /// Bytes of this many pairs on the wire.
    pub fn wire_len(&self, pairs: usize, format: VectorFormat) -> usize {
        pairs * self.wire_pair(format)
    }

    /// Reads the pairs behind a header. All offsets are below `len`, the block's length.
    pub fn parse<'a>(
        &self,
        body: &'a [u8],
        wire_len: usize,
        format: VectorFormat,
        len: u32,
    ) -> Result<Pairs<'a>, DropReason> {
        let pair = self.index_len + self.value_len(format);
        let pairs = body.len() / pair;
        if pairs * pair != body.len() || self.wire_len(pairs, format) != wire_len || pairs > self.capacity(format) {
            return Err(DropReason::BadLength);
        }
        let parsed = self.pairs(body, format);
        if parsed.all_below(len) { Ok(parsed) } else { Err(DropReason::BadField) }
    }

    /// The pairs of a body that was parsed before.
    pub fn pairs<'a>(&self, body: &'a [u8], format: VectorFormat) -> Pairs<'a> {
        let pair = self.index_len + self.value_len(format);
        let (offsets, values) = body.split_at(body.len() / pair * self.index_len);
        Pairs { offsets, values, index_len: self.index_len, value_len: self.value_len(format) }
    }

    /// Writes the offsets of a packet's pairs: the indices less the first index of their block.
    pub fn put_offsets(&self, body: &mut [u8], indices: &[u32], first: u32) {
        if self.index_len == 2 {
            let positions = body.as_chunks_mut::<2>().0.iter_mut();
            positions.zip(indices).for_each(|(position, index)| *position = ((index - first) as u16).to_be_bytes());
        } else {
            let positions = body.as_chunks_mut::<4>().0.iter_mut();
            positions.zip(indices).for_each(|(position, index)| *position = (index - first).to_be_bytes());
        }
    }

    /// The values of a packet of this many pairs.
    pub fn values<'a>(&self, body: &'a mut [u8], pairs: usize, format: VectorFormat) -> &'a mut [u8] {
        &mut body[pairs * self.index_len..][..pairs * self.value_len(format)]
    }
}

/// True if each index is greater than the one before it. The loop has no branches.
pub fn ascend(indices: &[u32]) -> bool {
    let rest = indices.get(1..).unwrap_or_default();
    indices.iter().zip(rest).fold(true, |ascend, (before, after)| ascend & (before < after))
}

/// The pairs of one packet.
#[derive(Clone, Copy, Debug)]
pub struct Pairs<'a> {
    offsets: &'a [u8],
    values: &'a [u8],
    index_len: usize,
    value_len: usize,
}

impl<'a> Pairs<'a> {
    /// How many pairs there are.
    pub fn len(&self) -> usize {
        self.offsets.len() / self.index_len
    }

    /// True if there are no pairs.
    pub fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    /// The offset in the block and the value of each pair.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &'a [u8])> + use<'a> {
        let mut offsets = Vec::with_capacity(self.len());
        self.append_offsets(0, &mut offsets);
        offsets.into_iter().zip(self.values.chunks_exact(self.value_len))
    }

    /// True if all offsets are below `len`. The loop has no branches, so that a compiler makes it a vector's maximum.
    fn all_below(&self, len: u32) -> bool {
        let most = |most: u32, offset: u32| most.max(offset);
        let greatest = match self.index_len {
            2 => self.offsets.as_chunks().0.iter().map(|two| u16::from_be_bytes(*two).into()).fold(0, most),
            _ => self.offsets.as_chunks().0.iter().map(|four| u32::from_be_bytes(*four)).fold(0, most),
        };
        self.is_empty() || greatest < len
    }

    /// Appends the offsets in the block, with `first` added to each.
    pub fn append_offsets(&self, first: u32, to: &mut Vec<u32>) {
        match self.index_len {
            2 => to.extend(self.offsets.as_chunks().0.iter().map(|two| first + u32::from(u16::from_be_bytes(*two)))),
            _ => to.extend(self.offsets.as_chunks().0.iter().map(|four| first.wrapping_add(u32::from_be_bytes(*four)))),
        }
    }

    /// All values, one after the other.
    pub fn values(&self) -> &'a [u8] {
        self.values
    }
}

//! Runs the committed programs on a job's packets in the instruction simulator, beside the machine that sums.
//!
//! A cluster's handlers share its memory, so there is a unit for each cluster. A handler gets the packet's header and
//! indices as they came, and the value one for each element. It runs as if it were alone: the processor decides which
//! handler waits for which.

use tributary_numeric::{DType, f16};
use tributary_proto::contract::ids::PortId;
use tributary_proto::contract::wire::Common;
use tributary_proto::contract::work::Needs;
use tributary_proto::flare::PROTOCOL;
use tributary_pspin::{Program, Timing, Unit, map};
use tributary_sim::cores::prices::{Code, Storage};
use tributary_sim::cores::steps::{Called, Spent};
use tributary_sim::cores::{Packet, Shape};

/// Addresses in L1.
const JOB: u32 = map::L1;
const PACKET: u32 = map::L1 + 0x100;
const BLOCKS: u32 = map::L1 + 0x4000;
/// The most bytes of the stack.
const STACK_BYTES: u32 = 0x1000;
/// More cycles than any handler needs for a packet.
const MOST_CYCLES: u64 = 10_000_000;
/// The struct `block` of `dense.c`, and where its buffers' locks are.
const DENSE_BLOCK_BYTES: u32 = 4 * (3 + 4 + 4 + 6);
const LOCKS_AT: u32 = 4 * 3;
const MOST_BUFFERS: u32 = 4;
/// The struct `block` of `sparse.c`.
const SPARSE_BLOCK_BYTES: u32 = 4 * 4 + 32 * 16;
const MOST_CHILDREN: u32 = 32;
/// The longest packet of these programs' switches.
const MOST_PACKET_BYTES: u32 = 0x3e00;

/// The parameters of a job's handlers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// How the handlers are written.
    pub code: Code,
    /// The type of elements.
    pub dtype: DType,
    /// How many packets a block has.
    pub children: u32,
    /// How many blocks the whole switch has.
    pub blocks: u32,
    /// Bytes of elements in a dense packet.
    pub payload_bytes: u32,
}

/// What a packet contributes to its block.
pub struct Contribution {
    child: u16,
    /// Bytes of a dense packet's elements.
    vector_bytes: u32,
    /// The packet's number among its sender's sparse packets of the block.
    shard: u32,
    /// In the sender's last packet of the block: how many packets there are; otherwise 0.
    shards: u32,
    /// Cells of the block's table, or the indices that it spans.
    cells: u32,
    /// The indices of a sparse packet.
    indices: Vec<u16>,
}

impl Contribution {
    /// Reads Flare's packet (`docs/wire.md`); `None` if its handler needs no block, or it contributes nothing.
    pub fn of(needs: Needs, ingress: PortId, bytes: &[u8], wire_len: usize, cells: u32) -> Option<Contribution> {
        const SHARD_KIND: u8 = 32;
        const MOST_SHARDS: u32 = (1 << 30) - 1;
        // Sparse tensors here have a word of eight bytes behind each index of two.
        const PAIR_BYTES: usize = 2 + 8;
        let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let vector = wire_len - PROTOCOL.header_len;
        let dense = Contribution { child: ingress.0, vector_bytes: 0, shard: 0, shards: 0, cells, indices: Vec::new() };
        match needs {
            Needs::Nothing => None,
            Needs::Buffer(_) | Needs::Leaf(..) => Some(Contribution { vector_bytes: vector as u32, ..dense }),
            Needs::Table | Needs::Array if Common::parse(bytes).is_ok_and(|common| common.kind == SHARD_KIND) => {
                let body = &bytes[PROTOCOL.header_len..];
                let indices = body[..2 * (body.len() / PAIR_BYTES)].chunks_exact(2);
                let indices = indices.map(|index| u16::from_be_bytes([index[0], index[1]])).collect();
                Some(Contribution { shard: word(32), shards: word(36) & MOST_SHARDS, indices, ..dense })
            }
            Needs::Table | Needs::Array => None,
        }
    }

    /// True if it has no element.
    pub fn is_empty(&self) -> bool {
        self.vector_bytes == 0 && self.indices.is_empty()
    }
}

/// A job's handlers in one switch.
pub struct Handlers {
    setup: Setup,
    shape: Shape,
    /// For each cluster and storage, the unit, if it was needed so far.
    units: Vec<[Option<Box<Unit>>; Storage::ALL.len()]>,
    /// How many packets were charged by the table because no handler could run.
    pub not_run: u64,
    /// Why no handler could run, if one could not.
    pub why: Option<String>,
}

/// The committed programs.
fn program(storage: Storage, code: Code) -> Program {
    macro_rules! elf {
        ($name:literal) => {
            include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/handlers/bin/", $name, ".elf"))
        };
    }
    let file: &[u8] = match (storage.program(), code) {
        ("dense", Code::C) => elf!("dense-plain"),
        ("dense", Code::Xpulp) => elf!("dense-xpulp"),
        (_, Code::C) => elf!("sparse-plain"),
        (_, Code::Xpulp) => elf!("sparse-xpulp"),
    };
    Program::read(file).expect("the tests of handlers read every committed program")
}

/// The fields of a sparse block, by their distances from its beginning.
struct SparseLayout {
    cells: u32,
    capacity: u32,
    keys: u32,
    values: u32,
    spill: u32,
    out: u32,
    bytes: u32,
}

impl Setup {
    /// How many blocks a cluster has.
    fn window(&self, shape: &Shape) -> u32 {
        self.blocks.div_ceil(shape.clusters).next_power_of_two()
    }

    fn buffers(&self, needs: Needs) -> u32 {
        match needs {
            Needs::Buffer(buffers) => u32::from(buffers.max(1)),
            Needs::Leaf(_, positions) => positions.into(),
            _ => 1,
        }
    }

    fn size(&self) -> u32 {
        self.dtype.size() as u32
    }

    fn sparse(&self, storage: Storage, cells: u32) -> SparseLayout {
        let (size, is_hash) = (self.size(), storage == Storage::Hash);
        let capacity = (self.payload_bytes / (2 + size)) & !1;
        let cells = if is_hash { cells } else { cells.next_multiple_of(32) };
        let packet = 12 + (2 + size) * capacity + 4;
        let keys = SPARSE_BLOCK_BYTES;
        let values = keys + if is_hash { 4 * cells } else { cells / 8 };
        let spill = (values + size * cells).next_multiple_of(4);
        let out = (spill + packet).next_multiple_of(4);
        SparseLayout { cells, capacity, keys, values, spill, out, bytes: (out + packet).next_multiple_of(4) }
    }

    /// Checks that these handlers can run; the error is half a sentence.
    pub fn check(&self, shape: &Shape, needs: Needs, cells: u32) -> Result<(), String> {
        let (window, storage) = (u64::from(self.window(shape)), Storage::of(needs));
        let block = match storage {
            Storage::Hash | Storage::Array => self.sparse(storage, cells).bytes,
            _ => DENSE_BLOCK_BYTES + self.buffers(needs) * (8 + self.payload_bytes),
        };
        let capacity = map::STACK - STACK_BYTES - BLOCKS;
        if window * u64::from(block) > capacity.into() {
            return Err(format!(
                "{window} blocks of {block} bytes do not fit into the {capacity} bytes of a cluster: give the job fewer slots"
            ));
        }
        if self.children > MOST_CHILDREN || storage == Storage::Multi && self.buffers(needs) > MOST_BUFFERS {
            return Err(format!("the handlers have memory for {MOST_CHILDREN} children and {MOST_BUFFERS} buffers"));
        }
        if self.payload_bytes > MOST_PACKET_BYTES
            || cells > 1 << 16
            || storage == Storage::Hash && !cells.is_power_of_two()
        {
            return Err("packets or blocks are longer than the handlers know, or a table has no power of two of slots"
                .to_owned());
        }
        Ok(())
    }
}

impl Handlers {
    /// Handlers in their initial state.
    pub fn new(setup: Setup, shape: Shape) -> Handlers {
        let units = (0..shape.clusters).map(|_| Default::default()).collect();
        Handlers { setup, shape, units, not_run: 0, why: None }
    }

    /// Runs the handler of a packet with this buffer of its block. Returns its cycles; `None` if there is no handler
    /// for the packet.
    pub fn run(&mut self, packet: &Packet, buffer: u32, contribution: &Contribution) -> Option<u64> {
        let storage = Storage::of(packet.needs);
        if packet.needs == Needs::Nothing || !Storage::ALL.contains(&storage) {
            return None;
        }
        let subsets = self.shape.all_cores() / self.shape.subset_cores();
        let own = self.shape.cores / self.shape.subset_cores();
        let (round, subset) = (packet.block / u64::from(subsets), packet.block % u64::from(subsets));
        let number = (round * u64::from(own)) as u32 + subset as u32 % own;
        let (setup, shape) = (self.setup, self.shape);
        if let Err(why) = setup.check(&shape, packet.needs, contribution.cells) {
            self.not_run += 1;
            self.why.get_or_insert(why);
            return None;
        }
        let unit = &mut self.units[packet.cluster as usize][storage as usize];
        let unit = unit.get_or_insert_with(|| Box::new(setup.unit(&shape, storage, packet.needs, contribution.cells)));
        let handler = format!("{}_{}", storage.name(), setup.dtype);
        let bytes = setup.packet(storage, number, contribution);
        unit.memory().write(PACKET, &bytes).ok()?;
        let locks = BLOCKS + (number & (setup.window(&shape) - 1)) * DENSE_BLOCK_BYTES + LOCKS_AT;
        if storage == Storage::Multi {
            write(
                unit,
                locks,
                &std::array::from_fn::<u32, { MOST_BUFFERS as usize }, _>(|at| u32::from(at as u32 != buffer)),
            );
        }
        let (counts, _) = unit.call(&handler, &[PACKET, JOB], MOST_CYCLES).ok()?;
        if storage == Storage::Multi {
            write(unit, locks, &[0; MOST_BUFFERS as usize]);
        }
        Some(counts.cycles)
    }

    /// The costs of a call whose handler took `total`: the table's parts in their proportions. Which parts it had (its
    /// packet into an empty buffer or a used one, and how many merges) is guessed from the nearest sum.
    pub fn corrected(called: Called, packet: &Packet, total: u64) -> Called {
        let rest = total.saturating_sub(packet.start) as f64;
        let is_tree = matches!(packet.needs, Needs::Leaf(..));
        let sum = |own: &Spent, merges: u64| {
            // In a tree the DMA copies.
            let own = if is_tree { 0 } else { own.total() };
            (own + merges * called.merge.total() + called.end.total()) as f64
        };
        let sums =
            [called.copy, called.combine].into_iter().flat_map(|own| (0..8).map(move |merges| sum(&own, merges)));
        let nearest = sums.min_by(|a, b| (a - rest).abs().total_cmp(&(b - rest).abs()));
        // A leaf of a tree without a sibling costs nothing more; the table prices its later merges, in the processor's
        // order.
        let Some(nearest) = nearest.filter(|&sum| sum > 0.0) else { return called };
        let scale = |spent: Spent| spent.scaled(rest / nearest);
        Called {
            copy: if is_tree { called.copy } else { scale(called.copy) },
            combine: scale(called.combine),
            merge: scale(called.merge),
            end: scale(called.end),
            ..called
        }
    }
}

impl Setup {
    /// A cluster's memory with the job's handlers.
    fn unit(&self, shape: &Shape, storage: Storage, needs: Needs, cells: u32) -> Unit {
        let mut unit = Unit::new(&program(storage, self.code), Timing::RI5CY).expect("committed programs fit");
        let window = self.window(shape);
        let head = [self.children, window - 1, 0, 0, BLOCKS];
        let rest = match storage {
            Storage::Hash | Storage::Array => {
                let SparseLayout { cells, capacity, keys, values, spill, out, bytes } = self.sparse(storage, cells);
                vec![bytes, cells, capacity, keys, values, spill, out]
            }
            _ => vec![BLOCKS + window * DENSE_BLOCK_BYTES, 8 + self.payload_bytes, self.buffers(needs)],
        };
        write(&mut unit, JOB, &[&head[..], &rest].concat());
        unit
    }

    /// The packet in the form that handlers read.
    fn packet(&self, storage: Storage, block: u32, contribution: &Contribution) -> Vec<u8> {
        let mut bytes = block.to_le_bytes().to_vec();
        bytes.extend(contribution.child.to_le_bytes());
        // The value is one, because a subnormal number would take another path through handlers that widen halves
        // themselves.
        let value = match self.dtype {
            DType::F32 => 1f32.to_bits(),
            DType::F16 => f16::from_f32(1.0).to_bits().into(),
            _ => 1u32,
        };
        let value = value.to_le_bytes();
        let values = match storage {
            Storage::Hash | Storage::Array => {
                let shards = [contribution.indices.len() as u16, contribution.shard as u16, contribution.shards as u16];
                bytes.extend(shards.into_iter().chain(contribution.indices.iter().copied()).flat_map(u16::to_le_bytes));
                bytes.resize(bytes.len().next_multiple_of(4), 0);
                contribution.indices.len()
            }
            _ => {
                let elements = contribution.vector_bytes / self.size();
                bytes.extend((elements as u16).to_le_bytes());
                elements as usize
            }
        };
        (0..values).for_each(|_| bytes.extend(&value[..self.size() as usize]));
        bytes
    }
}

fn write(unit: &mut Unit, address: u32, words: &[u32]) {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    unit.memory().write(address, &bytes).expect("L1 is there");
}

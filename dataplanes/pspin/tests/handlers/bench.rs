//! A processing unit with a program of `handlers`, and jobs and packets as the handlers' C has them.

use std::path::{Path, PathBuf};

use tributary_pspin::{CallError, Command, CommandKind, Counts, Program, Timing, Unit, map};

use crate::element::Element;

/// Where things are in L1.
const JOB: u32 = map::L1;
const PACKET: u32 = map::L1 + 0x100;
const BLOCKS: u32 = map::L1 + 0x4000;
const BUFFERS: u32 = map::L1 + 0x2_0000;
/// More than any handler needs for a packet.
const CYCLES: u64 = 1_000_000;

/// Blocks at a time.
pub const WINDOW: u32 = 4;
/// Who the switch is to its parent, and where that is.
pub const CHILD: u16 = 5;
pub const DESTINATION: u32 = 77;

/// The struct `block` of `dense.c`.
const DENSE_BLOCK_BYTES: u32 = 4 * (3 + 4 + 4 + 6);
const LOCKS: u32 = 4 * 3;
pub const MOST_BUFFERS: u32 = 4;
/// The struct `block` of `sparse.c`.
const SPARSE_BLOCK_BYTES: u32 = 4 * 4 + 32 * 16;

pub fn dataplane() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("handlers")
}

pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A program and the job whose packets its handlers get.
pub struct Bench {
    unit: Unit,
    handler: String,
    buffer_bytes: u32,
    buffers: u32,
}

/// What sparse handlers are told of a block.
#[derive(Clone, Copy, Debug)]
pub struct Sparse {
    /// Slots, or the span.
    pub cells: u32,
    /// Pairs of a packet.
    pub capacity: u32,
}

impl Bench {
    /// `program` is the name of an ELF file, `design` the first part of a handler's name.
    fn new(program: &str, design: &str, element: Element) -> Bench {
        let path = dataplane().join("bin").join(format!("{program}.elf"));
        let file = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let unit = Unit::new(&Program::read(&file).unwrap(), Timing::RI5CY).unwrap();
        Bench { unit, handler: format!("{design}_{}", element.name()), buffer_bytes: 0, buffers: 0 }
    }

    /// A dense job.
    pub fn dense(program: &str, design: &str, element: Element, children: u32, buffers: u32) -> Bench {
        let mut bench = Bench::new(program, design, element);
        (bench.buffer_bytes, bench.buffers) = (8 + 1024, buffers);
        let job = [children, WINDOW - 1, CHILD.into(), DESTINATION, BLOCKS, BUFFERS, bench.buffer_bytes, buffers];
        bench.write(JOB, &job);
        bench
    }

    /// A sparse one.
    pub fn sparse(program: &str, design: &str, element: Element, children: u32, of: Sparse) -> Bench {
        let mut bench = Bench::new(program, design, element);
        let value = element.bytes() as u32;
        let packet = 12 + (2 + value) * of.capacity + 4;
        let keys = SPARSE_BLOCK_BYTES;
        let values = keys + if design == "hash" { 4 * of.cells } else { of.cells / 8 };
        let spill = (values + value * of.cells).next_multiple_of(4);
        let out = (spill + packet).next_multiple_of(4);
        let block = (out + packet).next_multiple_of(4);
        assert!(BLOCKS + WINDOW * block < map::STACK - 0x1000, "blocks fit into L1");
        let head = [children, WINDOW - 1, CHILD.into(), DESTINATION, BLOCKS, block, of.cells, of.capacity];
        bench.write(JOB, &[&head[..], &[keys, values, spill, out]].concat());
        bench
    }

    fn write(&mut self, address: u32, words: &[u32]) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.unit.memory().write(address, &bytes).unwrap();
    }

    /// Gives a packet to the handler: what that cost, and what it asked for.
    pub fn deliver(&mut self, packet: &[u8]) -> (Counts, Vec<Command>) {
        self.unit.memory().write(PACKET, packet).unwrap();
        self.unit.call(&self.handler, &[PACKET, JOB], CYCLES).unwrap()
    }

    /// The same where another core holds the block's lock and never lets go of it.
    pub fn deliver_while_locked(&mut self, packet: &[u8]) -> CallError {
        self.write(BLOCKS, &[1]);
        self.unit.memory().write(PACKET, packet).unwrap();
        self.unit.call(&self.handler, &[PACKET, JOB], CYCLES).unwrap_err()
    }

    /// The packets that a handler sent when it got this one.
    pub fn sent(&mut self, packet: &[u8]) -> Vec<Vec<u8>> {
        let sends = self.deliver(packet).1.into_iter().filter(|command| command.kind == CommandKind::Send);
        sends
            .map(|command| {
                assert_eq!(command.destination, DESTINATION);
                command.data
            })
            .collect()
    }

    /// Cycles of a packet.
    pub fn cycles(&mut self, packet: &[u8]) -> u64 {
        self.deliver(packet).0.cycles
    }

    /// Other cores hold these buffers of a block, or none.
    pub fn take_buffers(&mut self, block: u32, taken: [bool; MOST_BUFFERS as usize]) {
        let address = BLOCKS + block % WINDOW * DENSE_BLOCK_BYTES + LOCKS;
        self.write(address, &taken.map(u32::from));
    }
}

/// A dense packet.
pub fn dense_packet(block: u32, child: u16, element: Element, values: &[u32]) -> Vec<u8> {
    let header = [&block.to_le_bytes()[..], &child.to_le_bytes(), &(values.len() as u16).to_le_bytes()].concat();
    [header, element.pack(values)].concat()
}

/// A sparse one. `shards` is how many there are, in the last.
pub fn sparse_packet(block: u32, child: u16, shard: (u16, u16), element: Element, pairs: &[(u16, u32)]) -> Vec<u8> {
    let halves = [child, pairs.len() as u16, shard.0, shard.1];
    let indices = pairs.iter().map(|&(index, _)| index);
    let mut packet = block.to_le_bytes().to_vec();
    packet.extend(halves.into_iter().chain(indices).flat_map(u16::to_le_bytes));
    packet.resize(packet.len().next_multiple_of(4), 0);
    packet.extend(element.pack(&pairs.iter().map(|&(_, value)| value).collect::<Vec<_>>()));
    packet
}

//! Sparse blocks: the same packets as a plain table gives, byte for byte.

use crate::bench::{Bench, CHILD, Sparse, WINDOW, sparse_packet};
use crate::element::{Element, Random};

const PROGRAMS: [&str; 2] = ["sparse-plain", "sparse-xpulp"];
const ROUNDS: u64 = 20;

/// A shard of a child's block, as it comes.
struct Shard {
    block: u32,
    child: u16,
    number: (u16, u16),
    pairs: Vec<(u16, u32)>,
}

/// All shards of all children of some blocks, in any order. Indices of a child differ and grow.
fn shards(element: Element, children: u32, of: Sparse, span: u32, random: &mut Random) -> Vec<Shard> {
    let mut all = Vec::new();
    for (block, child) in (0..WINDOW).flat_map(|block| (0..children as u16).map(move |child| (block, child))) {
        let one_in = 1 + random.below(6);
        let indices = (0..span as u16).filter(|_| random.below(one_in) == 0).collect::<Vec<_>>();
        let pairs: Vec<_> = indices.into_iter().map(|index| (index, element.random(random))).collect();
        let mut packets: Vec<&[(u16, u32)]> = pairs.chunks(of.capacity as usize).collect();
        if packets.is_empty() {
            packets.push(&[]);
        }
        let count = packets.len() as u16;
        for (number, pairs) in (0..).zip(packets) {
            let number = (number, if number + 1 == count { count } else { 0 });
            all.push(Shard { block, child, number, pairs: pairs.to_vec() });
        }
    }
    random.shuffle(&mut all);
    all
}

fn check(design: &str, program: &str, element: Element, seed: u64) {
    let random = &mut Random(seed);
    let children = 1 + random.below(8) as u32;
    let (is_hash, cells) = (design == "hash", 32 << random.below(4));
    let span = if is_hash { cells * (1 + random.below(5) as u32) } else { cells };
    // A child has at most 64 shards.
    let of = Sparse { cells, capacity: 2 * (1 + random.below(40) as u32 + span / 128) };
    let mut bench = Bench::sparse(program, design, element, children, of);
    // Later blocks have the memory of those before.
    for first in [0, WINDOW, 2 * WINDOW] {
        let shards = shards(element, children, of, span, random);
        let table = |block| Table::new(is_hash, element, first + block, of.cells, of.capacity);
        let mut tables: Vec<Table> = (0..WINDOW).map(table).collect();
        for (at, shard) in shards.iter().enumerate() {
            let Shard { block, child, number, pairs } = shard;
            let table = &mut tables[*block as usize];
            pairs.iter().for_each(|&(index, value)| table.add(index, value));
            let is_last = !shards[at + 1..].iter().any(|other| other.block == *block);
            if is_last {
                table.end();
            }
            let packet = sparse_packet(first + block, *child, *number, element, pairs);
            let what = format!("{program} {design} {element:?} seed {seed} from {first} shard {at}");
            assert!(bench.sent(&packet) == table.take_sent(), "{what}: other packets than the table's");
            if !is_last && random.below(4) == 0 {
                assert!(bench.sent(&packet).is_empty(), "{what}: a duplicate");
            }
        }
    }
}

fn check_all(design: &str) {
    for (program, element) in PROGRAMS.iter().flat_map(|program| Element::ALL.map(|element| (program, element))) {
        (0..ROUNDS).for_each(|seed| check(design, program, element, seed));
    }
}

#[test]
fn a_hash_table_keeps_first_comers_adds_to_them_and_spills_others() {
    check_all("hash");
}

#[test]
fn an_array_keeps_every_index_and_sends_them_in_order() {
    check_all("array");
}

#[test]
fn a_sum_of_zero_stays_an_element() {
    for design in ["hash", "array"] {
        let of = Sparse { cells: 32, capacity: 8 };
        let mut bench = Bench::sparse("sparse-plain", design, Element::F32, 2, of);
        let (one, minus_one) = (1f32.to_bits(), (-1f32).to_bits());
        assert!(bench.sent(&sparse_packet(0, 0, (0, 1), Element::F32, &[(3, one)])).is_empty());
        let sent = bench.sent(&sparse_packet(0, 1, (0, 1), Element::F32, &[(3, minus_one)]));
        assert_eq!(sent, [sparse_packet(0, crate::bench::CHILD, (0, 1), Element::F32, &[(3, 0)])]);
    }
}

/// What a switch keeps of one block, and the packets that it has sent.
pub struct Table {
    element: Element,
    is_hash: bool,
    block: u32,
    capacity: usize,
    cells: Vec<Option<(u16, u32)>>,
    spilled: Vec<(u16, u32)>,
    shards: u16,
    sent: Vec<Vec<u8>>,
}

impl Table {
    pub fn new(is_hash: bool, element: Element, block: u32, cells: u32, capacity: u32) -> Table {
        let cells = vec![None; cells as usize];
        Table { element, is_hash, block, capacity: capacity as usize, cells, spilled: vec![], shards: 0, sent: vec![] }
    }

    /// Takes in a pair: a slot is its first comer's, the same index is added, any other spills.
    pub fn add(&mut self, index: u16, value: u32) {
        let cell = if self.is_hash { usize::from(index) % self.cells.len() } else { usize::from(index) };
        match &mut self.cells[cell] {
            Some((there, sum)) if *there == index => *sum = self.element.add(*sum, value),
            Some(_) => {
                self.spilled.push((index, value));
                if self.spilled.len() == self.capacity {
                    let pairs = std::mem::take(&mut self.spilled);
                    self.send(&pairs, false);
                }
            }
            free => *free = Some((index, value)),
        }
    }

    /// All children are in: what has spilled and was not sent, then the table in order, the last packet with the count.
    pub fn end(&mut self) {
        let pairs: Vec<_> = self.spilled.drain(..).chain(self.cells.iter_mut().filter_map(Option::take)).collect();
        let mut packets: Vec<&[(u16, u32)]> = pairs.chunks(self.capacity).collect();
        let last = packets.pop().unwrap_or_default();
        packets.into_iter().for_each(|packet| self.send(packet, false));
        self.send(last, true);
        self.shards = 0;
    }

    fn send(&mut self, pairs: &[(u16, u32)], ends: bool) {
        let shard = (self.shards, if ends { self.shards + 1 } else { 0 });
        self.shards += 1;
        self.sent.push(sparse_packet(self.block, CHILD, shard, self.element, pairs));
    }

    /// The packets since the last look.
    pub fn take_sent(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.sent)
    }
}

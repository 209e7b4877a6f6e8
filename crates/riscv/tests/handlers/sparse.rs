//! Sparse blocks: the same packets as a plain table gives, byte for byte.

use crate::bench::{Bench, Sparse, WINDOW, sparse_packet};
use crate::element::{Element, Random};
use crate::table::Table;

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
        let mut parts: Vec<&[(u16, u32)]> = pairs.chunks(of.capacity as usize).collect();
        if parts.is_empty() {
            parts.push(&[]);
        }
        let count = parts.len() as u16;
        for (number, pairs) in (0..).zip(parts) {
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
    let (is_hash, places) = (design == "hash", 32 << random.below(4));
    let span = if is_hash { places * (1 + random.below(5) as u32) } else { places };
    // A child has at most 64 shards.
    let of = Sparse { places, capacity: 2 * (1 + random.below(40) as u32 + span / 128) };
    let mut bench = Bench::sparse(program, design, element, children, of);
    // Later blocks have the memory of those before.
    for first in [0, WINDOW, 2 * WINDOW] {
        let shards = shards(element, children, of, span, random);
        let table = |block| Table::new(is_hash, element, first + block, of.places, of.capacity);
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
        let of = Sparse { places: 32, capacity: 8 };
        let mut bench = Bench::sparse("sparse-plain", design, Element::F32, 2, of);
        let (one, minus_one) = (1f32.to_bits(), (-1f32).to_bits());
        assert!(bench.sent(&sparse_packet(0, 0, (0, 1), Element::F32, &[(3, one)])).is_empty());
        let sent = bench.sent(&sparse_packet(0, 1, (0, 1), Element::F32, &[(3, minus_one)]));
        assert_eq!(sent, [sparse_packet(0, crate::bench::CHILD, (0, 1), Element::F32, &[(3, 0)])]);
    }
}

//! The cycles of steps add up to what packets take in which steps are mixed: a simulator may charge them step by step.

use std::collections::BTreeMap;

use crate::bench::{Bench, Sparse, dense_packet, sparse_packet};
use crate::cycles::COUNTED;
use crate::element::{Element, Random};

/// Cycles of a step: of an element, or of a packet.
struct Table(BTreeMap<String, f64>);

impl Table {
    /// The steps of one handler.
    fn of(program: &str, storage: &str, element: Element) -> Table {
        let prefix = format!("{program},{storage},{},", element.name());
        let steps = COUNTED.lines().filter_map(|line| line.strip_prefix(&prefix)).map(|line| {
            let [step, elements, cycles, _] = line.split(',').collect::<Vec<_>>()[..] else { panic!("{line}") };
            (step.to_owned(), cycles.parse::<f64>().unwrap() / elements.parse::<f64>().unwrap())
        });
        Table(steps.collect())
    }

    /// The cycles of a number of each step.
    fn sum(&self, steps: &[(&str, usize)]) -> f64 {
        steps.iter().map(|&(step, count)| self.0[step] * count as f64).sum()
    }
}

fn near(counted: u64, expected: f64, what: &str) {
    let error = (counted as f64 - expected).abs() / expected;
    assert!(error < 0.02, "{what}: {counted} cycles, and {expected:.0} by the table");
}

#[test]
fn pairs_of_all_fates_in_one_packet() {
    let of = Sparse { cells: 256, capacity: 164 };
    for (program, element) in ["sparse-plain", "sparse-xpulp"].into_iter().flat_map(|p| Element::ALL.map(|e| (p, e))) {
        let table = Table::of(program, "hash", element);
        let mut random = Random(7);
        let mut bench = Bench::sparse(program, "hash", element, 32, of);
        let mut slots = [None; 256];
        let mut spilled = 0;
        for child in 0..20 {
            // A random part of a long span.
            let indices: Vec<u16> = (0..1600).filter(|_| random.below(10) == 0).take(164).collect();
            let (mut hits, mut inserts, mut spills) = (0, 0, 0);
            for index in &indices {
                match &mut slots[usize::from(*index) % 256] {
                    Some(there) if there == index => hits += 1,
                    Some(_) => spills += 1,
                    free => (*free, inserts) = (Some(*index), inserts + 1),
                }
            }
            spilled += spills;
            let sends = spilled / 164;
            spilled %= 164;
            let pairs: Vec<_> = indices.iter().map(|&index| (index, element.some())).collect();
            let counted = bench.cycles(&sparse_packet(0, child, (0, 1), element, &pairs));
            let steps = [("begin", 1), ("hit", hits), ("insert", inserts), ("spill", spills), ("send", sends)];
            near(counted, table.sum(&steps), &format!("{program} {element:?} child {child}: {steps:?}"));
        }
    }
}

#[test]
fn a_scan_of_cells_that_are_partly_empty() {
    let of = Sparse { cells: 1024, capacity: 164 };
    for (program, element) in ["sparse-plain", "sparse-xpulp"].into_iter().flat_map(|p| Element::ALL.map(|e| (p, e))) {
        let table = Table::of(program, "array", element);
        let mut random = Random(8);
        // Of the two packets of the result the second is not full.
        let mut indices: Vec<u16> = (0..1024).collect();
        random.shuffle(&mut indices);
        indices.truncate(164 + 100);
        let pairs: Vec<_> = indices.into_iter().map(|index| (index, 0)).collect();
        let mut bench = Bench::sparse(program, "array", element, 1, of);
        let (first, last) = pairs.split_at(164);
        bench.cycles(&sparse_packet(0, 0, (0, 0), element, first));
        let counted = bench.cycles(&sparse_packet(0, 0, (1, 2), element, last));
        let steps = [
            ("begin", 1),
            ("insert", 100),
            ("scan_zero", 1024 - 264),
            ("scan_value", 264),
            ("send", 2),
            ("move", 100),
            ("end", 1),
        ];
        near(counted, table.sum(&steps), &format!("{program} {element:?}"));
    }
}

#[test]
fn the_last_packet_of_a_tree_goes_up_all_levels() {
    for (program, element) in ["dense-plain", "dense-xpulp"].into_iter().flat_map(|p| Element::ALL.map(|e| (p, e))) {
        let table = Table::of(program, "tree", element);
        let elements = 1024 / element.bytes();
        let mut bench = Bench::dense(program, "tree", element, 16, 16);
        let mut cycles = |child| bench.cycles(&dense_packet(0, child, element, &vec![0; elements]));
        let last = (0..16).map(&mut cycles).last().unwrap();
        let steps = [("begin", 1), ("level", 4), ("combine", 4 * elements), ("send", 1)];
        near(last, table.sum(&steps), &format!("{program} {element:?}"));
    }
}

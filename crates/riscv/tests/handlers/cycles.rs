//! What the steps of handlers cost: `experiments/pspin-cycles.csv`, counted anew and compared.
//!
//! A step is the difference between two packets that differ in it alone: a vector of so many elements and one of none, a table
//! that is full and one that is empty. Nothing is added to handlers to measure them.

use std::fmt::Write;
use std::sync::LazyLock;
use std::{env, fs};

use crate::bench::{Bench, MOST_BUFFERS, Sparse, dense_packet, repository, sparse_packet};
use crate::element::Element;
use crate::page::with_table;

/// Set to write the file instead.
const BLESS: &str = "TRIBUTARY_BLESS";
const FILE: &str = "experiments/pspin-cycles.csv";
/// The page that has them as a table.
const PAGE: &str = "docs/pspin.md";
const HEADER: &str = "handler,storage,type,step,elements,cycles,cycles_per_element\n";
/// Bytes of a packet's elements.
const PAYLOAD: usize = 1024;

/// Of one handler: so many elements of a step, and their cycles.
type Steps = Vec<(&'static str, usize, u64)>;

/// The file as it should be.
pub static COUNTED: LazyLock<String> = LazyLock::new(|| {
    let mut counted = HEADER.to_owned();
    for program in ["dense-plain", "dense-xpulp"] {
        for (design, element) in pairs(&["single", "multi", "tree"]) {
            append(&mut counted, program, design, element, &dense_steps(program, design, element));
        }
    }
    for program in ["sparse-plain", "sparse-xpulp"] {
        for (design, element) in pairs(&["hash", "array"]) {
            append(&mut counted, program, design, element, &sparse_steps(program, design, element));
        }
    }
    counted
});

#[test]
fn the_committed_cycles_are_what_the_handlers_take() {
    let page = fs::read_to_string(repository().join(PAGE)).unwrap();
    for (file, made) in [(FILE, &*COUNTED), (PAGE, &with_table(&page, &COUNTED))] {
        hold(file, made);
    }
}

/// Compares a committed file with what it should be, or writes it.
fn hold(file: &str, made: &str) {
    let path = repository().join(file);
    if env::var_os(BLESS).is_some() {
        fs::write(&path, made).unwrap();
        return;
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == made, "{file} is not what was counted; `{BLESS}=1 cargo test -p tributary-riscv` writes it");
}

fn pairs<'a>(designs: &'a [&'static str]) -> impl Iterator<Item = (&'static str, Element)> + 'a {
    designs.iter().flat_map(|&design| Element::ALL.map(|element| (design, element)))
}

fn append(file: &mut String, program: &str, design: &str, element: Element, steps: &Steps) {
    for &(step, elements, cycles) in steps {
        let (name, each) = (element.name(), cycles as f64 / elements as f64);
        writeln!(file, "{program},{design},{name},{step},{elements},{cycles},{each:.3}").unwrap();
    }
}

/// Cycles of the last of some children's packets, of so many elements each.
fn dense_cycles(bench: &mut Bench, element: Element, children: &[u16], elements: usize) -> u64 {
    let values: Vec<u32> = vec![element.some(); elements];
    children.iter().map(|&child| bench.cycles(&dense_packet(0, child, element, &values))).last().unwrap()
}

fn dense_steps(program: &str, design: &str, element: Element) -> Steps {
    let full = PAYLOAD / element.bytes();
    match design {
        "tree" => tree_steps(program, element, full),
        _ => buffer_steps(program, design, element, full),
    }
}

/// `begin`: all that a packet costs besides its elements. `send`: what the last one costs more.
fn buffer_steps(program: &str, design: &str, element: Element, full: usize) -> Steps {
    let buffers = if design == "multi" { MOST_BUFFERS } else { 1 };
    let last_of = |children: &[u16], of, elements| {
        let mut bench = Bench::dense(program, design, element, of, buffers);
        dense_cycles(&mut bench, element, children, elements)
    };
    let begin = last_of(&[0, 1], 3, 0);
    let mut steps = vec![
        ("begin", 1, begin),
        ("copy", full, last_of(&[0], 3, full) - last_of(&[0], 3, 0)),
        ("combine", full, last_of(&[0, 1], 3, full) - begin),
        ("send", 1, last_of(&[0, 1], 2, 0) - begin),
    ];
    if design == "multi" {
        steps.push(("merge", 1, merge(program, element)));
        steps.push(("try", 1, tried(program, element)));
    }
    steps
}

/// What it costs the last handler that another buffer is in use, too, without its elements.
fn merge(program: &str, element: Element) -> u64 {
    let last = |held_at_first| {
        let mut bench = Bench::dense(program, "multi", element, 3, MOST_BUFFERS);
        bench.hold_buffers(0, [held_at_first, false, false, false]);
        dense_cycles(&mut bench, element, &[0], 0);
        bench.hold_buffers(0, [false; MOST_BUFFERS as usize]);
        // Now the first buffer has something, in either case.
        dense_cycles(&mut bench, element, &[1, 2], 0)
    };
    last(true) - last(false)
}

/// What it costs that a buffer is held by another handler, so that the next one is tried.
fn tried(program: &str, element: Element) -> u64 {
    let second_of = |held: [bool; MOST_BUFFERS as usize]| {
        let mut bench = Bench::dense(program, "multi", element, 3, MOST_BUFFERS);
        dense_cycles(&mut bench, element, &[0], 0);
        bench.hold_buffers(0, held);
        dense_cycles(&mut bench, element, &[1], 0)
    };
    (second_of([true, true, true, false]) - second_of([true, false, false, false])) / 2
}

/// `begin`: a packet whose sibling is not there. `level`: its sibling is, but at the next level nobody. `send`: there is no next.
fn tree_steps(program: &str, element: Element, full: usize) -> Steps {
    let last_of = |children: &[u16], of, elements| {
        let mut bench = Bench::dense(program, "tree", element, of, of);
        dense_cycles(&mut bench, element, children, elements)
    };
    let begin = last_of(&[0], 4, 0);
    let level = last_of(&[0, 1], 4, 0) - begin;
    vec![
        ("begin", 1, begin),
        ("copy", full, last_of(&[0], 4, full) - begin),
        ("combine", full, last_of(&[0, 1], 4, full) - begin - level),
        ("level", 1, level),
        ("send", 1, last_of(&[0, 1], 2, 0) - begin - level),
    ]
}

/// One sparse block: `filled` pairs come and are kept; then comes one packet more, whose cycles are given.
struct Block<'a> {
    program: &'a str,
    design: &'a str,
    element: Element,
    of: Sparse,
    filled: usize,
}

impl Block<'_> {
    fn cycles_of(&self, indices: impl Iterator<Item = u16>, ends: bool) -> u64 {
        let Block { program, design, element, of, filled } = *self;
        let mut bench = Bench::sparse(program, design, element, if ends { 1 } else { 2 }, of);
        let one = element.some();
        let packet = |shard, indices: &mut dyn Iterator<Item = u16>| {
            sparse_packet(0, 0, shard, element, &indices.map(|index| (index, one)).collect::<Vec<_>>())
        };
        bench.cycles(&packet((0, 0), &mut (0..filled as u16)));
        let mut indices = indices;
        bench.cycles(&packet((1, if ends { 2 } else { 0 }), &mut indices))
    }

    /// Cycles of the end of the block.
    fn end(&self) -> u64 {
        self.cycles_of([].into_iter(), true)
    }
}

fn sparse_steps(program: &str, design: &str, element: Element) -> Steps {
    // Indices and values fill a packet; tables have room for more than that.
    let pairs = (PAYLOAD / (2 + element.bytes())) & !3;
    let (places, half) = (1024u32, pairs / 2);
    let block = |places: u32, capacity: usize, filled: usize| {
        let of = Sparse { places, capacity: capacity as u32 };
        Block { program, design, element, of, filled }
    };
    let (indices, none) = (|| 0..pairs as u16, || 0..0u16);
    let begin = block(places, pairs, 0).cycles_of(none(), false);
    let hit = block(places, pairs, pairs).cycles_of(indices(), false) - begin;
    let insert = block(places, pairs, 0).cycles_of(indices(), false) - begin;
    let mut steps = vec![("begin", 1, begin), ("hit", pairs, hit), ("insert", pairs, insert)];
    // All that spill have the slot of another. In one case they fill a packet, in the other it would have had room for two more.
    let others = || indices().map(|index| index + places as u16);
    let spill = |capacity| block(places, capacity, pairs).cycles_of(others(), false);
    // As many values in one packet or in two; half as many in one.
    let (one, two, less) =
        (block(places, pairs, pairs).end(), block(places, half, pairs).end(), block(places, half, half).end());
    let sent = if design == "hash" {
        steps.push(("spill", pairs, spill(pairs + 2) - begin));
        spill(pairs) - spill(pairs + 2)
    } else {
        two - one
    };
    let cells = (places / 2) as usize;
    let scan_zero = block(places, pairs, 0).end() - block(places / 2, pairs, 0).end();
    let more_for_values = one - less;
    let scan_value = more_for_values + scan_zero * half as u64 / cells as u64;
    // As many values in a packet that has room for more: they are moved up behind the indices.
    let moved = block(places, pairs + 2, pairs).end() - one;
    let end = block(places, pairs, 0).end() - begin - 2 * scan_zero - sent;
    steps.extend([
        ("scan_zero", cells, scan_zero),
        ("scan_value", half, scan_value),
        ("send", 1, sent),
        ("move", pairs, moved),
        ("end", 1, end),
        ("forget", 1, forget(program, design, element)),
    ]);
    steps
}

/// What the end of a block costs more for each child.
fn forget(program: &str, design: &str, element: Element) -> u64 {
    let end_of = |children: u16| {
        let of = Sparse { places: 32, capacity: 2 };
        let mut bench = Bench::sparse(program, design, element, children.into(), of);
        (0..children).map(|child| bench.cycles(&sparse_packet(0, child, (0, 1), element, &[]))).last().unwrap()
    };
    end_of(2) - end_of(1)
}

//! What the steps of handlers cost: `experiments/pspin-cycles.csv`, counted again and compared, and the table of
//! `dataplanes/pspin/README.md` that shows it.
//!
//! A step is the difference between two packets that differ in it alone: a vector with elements and one without, a table
//! that is full and one that is empty. Nothing is added to handlers to measure them.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::LazyLock;
use std::{env, fs};

use crate::bench::{Bench, MOST_BUFFERS, Sparse, dense_packet, repository, sparse_packet};
use crate::element::Element;

/// Set to write the file instead.
const BLESS: &str = "TRIBUTARY_BLESS";
const FILE: &str = "experiments/pspin-cycles.csv";
/// The page that has them as a table.
const PAGE: &str = "dataplanes/pspin/README.md";
const HEADER: &str = "handler,storage,type,step,elements,cycles,cycles_per_element\n";
/// Bytes of a packet's elements.
const PAYLOAD: usize = 1024;

/// Of one handler: the elements of a step, and their cycles.
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
    assert!(committed == made, "{file} is not what was counted; `{BLESS}=1 cargo test -p tributary-pspin` writes it");
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

/// Cycles of the last of some children's packets, with `elements` elements each.
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
    let last = |taken_at_first| {
        let mut bench = Bench::dense(program, "multi", element, 3, MOST_BUFFERS);
        bench.take_buffers(0, [taken_at_first, false, false, false]);
        dense_cycles(&mut bench, element, &[0], 0);
        bench.take_buffers(0, [false; MOST_BUFFERS as usize]);
        // Now the first buffer has something, in either case.
        dense_cycles(&mut bench, element, &[1, 2], 0)
    };
    last(true) - last(false)
}

/// What it costs that a buffer is taken by another handler, so that the next one is tried.
fn tried(program: &str, element: Element) -> u64 {
    let second_of = |taken: [bool; MOST_BUFFERS as usize]| {
        let mut bench = Bench::dense(program, "multi", element, 3, MOST_BUFFERS);
        dense_cycles(&mut bench, element, &[0], 0);
        bench.take_buffers(0, taken);
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
    let (cells, half) = (1024u32, pairs / 2);
    let block = |cells: u32, capacity: usize, filled: usize| {
        let of = Sparse { cells, capacity: capacity as u32 };
        Block { program, design, element, of, filled }
    };
    let (indices, none) = (|| 0..pairs as u16, || 0..0u16);
    let begin = block(cells, pairs, 0).cycles_of(none(), false);
    let hit = block(cells, pairs, pairs).cycles_of(indices(), false) - begin;
    let insert = block(cells, pairs, 0).cycles_of(indices(), false) - begin;
    let mut steps = vec![("begin", 1, begin), ("hit", pairs, hit), ("insert", pairs, insert)];
    // All that spill have the slot of another. In one case they fill a packet, in the other it would have had room for two more.
    let others = || indices().map(|index| index + cells as u16);
    let spill = |capacity| block(cells, capacity, pairs).cycles_of(others(), false);
    // As many values in one packet or in two; half as many in one.
    let (one, two, less) =
        (block(cells, pairs, pairs).end(), block(cells, half, pairs).end(), block(cells, half, half).end());
    let sent = if design == "hash" {
        steps.push(("spill", pairs, spill(pairs + 2) - begin));
        spill(pairs) - spill(pairs + 2)
    } else {
        two - one
    };
    let half_of_cells = (cells / 2) as usize;
    let scan_zero = block(cells, pairs, 0).end() - block(cells / 2, pairs, 0).end();
    let more_for_values = one - less;
    let scan_value = more_for_values + scan_zero * half as u64 / half_of_cells as u64;
    // As many values in a packet that has room for more: they are moved up behind the indices.
    let moved = block(cells, pairs + 2, pairs).end() - one;
    let end = block(cells, pairs, 0).end() - begin - 2 * scan_zero - sent;
    steps.extend([
        ("scan_zero", half_of_cells, scan_zero),
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
        let of = Sparse { cells: 32, capacity: 2 };
        let mut bench = Bench::sparse(program, design, element, children.into(), of);
        (0..children).map(|child| bench.cycles(&sparse_packet(0, child, (0, 1), element, &[]))).last().unwrap()
    };
    end_of(2) - end_of(1)
}

const BEGIN: &str = "<!-- cycles: written by TRIBUTARY_BLESS=1 cargo test -p tributary-pspin -->";
const END: &str = "<!-- /cycles -->";
/// The two ways in which every program is written, and what a page calls them.
const VARIANTS: [(&str, &str); 2] = [("plain", "C"), ("xpulp", "Xpulp")];

/// The steps of an element and of a block that decide how fast a handler is. The page shows these, the file has all.
const SHOWN: [&str; 7] = ["begin", "combine", "merge", "level", "hit", "insert", "spill"];

/// The page with the table that these cycles make.
pub fn with_table(page: &str, cycles: &str) -> String {
    let (before, rest) = page.split_once(BEGIN).expect("the page has the table's beginning");
    let (_, behind) = rest.split_once(END).expect("the table has an end");
    format!("{before}{BEGIN}\n{}{END}{behind}", table(cycles))
}

fn table(cycles: &str) -> String {
    // Steps in the order of the file, with a cell for each variant and type.
    let mut steps: Vec<(&str, &str)> = Vec::new();
    let (mut cells, mut packets) = (BTreeMap::new(), BTreeMap::new());
    for line in cycles.lines().skip(1) {
        let [program, storage, element, step, _, cycles, each] = line.split(',').collect::<Vec<_>>()[..] else {
            panic!("a line of seven fields: {line}");
        };
        let variant = program.split('-').next_back().unwrap_or_default();
        if SHOWN.contains(&step) && !steps.contains(&(storage, step)) {
            steps.push((storage, step));
        }
        cells.insert((storage, step, variant, element), each.parse::<f64>().unwrap());
        if matches!(step, "begin" | "combine") {
            *packets.entry((storage, variant, element)).or_insert(0) += cycles.parse::<u64>().unwrap();
        }
    }
    let columns = || VARIANTS.into_iter().flat_map(|variant| Element::ALL.map(|element| (variant, element.name())));
    let mut table = "| storage | step |".to_owned();
    columns().for_each(|((_, called), element)| write!(table, " {called} {element} |").unwrap());
    table.push_str("\n|---|---|");
    columns().for_each(|_| table.push_str("---:|"));
    table.push('\n');
    for (storage, step) in steps {
        write!(table, "| {storage} | {step} |").unwrap();
        for ((variant, _), element) in columns() {
            write!(table, " {:.2} |", cells[&(storage, step, variant, element)]).unwrap();
        }
        table.push('\n');
        // What a packet of a tree does depends on who has come before.
        if step == "combine" && storage != "tree" {
            write!(table, "| {storage} | a packet of 1 KiB |").unwrap();
            columns().for_each(|((variant, _), element)| {
                write!(table, " {} |", packets[&(storage, variant, element)]).unwrap();
            });
            table.push('\n');
        }
    }
    table
}

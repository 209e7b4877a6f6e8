//! The table of `docs/pspin.md`: the file of cycles with a line for each step, and a column for each type. Dense packets have a line
//! of their own: what begins one, and its elements.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::element::Element;

const BEGIN: &str = "<!-- cycles: written by TRIBUTARY_BLESS=1 cargo test -p tributary-riscv -->";
const END: &str = "<!-- /cycles -->";
/// The two ways in which every program is written, and what a page calls them.
const VARIANTS: [(&str, &str); 2] = [("plain", "C"), ("xpulp", "Xpulp")];

/// The page with the table that these cycles make.
pub fn with_table(page: &str, cycles: &str) -> String {
    let (before, rest) = page.split_once(BEGIN).expect("the page has a place for the table");
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
        if !steps.contains(&(storage, step)) {
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

//! The pages' tables against the experiment files: every published row is there once, with the published number, the rule,
//! the mark and the verdict that the program would print for the number beside it; docs/reproduce.md counts these rows.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use tributary_papers::{Basis, Entry, Finding, Memory, Published, Row, Rule, Tally, Verdict, Watch, catalogue, find};

const PAPERS: [&str; 6] = ["switchml", "canary", "panama", "pa_atp", "flare", "thc"];
const HEADER: &str = "| row | published | ours | ratio | agrees if | verdict | why not |";
/// Formulas and worked examples, which take milliseconds: the pages' numbers are those of a run.
const FAST: [&str; 27] = [
    "switchml-appA",
    "switchml-s3",
    "switchml-s7",
    "switchml-table2",
    "canary-s322",
    "canary-s42",
    "panama-appA",
    "panama-fig1",
    "panama-fig6a",
    "panama-s41",
    "panama-table2",
    "pa-atp-fig2",
    "pa-atp-fig3",
    "pa-atp-fig4",
    "pa-atp-fig5",
    "pa-atp-fig6",
    "pa-atp-gack",
    "flare-fig4",
    "flare-fig5",
    "flare-fig6",
    "flare-fig8",
    "flare-fig9",
    "flare-fig12",
    "flare-s3-area",
    "flare-s6-cycles",
    "flare-table1",
    "thc-tables",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The files of a paper's folder.
fn entries(paper: &str) -> Vec<Entry> {
    let ids = |entry: &Entry| entry.id.replace("pa-atp", "pa_atp").starts_with(&format!("{paper}-"));
    catalogue().into_iter().filter(ids).collect()
}

/// How the pages call a row: `fig9: ...` of `pa-atp-fig9`.
fn name_of(entry: &Entry, published: &Published) -> String {
    let rest = entry.id.strip_prefix("pa-atp-").unwrap_or_else(|| entry.id.split_once('-').unwrap().1);
    format!("{rest}: {}", published.what)
}

/// The rows of all tables of results of a page.
fn rows_of_page(paper: &str) -> Vec<Vec<String>> {
    let page = fs::read_to_string(root().join(format!("crates/papers/src/{paper}/README.md"))).unwrap();
    let mut rows = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if line != HEADER {
            assert!(!line.starts_with("| row | published"), "{paper}: a table with other columns: {line}");
            continue;
        }
        lines.next();
        rows.extend(lines.by_ref().take_while(|line| line.starts_with('|')).map(cells_of));
    }
    rows
}

fn cells_of(line: &str) -> Vec<String> {
    let line = line.replace("\\|", "\u{1}");
    let inner = line.strip_prefix('|').and_then(|line| line.strip_suffix('|')).expect("a row ends with a bar");
    inner.split('|').map(|cell| cell.trim().replace('\u{1}', "|")).collect()
}

/// The number of a cell: `1.720 x (1.713 to 1.728)`.
fn finding(cell: &str, unit: &str) -> Option<Finding> {
    let number = |text: &str| text.trim().replace(',', "").parse::<f64>().ok();
    let (median, range) = cell.strip_suffix(')').and_then(|cell| cell.split_once(" (")).unwrap_or((cell, ""));
    let median = number(median.strip_suffix(unit)?)?;
    let (low, high) = match range.split_once(" to ") {
        Some((low, high)) => (number(low)?, number(high)?),
        None => (median, median),
    };
    Some(Finding { low, median, high, over: None })
}

/// The row of a page as the program would judge the number on it. The page has rounded it, so where a number is the limit
/// itself, the verdict may be that of one half a digit away.
fn judged(published: &Published, cells: &[String]) -> Row {
    let ours =
        finding(&cells[2], &published.unit).unwrap_or_else(|| panic!("{cells:?}: \"{}\" is not a number", cells[2]));
    let moved = |by: f64| {
        let Finding { low, median, high, over } = ours;
        published.row(Finding { low: low * by, median: median * by, high: high * by, over })
    };
    let rows = [1.0, 1.0005, 0.9995].map(moved);
    rows.iter().find(|row| row.cells[5..] == cells[5..]).unwrap_or(&rows[0]).clone()
}

/// Every row of a paper's page, judged.
fn rows(paper: &str) -> Vec<Row> {
    let page = rows_of_page(paper);
    let entries = entries(paper);
    let files: Vec<(String, &Published)> = entries
        .iter()
        .flat_map(|entry| entry.published.iter().map(|published| (name_of(entry, published), published)))
        .collect();
    for cells in &page {
        assert!(files.iter().any(|(name, _)| *name == cells[0]), "{paper}: no file has \"{}\"", cells[0]);
    }
    let mut rows = Vec::new();
    for (name, published) in files {
        let found: Vec<_> = page.iter().filter(|cells| cells[0] == name).collect();
        let expected = if published.own { found.len().min(1) } else { 1 };
        assert_eq!(found.len(), expected, "{paper}: the page has \"{name}\" so often");
        rows.extend(found.first().map(|cells| judged(published, cells)));
        let Some(cells) = found.first() else { continue };
        let row = rows.last().unwrap();
        let (printed, theirs) = (&row.cells, &cells[1..]);
        assert_eq!((&printed[1], &printed[4]), (&theirs[0], &theirs[3]), "{paper}: {name}: published, rule");
        assert_eq!(printed[5..], theirs[4..], "{paper}: {name}: verdict, why not, of {}", theirs[1]);
        let ratio = row.ratio.map_or(theirs[2].is_empty(), |ratio| {
            theirs[2].parse::<f64>().is_ok_and(|theirs| (theirs - ratio).abs() <= 0.0006 + 0.001 * ratio.abs())
        });
        assert!(ratio, "{paper}: {name}: a ratio of {} where it is {:?}", theirs[2], row.ratio);
    }
    rows
}

#[test]
fn every_table_says_what_the_files_say() {
    for paper in PAPERS {
        assert!(rows(paper).len() > 20, "{paper}");
    }
}

#[test]
fn a_row_that_does_not_agree_says_why() {
    for row in PAPERS.iter().flat_map(|paper| rows(paper)).filter(|row| row.basis != Basis::Own) {
        let has_fault = row.published.fault.is_some();
        assert!(row.verdict == Verdict::Agrees || has_fault, "{}: {}", row.published.what, row.ours_text());
    }
}

#[test]
fn the_overview_counts_the_rows_of_the_pages() {
    let overview = fs::read_to_string(root().join("docs/reproduce.md")).unwrap();
    for paper in PAPERS {
        let mut tally = Tally::default();
        tally.add(&rows(paper));
        let count =
            |basis| [Verdict::Agrees, Verdict::Partial, Verdict::Differs].map(|verdict| tally.count(basis, verdict));
        let [agree, partial, differ] = count(Basis::Published);
        let all = |basis| count(basis).iter().sum::<usize>();
        let left_out: usize = entries(paper).iter().map(|entry| entry.left_out.len()).sum();
        let (fitted, construction) = (all(Basis::Fitted), all(Basis::Construction));
        let counts = format!("| {agree}, {partial}, {differ} | {fitted} | {construction} | {left_out} |");
        let page = format!("../crates/papers/src/{paper}/README.md");
        let line = overview.lines().find(|line| line.starts_with('|') && line.contains(&page)).expect(paper);
        assert!(line.ends_with(&counts), "{paper}: the pages have {counts}, docs/reproduce.md {line}");
    }
}

#[test]
fn what_takes_milliseconds_has_the_numbers_of_a_run_on_its_page() {
    let stop = AtomicBool::new(false);
    for id in FAST {
        let entry = find(id).unwrap();
        let outcome = entry.run(false, 5, &Watch::silent(&stop), &Memory::default()).unwrap();
        let page =
            rows_of_page(PAPERS.iter().find(|paper| id.replace("pa-atp", "pa_atp").starts_with(*paper)).unwrap());
        for row in outcome.rows {
            let name = name_of(&entry, &row.published);
            let Some(cells) = page.iter().find(|cells| cells[0] == name) else { continue };
            assert_eq!(row.cells[1..], cells[1..], "{id}: {name}");
        }
    }
}

#[test]
fn a_limit_for_a_large_effect_is_a_large_one_or_has_a_reason() {
    let large = ["significant", "rapid", "drop", "degrade", "increase", "decrease", "serious"];
    for entry in catalogue() {
        for published in entry.published.iter().filter(|published| !published.own) {
            let says = published.says.as_deref().unwrap_or_default();
            if says.contains("no ") || !large.iter().any(|word| says.contains(word)) {
                continue;
            }
            let is_large = match (published.rule, &*published.unit) {
                (Rule::AtLeast, "%") => published.value >= 20.0,
                (Rule::AtLeast, _) => published.value >= 1.2,
                (Rule::AtMost, _) => published.value <= 1.0 / 1.2,
                _ => true,
            };
            let reason = published.limit_because.is_some();
            assert!(is_large || reason, "{}: {}: \"{says}\"", entry.id, published.what);
        }
    }
}

//! The simulator's pages and docs/experiment.toml are true: every key is there, defaults are those of the program, and
//! the files run.

use std::collections::BTreeSet;

use toml::{Table, Value};
use tributary_proto::protocols;
use tributary_sim::config::Config;
use tributary_sim::report::Report;
use tributary_sim::run;
use tributary_sim::sweep::{Finished, Sweep, job_run_table, run_table, summarise, summary_table};

const PAGE: &str = concat!(
    include_str!("../../../docs/simulator.md"),
    include_str!("../../../docs/simulator-reference.md"),
    include_str!("../../../docs/simulator-cores.md")
);
const EVERY_KEY: &str = include_str!("../../../docs/experiment.toml");
const FIRST: &str = include_str!("../../../experiments/first.toml");
const CORES: &str = include_str!("../../../experiments/cores.toml");

/// A protocol that needs nothing of switches.
macro_rules! hosts_sum {
    () => {
        "protocol = \"ring\""
    };
}

/// A job with what is required.
macro_rules! job {
    () => {
        concat!("[[job]]\n", hosts_sum!(), "\ntensor = 4")
    };
}

/// A section's heading in the page, a file in which it has only what is required, and the way to it there.
const SECTIONS: [(&str, &str, &[&str]); 17] = [
    ("Top level", "", &[]),
    ("`[network]`", "", &["network"]),
    ("`[[network.graph.link]]`", "", &["network", "graph", "link", "0"]),
    ("`[network.core]`", "[network.core]", &["network", "core"]),
    ("`[network.lossless]`", "[network.lossless]", &["network", "lossless"]),
    ("`[network.noise]`", "[network.noise]\nprobability = 0.5\ndelay = \"1 us\"", &["network", "noise"]),
    ("`[[job]]`", JOB, &["job", "0"]),
    ("`[job.stragglers]`", STRAGGLERS, &["job", "0", "stragglers"]),
    ("`[job.rto]`", concat!(job!(), "\nrto = {}"), &["job", "0", "rto"]),
    ("`[[training]]`", TRAINING, &["training", "0"]),
    ("`[training.small_models]`", SMALL_MODELS, &["training", "0", "small_models"]),
    ("`[[traffic]]`", "[[traffic]]\npattern = \"uniform\"\nmessage = 9999", &["traffic", "0"]),
    ("`[switches.cores]`", "[switches.cores]", &["switches", "cores"]),
    ("`[switches.accelerator]`", "[switches.accelerator]", &["switches", "accelerator"]),
    ("`[transport]`", "[transport]", &["transport"]),
    ("`[[fault]]`", "[[fault]]", &["fault", "0"]),
    ("`[report]`", "[report]", &["report"]),
];

/// Sections that docs/experiment.toml explains, and the page does not.
const IN_THE_FILE: [(&str, &str, &[&str]); 4] = [
    ("[hosts]", "[hosts]", &["hosts"]),
    ("[[step]]", STEP, &["step", "0"]),
    ("[[step.layer]]", STEP, &["step", "0", "layer", "0"]),
    ("[[step.node]]", NODE, &["step", "0", "node", "0"]),
];

const STRAGGLERS: &str = concat!(job!(), "\nstragglers = { ranks = 1, late = \"1 us\" }");
const STEP: &str =
    concat!("[[step]]\nkind = \"ddp\"\n", hosts_sum!(), "\nlayer = [{ parameters = 1, backward = \"1 us\" }]");
const NODE: &str = concat!("[[step]]\nkind = \"graph\"\n", hosts_sum!(), "\nnode = [{ name = \"sum\" }]");
const TRAINING: &str =
    concat!("[[training]]\n", hosts_sum!(), "\nworkers = [1, 2]\niterations = 1\nload = 0.5\nuntil = \"1 ms\"");
const SMALL_MODELS: &str = concat!(
    "[[training]]\n",
    hosts_sum!(),
    "\nworkers = [1, 2]\niterations = 1\nload = 0.5\nuntil = \"1 ms\"\nsmall_models.below = 4\nsmall_models.",
    hosts_sum!()
);
const JOB: &str = job!();
const NETWORK: &str = "[network.graph]\nhosts = 1\nswitches = 1\nlink = [{ between = [\"host 0\", \"switch 0\"] }]\n";

fn report(text: &str) -> Report {
    let report = run(&Config::parse(text).unwrap()).unwrap();
    assert_eq!(report.failure(), None, "{report}");
    report
}

fn minimal(section: &str) -> Table {
    toml::from_str(&format!("{NETWORK}{section}")).unwrap()
}

fn config(table: &Table) -> Result<Config, String> {
    Config::parse(&toml::to_string(table).unwrap()).map_err(|error| error.to_string())
}

fn table_at<'a>(table: &'a mut Table, path: &[&str]) -> &'a mut Table {
    let Some((first, rest)) = path.split_first() else { return table };
    match table.get_mut(*first) {
        Some(Value::Table(inner)) => table_at(inner, rest),
        Some(Value::Array(list)) => table_at(list[0].as_table_mut().unwrap(), &rest[1..]),
        _ => panic!("{path:?} leads nowhere"),
    }
}

/// The keys that the program takes in a section: it names them when it refuses another.
fn keys(section: &str, path: &[&str]) -> BTreeSet<String> {
    let mut table = minimal(section);
    table_at(&mut table, path).insert("no such key".into(), Value::Integer(1));
    let refusal = config(&table).unwrap_err();
    let (_, expected) = refusal.split_once("expected").unwrap_or_else(|| panic!("{refusal}"));
    expected.split('`').skip(1).step_by(2).map(str::to_string).collect()
}

/// The rows of the table below a heading: key and default, as they are written.
fn rows(heading: &str) -> Vec<(String, String)> {
    let (_, below) = PAGE.split_once(&format!("\n### {heading}\n")).unwrap_or_else(|| panic!("no heading {heading}"));
    let table = below.lines().skip_while(|line| !line.starts_with("| key")).skip(2);
    let cells = |line: &str| line.split(" | ").map(|cell| cell.trim_matches(['|', ' ']).to_string()).collect();
    table
        .take_while(|line| line.starts_with('|'))
        .map(|line| {
            let cells: Vec<String> = cells(line);
            assert_eq!(cells.len(), 4, "{line}");
            (cells[0].trim_matches('`').to_string(), cells[2].clone())
        })
        .collect()
}

#[test]
fn the_page_lists_every_key_and_no_other() {
    for (heading, section, path) in SECTIONS {
        let listed: BTreeSet<String> = rows(heading).into_iter().map(|(key, _)| key).collect();
        assert_eq!(listed, keys(section, path), "{heading}");
    }
}

#[test]
fn the_defaults_on_the_page_are_those_of_the_program() {
    let mut checked = 0;
    for (heading, section, path) in SECTIONS {
        let left_out = minimal(section);
        for (key, default) in rows(heading) {
            // Others are in words.
            let Some(value) = default.strip_prefix('`').and_then(|rest| rest.strip_suffix('`')) else { continue };
            let Ok(value) = toml::from_str::<Table>(&format!("value = {value}")) else { continue };
            let mut written = left_out.clone();
            table_at(&mut written, path).insert(key.clone(), value["value"].clone());
            assert_eq!(config(&written), config(&left_out), "{heading}: {key} = {default}");
            checked += 1;
        }
    }
    assert!(checked > 25, "{checked} defaults were found");
}

#[test]
fn the_first_experiment_is_the_one_on_the_page_and_is_short() {
    assert!(PAGE.contains(FIRST), "docs/simulator.md shows another experiments/first.toml");
    assert!(PAGE.contains(CORES), "docs/simulator.md shows another experiments/cores.toml");
    assert!(FIRST.lines().count() <= 20);
    let report = report(FIRST);
    let (_, below) = PAGE.split_once("$ tributary sim run experiments/first.toml\n").unwrap();
    let shown: Vec<&str> = below.split("\n```").next().unwrap().lines().collect();
    let printed = report.to_string();
    let printed: Vec<&str> = printed.lines().collect();
    // The last line says how fast the machine was.
    let (speed, rest) = printed.split_last().unwrap();
    assert_eq!(shown.split_last().unwrap().1, rest, "docs/simulator.md shows another report");
    let hops = |line: &str| line.split(": ").nth(1).and_then(|rest| rest.split(' ').next()).map(str::to_string);
    assert_eq!(shown.last().and_then(|line| hops(line)), hops(speed));
}

/// Lines of reports in the middle of the page, each with the experiment that prints it.
#[test]
fn each_line_of_a_report_that_the_page_shows_is_printed() {
    let (_, operators) = PAGE.split_once("\n### Operators that people write\n").unwrap();
    let job = operators.split("```").nth(1).unwrap().strip_prefix("toml\n").unwrap();
    let shown = operators.split("```text\n").nth(1).unwrap().split("\n```").next().unwrap();
    let of_operator = report(&format!("network = {{ star = {{ hosts = 4 }} }}\n{job}"));
    assert!(of_operator.to_string().contains(shown), "{of_operator}\nand not {shown}");
    let sampled = report(&format!("{FIRST}[report]\nsample = \"auto\"\n")).to_string();
    let line = sampled.lines().find(|line| line.starts_with("samples: ")).unwrap();
    assert!(PAGE.contains(&format!("`{line}`")), "docs/simulator.md does not show {line}");
}

#[test]
fn the_file_with_every_key_runs_and_has_every_key() {
    report(EVERY_KEY);
    let written: BTreeSet<&str> =
        EVERY_KEY.split(|letter: char| !(letter.is_alphanumeric() || letter == '_')).collect();
    for (heading, section, path) in SECTIONS.into_iter().chain(IN_THE_FILE) {
        for key in keys(section, path) {
            assert!(written.contains(key.as_str()), "docs/experiment.toml lacks {key} of {heading}");
        }
    }
    for shared in protocols::ALL.iter().filter_map(|protocol| protocol.shared.as_ref()) {
        for name in shared.options.specs.iter().map(|spec| spec.name) {
            assert!(written.contains(name), "docs/experiment.toml lacks {name} of {}", shared.options.protocol);
        }
    }
}

/// Takes away what a line with this key stands for, between two headings.
fn without(lines: &[&str], key: &str, at: usize) -> Vec<usize> {
    const SHAPES: [&str; 9] =
        ["star", "dumbbell", "leaf_spine", "clos", "torus", "hyperx", "dragonfly", "rails", "graph"];
    let begins = |index: &usize| lines[*index].starts_with('[');
    let from = (0..at).rev().find(begins).unwrap_or(0);
    let to = (at..lines.len()).find(begins).unwrap_or(lines.len());
    let key_of = |line: &str| line.split(' ').next().unwrap_or("").to_string();
    let rival = |other: &str| other == key || (SHAPES.contains(&key) && SHAPES.contains(&other));
    (from..to).filter(|&index| rival(&key_of(lines[index]))).collect()
}

#[test]
fn each_alternative_in_the_file_is_read() {
    let lines: Vec<&str> = EVERY_KEY.lines().take_while(|line| !line.starts_with("#[sweep]")).collect();
    let mut tried = 0;
    for (at, line) in lines.iter().enumerate() {
        let Some(alternative) = line.strip_prefix('#').filter(|line| !line.starts_with(' ')) else { continue };
        let key = alternative.split(' ').next().unwrap();
        let gone = without(&lines, key, at);
        let kept = (0..lines.len()).filter(|index| !gone.contains(index));
        let text: Vec<&str> = kept.map(|index| if index == at { alternative } else { lines[index] }).collect();
        Config::parse(&text.join("\n")).unwrap_or_else(|error| panic!("{alternative}: {error}"));
        tried += 1;
    }
    assert!(tried > 15, "{tried} alternatives were found");
}

#[test]
fn the_sweep_in_the_file_is_read() {
    let (base, sweep) = EVERY_KEY.split_once("#[sweep]").unwrap();
    let lines = sweep.lines().map(|line| line.strip_prefix('#').filter(|line| !line.starts_with(' ')).unwrap_or(line));
    let text = format!("{base}[sweep]{}", lines.collect::<Vec<_>>().join("\n"));
    assert_eq!(tributary_sim::sweep::Sweep::parse(&text).unwrap().points.len(), 12);
}

/// One table of the page has every table, and its columns between backquotes, in order, and no others.
#[test]
fn the_page_names_every_column_of_the_tables_and_no_other() {
    let report = report(FIRST);
    let sweep = Sweep::parse(&format!("{FIRST}[sweep]\n")).unwrap();
    let finished = [Finished::new(&sweep.points[0], &report)];
    let of_sweeps =
        [summary_table(&[], &summarise(&finished)), run_table(&[], &finished), job_run_table(&[], &finished)];
    let (_, files) = PAGE.split_once("\n## Files\n").unwrap();
    let (files, _) = files.split_once("\n### ").unwrap();
    let mut listed: Vec<&str> = files.lines().filter(|line| line.starts_with("| `")).collect();
    for table in report.tables().into_iter().chain(of_sweeps) {
        let start = format!("| `{}` |", table.name);
        let index = listed.iter().position(|line| line.starts_with(&start)).unwrap_or_else(|| panic!("no {start}"));
        let row = listed.remove(index);
        let (_, columns) = row.rsplit_once(" | ").unwrap();
        let named: Vec<&str> = columns.split('`').skip(1).step_by(2).collect();
        let columns: Vec<&str> = table.columns.iter().map(|column| column.name.as_str()).collect();
        assert_eq!(named, columns, "{}", table.name);
    }
    assert!(listed.is_empty(), "rows for no table: {listed:?}");
}

#[test]
fn the_page_has_every_protocols_header() {
    let (_, headers) = PAGE.split_once("\n### Bytes on a link\n").unwrap();
    for protocol in protocols::ALL {
        // 1,024 bytes of vector, and 66 of the headers below.
        let on_link = 1024 + protocol.header_len + 66;
        let start = format!("| `\"{}\"` | {} | 1,{} |", protocol.name, protocol.header_len, on_link - 1000);
        assert!(headers.lines().any(|line| line.starts_with(&start)), "docs/simulator-reference.md has no row {start}");
    }
}

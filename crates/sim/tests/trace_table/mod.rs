//! A table of trace hashes: experiment files, and what their runs must give. Shared by the tests `trace_hashes` of
//! `tributary-sim` (experiments/) and `tributary-papers` (the papers' files).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::{env, fs};

use serde::Deserialize;

/// Set to renew the table.
const RENEW: &str = "TRIBUTARY_RENEW_TRACES";

/// What the table says about a file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    /// Keys that make the run small, as `tributary reproduce --set` takes them.
    #[serde(default)]
    set: Vec<String>,
    /// Simulations and the hash of all their traces.
    trace: String,
}

/// The ids of the experiment files in a folder. A base describes no run of its own.
pub fn ids_in(folder: &Path) -> BTreeSet<String> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files = names.filter(|path| path.extension().is_some_and(|extension| extension == "toml"));
    let ids = files.map(|path| path.file_stem().unwrap().to_string_lossy().into_owned());
    ids.filter(|id| !id.ends_with("-base")).collect()
}

/// Compares the hashes of every file's runs with the `trace_hashes.toml` of a package, or renews that table.
/// `run` gives the hashes of a file's runs, from its id and the keys that make it small.
pub fn compare(package: &str, tests: &Path, files: &BTreeSet<String>, run: impl Fn(&str, &[String]) -> Vec<String>) {
    let path = tests.join("trace_hashes.toml");
    let text = fs::read_to_string(&path).unwrap();
    let table: BTreeMap<String, Expected> = toml::from_str(&text).unwrap();
    assert_eq!(&table.keys().cloned().collect::<BTreeSet<_>>(), files, "trace_hashes.toml lists every file once");
    let actual: Vec<(String, String)> =
        table.iter().map(|(id, expected)| (id.clone(), summary(run(id, &expected.set)))).collect();
    if env::var_os(RENEW).is_some() {
        fs::write(path, renewed(&text, &actual)).unwrap();
        return;
    }
    let differs = |(id, trace): &&(String, String)| table[id].trace != *trace;
    let described = |(id, trace): &(String, String)| format!("{id}.toml: {trace}, not {}", table[id].trace);
    let changed: Vec<String> = actual.iter().filter(differs).map(described).collect();
    assert!(
        changed.is_empty(),
        "traces changed; if that is what the change is for, say so in its commit and renew the table with \
         `{RENEW}=1 cargo test -p {package} trace_hashes`:\n{}",
        changed.join("\n")
    );
}

/// One line for all runs of a file, whatever order they ended in (FNV-1a of the sorted hashes).
fn summary(mut hashes: Vec<String>) -> String {
    hashes.sort_unstable();
    let fold = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let all = hashes.iter().flat_map(|hash| hash.bytes()).fold(0xcbf2_9ce4_8422_2325, fold);
    format!("runs {}, hash {all:016x}", hashes.len())
}

/// The table with new hashes; comments and settings stay.
fn renewed(table: &str, actual: &[(String, String)]) -> String {
    let mut section = "";
    let mut lines = Vec::new();
    for line in table.lines() {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            section = name;
        }
        let new = actual.iter().find(|(id, _)| id == section && line.starts_with("trace = "));
        lines.push(new.map_or_else(|| line.to_string(), |(_, trace)| format!("trace = \"{trace}\"")));
    }
    lines.join("\n") + "\n"
}

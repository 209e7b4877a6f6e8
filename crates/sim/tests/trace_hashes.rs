//! Every file of experiments/ still makes the runs that it made: the hash of each trace is the one written down in
//! trace_hashes.toml. A change that means to change no behaviour leaves that file alone; one that means to says so in its
//! commit and renews it: `TRIBUTARY_RENEW_TRACES=1 cargo test -p tributary-sim --test trace_hashes`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::{env, fs};

use serde::Deserialize;
use toml::{Table, Value};
use tributary_sim::config::{Config, set_key};
use tributary_sim::reproduce::{Memory, Watch, find};
use tributary_sim::run;
use tributary_sim::sweep::Sweep;

/// Set to renew trace_hashes.toml.
const RENEW: &str = "TRIBUTARY_RENEW_TRACES";

/// What trace_hashes.toml says of a file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    /// Keys that make the run small, as `tributary reproduce --set` takes them.
    #[serde(default)]
    set: Vec<String>,
    /// Simulations and the hash of all their traces.
    trace: String,
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn table_path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/trace_hashes.toml")
}

/// The files that run: those that others lie over describe no run of their own.
fn experiments() -> BTreeSet<String> {
    let names = fs::read_dir(repository().join("experiments")).unwrap().map(|entry| entry.unwrap().path());
    let files = names.filter(|path| path.extension().is_some_and(|extension| extension == "toml"));
    let ids = files.map(|path| path.file_stem().unwrap().to_string_lossy().into_owned());
    ids.filter(|id| !id.ends_with("-base")).collect()
}

/// A file of `tributary sim run` or `tributary sim sweep`: the hashes of its runs.
fn simulated(id: &str, set: &[String]) -> Vec<String> {
    let text = fs::read_to_string(repository().join(format!("experiments/{id}.toml"))).unwrap();
    let mut file: Table = toml::from_str(&text).unwrap();
    for setting in set {
        let (key, value) = setting.split_once('=').unwrap_or_else(|| panic!("{id}: {setting} is no KEY=VALUE"));
        let value: Table = toml::from_str(&format!("value = {value}")).unwrap();
        let value: Value = value["value"].clone();
        set_key(&mut file, key, value).unwrap_or_else(|part| panic!("{id}: {key} leads nowhere: no {part}"));
    }
    let text = toml::to_string(&file).unwrap();
    let configs: Vec<Config> = match file.contains_key("sweep") {
        true => Sweep::parse(&text).unwrap().points.into_iter().map(|point| point.config).collect(),
        false => vec![Config::parse(&text).unwrap()],
    };
    let hash_of = |config: &Config| {
        let report = run(config).unwrap_or_else(|error| panic!("{id}: {error}"));
        assert_eq!(report.failure(), None, "{id}");
        report.trace_hash
    };
    configs.iter().map(hash_of).collect()
}

/// A file of `tributary reproduce --quick`: the hashes of all simulations that it makes, one seed each.
fn reproduced(id: &str, set: &[String]) -> Vec<String> {
    let mut entry = find(id).unwrap();
    set.iter().for_each(|setting| entry.change(setting).unwrap());
    let (stop, hashes) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    let traced = |hash: &str| hashes.lock().unwrap().push(hash.to_string());
    let watch = Watch { traced: &traced, ..Watch::silent(&stop) };
    entry.run(true, 1, &watch, &Memory::default()).unwrap_or_else(|error| panic!("{id}: {error}"));
    hashes.into_inner().unwrap()
}

/// One line for all runs of a file, whatever the order in which they came to their end (FNV-1a of the sorted hashes).
fn summary(mut hashes: Vec<String>) -> String {
    hashes.sort_unstable();
    let fold = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let all = hashes.iter().flat_map(|hash| hash.bytes()).fold(0xcbf2_9ce4_8422_2325, fold);
    format!("runs {}, hash {all:016x}", hashes.len())
}

/// The table with other hashes; comments and settings stay.
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

#[test]
fn every_experiment_makes_the_runs_that_are_written_down() {
    let text = fs::read_to_string(table_path()).unwrap();
    let table: BTreeMap<String, Expected> = toml::from_str(&text).unwrap();
    assert_eq!(
        table.keys().cloned().collect::<BTreeSet<_>>(),
        experiments(),
        "trace_hashes.toml lists every file once"
    );
    let mut actual = Vec::new();
    for (id, expected) in &table {
        let runs = if find(id).is_some() { reproduced(id, &expected.set) } else { simulated(id, &expected.set) };
        actual.push((id.clone(), summary(runs)));
    }
    if env::var_os(RENEW).is_some() {
        fs::write(table_path(), renewed(&text, &actual)).unwrap();
        return;
    }
    let differs = |(id, trace): &&(String, String)| table[id].trace != *trace;
    let told = |(id, trace): &(String, String)| format!("experiments/{id}.toml: {trace}, not {}", table[id].trace);
    let changed: Vec<String> = actual.iter().filter(differs).map(told).collect();
    assert!(
        changed.is_empty(),
        "traces changed; if that is what the change is for, say so in its commit and renew the table with \
         `{RENEW}=1 cargo test -p tributary-sim --test trace_hashes`:\n{}",
        changed.join("\n")
    );
}

//! Every paper's experiment file still makes the runs that it made: the hash of each trace is the one in
//! trace_hashes.toml. A change that means to change no behaviour leaves that file alone; one that means to says so in its
//! commit and renews it: `TRIBUTARY_RENEW_TRACES=1 cargo test -p tributary-papers --test trace_hashes`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use tributary_papers::{Memory, Watch, find};

#[path = "../../sim/tests/trace_table/mod.rs"]
mod trace_table;

/// The ids of all experiment files in the papers' folders.
fn experiments() -> BTreeSet<String> {
    let folders = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src")).unwrap();
    let experiments = folders.map(|entry| entry.unwrap().path().join("experiments"));
    experiments.filter(|folder| folder.is_dir()).flat_map(|folder| trace_table::ids_in(&folder)).collect()
}

/// The hashes of all simulations that a file makes with its small inputs and one seed each.
fn reproduced(id: &str, set: &[String]) -> Vec<String> {
    let mut entry = find(id).unwrap_or_else(|| panic!("{id}.toml is in no paper's list"));
    set.iter().for_each(|setting| entry.change(setting).unwrap());
    let (stop, hashes) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    let traced = |hash: &str| hashes.lock().unwrap().push(hash.to_string());
    let watch = Watch { traced: &traced, ..Watch::silent(&stop) };
    entry.run(true, 1, &watch, &Memory::default()).unwrap_or_else(|error| panic!("{id}: {error}"));
    hashes.into_inner().unwrap()
}

#[test]
fn every_experiment_makes_the_runs_that_are_written_down() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    trace_table::compare("tributary-papers", &tests, &experiments(), reproduced);
}

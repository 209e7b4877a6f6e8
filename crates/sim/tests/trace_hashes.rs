//! Every file of experiments/ still makes the runs that it made: the hash of each trace is the one in
//! trace_hashes.toml. A change that means to change no behaviour leaves that file alone; one that means to says so in its
//! commit and renews it: `TRIBUTARY_RENEW_TRACES=1 cargo test -p tributary-sim trace_hashes`.

use std::fs;
use std::path::{Path, PathBuf};

use toml::{Table, Value};
use tributary_sim::config::{Config, set_key};
use tributary_sim::run;
use tributary_sim::sweep::Sweep;

fn experiments() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments")
}

/// A file of `tributary sim run` or `tributary sim sweep`: the hashes of its runs.
fn simulated(id: &str, set: &[String]) -> Vec<String> {
    let text = fs::read_to_string(experiments().join(format!("{id}.toml"))).unwrap();
    let mut file: Table = toml::from_str(&text).unwrap();
    for setting in set {
        let (key, value) = setting.split_once('=').unwrap_or_else(|| panic!("{id}: {setting} is not KEY=VALUE"));
        let value: Table = toml::from_str(&format!("value = {value}")).unwrap();
        let value: Value = value["value"].clone();
        set_key(&mut file, key, value).unwrap_or_else(|missing| panic!("{id}: {key} leads nowhere: no {missing}"));
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

#[test]
fn every_experiment_makes_the_runs_that_are_written_down() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    crate::trace_table::compare("tributary-sim", &tests, &crate::trace_table::ids_in(&experiments()), simulated);
}

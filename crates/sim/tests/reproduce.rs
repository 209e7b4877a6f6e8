//! The experiment files and their runs with small inputs.

use std::sync::atomic::AtomicBool;

use tributary_sim::reproduce::{Entry, Outcome, ReproduceError, Verdict, Watch, catalogue, find};

fn run(entry: &Entry, quick: bool) -> Result<Outcome, ReproduceError> {
    let stop = AtomicBool::new(false);
    entry.run(quick, 2, &Watch { expect: &|_| {}, done: &|| {}, stop: &stop })
}

fn outcome(id: &str) -> Outcome {
    run(&find(id).unwrap(), true).unwrap()
}

#[test]
fn every_file_is_read_and_names_each_number_once() {
    let entries = catalogue();
    assert!(entries.len() >= 12);
    for entry in entries {
        let mut keys: Vec<&str> = entry.published.iter().map(|published| &*published.key).collect();
        let count = keys.len();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), count, "{}", entry.id);
        assert!(count > 0 && !entry.title.is_empty() && !entry.source.is_empty() && !entry.about.is_empty());
    }
}

#[test]
fn a_misspelt_parameter_is_an_error() {
    for id in ["switchml-fig6", "switchml-fig7", "switchml-fig9"] {
        let path = format!("{}/../../experiments/{id}.toml", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).unwrap();
        let misspelt = text.replacen("[quick]\n", "[quick]\nwrokers = 4\n", 1);
        assert_ne!(text, misspelt);
        let sentence = Entry::parse(id, &misspelt).unwrap_err().to_string();
        assert!(sentence.contains("unknown field `wrokers`"), "{sentence}");
    }
}

#[test]
fn every_experiment_measures_what_its_file_publishes() {
    for entry in catalogue() {
        let outcome = run(&entry, true).unwrap_or_else(|error| panic!("{}: {error}", entry.id));
        assert_eq!(outcome.rows.len(), entry.published.len());
        assert!(outcome.rows.iter().all(|row| row.ours.low.is_finite() && row.ours.high.is_finite()), "{}", entry.id);
    }
}

#[test]
fn what_is_exact_is_exact() {
    for id in ["switchml-s3", "switchml-s7"] {
        for row in outcome(id).rows {
            assert_eq!(row.verdict, Verdict::Agrees, "{id}: {} is {}", row.published.what, row.ours_text());
        }
    }
}

#[test]
fn a_run_is_the_same_each_time() {
    let first = outcome("switchml-fig6");
    assert_eq!(first, outcome("switchml-fig6"));
}

#[test]
fn who_stops_a_run_gets_no_result() {
    let stop = AtomicBool::new(true);
    let watch = Watch { expect: &|_| {}, done: &|| {}, stop: &stop };
    assert_eq!(find("switchml-fig6").unwrap().run(true, 1, &watch), Err(ReproduceError::Stopped));
}

#[test]
fn wrong_files_are_refused_with_the_experiments_name() {
    let error = Entry::parse("made-up", "title = \"x\"\nsauce = \"y\"").unwrap_err();
    assert!(error.to_string().contains("made-up") && error.to_string().contains("sauce"), "{error}");
    let text =
        include_str!("../../../experiments/switchml-s7.toml").replace("pipelines = 4", "pipelines = 4\nlanes = 2");
    let error = Entry::parse("made-up", &text).unwrap_err();
    assert!(error.to_string().contains("lanes"), "{error}");
}

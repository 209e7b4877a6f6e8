//! The experiment files and their runs with small inputs.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tributary_papers::{Basis, Entry, Memory, Outcome, Point, ReproduceError, Tally, Verdict, Watch, catalogue, find};

fn run(entry: &Entry, quick: bool) -> Result<Outcome, ReproduceError> {
    let stop = AtomicBool::new(false);
    entry.run(quick, 2, &Watch::silent(&stop), &Memory::default())
}

fn outcome(id: &str) -> Outcome {
    run(&find(id).unwrap(), true).unwrap()
}

/// The text of an experiment's file.
fn file(id: &str) -> String {
    let (paper, _) = id.split_once('-').unwrap();
    std::fs::read_to_string(format!("{}/src/{paper}/experiments/{id}.toml", env!("CARGO_MANIFEST_DIR"))).unwrap()
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
        let text = file(id);
        let misspelt = text.replacen("[quick]\n", "[quick]\nwrokers = 4\n", 1);
        assert_ne!(text, misspelt);
        let sentence = Entry::parse(id, &misspelt).unwrap_err().to_string();
        assert!(sentence.contains("unknown field `wrokers`"), "{sentence}");
    }
}

#[test]
fn every_experiment_measures_what_its_file_publishes_and_points_lie_where_figures_have_ours() {
    let mut points = 0;
    for entry in catalogue() {
        let outcome = run(&entry, true).unwrap_or_else(|error| panic!("{}: {error}", entry.id));
        assert_eq!(outcome.rows.len(), entry.published.len());
        for row in &outcome.rows {
            assert!(row.ours.low.is_finite() && row.ours.high.is_finite(), "{}", entry.id);
            let Some(point) = &row.published.point else { continue };
            let ours = on_lines(&outcome, point);
            assert!(ours.contains(&row.ours.median), "{}: {}: {ours:?}", entry.id, row.published.what);
            points += 1;
        }
    }
    assert!(points >= 60, "{points} published numbers are points");
}

/// What the figures' lines of a point's name have there.
fn on_lines(outcome: &Outcome, point: &Point) -> Vec<f64> {
    let lines = outcome.figures.iter().flat_map(|figure| &figure.series).filter(|series| series.name == point.line);
    lines.flat_map(|series| &series.points).filter(|[x, _]| *x == point.x).map(|[_, y]| *y).collect()
}

#[test]
fn what_is_exact_is_exact() {
    for id in ["switchml-s3", "switchml-s7", "switchml-appA", "switchml-theorem1"] {
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
fn a_stopped_run_has_no_result() {
    let stop = AtomicBool::new(true);
    let watch = Watch::silent(&stop);
    assert_eq!(find("switchml-fig6").unwrap().run(true, 1, &watch, &Memory::default()), Err(ReproduceError::Stopped));
}

#[test]
fn wrong_files_are_refused_with_the_experiments_name() {
    let error = Entry::parse("made-up", "title = \"x\"\nsauce = \"y\"").unwrap_err();
    assert!(error.to_string().contains("made-up") && error.to_string().contains("sauce"), "{error}");
    let levels = file("switchml-s7");
    let text = levels.replace("pipelines = 4", "pipelines = 4\nlanes = 2");
    let error = Entry::parse("made-up", &text).unwrap_err();
    assert!(error.to_string().contains("lanes"), "{error}");
    let error = Entry::parse("made-up", &levels.replace("\"seconds\"", "\"long\"")).unwrap_err().to_string();
    assert!(error.contains("`long`") && error.contains("`seconds`, `minutes`, `an hour`"), "{error}");
    let error = Entry::parse("made-up", &levels.replace("\"levels\"", "\"lifts\"")).unwrap_err();
    assert_eq!(error.to_string(), "made-up: there is no kind of experiment \"lifts\"");
    let error = Entry::parse("made-up", &levels.replace("kind = \"levels\"", "")).unwrap_err();
    assert!(error.to_string().contains("needs a kind"), "{error}");
}

/// Counts the runs that are made.
fn counted(entry: &Entry, memory: &Memory) -> (Outcome, usize) {
    let (stop, done) = (AtomicBool::new(false), AtomicUsize::new(0));
    let count = || {
        done.fetch_add(1, Ordering::Relaxed);
    };
    let watch = Watch { done: &count, ..Watch::silent(&stop) };
    let outcome = entry.run(true, 1, &watch, memory).unwrap();
    (outcome, done.into_inner())
}

#[test]
fn a_changed_parameter_is_reported_with_the_files_value() {
    let mut entry = find("canary-fig6").unwrap();
    entry.change("network.delay=100 ns").unwrap();
    entry.change("slots=16").unwrap();
    let changed = run(&entry, true).unwrap();
    let changes: Vec<(&str, &str, Option<&str>)> =
        changed.changes.iter().map(|change| (&*change.key, &*change.value, change.file.as_deref())).collect();
    assert_eq!(changes[0], ("network.delay", "100 ns", Some("150 ns")));
    assert_eq!(changes[1], ("slots", "16", None));
    assert_ne!(changed.rows[0].ours, outcome("canary-fig6").rows[0].ours);
    assert!(outcome("canary-fig6").changes.is_empty());
}

#[test]
fn a_change_that_cannot_be_is_refused_before_anything_runs() {
    let sentence = |setting: &str| {
        let mut entry = find("canary-fig7a").unwrap();
        entry.change(setting).and_then(|()| entry.experiment(true).map(drop)).unwrap_err().to_string()
    };
    assert!(sentence("network.queue").contains("KEY=VALUE"));
    // A wrong key names the right ones, wherever it is wrong.
    let unknown = sentence("network.quue=64 KiB");
    assert!(unknown.contains("unknown field `quue`, expected one of ") && unknown.contains("`queue`"), "{unknown}");
    let nowhere = sentence("netwrk.queue=64 KiB");
    assert!(nowhere.contains("leads nowhere: there is no \"netwrk\"; there are: "), "{nowhere}");
    assert!(nowhere.contains(", network, "), "{nowhere}");
    assert!(sentence("lines.9.slots=64").contains("leads nowhere: there is no \"9\"; there are 0 to "));
    assert!(sentence("slots=many").contains("\"many\""));
}

#[test]
fn rows_that_a_change_leaves_unmeasured_are_left_out_and_named() {
    let mut entry = find("canary-fig8").unwrap();
    entry.change("points=[{ x = 5, hosts = 10, congested = true }]").unwrap();
    let outcome = run(&entry, true).unwrap();
    assert_eq!(outcome.rows.len(), 5);
    assert_eq!(outcome.left_out.len(), entry.published.len() - 5);
}

#[test]
fn rows_of_each_kind_are_counted_separately() {
    let mut tally = Tally::default();
    for id in ["switchml-s3", "switchml-s7", "switchml-appA"] {
        tally.add(&outcome(id).rows);
    }
    assert_eq!(tally.count(Basis::Published, Verdict::Agrees), 10);
    assert_eq!(
        tally.to_string(),
        "published and measured: 10 of 10 agree, 0 in part, 0 differ; by construction: 2 of 2 agree, 0 in part, 0 differ"
    );
}

#[test]
fn figures_that_share_runs_make_them_once() {
    let memory = Memory::default();
    let (alone, _) = counted(&find("canary-fig7b").unwrap(), &Memory::default());
    counted(&find("canary-fig7a").unwrap(), &memory);
    let before = memory.len();
    let (shared, done) = counted(&find("canary-fig7b").unwrap(), &memory);
    assert_eq!(
        (memory.len(), &shared),
        (before + 1, &alone),
        "no run but the experiment is new, and the same as by itself"
    );
    assert_eq!(done, find("canary-fig7b").unwrap().runs(true, 1).unwrap(), "a bar comes to its end all the same");
}

#[test]
fn a_stopped_experiment_resumes_with_the_missing_runs() {
    let folder = std::env::temp_dir().join(format!("tributary-reproduce-{}", std::process::id()));
    let is_long = |entry: &Entry| entry.clone().make_full();
    let entry = catalogue().into_iter().find(is_long).unwrap();
    let all = entry.runs(true, 1).unwrap();
    let attempt = |stop_after: usize| {
        let memory = Memory::in_folder(&folder).unwrap();
        let (stop, made) = (AtomicBool::new(stop_after == 0), AtomicUsize::new(0));
        let traced = |_: &str| {
            if made.fetch_add(1, Ordering::Relaxed) + 1 >= stop_after {
                stop.store(true, Ordering::Relaxed);
            }
        };
        let watch = Watch { traced: &traced, ..Watch::silent(&stop) };
        let outcome = entry.run(true, 1, &watch, &memory);
        (outcome, made.into_inner())
    };
    let (stopped, first) = attempt(2);
    assert_eq!(stopped, Err(ReproduceError::Stopped));
    assert!(first >= 2 && first < all, "{first} of {all}");
    let (complete, second) = attempt(usize::MAX);
    assert_eq!(first + second, all, "each run was made once");
    let (again, third) = attempt(usize::MAX);
    assert_eq!((again, third), (complete, 0), "an experiment that is complete makes none");
    let uninterrupted = counted(&entry, &Memory::default());
    assert_eq!(uninterrupted.0, attempt(usize::MAX).0.unwrap(), "the same as in one go");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_base_that_is_not_there_is_a_sentence() {
    let text = file("canary-fig7a").replace("\"canary-base\"", "\"canary-bass\"");
    let error = Entry::parse("made-up", &text).unwrap_err();
    assert!(error.to_string().contains("no base \"canary-bass\""), "{error}");
}

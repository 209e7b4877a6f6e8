//! Sweeps: all points once, and none again.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tributary_sim::sweep::{Finished, Store, Sweep, SweepPoint, run, summarise};

const TEXT: &str = r#"
[network]
star = { hosts = 4 }
[[job]]
protocol = "switchml"
tensor = "100 kB"
[sweep]
seeds = 2
[sweep.over]
"job.0.protocol" = ["switchml", "ring"]
"#;

/// A folder of this test alone, gone when it is over.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("tributary-sweep-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn kept(sweep: &Sweep, store: &Store) -> Vec<Finished> {
    sweep.points.iter().filter_map(|point| store.find(point)).collect()
}

#[test]
fn every_point_runs_once_and_is_found_again() {
    let folder = Folder::new("all");
    let (sweep, store) = (Sweep::parse(TEXT).unwrap(), Store::open(&folder.0).unwrap());
    let count = AtomicUsize::new(0);
    let stop = AtomicBool::new(false);
    run(&sweep.points, &store, &|_| _ = count.fetch_add(1, Ordering::Relaxed), &stop).unwrap();
    assert_eq!(count.into_inner(), 4);
    let finished = kept(&sweep, &store);
    assert!(finished.len() == 4 && finished.iter().all(|run| run.failure.is_none()));
    let lines = summarise(&finished);
    assert_eq!(lines.len(), 2);
    assert!(lines.iter().all(|line| line.runs == 2 && line.goodput_gbps.is_some()));
}

#[test]
fn a_run_in_a_sweep_is_the_run_alone() {
    let folder = Folder::new("alone");
    let (sweep, store) = (Sweep::parse(TEXT).unwrap(), Store::open(&folder.0).unwrap());
    run(&sweep.points, &store, &|_| (), &AtomicBool::new(false)).unwrap();
    for point in &sweep.points {
        let alone = tributary_sim::experiment::run(&point.config).unwrap();
        assert_eq!(store.find(point).unwrap().trace_hash, alone.trace_hash);
    }
}

#[test]
fn who_stops_a_sweep_keeps_what_is_finished() {
    let folder = Folder::new("stop");
    let (sweep, store) = (Sweep::parse(TEXT).unwrap(), Store::open(&folder.0).unwrap());
    run(&sweep.points[..2], &store, &|_| (), &AtomicBool::new(false)).unwrap();
    run(&sweep.points[2..], &store, &|_| (), &AtomicBool::new(true)).unwrap();
    assert_eq!(kept(&sweep, &store).len(), 2);
}

#[test]
fn a_damaged_or_foreign_file_counts_as_none() {
    let folder = Folder::new("damaged");
    let (sweep, store) = (Sweep::parse(TEXT).unwrap(), Store::open(&folder.0).unwrap());
    let point: &SweepPoint = &sweep.points[0];
    store.keep(point, &Finished::refused(point, "no".into())).unwrap();
    assert!(store.find(point).is_some());
    let file = std::fs::read_dir(folder.0.join("points")).unwrap().next().unwrap().unwrap().path();
    std::fs::write(file, "{").unwrap();
    assert!(store.find(point).is_none());
}

#[test]
fn the_example_is_read() {
    let sweep = Sweep::parse(include_str!("../../../experiments/sweep-trees.toml")).unwrap();
    assert_eq!(sweep.points.len(), 60);
}

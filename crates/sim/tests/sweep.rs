//! Sweeps: all points once, and none again.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tributary_proto::protocols;
use tributary_sim::sweep::{Finished, Store, Sweep, SweepPoint, WorkOrder, check, run, summarise, write_tables};
use tributary_sim::{Program, sha256};

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
fn every_point_runs_once_and_is_kept() {
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
fn what_another_program_made_is_not_taken_for_a_result_of_this_one() {
    let folder = Folder::new("program");
    let (sweep, store) = (Sweep::parse(TEXT).unwrap(), Store::open(&folder.0).unwrap());
    let point = &sweep.points[0];
    let mut finished = Finished::refused(point, "no".into());
    finished.program.sources = "0123456789abcdef".into();
    store.keep(point, &finished).unwrap();
    assert!(store.find(point).is_none() && store.is_outdated(point));
    // Another version or commit with the same sources is the same program.
    finished.program = Program { version: "0.0.0".into(), commit: None, ..Program::this() };
    store.keep(point, &finished).unwrap();
    assert!(store.find(point).is_some() && !store.is_outdated(point));
}

#[test]
fn a_point_runs_again_when_a_file_that_it_names_has_changed() {
    let folder = Folder::new("named");
    let store = Store::open(&folder.0).unwrap();
    let operator = folder.0.join("own.expr");
    let able = protocols::ALL.iter().find(|protocol| protocol.options.custom_ops.is_some()).unwrap().name;
    let (base, _) = TEXT.split_once("[sweep.over]").unwrap();
    let own = format!("operator = {:?}\ndata = \"real\"\ntensor =", operator.display().to_string());
    let text = format!("{}[sweep.over]\n\"job.0.protocol\" = [\"{able}\"]\n", base.replace("tensor =", &own));
    let planned = |source: &str| {
        std::fs::write(&operator, format!("# element: f32\n{source}\n")).unwrap();
        Sweep::parse(&text).unwrap()
    };
    let least = planned("min(a, b)");
    let order = serde_json::to_string(&WorkOrder::new(&least.points[0])).unwrap();
    run(&least.points[..1], &store, &|_| (), &AtomicBool::new(false)).unwrap();
    assert_eq!(store.find(&least.points[0]).unwrap().failure, None);
    let greatest = planned("max(a, b)");
    assert!(store.find(&greatest.points[0]).is_none() && store.is_outdated(&greatest.points[0]));
    let order: WorkOrder = serde_json::from_str(&order).unwrap();
    let refusal = order.run().unwrap_err().to_string();
    assert!(refusal.starts_with(&*operator.to_string_lossy()) && refusal.contains("is not the same file"), "{refusal}");
}

#[test]
fn a_machine_with_another_program_refuses_an_order() {
    let sweep = Sweep::parse(TEXT).unwrap();
    let order = serde_json::to_string(&WorkOrder::new(&sweep.points[0])).unwrap();
    let program = Program::this();
    let read = |text: &str| serde_json::from_str::<WorkOrder>(text).unwrap();
    let refusal = read(&order.replace(&program.sources, "0123")).run().unwrap_err().to_string();
    assert!(refusal.contains("sources 0123, and this machine has tributary"), "{refusal}");
    assert_eq!(read(&order).run().unwrap().program, program);
}

#[test]
fn every_result_says_which_file_and_which_program_it_is_of() {
    let folder = Folder::new("origin");
    let (sweep, store) = (Sweep::parse(TEXT).unwrap(), Store::open(&folder.0).unwrap());
    run(&sweep.points[..1], &store, &|_| (), &AtomicBool::new(false)).unwrap();
    let kept = store.find(&sweep.points[0]).unwrap();
    assert_eq!(kept.report["origin"]["sources"], Program::this().sources.as_str());
    assert_eq!(kept.report["origin"]["file"], sha256(sweep.points[0].text.as_bytes()).as_str());
    assert_eq!(sweep.origin.file, Some(sha256(TEXT.as_bytes())));
}

#[test]
fn a_point_that_cannot_be_run_is_refused_before_any_runs() {
    let text = format!("{TEXT}\"job.0.hosts\" = [2, 5]\n");
    let sweep = Sweep::parse(&text).unwrap();
    let refusal = check(&sweep.keys, &sweep.points, &AtomicBool::new(false)).unwrap_err().to_string();
    let first = &sweep.points.iter().find(|point| point.values[0] == "5").unwrap().values[1];
    let keys = format!("with job.0.hosts = 5, job.0.protocol = {first}, seed = 1: ");
    assert_eq!(refusal, format!("{keys}job 0 wants 5 hosts, and 4 are free"));
    let possible: Vec<SweepPoint> = sweep.points.into_iter().filter(|point| point.values[0] == "2").collect();
    assert_eq!(check(&sweep.keys, &possible, &AtomicBool::new(false)), Ok(()));
}

#[test]
fn the_summary_says_why_runs_failed_and_which() {
    let folder = Folder::new("failed");
    let text =
        format!("end = \"20 us\"\n{}", TEXT.replace("[sweep.over]", "[sweep.over]\n\"job.0.tensor\" = [4, \"1 MB\"]"));
    let (sweep, store) = (Sweep::parse(&text).unwrap(), Store::open(&folder.0).unwrap());
    run(&sweep.points, &store, &|_| (), &AtomicBool::new(false)).unwrap();
    let finished = kept(&sweep, &store);
    let lines = summarise(&finished);
    let why: Vec<(usize, usize)> = lines.iter().map(|line| (line.failed, line.failures.len())).collect();
    assert_eq!(why, [(0, 0), (2, 1), (0, 0), (2, 1)]);
    let failure = &lines[1].failures[0];
    assert!(failure.starts_with("seeds 1, 2: job 0 did not complete in "), "{failure}");
    write_tables(&folder.0, &sweep, &finished).unwrap();
    let read = |name: &str| std::fs::read_to_string(folder.0.join(name)).unwrap();
    let (summary, runs) = (read("summary.csv"), read("runs.csv"));
    assert!(summary.lines().next().unwrap().ends_with(",failure,made_by"), "{summary}");
    let end = format!("\"{failure}\",{}", sweep.origin);
    assert!(summary.lines().nth(2).unwrap().ends_with(&end), "{summary}");
    assert_eq!(runs.lines().count(), 1 + 8);
}

#[test]
fn completion_times_of_flows_under_dctcp_are_in_the_tables_too() {
    let folder = Folder::new("flows");
    let text = "[network]\nstar = { hosts = 4 }\nrate = \"10 Gbit/s\"\nmark_above = \"100 kB\"\n[[traffic]]\n\
                pattern = \"poisson\"\nmessage = \"10 kB\"\nload = 0.2\nuntil = \"1 ms\"\n[sweep]\n";
    let (sweep, store) = (Sweep::parse(text).unwrap(), Store::open(&folder.0).unwrap());
    run(&sweep.points, &store, &|_| (), &AtomicBool::new(false)).unwrap();
    let report = tributary_sim::run(&sweep.points[0].config).unwrap();
    let all = report.transport.unwrap().classes[0].mean_seconds;
    let mean = store.find(&sweep.points[0]).unwrap().flow_seconds.unwrap();
    assert!((mean / all - 1.0).abs() < 1e-9, "{mean} and {all}");
}

/// What never ends is not waited for until `end`: one rank hears nothing, and the other hosts go on sending.
#[test]
fn a_run_in_which_nothing_finishes_is_stopped_and_says_so() {
    let folder = Folder::new("given-up");
    let traffic = "[[traffic]]\npattern = \"uniform\"\nmessage = \"64 KiB\"\n";
    let fault = "[[fault]]\nlinks = [[\"host 0\", \"switch 0\"]]\nloss = 1.0\n";
    let job = TEXT.replace("tensor =", "hosts = [0, 1]\ntimeout = \"1000 s\"\ntensor =");
    let rule = format!("{traffic}{fault}[sweep]\ngive_up_after = \"2 ms\"");
    let text = format!("end = \"1000 s\"\n{}", job.replace("[sweep]", &rule));
    let (sweep, store) = (Sweep::parse(&text).unwrap(), Store::open(&folder.0).unwrap());
    run(&sweep.points[..1], &store, &|_| (), &AtomicBool::new(false)).unwrap();
    let failure = store.find(&sweep.points[0]).unwrap().failure.unwrap();
    assert!(failure.starts_with("given up: nothing finished for 2 ms; it was stopped at "), "{failure}");
    // With another limit it is another question.
    let patient = Sweep::parse(&text.replace("\"2 ms\"", "\"5 ms\"")).unwrap();
    assert!(store.find(&patient.points[0]).is_none());
}

#[test]
fn jobs_of_runs_are_in_a_table_of_their_own() {
    let folder = Folder::new("jobs");
    let text = TEXT.replace("tensor =", "name = \"small\"\ncount = 2\nhosts = 2\ntensor =");
    let (sweep, store) = (Sweep::parse(&text).unwrap(), Store::open(&folder.0).unwrap());
    run(&sweep.points, &store, &|_| (), &AtomicBool::new(false)).unwrap();
    let finished = kept(&sweep, &store);
    write_tables(&folder.0, &sweep, &finished).unwrap();
    let csv = std::fs::read_to_string(folder.0.join("job_runs.csv")).unwrap();
    let names: Vec<&str> = csv.lines().skip(1).filter_map(|line| line.split(',').nth(2)).collect();
    assert_eq!(names, ["small 0", "small 1"].repeat(4));
    for run in &finished {
        let slowest = run.report["jobs"].as_array().unwrap().iter().filter_map(|job| job["seconds"].as_f64());
        let (slowest, makespan) = (slowest.reduce(f64::max).unwrap(), run.makespan_seconds.unwrap());
        assert!((makespan / slowest - 1.0).abs() < 1e-9, "they begin together: {makespan} and {slowest}");
    }
    let line = &summarise(&finished)[0];
    let spread = line.goodput_gbps.unwrap();
    assert!(spread.min <= spread.median && spread.median <= spread.max && line.makespan_seconds.is_some());
}

#[test]
fn the_example_is_read() {
    let sweep = Sweep::parse(include_str!("../../../experiments/sweep-trees.toml")).unwrap();
    assert_eq!(sweep.points.len(), 60);
}

//! What a job waits for: the link or switch that takes most of the time of what its hosts receive, and the rank that is
//! last.

use std::ops::ControlFlow;

use tributary_proto::contract::protocol::Placement;
use tributary_proto::protocols;
use tributary_sim::config::Config;
use tributary_sim::report::{BottleneckReport, Report};
use tributary_sim::table::Format;
use tributary_sim::{run, run_on_threads};

const LEAF_SPINE: &str = r#"
[network]
leaf_spine = { leaves = 2, spines = 1, hosts_per_leaf = 3 }
rate = "10 Gbit/s"
[[job]]
protocol = "PROTOCOL"
tensor = "400 kB"
hosts = [0, 1, 3, 4]
slots = 32
[report]
bottlenecks = true
"#;

/// The file with a protocol whose sums are made there.
fn config_of(text: &str, placement: Placement) -> Config {
    let protocol = protocols::ALL.iter().find(|protocol| protocol.placement == placement).unwrap();
    Config::parse(&text.replace("PROTOCOL", protocol.name)).unwrap()
}

fn config(text: &str) -> Config {
    config_of(text, Placement::Trees)
}

fn report(text: &str) -> Report {
    report_of(&config(text))
}

fn report_of(config: &Config) -> Report {
    let report = run(config).unwrap();
    assert_eq!(report.failure(), None, "{report}");
    report
}

fn of_job(report: &Report) -> &BottleneckReport {
    report.jobs[0].bottlenecks.as_ref().unwrap()
}

fn last(of: &BottleneckReport) -> Vec<(usize, f64)> {
    of.last.iter().map(|one| (one.rank, one.share)).collect()
}

#[test]
fn a_slow_link_is_the_bottleneck_of_every_block_and_its_rank_is_last() {
    let slow = "[[fault]]\nlinks = [[\"host 3\", \"leaf 1\"]]\nrate = \"1 Gbit/s\"\n";
    let report = report(&format!("{LEAF_SPINE}{slow}"));
    let found = of_job(&report);
    // Up for all ranks; down for the one behind it.
    let of = |name: &str| found.shares.iter().filter(|one| one.at == name).map(|one| one.share).sum::<f64>();
    let both = of("host 3 to leaf 1") + of("leaf 1 to host 3");
    assert!(both > 0.95 && of("host 3 to leaf 1") > 0.6, "{found:?}");
    assert_eq!(last(found), [(2, 1.0)]);
    let text = report.to_string();
    assert!(
        text.contains("  last        rank 2 100.0 %\n") && text.contains("  bottleneck  host 3 to leaf 1 "),
        "{text}"
    );
    let (mut csv, tables) = (Vec::new(), report.tables());
    tables.iter().find(|table| table.name == "bottlenecks").unwrap().write(Format::Csv, &mut csv).unwrap();
    let csv = String::from_utf8(csv).unwrap();
    assert_eq!(csv.lines().count(), 1 + found.shares.len() + found.last.len(), "{csv}");
    assert!(csv.contains("slowest,host 3 to leaf 1,") && csv.contains("last,rank 2,1"), "{csv}");
}

#[test]
fn a_rank_that_comes_late_is_last_though_no_link_is_slow() {
    let report =
        report(&LEAF_SPINE.replace("slots = 32", "slots = 32\nstragglers = { ranks = [1], late = \"50 us\" }"));
    assert_eq!(last(of_job(&report)), [(1, 1.0)]);
}

#[test]
fn every_sum_has_one_rank_that_was_last_and_shares_are_of_all() {
    let report = report(LEAF_SPINE);
    let found = of_job(&report);
    let sum = |shares: Vec<f64>| shares.iter().sum::<f64>();
    let ranks = sum(found.last.iter().map(|one| one.share).collect());
    let stages = sum(found.shares.iter().map(|one| one.share).collect());
    assert!((ranks - 1.0).abs() < 1e-9 && (stages - 1.0).abs() < 1e-9, "{found:?}");
    // 400 kB are 391 blocks of 256 elements, and four ranks get each.
    assert_eq!(found.packets, 4 * 391);
    assert_eq!(found.begun_in_switches, 0);
}

/// A neighbour sends over the link that one rank gets its results over.
#[test]
fn a_queue_that_others_fill_is_a_bottleneck() {
    let noise = "[[traffic]]\npattern = \"list\"\nflows = [{ from = \"host 5\", to = \"host 4\", bytes = \"4 MB\" }]\n";
    let report = report(&format!("{LEAF_SPINE}{noise}"));
    assert_eq!(of_job(&report).shares[0].at, "leaf 1 to host 4", "{:?}", of_job(&report));
}

#[test]
fn looking_for_bottlenecks_changes_nothing_and_the_number_of_threads_neither() {
    let config = config(LEAF_SPINE);
    let without = report(&LEAF_SPINE.replace("bottlenecks = true", ""));
    assert_eq!(without.jobs[0].bottlenecks, None);
    let on = |threads| run_on_threads(&config, threads, &mut |_| ControlFlow::Continue(())).unwrap();
    let reports = [1, 2, 3].map(on);
    for report in &reports {
        assert_eq!(report.trace_hash, without.trace_hash);
        assert_eq!(of_job(report), of_job(&reports[0]));
    }
}

#[test]
fn where_hosts_sum_there_are_bottlenecks_and_no_switch_waits_for_a_rank() {
    let report = report_of(&config_of(&LEAF_SPINE.replace("slots = 32", ""), Placement::Hosts));
    let found = of_job(&report);
    assert!(!found.shares.is_empty() && found.last.is_empty(), "{found:?}");
}

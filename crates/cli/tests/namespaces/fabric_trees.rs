//! Static trees on a real fabric: over both spines of the example's, and what every rank is told when one dies.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tributary_proto::contract::protocol::{Placement, Protocol};
use tributary_proto::contract::seal;
use tributary_proto::protocols;

use crate::namespaces::fabric::{fabric, fabric_of, passed, sum};
use crate::namespaces::fabric_deaths::{FAIL_WITHIN_S, errors_of, script_under, seconds};
use crate::namespaces::network::text;

const EXAMPLE: &str = include_str!("../../../../examples/fabric.toml");
const TREES: [&str; 4] = ["--protocol", "switchml", "--trees", "2"];

#[test]
fn two_trees_of_any_protocol_that_plans_them_sum_exactly_and_load_both_spines_alike() {
    with_trees().for_each(load);
}

fn with_trees() -> impl Iterator<Item = &'static Protocol> {
    protocols::ALL.iter().copied().filter(|protocol| protocol.placement == Placement::Trees)
}

fn load(protocol: &Protocol) {
    let words = ["--allreduce", "4000000", "--dtype", "i32", "--protocol", protocol.name, "--trees", "2"];
    let Some(report) = sum(&words) else { return };
    let ranks = report["ranks"].as_array().unwrap();
    assert_eq!(ranks.len(), 8);
    assert!(ranks.iter().all(|rank| rank["in_network"] == 1.0), "{report}");
    // What was planned is what the report draws.
    let mut roots: Vec<&str> =
        report["trees"].as_array().unwrap().iter().map(|tree| tree["root"].as_str().unwrap()).collect();
    roots.sort_unstable();
    assert_eq!(roots, ["spine0", "spine1"], "{report}");
    // Equal, except for what a busy machine made ranks send again.
    let again: u64 = ranks.iter().map(|rank| rank["retransmissions"].as_u64().unwrap()).sum();
    let alike = |a: u64, b: u64| assert!(a > 5_000 && a.abs_diff(b) <= a.min(b) / 50 + again, "{a}, {b}: {report}");
    for leaf in ["leaf0", "leaf1"] {
        alike(passed(&report, leaf, "spine0"), passed(&report, leaf, "spine1"));
        alike(passed(&report, "spine0", leaf), passed(&report, "spine1", leaf));
    }
}

/// Every switch checks each packet and writes the checksums of its own; one that did not would drop all of them.
#[test]
fn packets_with_a_checksum_pass_every_switch_of_two_trees() {
    let able: Vec<_> = with_trees().filter(|protocol| protocol.options.specs.contains(&seal::OPTION)).collect();
    assert!(able.len() > 1);
    for protocol in able {
        let words = ["--allreduce", "200000", "--dtype", "i32", "--protocol", protocol.name, "--trees", "2"];
        let Some(report) = sum(&[&words[..], &["--option", "integrity=crc32c"]].concat()) else { return };
        assert!(report["ranks"].as_array().unwrap().iter().all(|rank| rank["in_network"] == 1.0), "{report}");
        for (from, to) in [("leaf0", "spine0"), ("leaf1", "spine1"), ("spine0", "leaf1"), ("spine1", "leaf0")] {
            assert!(passed(&report, from, to) > 100, "{from} to {to}: {report}");
        }
    }
}

#[test]
fn one_tree_uses_one_spine_and_floats_are_summed_within_their_bound() {
    let words = ["--allreduce", "500000", "--dtype", "f32", "--protocol", "switchml", "--trees", "1"];
    let Some(report) = sum(&words) else { return };
    let mut up = ["spine0", "spine1"].map(|spine| passed(&report, "leaf0", spine));
    up.sort_unstable();
    assert!(up[1] > 1_000 && up[0] < up[1] / 10, "{up:?}");
}

/// The protocols whose trees cannot be repaired while a job runs.
fn planned() -> impl Iterator<Item = &'static Protocol> {
    with_trees().filter(|protocol| !protocol.survives_tree_loss)
}

/// No rank is behind a spine: leaves learn from the controller that its operator stops it.
#[test]
fn a_spine_that_stops_is_named_to_every_rank_and_the_next_job_runs_over_the_other() {
    for protocol in planned() {
        let dir = tempfile::tempdir().unwrap();
        let words = "job long 500000 100000; busy; stop spine0; all; job next 1000 1; all";
        let Some(output) = script_under(protocol.name, dir.path(), words) else { return };
        let wanted = "switch spine0 is stopping, as its operator has asked it to";
        for (rank, error) in errors_of(dir.path(), "long").iter().enumerate() {
            assert!(error.contains(wanted) && error.lines().count() == 1, "rank {rank}: {error}");
        }
        let next = errors_of(dir.path(), "next");
        assert!(next.iter().all(String::is_empty), "{protocol}: {next:?} {}", text(&output.stderr));
    }
}

#[test]
fn a_spine_that_dies_is_named_to_every_rank_and_the_next_job_runs_over_the_other() {
    for protocol in planned() {
        let dir = tempfile::tempdir().unwrap();
        let words = "job long 500000 100000; busy; end spine0; all; job next 100000 2; all";
        let Some(output) = script_under(protocol.name, dir.path(), words) else { return };
        let wanted = "ran through spine0, which is dead; connect again to run over spine1";
        assert_broken(dir.path(), wanted, &output.stderr);
        let next = errors_of(dir.path(), "next");
        assert!(next.iter().all(String::is_empty), "{protocol}: {next:?}");
    }
}

/// Nobody can form jobs then; but every leaf sees for itself that a tree is broken.
#[test]
fn a_spine_that_dies_and_is_the_controller_is_named_too() {
    let dir = tempfile::tempdir().unwrap();
    let Some(output) = script_under("switchml", dir.path(), "job long 500000 100000; busy; end spine1; all") else {
        return;
    };
    let wanted =
        "ran through spine1, which is dead; connect again when spine1, where jobs are formed, is started again";
    assert_broken(dir.path(), wanted, &output.stderr);
}

#[test]
fn a_spine_that_comes_back_without_its_sums_ends_the_job_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let words = "job long 500000 100000; busy; end spine0; again spine0; all; job next 100000 2; all; end spine0";
    let Some(output) = script_under("switchml", dir.path(), words) else { return };
    assert_broken(dir.path(), "ran through spine0, which ", &output.stderr);
    let next = errors_of(dir.path(), "next");
    assert!(next.iter().all(String::is_empty), "{next:?}");
}

fn assert_broken(dir: &Path, wanted: &str, stderr: &[u8]) {
    for (rank, error) in errors_of(dir, "long").iter().enumerate() {
        let whole = error.contains("of job \"long\" ") && error.contains(wanted);
        assert!(whole && error.lines().count() == 1, "rank {rank}: {error}");
    }
    let elapsed = seconds(dir, "told") - seconds(dir, "ended");
    assert!(elapsed < FAIL_WITHIN_S, "after {elapsed} s: {}", text(stderr));
}

#[test]
fn status_draws_the_trees() {
    let dir = tempfile::tempdir().unwrap();
    let words = "job long 500000 100000; busy; ip netns exec $NS_control \"$TRIBUTARY\" status --switch 10.77.192.1; \
                 ip netns exec $NS_control \"$TRIBUTARY\" status --switch 10.77.192.4 --json; kill $workers";
    let Some(output) = script_under("switchml", dir.path(), words) else { return };
    let said = text(&output.stdout);
    let (drawn, json) = said.split_once("\n{").expect(&said);
    assert!(drawn.contains("├─ leaf0: ranks 0, 1, 2, 3\n│  ├─ host0: rank 0\n"), "{drawn}");
    assert!(drawn.contains("└─ leaf1: ranks 4, 5, 6, 7\n   ├─ host4: rank 4\n"), "{drawn}");
    assert!(drawn.contains("long, tree 0:\nspine") && drawn.contains("long, tree 1:\nspine"), "{drawn}");
    let status: Value = serde_json::from_str(&format!("{{{json}")).unwrap();
    let trees = status["jobs"][0]["trees"].as_array().unwrap();
    let mut roots: Vec<&str> = trees.iter().map(|tree| tree["root"].as_str().unwrap()).collect();
    roots.sort_unstable();
    assert_eq!(roots, ["spine0", "spine1"]);
}

/// What a death may cost: a second, which `proto` panama `faults::a_root_that_dies_and_is_planted_elsewhere_costs_no_sum_and_less_than_a_second`
/// holds in virtual time, and four by which the processes of twelve nodes may be late on a machine of two busy cores.
const DEATH_COSTS_S: f64 = 1.0 + 4.0;

#[test]
fn a_spine_that_dies_costs_no_sum_and_a_second_where_trees_can_be_repaired() {
    for protocol in protocols::ALL.iter().filter(|protocol| protocol.survives_tree_loss) {
        let words = ["--allreduce", "3000000", "--dtype", "i32", "--protocol", protocol.name, "--trees", "2"];
        let Some(undisturbed) = sum(&words) else { return };
        let Some(report) = sum(&[&words, &["--kill", "spine0:0s"][..]].concat()) else { return };
        assert_eq!((&report["killed"], report["ranks"].as_array().unwrap().len()), (&"spine0".into(), 8));
        // All of it has gone over the other one: as many packets as two trees have.
        let blocks = 3_000_000 / 352;
        assert!(passed(&report, "spine1", "leaf0") > blocks * 3 / 4, "{report}");
        let cost = slowest_s(&report) - slowest_s(&undisturbed);
        assert!(cost < DEATH_COSTS_S, "{cost} s more than {}: {report}", slowest_s(&undisturbed));
    }
}

fn slowest_s(report: &Value) -> f64 {
    report["ranks"].as_array().unwrap().iter().map(|rank| rank["seconds"].as_f64().unwrap()).fold(0.0, f64::max)
}

#[test]
fn a_killed_spine_ends_the_command_with_the_sentence() {
    let words = ["--allreduce", "3000000", "--dtype", "i32", "--kill", "spine0:0s"];
    let Some(output) = fabric(&[&words, &TREES[..]].concat()) else { return };
    let said = text(&output.stderr);
    assert!(!output.status.success() && said.contains("ran through spine0, which is dead"), "{said}");
}

/// Without --json, for people: the tree that was chosen, before the figures.
#[test]
fn the_report_draws_the_tree_that_was_planned() {
    for protocol in protocols::ALL.iter().filter(|protocol| protocol.placement == Placement::Trees) {
        let words = ["--allreduce", "1000", "--dtype", "i32", "--protocol", protocol.name, "--trees", "1"];
        let Some(output) = fabric(&words) else { return };
        let said = text(&output.stdout);
        assert!(said.contains("planned, tree 0:\nspine"), "{said}");
        // A leaf of some protocols says here what it holds, too.
        let leaf = said.lines().find(|line| line.starts_with("├─ leaf0: ")).unwrap_or_else(|| panic!("{said}"));
        assert!(leaf.ends_with("ranks 0, 1, 2, 3") && said.contains("\n│  ├─ host0: rank 0\n"), "{said}");
    }
}

/// A fast machine may be done before; then nobody may say that a death cost nothing.
#[test]
fn a_kill_that_comes_too_late_is_said_to_be_none() {
    let words = ["--allreduce", "1000", "--dtype", "i32", "--kill", "spine0:3s"];
    let Some(report) = sum(&words) else { return };
    assert_eq!((&report["killed"], &report["spared"]), (&Value::Null, &"spine0".into()), "{report}");
}

/// Nothing can be planned around a leaf: it is the only way of its hosts.
#[test]
fn a_leaf_that_dies_is_named_to_every_rank_though_trees_could_be_repaired() {
    for protocol in protocols::ALL.iter().filter(|protocol| protocol.survives_tree_loss) {
        let dir = tempfile::tempdir().unwrap();
        let words = "job long 500000 100000; busy; end leaf1; all";
        let Some(output) = script_under(protocol.name, dir.path(), words) else { return };
        for (rank, error) in errors_of(dir.path(), "long").iter().enumerate() {
            let wanted: &[&str] = match rank {
                0..4 => &[
                    "ran through leaf1, which is dead",
                    "the switch 10.77.128.2:17777 is gone, and ranks 4, 5, 6, 7 with it",
                ],
                _ => &["the switch 10.77.128.2:17777 does not answer any more"],
            };
            let whole = wanted.iter().any(|words| error.contains(words)) && error.lines().count() == 1;
            assert!(whole, "{}, rank {rank}: {error}", protocol.name);
        }
        let elapsed = seconds(dir.path(), "told") - seconds(dir.path(), "ended");
        assert!(elapsed < FAIL_WITHIN_S, "{}, after {elapsed} s: {}", protocol.name, text(&output.stderr));
    }
}

#[test]
fn a_leaf_that_is_started_again_at_once_costs_no_sum_nor_does_a_spine_that_dies_after_it() {
    for protocol in protocols::ALL.iter().filter(|protocol| protocol.survives_tree_loss) {
        let dir = tempfile::tempdir().unwrap();
        // Neighbours call the leaf dead after 0.3 s, and then no tree can be planned. The links alone keep the ranks busy for 8 s.
        let words = "job long 500000 100; busy; end leaf1; sleep 0.4; again leaf1; sleep 2; end spine0; all; end leaf1";
        let Some(output) = script_under(protocol.name, dir.path(), words) else { return };
        let errors = errors_of(dir.path(), "long");
        let stderr = text(&output.stderr);
        assert!(errors.iter().all(String::is_empty), "{}: {errors:?} {stderr}", protocol.name);
    }
}

/// A real fabric whose first spine has no memory for jobs: sums are exact over the other, and what is printed says so.
#[test]
fn a_spine_that_is_full_is_planned_around_and_the_report_says_so() {
    for protocol in protocols::ALL.iter().filter(|protocol| protocol.placement == Placement::Trees) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("fabric.toml");
        fs::write(&file, format!("memory_at = {{ spine0 = \"0 MiB\" }}\n{EXAMPLE}")).unwrap();
        let words = ["--allreduce", "300000", "--dtype", "i32", "--protocol", protocol.name];
        let Some(output) = fabric_of(file.to_str().unwrap(), &words) else { return };
        let said = text(&output.stdout);
        assert!(output.status.success(), "{protocol}: {said}{}", text(&output.stderr));
        let why = if protocol.resizes { "has less memory than the jobs divide" } else { "is full: a tree needs " };
        assert!(said.contains(&format!("planned, around: spine0 {why}")), "{protocol}: {said}");
        assert!(said.contains("planned, tree 0:\nspine1\n") && !said.contains("tree 1"), "{protocol}: {said}");
    }
}

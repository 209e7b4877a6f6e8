//! `tributary lab fabric`: two leaves, two spines and eight hosts with links of 200 Mbit/s, as the example file has them. Every
//! rank checks every element of its sum, integers exactly.

use std::process::{Command, Output};

use serde_json::Value;
use tributary_proto::protocols;
use tributary_testbed::requirements;

use crate::namespaces::network::{text, turn};

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/fabric.toml");
const PROGRAM: &str = env!("CARGO_BIN_EXE_tributary");

/// Shell functions: `four` does something on two hosts behind each leaf, the last with words of its own; `same` with the same.
const FOUR: &str = "
    worker() { ip netns exec $1 $TRIBUTARY $3 --switch $2 --rank $4 --world-size 4 --timeout 60s --json --protocol canary $5; }
    four() {
        worker $NS_host0 10.77.128.1 \"$1\" 0 \"$2\" & worker $NS_host1 10.77.128.1 \"$1\" 1 \"$2\" &
        worker $NS_host4 10.77.128.2 \"$1\" 2 \"$2\" & worker $NS_host5 10.77.128.2 \"$1\" 3 \"$3\" & wait
    }
    same() { four \"$1\" \"$2\" \"$2\"; }
";

/// Runs the example fabric with these words; `None`, with the reason on stderr, where none can be built.
pub fn fabric(words: &[&str]) -> Option<Output> {
    fabric_of(EXAMPLE, words)
}

/// The same of another file.
pub fn fabric_of(file: &str, words: &[&str]) -> Option<Output> {
    if let Err(reason) = requirements() {
        eprintln!("skipped: {reason}");
        return None;
    }
    let _turn = turn();
    let mut command = Command::new(PROGRAM);
    command.args(["lab", "fabric", file]).args(words).env_remove("TRIBUTARY_SWITCH").env("TRIBUTARY", PROGRAM);
    Some(command.output().unwrap())
}

/// A collective of all hosts that must end well, and leave nothing held behind.
pub fn sum(words: &[&str]) -> Option<Value> {
    sum_of(EXAMPLE, words)
}

/// The same over the fabric of another file.
pub fn sum_of(file: &str, words: &[&str]) -> Option<Value> {
    let output = fabric_of(file, &[&["--json", "--timeout", "100s"], words].concat())?;
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    for switch in switches(&report) {
        let shared = switch["shared"].as_array().unwrap();
        assert!(shared.iter().all(|shared| shared["slots_in_use"] == 0), "{switch}");
    }
    Some(report)
}

pub fn switches(report: &Value) -> &Vec<Value> {
    report["switches"].as_array().unwrap()
}

/// Packets that left a switch towards another node.
pub fn passed(report: &Value, from: &str, to: &str) -> u64 {
    let switch = switches(report).iter().find(|switch| switch["node"] == from).unwrap();
    let port = switch["ports"].as_array().unwrap().iter().find(|port| port["peer"] == to).unwrap();
    port["tx_packets"].as_u64().unwrap()
}

#[test]
fn eight_hosts_sum_over_two_spines_and_leave_nothing_behind() {
    let Some(report) = sum(&["--allreduce", "500000", "--dtype", "i32", "--iters", "2"]) else { return };
    assert_eq!(report["ranks"].as_array().unwrap().len(), 8);
    for (from, to) in [("leaf0", "spine0"), ("leaf0", "spine1"), ("leaf1", "spine0"), ("leaf1", "spine1")] {
        assert!(passed(&report, from, to) > 100, "{from} to {to}: {report}");
    }
    for switch in switches(&report) {
        assert!(switch["shared"][0]["slots_peak"].as_u64().unwrap() > 0, "{switch}");
    }
    assert!(
        report["ranks"].as_array().unwrap().iter().all(|rank| rank["in_network"].as_f64().unwrap() > 0.5),
        "{report}"
    );
}

#[test]
fn an_option_of_switches_reaches_each_of_them_and_one_that_none_has_is_refused_with_a_sentence() {
    let refused = |option: &str| {
        let command =
            Command::new(PROGRAM).args(["lab", "fabric", EXAMPLE, "--print", "--switch-option", option]).output();
        let output = command.unwrap();
        assert!(!output.status.success() && output.stdout.is_empty(), "{option}");
        text(&output.stderr)
    };
    let sharing: Vec<&str> =
        protocols::ALL.iter().filter(|protocol| protocol.shared.is_some()).map(|protocol| protocol.name).collect();
    let (protocol, sharing) = (sharing[0], sharing.join(", "));
    let known =
        format!("tributary: error: '{EXAMPLE}': switches have no options for \"pigeon\", except for {sharing}\n");
    assert_eq!(refused("pigeon.wings=2"), known);
    let wings = refused(&format!("{protocol}.wings=2"));
    assert!(wings.contains(&format!("switches: {protocol} has no option \"wings\"; it has descriptors, ")), "{wings}");
    assert!(refused("wings=2").contains("write PROTOCOL.NAME=VALUE"));
    let option = format!("{protocol}.descriptors=64");
    let words = ["--allreduce", "10000", "--dtype", "i32", "--switch-option", &option];
    let Some(report) = sum(&words) else { return };
    assert!(switches(&report).iter().all(|switch| switch["shared"][0]["slots"] == 64), "{report}");
}

#[test]
fn floats_are_summed_within_their_bound_beside_other_traffic_on_one_spine() {
    let traffic = ["--traffic", "host3:host7:150Mbit/s:spine0"];
    let Some(report) = sum(&[&["--allreduce", "1000000", "--dtype", "f32"], &traffic[..]].concat()) else { return };
    assert_eq!(report["ranks"].as_array().unwrap().len(), 6, "the hosts of the traffic do not sum");
    assert!(passed(&report, "leaf1", "host7") > 1_000, "the traffic arrives: {report}");
    assert!(passed(&report, "leaf0", "spine1") > 100, "{report}");
}

#[test]
fn a_spine_that_is_killed_in_the_middle_costs_no_element() {
    let Some(report) = sum(&["--allreduce", "3000000", "--dtype", "i32", "--kill", "spine0:0s"]) else { return };
    assert_eq!(report["killed"], "spine0");
    let nodes: Vec<&str> = switches(&report).iter().map(|switch| switch["node"].as_str().unwrap()).collect();
    assert_eq!(nodes, ["leaf0", "leaf1", "spine1"]);
    assert!(passed(&report, "spine1", "leaf0") > 1_000, "{report}");
}

#[test]
fn a_spine_that_comes_back_gets_the_running_job_again() {
    let words = ["--allreduce", "2000000", "--dtype", "i32", "--iters", "8", "--kill", "spine0:0s:200ms"];
    let Some(report) = sum(&words) else { return };
    // It is another process than before: what it counts is what it did after it came back.
    assert!(passed(&report, "spine0", "leaf0") > 100, "{report}");
    let spine = switches(&report).iter().find(|switch| switch["node"] == "spine0").unwrap();
    assert!(spine["shared"][0]["slots_peak"].as_u64().unwrap() > 0, "{spine}");
}

/// §6, on hosts behind both leaves: one gets the sum, all get one's data, and ranks that name different roots are told.
#[test]
fn hosts_reduce_to_one_and_broadcast_from_one() {
    let script = "
        same 'lab reduce' '--job sum --elements 300000 --root 2 --iters 3'
        same 'lab broadcast' '--job copy --elements 300001 --dtype f16 --root 3 --iters 3'
        four 'lab reduce' '--job roots --elements 5000 --root 1' '--job roots --elements 5000 --root 2'
    ";
    let Some(output) = fabric(&["--run", &(FOUR.to_owned() + script)]) else { return };
    let stdout = text(&output.stdout);
    let reports: Vec<Value> = stdout.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    let of = |name: &str| reports.iter().filter(|report| report["collective"] == name).collect::<Vec<_>>();
    let checked = |reports: &[&Value]| -> Vec<u64> {
        let mut ranks: Vec<u64> = reports
            .iter()
            .filter(|report| report["checked"] == true)
            .map(|report| report["rank"].as_u64().unwrap())
            .collect();
        ranks.sort_unstable();
        ranks
    };
    assert_eq!((of("reduce").len(), of("broadcast").len()), (4, 4), "{stdout}{}", text(&output.stderr));
    assert_eq!(checked(&of("reduce")), [2]);
    assert_eq!(checked(&of("broadcast")), [0, 1, 2]);
    let errors = text(&output.stderr);
    assert_eq!(errors.matches("rank 3 brings sum of 5000 f32 elements for rank 2").count(), 4, "{errors}");
}

#[test]
fn what_a_fabric_cannot_take_is_refused_with_one_sentence() {
    let script = "
        worker() { ip netns exec $1 $TRIBUTARY allreduce --switch $2 --job $3 --elements 10 --timeout 20s $4; }
        worker $NS_host0 10.77.128.1 ring '--rank 0 --world-size 1 --protocol ring'
        worker $NS_host1 10.77.128.1 twice '--rank 0 --world-size 2 --protocol canary' &
        worker $NS_host1 10.77.128.1 twice '--rank 1 --world-size 2 --protocol canary'
        wait
        worker $NS_leaf0 10.77.192.4 stray '--rank 0 --world-size 1 --protocol canary'
        ip netns exec $NS_control $TRIBUTARY status --switch 10.77.192.1 --json
    ";
    let Some(output) = fabric(&["--run", script]) else { return };
    // Two of them complain at the same time: their lines may run into each other.
    let errors = text(&output.stderr);
    let times = |sentence: &str| errors.matches(sentence).count();
    assert_eq!(times("tributary: error: "), 4, "{errors}");
    assert_eq!(times("ring is not for a fabric"), 1, "{errors}");
    assert_eq!(times("rank 0 and rank 1 are both on host1"), 2, "{errors}");
    assert_eq!(times("rank 0 comes from 10.77.192.1, which is not a host of the fabric"), 1, "{errors}");
    let status: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(status["switch"]["fabric"]["node"], "leaf0");
    assert_eq!(status["jobs"], Value::Array(Vec::new()));
}

#[test]
fn cables_whose_mtu_shrinks_in_the_middle_of_a_job_are_not_taken_any_more() {
    let script = "
        same allreduce '--job shrinks --elements 1000000 --iters 40 --dtype i32' & job=$!
        sleep 2
        for cable in $(ip -n $NS_spine0 -o link show type veth | cut -d: -f2 | cut -d@ -f1 | grep c[0-9]); do
            ip -n $NS_spine0 link set $cable mtu 1000
        done
        wait $job
        ip netns exec $NS_control $TRIBUTARY status --switch 10.77.192.1 --json
    ";
    let Some(output) = fabric(&["--run", &(FOUR.to_owned() + script)]) else { return };
    let stdout = text(&output.stdout);
    let lines: Vec<Value> = stdout.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    let checked = lines.iter().filter(|line| line["checked"] == true).count();
    assert_eq!(checked, 4, "{stdout}{}", text(&output.stderr));
    let leaf = lines.last().unwrap();
    let ports = leaf["switch"]["fabric"]["ports"].as_array().unwrap();
    let up = |peer: &str| ports.iter().find(|port| port["peer"] == peer).unwrap()["up"].as_bool().unwrap();
    assert!(!up("spine0") && up("spine1"), "{leaf}");
}

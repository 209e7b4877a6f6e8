//! A lossless fabric: two hosts send to a third at the full rate of its cable each, and nothing is dropped.

use serde_json::Value;
use tributary_proto::protocols;

use crate::namespaces::fabric::{fabric_of, switches};
use crate::namespaces::network::text;

const FILE: &str = "secret = \"0123456789abcdef\"\nrate = \"100 Mbit/s\"\nqueue = \"1024 KiB\"\nlossless = true\n\
                    [leaf_spine]\nleaves = 2\nspines = 1\nhosts_per_leaf = 3\n";

fn port<'a>(report: &'a Value, from: &str, to: &str) -> &'a Value {
    let switch = switches(report).iter().find(|switch| switch["node"] == from).unwrap();
    switch["ports"].as_array().unwrap().iter().find(|port| port["peer"] == to).unwrap()
}

#[test]
fn twice_what_a_cable_takes_pauses_hosts_and_switches_and_drops_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("lossless.toml");
    std::fs::write(&file, FILE).unwrap();
    let protocol =
        protocols::ALL.iter().find(|protocol| protocol.survives_tree_loss).expect("one wants lossless links");
    // Sixteen seconds: the spine's queue takes in little more than leaf1 lets out, so it fills slowly. In nine it
    // was once not full enough to pause.
    let mut words =
        vec!["--json", "--allreduce", "200000", "--iters", "100", "--dtype", "i32", "--protocol", protocol.name];
    words.extend(["--traffic", "host0:host3:100Mbit/s", "--traffic", "host4:host3:100Mbit/s", "--timeout", "100s"]);
    let Some(output) = fabric_of(file.to_str().unwrap(), &words) else { return };
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["ranks"].as_array().unwrap().len(), 3);
    for switch in switches(&report) {
        assert!(switch["ports"].as_array().unwrap().iter().all(|port| port["tx_drops"] == 0), "{switch}");
    }
    // The host beside the receiver is paused, and hop by hop the one behind the other leaf.
    for (switch, sender) in [("leaf1", "host4"), ("leaf1", "spine0"), ("spine0", "leaf0"), ("leaf0", "host0")] {
        assert!(port(&report, switch, sender)["pauses_given"].as_u64() > Some(0), "{switch}, {sender}: {report}");
    }
    for (switch, paused_by) in [("spine0", "leaf1"), ("leaf0", "spine0")] {
        assert!(port(&report, switch, paused_by)["pauses_taken"].as_u64() > Some(0), "{switch}, {paused_by}: {report}");
    }
    assert_eq!(port(&report, "leaf1", "host3")["pauses_taken"], 0, "hosts take all at once");
}

//! Protocols that sum in a switch's shared memory as far as there is room, and at servers beyond, over the example fabric of
//! `fabric.rs`: exact sums with room and without, under loss of a spine and beside other traffic.

use std::fs;

use serde_json::Value;
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::protocols;

use crate::namespaces::fabric::{sum, sum_of, switches};

const EXAMPLE: &str = include_str!("../../../../examples/fabric.toml");

/// The protocols whose switches have aggregators.
pub fn with_aggregators() -> impl Iterator<Item = &'static Protocol> {
    let specs = |protocol: &&Protocol| protocol.shared.as_ref().map_or(&[][..], |shared| shared.options.specs);
    let all = protocols::ALL.iter().copied();
    all.filter(move |protocol| specs(protocol).iter().any(|spec| spec.name == "aggregators"))
}

/// What a protocol's jobs share at each switch, of a report of a fabric; nothing of it is held any more.
fn shared<'a>(report: &'a Value, protocol: &Protocol) -> Vec<&'a Value> {
    let of_it = |switch: &'a Value| {
        let shared = switch["shared"].as_array().unwrap().iter().find(|shared| shared["protocol"] == protocol.name);
        shared.expect("each switch has a machine")
    };
    let all: Vec<&Value> = switches(report).iter().map(of_it).collect();
    assert!(all.iter().all(|shared| shared["slots_in_use"] == 0), "{report}");
    all
}

fn in_network(report: &Value) -> f64 {
    let ranks = report["ranks"].as_array().unwrap();
    ranks.iter().map(|rank| rank["in_network"].as_f64().unwrap()).fold(1.0, f64::min)
}

#[test]
fn eight_hosts_sum_on_two_levels_of_switches() {
    for protocol in with_aggregators() {
        let words = ["--allreduce", "400000", "--dtype", "i32", "--protocol", protocol.name];
        let Some(report) = sum(&words) else { return };
        assert_eq!(report["ranks"].as_array().unwrap().len(), 8);
        assert!(in_network(&report) > 0.5, "{report}");
        // Sums are made next to the servers, which are on all hosts, and next to the ranks.
        let peaks = shared(&report, protocol).into_iter().filter(|shared| shared["slots_peak"].as_u64().unwrap() > 0);
        assert_eq!(peaks.count(), 2, "both leaves: {report}");
    }
}

#[test]
fn without_aggregators_servers_sum_everything() {
    for protocol in with_aggregators() {
        let option = format!("{}.aggregators=0", protocol.name);
        let words =
            ["--allreduce", "100000", "--dtype", "i32", "--protocol", protocol.name, "--switch-option", &option];
        let Some(report) = sum(&words) else { return };
        assert_eq!(in_network(&report), 0.0, "{report}");
        assert!(shared(&report, protocol).iter().all(|shared| shared["slots_peak"] == 0), "{report}");
    }
}

#[test]
fn a_spine_that_is_killed_in_the_middle_costs_no_element_whoever_sums() {
    for protocol in with_aggregators() {
        let words = ["--allreduce", "2000000", "--dtype", "i32", "--protocol", protocol.name, "--kill", "spine0:0s"];
        let Some(report) = sum(&words) else { return };
        assert_eq!(report["killed"], "spine0");
        shared(&report, protocol);
    }
}

#[test]
fn floats_are_summed_within_their_bound_beside_other_traffic() {
    for protocol in with_aggregators() {
        let traffic = ["--traffic", "host3:host7:150Mbit/s:spine0"];
        let words = ["--allreduce", "400000", "--dtype", "f32", "--protocol", protocol.name];
        let Some(report) = sum(&[&words[..], &traffic].concat()) else { return };
        assert_eq!(report["ranks"].as_array().unwrap().len(), 6, "the hosts of the traffic do not sum");
        shared(&report, protocol);
    }
}

/// With one spine nothing leads around the traffic: packets of ranks meet a queue that it keeps long, and are marked.
#[test]
fn where_all_cross_the_queue_of_other_traffic_packets_are_marked_and_the_sum_is_right() {
    for protocol in with_aggregators() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("fabric.toml");
        let one_spine =
            EXAMPLE.replace("spines = 2", "spines = 1").replace("controller = \"spine1\"", "controller = \"spine0\"");
        fs::write(&file, one_spine).unwrap();
        let words = ["--allreduce", "1000000", "--dtype", "f32", "--protocol", protocol.name];
        let traffic = ["--traffic", "host3:host7:150Mbit/s:spine0"];
        let Some(report) = sum_of(file.to_str().unwrap(), &[&words[..], &traffic].concat()) else { return };
        shared(&report, protocol);
        let ports = switches(&report).iter().flat_map(|switch| switch["ports"].as_array().unwrap());
        assert!(ports.map(|port| port["tx_marks"].as_u64().unwrap()).sum::<u64>() > 0, "{protocol}: {report}");
    }
}

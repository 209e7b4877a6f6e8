//! Real and simulated agree on fabrics, too: two leaves, spines and eight hosts, under Canary, and under every protocol whose
//! trees are planned. `agreement.rs` says how real times are taken, and how near they must come.

use std::io::Write;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tributary_proto::contract::protocol::{Placement, Protocol};
use tributary_proto::protocols;
use tributary_sim::config::Config;
use tributary_testbed::requirements;

use crate::namespaces::agreement::{Nearness, TYPE, timers};
use crate::namespaces::network::alone;

/// The file of a fabric.
macro_rules! file {
    ($name:literal) => {
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../", $name)
    };
}

/// Collectives back to back, of whose times the median counts.
const ITERS: u64 = 9;

/// Sums on a fabric of this machine; what `tributary lab fabric` reports.
fn real(file: impl AsRef<Path>, elements: u64, words: &[&str]) -> Option<Value> {
    if let Err(reason) = requirements() {
        eprintln!("skipped: {reason}");
        return None;
    }
    let _turn = alone();
    let program = env!("CARGO_BIN_EXE_tributary");
    let mut command = Command::new(program);
    command.args(["lab", "fabric"]).arg(file.as_ref()).args(["--json", "--dtype", TYPE, "--timeout", "100s"]);
    command.env("TRIBUTARY", program);
    command.args(["--allreduce", &elements.to_string(), "--iters", &ITERS.to_string()]).args(words);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

/// Of the slowest rank.
fn seconds(report: &Value) -> f64 {
    let ranks = report["ranks"].as_array().unwrap();
    ranks.iter().map(|rank| rank["seconds"].as_f64().unwrap()).fold(0.0, f64::max)
}

/// Packets that the leaves sent to each host, by collective.
fn packets_to_a_host(report: &Value) -> f64 {
    let ports = report["switches"].as_array().unwrap().iter().flat_map(|switch| switch["ports"].as_array().unwrap());
    let to_hosts = ports.filter(|port| port["peer"].as_str().unwrap().starts_with("host"));
    let packets: f64 = to_hosts.map(|port| port["tx_packets"].as_f64().unwrap()).sum();
    packets / (report["ranks"].as_array().unwrap().len() as u64 * ITERS) as f64
}

/// Under Canary: seconds, and packets that the leaves sent to each host.
fn real_every_hop(elements: u64) -> Option<(f64, f64)> {
    let report = real(file!("examples/fabric.toml"), elements, &[])?;
    Some((seconds(&report), packets_to_a_host(&report)))
}

fn simulated_every_hop(elements: u64) -> (f64, f64) {
    let text = std::fs::read_to_string(file!("experiments/fabric.toml")).unwrap();
    let text = text.replace("tensor = \"4 MiB\"", &format!("tensor = \"{} B\"", 4 * elements));
    let report = tributary_sim::run(&Config::parse(&text).unwrap()).unwrap();
    assert_eq!(report.failure(), None);
    let down = report.links.iter().find(|group| group.name == "host down").unwrap();
    (report.jobs[0].seconds.unwrap(), down.packets as f64 / (down.links as u64 * ITERS) as f64)
}

/// A table of Canary's sums on the fabric.
fn every_hop_agrees(mebibytes: &[u64], nearness: &Nearness) -> bool {
    let mut agree = true;
    println!("| tensor | packets to a host, real, simulated | real | simulated | ratio |\n|---|---|---:|---:|---:|");
    for mebibytes in mebibytes {
        let elements = mebibytes << 18;
        let (simulated, expected) = simulated_every_hop(elements);
        let one = |_| real_every_hop(elements);
        let Some((real, packets)) = nearness.fastest(simulated, |(seconds, _)| seconds, one) else { return true };
        let what = format!("{mebibytes} MiB | {packets:.0}, {expected:.0}");
        agree &= nearness.compare(&what, real, simulated);
    }
    agree
}

#[test]
fn a_fabric_agrees_within_noise() {
    assert!(every_hop_agrees(&[1, 4], &Nearness::within(0.85..=1.6)), "see the table");
}

#[test]
#[ignore = "no room for noise: run it by hand, on a machine that has little else to do"]
fn a_fabric_agrees_within_15_percent() {
    assert!(every_hop_agrees(&[1, 4, 16], &Nearness::at_rest(0.85..=1.15)), "see the table");
}

/// A fabric that loses nothing, with four spines.
const LOSSLESS: &str = "secret = \"a fabric of this machine alone\"\ncontroller = \"leaf0\"\nqueue = \"1024 KiB\"\nlossless = true\n\
                        mark_above = \"64 KiB\"\nmark_all_above = \"512 KiB\"\n[leaf_spine]\nleaves = 2\nspines = 4\nhosts_per_leaf = 4\n";

/// A run over planned trees.
#[derive(Clone, Copy)]
struct Planned {
    seconds: f64,
    /// Share of packets that were sent again.
    again: f64,
    trees: usize,
    slots: u64,
    elements_per_packet: u64,
}

fn real_trees(protocol: &Protocol, rate: &str, elements: u64) -> Option<Planned> {
    let mut file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    write!(file, "rate = \"{rate}\"\n{LOSSLESS}").unwrap();
    let report = real(file.path(), elements, &["--protocol", protocol.name])?;
    let count =
        |name: &str| report["ranks"].as_array().unwrap().iter().map(|rank| rank[name].as_f64().unwrap()).sum::<f64>();
    Some(Planned {
        seconds: seconds(&report),
        again: count("retransmissions") / count("packets_sent"),
        trees: report["trees"].as_array().unwrap().len(),
        slots: report["slots"].as_u64().unwrap(),
        elements_per_packet: report["elements_per_packet"].as_u64().unwrap(),
    })
}

/// The same with what the real job was granted, simulated.
fn simulated_trees(protocol: &Protocol, rate: &str, elements: u64, granted: Planned) -> Planned {
    let Planned { trees, slots, elements_per_packet, .. } = granted;
    // What `tributary lab fabric` counts is what a cable counts: Ethernet, IPv4 and UDP headers.
    let text = format!(
        "[network]\nleaf_spine = {{ leaves = 2, spines = 4, hosts_per_leaf = 4 }}\nrate = \"{rate}\"\ndelay = \"5 us\"\n\
         switch_latency = \"50 us\"\nqueue = \"1 MiB\"\nmark_above = \"64 KiB\"\nmark_all_above = \"512 KiB\"\noverhead = 42\n\
         shortest = 42\nlossless = {{}}\n[[job]]\nprotocol = \"{protocol}\"\nhosts = [0, 1, 2, 3, 4, 5, 6, 7]\n\
         tensor = \"{} B\"\niterations = {ITERS}\ntype = \"{TYPE}\"\ntrees = {trees}\nroot_choice = \"least_loaded\"\n\
         slots = {slots}\nelements_per_packet = {elements_per_packet}\n{}",
        4 * elements,
        timers()
    );
    let report = tributary_sim::run(&Config::parse(&text).unwrap()).unwrap();
    assert_eq!(report.failure(), None);
    let job = &report.jobs[0];
    let again = job.retransmissions as f64 / job.packets_sent as f64;
    Planned { seconds: job.seconds.unwrap(), again, ..granted }
}

/// A table of sums over planned trees on a fabric that loses nothing.
fn trees_agree(rate: &str, mebibytes: &[u64], nearness: &Nearness) -> bool {
    let mut agree = true;
    println!("| protocol, tensor, trees, slots | sent again | real | simulated | ratio |\n|---|---|---:|---:|---:|");
    for protocol in protocols::ALL.iter().filter(|protocol| protocol.placement == Placement::Trees) {
        for mebibytes in mebibytes {
            let elements = mebibytes << 18;
            // What a job is granted is known when it runs.
            let Some(first) = real_trees(protocol, rate, elements) else { return true };
            let simulated = simulated_trees(protocol, rate, elements, first);
            let one = |number: usize| if number == 0 { Some(first) } else { real_trees(protocol, rate, elements) };
            let Some(real) = nearness.fastest(simulated.seconds, |run| run.seconds, one) else { continue };
            let again = format!("{:.1} %, {:.1} %", real.again * 100.0, simulated.again * 100.0);
            let what = format!("{protocol}, {mebibytes} MiB, {}, {} | {again}", real.trees, real.slots);
            agree &= nearness.compare(&what, real.seconds, simulated.seconds);
        }
    }
    agree
}

#[test]
fn planned_trees_on_a_fabric_agree_within_noise() {
    // A quarter of the rate, so that 14 processes of a busy machine have the time that its links take.
    assert!(trees_agree("50 Mbit/s", &[1], &Nearness::within(0.85..=1.6)), "see the table");
}

#[test]
#[ignore = "no room for noise: run it by hand, on a machine that has little else to do"]
fn planned_trees_on_a_fabric_agree_within_15_percent() {
    assert!(trees_agree("200 Mbit/s", &[1, 4, 16], &Nearness::at_rest(0.85..=1.15)), "see the table");
}

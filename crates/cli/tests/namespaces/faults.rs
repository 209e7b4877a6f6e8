//! Whatever the links do to packets, every result is exact and every collective ends.

use tributary_proto::protocols;
use tributary_testbed::Faults;

use crate::namespaces::fabric_memory::with_aggregators;
use crate::namespaces::network::{Network, checked};

/// 300,000 elements are 834 packets up and as many down for each of four workers and five sums: 33,000 in all.
const SUM: [&str; 6] = ["--elements", "300000", "--iters", "5", "--timeout", "60s"];

/// Protocols whose jobs share nothing in a switch.
const PLAIN: [&str; 2] = ["switchml", "ring"];

/// Integers, where one wrong contribution shows, and floats, over each protocol.
fn every_sum_is_exact(faults: Faults) {
    let Some(network) = Network::build(4, faults) else { return };
    let mut sent_again = 0;
    for protocol in PLAIN {
        for dtype in ["i32", "f32"] {
            let words = [&SUM[..], &["--protocol", protocol, "--dtype", dtype]].concat();
            let reports = network.sum(&format!("{protocol}-{dtype}"), 4, &words);
            sent_again += reports.iter().map(|report| report["retransmissions"].as_u64().unwrap()).sum::<u64>();
        }
    }
    if faults.loss_percent > 0.0 {
        assert!(sent_again > 0, "nothing was lost");
    }
}

#[test]
fn with_1_percent_loss_in_both_directions() {
    every_sum_is_exact(Faults::loss(1.0));
}

#[test]
fn with_5_percent_loss_in_both_directions() {
    every_sum_is_exact(Faults::loss(5.0));
}

#[test]
fn with_duplicates() {
    let faults = Faults { duplicate_percent: 20.0, ..Faults::default() };
    every_sum_is_exact(faults);
    let Some(network) = Network::build(4, faults) else { return };
    let reports = network.sum("doubled", 4, &SUM);
    let sent: u64 = reports.iter().map(|report| report["packets_sent"].as_u64().unwrap()).sum();
    let received: u64 = network.status().switch.shards.iter().map(|shard| shard.rx_packets).sum();
    assert!(received > sent + sent / 20, "{received} packets came of {sent}: nothing was doubled");
}

#[test]
fn with_reordering() {
    every_sum_is_exact(Faults { reorder_percent: 20.0, ..Faults::default() });
}

#[test]
fn with_all_of_it_at_once() {
    every_sum_is_exact(Faults { loss_percent: 1.0, duplicate_percent: 5.0, reorder_percent: 5.0 });
}

/// Runs one sum of four ranks with these words: each checks its result, and all write the same bits.
fn all_write_the_same_bits(network: &Network, name: &str, words: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let outputs: Vec<String> =
        (0..4).map(|rank| folder.path().join(format!("{rank}.npy")).display().to_string()).collect();
    let words = |rank: usize| [&["--elements", "100007", "--output", &outputs[rank]], words].concat();
    let workers: Vec<_> = (0..4).map(|rank| network.worker(name, rank, 4, &words(rank))).collect();
    workers.into_iter().for_each(|worker| drop(checked(worker)));
    let first = std::fs::read(&outputs[0]).unwrap();
    assert!(outputs.iter().all(|output| std::fs::read(output).unwrap() == first), "{name}");
}

#[test]
fn all_ranks_write_the_same_bits_under_loss() {
    let Some(network) = Network::build(4, Faults::loss(1.0)) else { return };
    for protocol in with_aggregators().map(|protocol| protocol.name).chain(PLAIN) {
        all_write_the_same_bits(&network, protocol, &["--protocol", protocol]);
    }
}

#[test]
fn ranks_on_several_cores_write_the_same_bits_under_loss_as_those_on_one() {
    let Some(network) = Network::build(4, Faults::loss(1.0)) else { return };
    for protocol in protocols::ALL.iter().filter(|protocol| protocol.divides_slots_by_default()) {
        let protocol = protocol.name;
        let folder = tempfile::tempdir().unwrap();
        let output = |rank: usize| folder.path().join(format!("{rank}.npy")).display().to_string();
        let outputs: Vec<String> = (0..4).map(output).collect();
        let words = |rank: usize| {
            let cores = ["1", "2", "3", "2"][rank];
            ["--elements", "300007", "--output", &outputs[rank], "--protocol", protocol, "--cores", cores]
        };
        let workers: Vec<_> = (0..4).map(|rank| network.worker(protocol, rank, 4, &words(rank))).collect();
        workers.into_iter().for_each(|worker| drop(checked(worker)));
        let first = std::fs::read(&outputs[0]).unwrap();
        assert!(outputs.iter().all(|output| std::fs::read(output).unwrap() == first), "{protocol}");
    }
}

#[test]
fn sums_of_codes_are_within_their_bound_and_the_same_on_all_ranks_under_faults() {
    let faults = Faults { loss_percent: 1.0, duplicate_percent: 5.0, reorder_percent: 5.0 };
    let Some(network) = Network::build(4, faults) else { return };
    for (dtype, down) in [("f32", "down=8"), ("f32", "down=16"), ("bf16", "down=8"), ("f16", "down=16")] {
        let words = ["--dtype", dtype, "--option", "numbers=int8", "--option", down, "--iters", "5"];
        all_write_the_same_bits(&network, &format!("{dtype}-{down}"), &words);
    }
}

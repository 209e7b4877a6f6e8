//! What hosts send again of blocks that nobody has lost: ranks that come late are waited for as in dense sums.

use tributary_numeric::ReduceOp;
use tributary_proto::contract::config::JobConfig;
use tributary_proto::contract::host::Collective;

use super::{Pairs, collective, drawn, expected, job, result, whole};
use crate::harness::Network;
use crate::harness::link::LinkConfig;
use crate::harness::reduction::{at_ms, in_place, star};
use crate::setup::{self, racks};

/// Sixteen blocks in 4 slots, each of three shards.
const SIZE: u32 = 800;

fn sparse_job() -> JobConfig {
    job(2, 4, 16, &[("span", "50")])
}

fn inputs(seed: u64) -> Vec<Pairs<f32>> {
    drawn(seed, 2, SIZE, 0.55, whole)
}

/// One sum to which the second rank comes late; what the ranks send again for it. The results are left with the hosts.
fn round(network: &mut Network, late_ms: u64, collective: impl Fn(usize) -> Collective) -> u64 {
    let begin = (network.now.since(at_ms(0)).as_secs_f64() * 1e3) as u64 + 1;
    network.hosts.iter_mut().for_each(|host| host.events.clear());
    let before = sent_again(network);
    network.submit_at(at_ms(begin), 0, collective(0));
    network.submit_at(at_ms(begin + late_ms), 1, collective(1));
    network.run_until(at_ms(begin + 10_000));
    sent_again(network) - before
}

fn sent_again(network: &Network) -> u64 {
    network.hosts.iter().map(|host| host.machine.stats().retransmissions).sum()
}

fn sparse_round(network: &mut Network, seed: u64, late_ms: u64) -> u64 {
    let inputs = inputs(seed);
    let again = round(network, late_ms, |rank| collective(&inputs[rank], SIZE, ReduceOp::Sum));
    let events = network.hosts.iter_mut().map(|host| std::mem::take(&mut host.events)).collect();
    assert!(result::<f32>(events) == expected(&inputs, ReduceOp::Sum));
    again
}

/// The shards of four slots go once. Then each slot asks with its last one, and three times more at most.
#[test]
fn who_waits_for_a_rank_asks_and_does_not_send_all_again() {
    let link = LinkConfig::default;
    for mut network in [star(1, link(), &sparse_job()), racks(1, link(), &sparse_job(), &[&[0], &[1]])] {
        let again = sparse_round(&mut network, 3, 50);
        assert!((1..=16).contains(&again), "{again}");
    }
}

/// Processes are never quite together: a sparse sum asks for the one that is late as often as a dense one of as many
/// blocks.
#[test]
fn sums_that_begin_at_different_times_send_no_more_again_than_dense_ones() {
    let mut sparse = star(1, LinkConfig::default(), &sparse_job());
    let mut dense = star(1, LinkConfig::default(), &setup::job(2, 4, 50, &[]));
    let values = vec![1.0f32; SIZE as usize];
    let rounds = |round: &mut dyn FnMut(u64) -> u64| (0..20).map(round).sum::<u64>();
    let sparse = rounds(&mut |seed| sparse_round(&mut sparse, seed, 3));
    let dense = rounds(&mut |_| round(&mut dense, 3, |_| in_place(&values, ReduceOp::Sum)));
    assert!((1..=dense).contains(&sparse), "{sparse} of sparse sums, {dense} of dense ones");
}

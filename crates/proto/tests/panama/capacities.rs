//! Room that changes while a job runs, as other jobs come and go (§4.2.2): sums stay right, and no port ever finds its
//! buffer full.

use tributary_numeric::{DType, ReduceOp};
use tributary_proto::contract::config::JobConfig;
use tributary_proto::contract::drop_reason::DropReason;
use tributary_proto::contract::ids::JobId;
use tributary_proto::contract::sum_tree::SumTree;
use tributary_proto::contract::time::Time;

use crate::harness::Network;
use crate::harness::link::LinkConfig;
use crate::harness::reduction::{at_ms, expected, in_place, output, reduce, star};
use crate::setup::{controls, faulty, floats, job, options, racks, reference_of_racks};

/// Packets that found their port full, at all switches and in all trees.
fn overflows(network: &Network) -> u64 {
    let pipelines = network.switches.iter().flat_map(|switch| &switch.pipelines);
    pipelines.map(|pipeline| pipeline.report(JobId(1)).expect("it is installed").drops.get(DropReason::Overflow)).sum()
}

fn memory(network: &Network, switch: usize) -> usize {
    network.switches[switch].pipelines[0].report(JobId(1)).expect("it is installed").memory_bytes
}

/// Runs a sum over the network, in which a switch is given these rooms one after the other, 300 us apart.
fn sum_while_resized(network: &mut Network, inputs: &[Vec<f32>], switch: usize, capacities: &[u16]) -> Vec<u8> {
    for (rank, input) in inputs.iter().enumerate() {
        network.submit(rank, in_place(input, ReduceOp::Sum)).unwrap();
    }
    for (number, &capacity) in capacities.iter().enumerate() {
        network.run_until(Time((number as u64 + 1) * 300_000_000));
        network.resize(switch, JobId(1), capacity);
    }
    output(network.run_until_idle(at_ms(10_000_000)), DType::F32, inputs[0].len())
}

const CAPACITIES: [u16; 7] = [5, 64, 2, 3, 40, 2, 64];

#[test]
fn sums_are_right_whatever_the_capacity_is_meanwhile() {
    let inputs: Vec<Vec<f32>> = (0..4).map(|rank| floats(rank, 40_000)).collect();
    let right = expected(&inputs, ReduceOp::Sum, &SumTree::star(4));
    for control in controls() {
        for link in [LinkConfig::default(), faulty()] {
            for seed in 1..6 {
                let job = JobConfig { options: options(&[("congestion_control", control)]), ..job(4, 2, 64, 64) };
                let mut network = star(seed, link, &job);
                let sum = sum_while_resized(&mut network, &inputs, 0, &CAPACITIES);
                assert!(sum == right, "congestion control {control}, seed {seed}");
                assert_eq!(overflows(&network), 0, "congestion control {control}, seed {seed}");
            }
        }
    }
}

#[test]
fn so_they_are_where_any_switch_of_a_tree_has_another_capacity() {
    let inputs: Vec<Vec<f32>> = (0..6).map(|rank| floats(rank, 20_000)).collect();
    let right = expected(&inputs, ReduceOp::Sum, &reference_of_racks(2, 6));
    for switch in 0..3 {
        for (link, seed) in [(LinkConfig::default(), 1), (faulty(), 2), (faulty(), 3), (faulty(), 4)] {
            let job = JobConfig { levels: true, ..job(6, 1, 64, 64) };
            let mut network = racks(seed, link, 2, &job);
            let sum = sum_while_resized(&mut network, &inputs, switch, &CAPACITIES);
            assert!(sum == right, "switch {switch}, seed {seed}");
            assert_eq!(overflows(&network), 0, "switch {switch}, seed {seed}");
        }
    }
}

#[test]
fn memory_follows_at_once_and_a_job_that_rests_goes_on() {
    let job = job(3, 1, 64, 64);
    let inputs: Vec<Vec<f32>> = (0..3).map(|rank| floats(rank, 5_000)).collect();
    let mut network = star(1, LinkConfig::default(), &job);
    let right = expected(&inputs, ReduceOp::Sum, &SumTree::star(3));
    assert!(reduce(&mut network, &inputs, ReduceOp::Sum) == right);
    let full = memory(&network, 0);
    network.resize(0, JobId(1), 4);
    assert!(memory(&network, 0) < full / 4);
    assert!(reduce(&mut network, &inputs, ReduceOp::Sum) == right);
    network.resize(0, JobId(1), 64);
    assert_eq!(memory(&network, 0), full);
    assert!(reduce(&mut network, &inputs, ReduceOp::Sum) == right);
    assert_eq!(overflows(&network), 0);
}

#[test]
fn the_same_capacity_again_disturbs_nobody() {
    let job = job(3, 1, 16, 64);
    let inputs: Vec<Vec<f32>> = (0..3).map(|rank| floats(rank, 20_000)).collect();
    let mut network = star(1, LinkConfig::default(), &job);
    sum_while_resized(&mut network, &inputs, 0, &[16, 16]);
    assert_eq!(crate::setup::retransmissions(&network), 0);
}

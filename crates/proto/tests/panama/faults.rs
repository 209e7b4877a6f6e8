//! Loss costs time, and never more than that; who is late costs nothing but the time that it is late.

use tributary_numeric::{DType, ReduceOp};
use tributary_proto::contract::config::JobConfig;
use tributary_proto::contract::ids::JobId;
use tributary_proto::contract::sum_tree::SumTree;
use tributary_proto::contract::time::{Span, Time};

use crate::harness::Network;
use crate::harness::link::LinkConfig;
use crate::harness::reduction::{at_ms, expected, in_place, output, reduce, star};
use crate::setup::{floats, job, plant, racks, reference_of_racks, retransmissions};

/// What the first tree's machine at a switch says.
fn drops(network: &Network, switch: usize) -> tributary_proto::contract::drop_reason::DropCounters {
    network.switches[switch].pipelines[0].report(JobId(1)).expect("it is installed").drops
}

#[test]
fn a_rank_that_is_five_seconds_late_makes_nobody_send_again() {
    let job = JobConfig { levels: true, ..job(6, 2, 8, 16) };
    for in_racks in [false, true] {
        let link = LinkConfig::default();
        let mut network = if in_racks { racks(1, link, 2, &job) } else { star(1, link, &job) };
        let inputs: Vec<Vec<f32>> = (0..6).map(|rank| floats(rank, 1_000)).collect();
        for (rank, input) in inputs.iter().enumerate() {
            network.submit_at(at_ms(if rank == 3 { 5_000 } else { 0 }), rank, in_place(input, ReduceOp::Sum));
        }
        let events = network.run_until_idle(at_ms(10_000_000));
        output(events, DType::F32, 1_000);
        assert_eq!(retransmissions(&network), 0);
        for switch in 0..network.switches.len() {
            let report = drops(&network, switch);
            assert_eq!(report.total(), 0, "nothing went back: {report:?}");
        }
    }
}

#[test]
fn a_slow_network_is_not_taken_for_a_loss() {
    // Round trips of 100 ms, five times the first timeout.
    let link = LinkConfig { delay: Span::from_millis(25), ..LinkConfig::default() };
    let job = JobConfig { levels: true, ..job(4, 1, 8, 16) };
    let mut network = racks(1, link, 2, &job);
    let inputs: Vec<Vec<f32>> = (0..4).map(|rank| floats(rank, 2_000)).collect();
    reduce(&mut network, &inputs, ReduceOp::Sum);
    assert_eq!(retransmissions(&network), 0);
}

#[test]
fn heavy_loss_is_survived_in_levels_and_with_several_trees() {
    for (seed, loss) in [(1, 0.05), (2, 0.1)] {
        let link = LinkConfig { loss, duplicate: 0.05, reorder: 0.05, ..LinkConfig::default() };
        let job = JobConfig { levels: true, ..job(6, 3, 4, 64) };
        let inputs: Vec<Vec<f32>> = (0..6).map(|rank| floats(rank, 2_000)).collect();
        let mut network = racks(seed, link, 2, &job);
        let sum = reduce(&mut network, &inputs, ReduceOp::Sum);
        assert!(sum == expected(&inputs, ReduceOp::Sum, &reference_of_racks(2, 6)));
        assert!(retransmissions(&network) > 0);
    }
}

#[test]
fn a_switch_that_is_started_again_finds_its_position() {
    let job = job(3, 2, 8, 16);
    let inputs: Vec<Vec<f32>> = (0..3).map(|rank| floats(rank, 20_000)).collect();
    let right = expected(&inputs, ReduceOp::Sum, &SumTree::star(3));
    for at_us in [200, 1_000, 3_000] {
        let mut network = star(1, LinkConfig::default(), &job);
        for (rank, input) in inputs.iter().enumerate() {
            network.submit(rank, in_place(input, ReduceOp::Sum)).unwrap();
        }
        network.run_until(Time(at_us * 1_000_000));
        network.kill_switch(0);
        let below = tributary_proto::contract::config::Below::workers(3);
        network.run_until(at_ms(50));
        network.restart_switch(0, crate::harness::reduction::pipelines(&job, &below, None));
        let sum = output(network.run_until_idle(at_ms(10_000_000)), DType::F32, 20_000);
        assert!(sum == right, "after {at_us} us");
    }
}

/// The time from a switch's death to the last new machine of the trees that used it: `net` fabric::tree_repair says
/// what it is made of.
const REPLACED_AFTER: Span = Span::from_millis(500);

/// Links of 200 Mbit/s, as a fabric's examples have them. The root answers nobody for half a second, in which the
/// ranks' timers back off.
#[test]
fn a_root_that_dies_and_moves_to_another_switch_costs_no_sum_and_less_than_a_second() {
    let job = JobConfig { levels: true, ..job(8, 4, 64, 352) };
    let link = LinkConfig { rate_bps: 200_000_000, ..LinkConfig::default() };
    let inputs: Vec<Vec<f32>> = (0..8).map(|rank| floats(rank, 300_000)).collect();
    let right = expected(&inputs, ReduceOp::Sum, &reference_of_racks(2, 8));
    let run = |dies: Option<Time>| {
        let mut network = racks(1, link, 2, &job);
        for (rank, input) in inputs.iter().enumerate() {
            network.submit(rank, in_place(input, ReduceOp::Sum)).unwrap();
        }
        if let Some(dies) = dies {
            network.run_until(dies);
            network.kill_switch(0);
            network.run_until(dies + REPLACED_AFTER);
            plant(&mut network, 2, &job);
        }
        assert!(output(network.run_until_idle(at_ms(10_000_000)), DType::F32, 300_000) == right, "{dies:?}");
        network.last_event()
    };
    let undisturbed = run(None);
    for twentieths in 0..20 {
        let dies = Time(undisturbed.0 * twentieths / 20);
        let cost = run(Some(dies)).since(undisturbed);
        assert!(cost > REPLACED_AFTER && cost < Span::from_millis(1_000), "dead at {dies:?}: {cost:?} more");
    }
}

//! Whole collectives: every rank gets the sum, the same to the bit, and switches hold nothing afterwards.

use tributary_numeric::{BlockExponent, Element, ReduceOp};
use tributary_proto::contract::host::{Collective, HostEvent};
use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::tensors::{ElementTensor, InPlaceStorage};

use crate::fabric::Fabric;
use crate::harness::fabric::{Cables, DELAY};
use crate::setup::{switch_config, switch_with};

pub fn collective<T: Element>(values: Vec<T>, op: ReduceOp) -> Collective {
    Collective { tensor: Box::new(ElementTensor::new(InPlaceStorage::new(values), op)), deadline: None }
}

/// What a rank's only collective brought; panics if there is none.
pub fn output<T: Element>(events: &mut Vec<HostEvent>) -> Vec<T> {
    assert!(!events.is_empty(), "nothing has come of it");
    let HostEvent::Done { tensor, .. } = events.remove(0) else { panic!("it failed") };
    let tensor: Box<dyn std::any::Any> = tensor;
    tensor.downcast::<ElementTensor<InPlaceStorage<T>>>().expect("what was submitted").into_storage().into_output()
}

/// What rank `rank` brings: whole numbers, so that sums of floats are exact.
pub fn input(rank: usize, elements: usize) -> Vec<i32> {
    (0..elements).map(|i| ((rank + 1) * (i * 7919 % 1009)) as i32 - 500).collect()
}

pub fn expected(world_size: usize, elements: usize) -> Vec<i32> {
    (0..elements).map(|i| (0..world_size).map(|rank| input(rank, i + 1)[i]).sum()).collect()
}

/// One collective of integers on all ranks at once, right on all of them.
pub fn reduce(fabric: &mut Fabric, elements: usize, patience: Span) {
    let world_size = fabric.hosts.len();
    (0..world_size).for_each(|rank| fabric.submit(rank, collective(input(rank, elements), ReduceOp::Sum)));
    fabric.run(patience);
    check(fabric, elements);
}

pub fn check(fabric: &mut Fabric, elements: usize) {
    let expected = expected(fabric.hosts.len(), elements);
    for (rank, events) in fabric.events.iter_mut().enumerate() {
        assert_eq!(output::<i32>(events), expected, "rank {rank}");
    }
}

const PATIENCE: Span = Span::from_millis(1);

#[test]
fn integers_are_summed_exactly_on_every_shape() {
    for (leaves, spines, per_leaf) in [(1, 1, 1), (1, 1, 2), (1, 2, 4), (2, 1, 1), (2, 2, 3), (4, 3, 2)] {
        for elements in [0, 1, 8, 9, 500] {
            let mut fabric = Fabric::leaf_spine(leaves, spines, per_leaf, 16, switch_config());
            reduce(&mut fabric, elements, PATIENCE);
            assert_eq!(fabric.in_use(), 0, "{leaves} x {spines} x {per_leaf}, {elements} elements");
        }
    }
}

#[test]
fn packets_may_go_any_way() {
    let mut fabric = Fabric::leaf_spine(4, 4, 3, 32, switch_config());
    let mut turn = 0usize;
    fabric.choice = Box::new(move |_, _| {
        turn += 1;
        turn * 7919 % 31
    });
    reduce(&mut fabric, 3000, PATIENCE);
    assert_eq!(fabric.in_use(), 0);
    assert_eq!(fabric.hosts.iter().map(|host| host.stats().retransmissions).sum::<u64>(), 0);
}

#[test]
fn floats_keep_the_bound_of_theorem_1_and_agree_to_the_bit() {
    let mut fabric = Fabric::leaf_spine(2, 2, 3, 4, switch_config());
    let world_size = fabric.hosts.len();
    let value = |rank: usize, i: usize| ((rank * 31 + i * 17) % 101) as f32 * 1.7e-3 * 10f32.powi(i as i32 / 8 % 9 - 4);
    let inputs: Vec<Vec<f32>> = (0..world_size).map(|rank| (0..200).map(|i| value(rank, i)).collect()).collect();
    (0..world_size).for_each(|rank| fabric.submit(rank, collective(inputs[rank].clone(), ReduceOp::Sum)));
    fabric.run(PATIENCE);
    let outputs: Vec<Vec<f32>> = fabric.events.iter_mut().map(output::<f32>).collect();
    assert!(outputs.windows(2).all(|pair| pair[0] == pair[1]));
    for block in 0..25 {
        let range = block * 8..(block + 1) * 8;
        let exponent = |input: &Vec<f32>| tributary_numeric::codec::exponent(&input[range.clone()]);
        let agreed = inputs.iter().map(exponent).fold(BlockExponent::ZERO, BlockExponent::join);
        for i in range.clone() {
            let exact: f64 = inputs.iter().map(|input| f64::from(input[i])).sum();
            let error = (f64::from(outputs[0][i]) - exact).abs();
            let bound = agreed.paper_bound(world_size as u16) + exact.abs() * 2f64.powi(-24);
            assert!(error <= bound, "element {i}: {error} > {bound}");
        }
    }
}

#[test]
fn what_is_not_finite_comes_out_so_on_every_rank() {
    let mut fabric = Fabric::leaf_spine(2, 2, 2, 4, switch_config());
    for rank in 0..4 {
        let mut values = vec![1.0f32; 100];
        match rank {
            1 => values[10] = f32::INFINITY,
            2 => values[50] = f32::NAN,
            3 => values[99] = f32::NEG_INFINITY,
            _ => {}
        }
        fabric.submit(rank, collective(values, ReduceOp::Sum));
    }
    fabric.run(PATIENCE);
    for events in &mut fabric.events {
        let output = output::<f32>(events);
        assert_eq!((output[10], output[99]), (f32::INFINITY, f32::NEG_INFINITY));
        assert!(output[50].is_nan());
        assert!(output.iter().enumerate().all(|(i, &value)| [10, 50, 99].contains(&i) || value == 4.0));
    }
}

#[test]
fn collectives_follow_each_other_through_the_window() {
    let mut fabric = Fabric::leaf_spine(2, 2, 2, 8, switch_config());
    for round in 0..20 {
        for rank in 0..4 {
            fabric.submit(rank, collective(vec![(rank + round) as f32 * 0.5; 1 + round * 13], ReduceOp::Avg));
        }
    }
    fabric.run(Span::from_millis(5));
    for events in &mut fabric.events {
        for round in 0..20 {
            assert_eq!(output::<f32>(events), vec![round as f32 * 0.5 + 0.75; 1 + round * 13]);
        }
    }
    assert_eq!(fabric.in_use(), 0);
}

#[test]
fn a_leader_adds_its_own_data_last_however_late_it_is() {
    let mut fabric = Fabric::leaf_spine(2, 2, 2, 16, switch_config());
    for rank in [0, 1, 3] {
        fabric.submit(rank, collective(input(rank, 300), ReduceOp::Sum));
    }
    // Longer than timeouts, less than a lease: nobody gives a block up because of one who is merely late.
    fabric.run(Span::from_millis(3));
    assert!(fabric.events.iter().all(Vec::is_empty));
    fabric.submit(2, collective(input(2, 300), ReduceOp::Sum));
    fabric.run(Span::from_millis(3));
    check(&mut fabric, 300);
    assert_eq!(fabric.hosts.iter().map(|host| host.stats().reissues).sum::<u64>(), 0);
}

#[test]
fn with_one_descriptor_every_packet_collides_and_the_sum_is_right() {
    for descriptors in ["1", "2", "3"] {
        let mut fabric = Fabric::leaf_spine(3, 2, 3, 32, switch_with(&[("descriptors", descriptors)]));
        reduce(&mut fabric, 2000, PATIENCE);
        let collisions: f64 = (0..5).map(|switch| fabric.figure(switch, "collisions")).sum();
        assert!(collisions > 250.0, "{collisions}");
        assert_eq!(fabric.in_use(), 0);
    }
}

/// Figure 5: H5's contribution collides in S2; the sum reaches it by a restoration.
#[test]
fn figure_5() {
    // Hosts 0 (the leader), 1 (H2) and 2 (H5); switches 3 (S0, the root), 4 (S1) and 5 (S2).
    let cables = [vec![4], vec![4], vec![5], vec![4, 5], vec![0, 1, 3], vec![2, 3]];
    let cables = cables.into_iter().map(|peers| peers.into_iter().map(NodeId).collect()).collect();
    let config = switch_with(&[("descriptors", "1"), ("lease", "100 ms")]);
    let mut fabric = Fabric::with_roots(Cables(cables), 3, vec![NodeId(3)], 2, config);
    // Two blocks; the second, led by host 1, takes the only entry of S2 first.
    fabric.fate = Box::new(|sent| match (sent.from, sent.header.id) {
        (NodeId(2), 0) => crate::fabric::Fate::IsLate(Span::from_nanos(10)),
        (NodeId(1), 0) => crate::fabric::Fate::Arrives,
        _ => crate::fabric::Fate::Arrives,
    });
    reduce(&mut fabric, 16, PATIENCE);
    use tributary_proto::canary::wire::Kind;
    let restoration = fabric
        .sent
        .iter()
        .filter(|sent| sent.kind == Kind::Broadcast && sent.header.bypass && sent.header.switch_address == NodeId(5));
    let (hops, ports): (Vec<_>, Vec<_>) = restoration.map(|sent| (sent.to, sent.header.children)).unzip();
    assert_eq!(hops, [NodeId(4), NodeId(3), NodeId(5)], "from the leader to S2, past the others");
    assert_eq!(ports, [1, 1, 1], "port 0 of S2 leads to H5");
    assert!(fabric.figure(2, "collisions") > 0.0 && fabric.figure(2, "restorations") == 1.0);
}

#[test]
fn a_switch_holds_no_more_than_the_model_of_3_2_2() {
    // Links of the test fabric have no rate, so the window stands for b/m * (2d(l + t) + r).
    let window = 16;
    let mut fabric = Fabric::leaf_spine(4, 2, 4, window, switch_config());
    reduce(&mut fabric, 8 * 600, Span::from_millis(3));
    for switch in 0..6 {
        let peak = fabric.peak_of(switch);
        assert!(peak <= window.into(), "{peak} in switch {switch}");
    }
    assert_eq!(fabric.in_use(), 0);
}

#[test]
fn small_tensors_take_one_round_trip_once_exponents_are_known() {
    let mut fabric = Fabric::leaf_spine(1, 1, 4, 8, switch_config());
    let mut spent = Vec::new();
    for _ in 0..3 {
        let start = fabric.now;
        (0..4).for_each(|rank| fabric.submit(rank, collective(vec![1.5f32; 8], ReduceOp::Sum)));
        // The place of each round is another one: the first eight rounds learn.
        let mut end = start;
        while fabric.events.iter().any(Vec::is_empty) {
            end += Span::from_nanos(100);
            fabric.run_until(end);
        }
        fabric.events.iter_mut().for_each(|events| assert_eq!(output::<f32>(events), vec![6.0; 8]));
        spent.push(fabric.now.since(start));
    }
    // Up, timeouts of none (the leaf sees all), to the leader, and down: four cables a round, two rounds with
    // exponents.
    assert!(spent.iter().all(|&span| span >= DELAY.times(4) && span < DELAY.times(9)), "{spent:?}");
    let _ = Time::ZERO;
}

#[test]
fn hosts_may_leave_when_all_have_everything() {
    let mut fabric = Fabric::leaf_spine(2, 2, 2, 8, switch_config());
    reduce(&mut fabric, 100, PATIENCE);
    assert!(fabric.hosts.iter().all(|host| !host.may_leave()));
    for rank in 0..3 {
        fabric.finish(rank);
    }
    fabric.run(PATIENCE);
    assert!(fabric.hosts.iter().all(|host| !host.may_leave()), "one may still have something to say");
    fabric.finish(3);
    fabric.run(Span::from_millis(20));
    assert!(fabric.hosts.iter().all(|host| host.may_leave()));
    assert_eq!(fabric.in_use(), 0);
}

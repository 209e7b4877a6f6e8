//! One tree over all ranks, wherever they are: the same bits for every placement, which is what the paper claims
//! (§2.4).

use tributary_numeric::{ReduceOp, bf16};
use tributary_proto::contract::config::{Below, JobConfig, Parent};
use tributary_proto::contract::ids::{ChildId, PortId, Rank};
use tributary_proto::contract::protocol::ShardShape;
use tributary_proto::contract::sum_tree::SumTree;
use tributary_proto::contract::values::Values;
use tributary_proto::flare::PROTOCOL;
use tributary_proto::flare::wire::Order;

use crate::harness::link::LinkConfig;
use crate::harness::reduction::{expected, reduce, star, switch_config};
use crate::setup::{inputs, job, lossy, order, racks};

const OVER_RANKS: &[(&str, &str)] = &[("reproducible", "ranks")];

/// Racks that are nodes of the tree, racks that are dealt out like cards, uneven ones, and a rank alone.
const PLACEMENTS: [&[&[u16]]; 6] = [
    &[&[0, 1, 2, 3], &[4, 5, 6]],
    &[&[4, 5, 6], &[0, 1, 2, 3]],
    &[&[0, 2, 4, 6], &[1, 3, 5]],
    &[&[0, 3, 4], &[1], &[2, 5, 6]],
    &[&[6], &[5], &[4], &[3], &[2], &[1], &[0]],
    &[&[0, 1, 2, 3, 4, 5, 6]],
];

#[test]
fn every_placement_has_the_bits_of_one_tree_under_loss() {
    let (tree, floats, halves) = (SumTree::star(7), inputs(7, 500, |value| value), inputs(7, 500, bf16::from_f32));
    for placement in PLACEMENTS {
        for (seed, link) in [(1, LinkConfig::default()), (2, lossy()), (3, lossy()), (4, lossy())] {
            let job = JobConfig { trees: 1 + seed as u16 % 3, ..job(7, 12, 16, OVER_RANKS) };
            for op in [ReduceOp::Sum, ReduceOp::Avg, ReduceOp::Prod] {
                let mut network = racks(seed, link, &job, placement);
                let sum = reduce(&mut network, &floats, op);
                assert!(sum == expected(&floats, op, &tree), "{op}, {placement:?}, seed {seed}");
                assert_eq!(order(&network), Some(Order::of(&tree).0), "{placement:?}");
            }
            let sum = reduce(&mut racks(seed, link, &job, placement), &halves, ReduceOp::Sum);
            assert!(sum == expected(&halves, ReduceOp::Sum, &tree), "bf16, {placement:?}, seed {seed}");
        }
    }
}

#[test]
fn one_switch_has_the_same_bits_and_the_same_order() {
    let (tree, inputs) = (SumTree::star(7), inputs(7, 500, |value| value));
    let mut network = star(5, lossy(), &job(7, 8, 16, OVER_RANKS));
    assert!(reduce(&mut network, &inputs, ReduceOp::Sum) == expected(&inputs, ReduceOp::Sum, &tree));
    assert_eq!(order(&network), Some(Order::of(&tree).0));
}

/// If this fails, the test of the placements proves nothing.
#[test]
fn on_the_same_tree_only_placements_have_bits_of_their_own() {
    let inputs = inputs(7, 500, |value| value);
    let sum = |placement| {
        let job = job(7, 8, 16, &[("reproducible", "tree")]);
        reduce(&mut racks(1, LinkConfig::default(), &job, placement), &inputs, ReduceOp::Sum)
    };
    assert!(sum(PLACEMENTS[1]) != sum(PLACEMENTS[2]));
}

#[test]
fn ranks_in_a_row_cost_no_packet_more_and_scattered_ranks_one_for_each_node() {
    // Block by block: a packet up from each rack where it is a node of the tree; where ranks are dealt out, one for
    // each rank.
    let blocks = 10;
    let inputs = inputs(8, 16 * blocks, |value| value);
    for (placement, nodes) in [
        (&[&[0u16, 1, 2, 3][..], &[4, 5, 6, 7]][..], 2),
        (&[&[0, 2, 4, 6], &[1, 3, 5, 7]], 8),
        (&[&[0, 1, 2, 3, 4], &[5, 6, 7]], 4),
    ] {
        let mut network = racks(1, LinkConfig::default(), &job(8, 16, 16, OVER_RANKS), placement);
        network.record_trace();
        reduce(&mut network, &inputs, ReduceOp::Sum);
        let root = crate::harness::nodes::Node::Switch(0);
        let trace = network.trace.expect("it is recorded");
        assert_eq!(trace.iter().filter(|entry| entry.to == root).count(), blocks * nodes, "{placement:?}");
    }
}

/// A switch sends the parts of a block one behind the other. Where the way up has room for one packet, the first of
/// them takes it each time, unless parts are sent again one by one.
#[test]
fn subtrees_pass_a_queue_of_one_packet() {
    let inputs = inputs(8, 320, |value| value);
    let link = LinkConfig { queue_bytes: 200, ..LinkConfig::default() };
    let mut network = racks(1, link, &job(8, 4, 16, OVER_RANKS), &[&[0, 2, 4, 6], &[1, 3, 5, 7]]);
    let sum = reduce(&mut network, &inputs, ReduceOp::Sum);
    assert!(sum == expected(&inputs, ReduceOp::Sum, &SumTree::star(8)));
}

/// Nobody knows where ranks will be when a job is admitted.
#[test]
fn a_switch_holds_no_more_than_its_job_was_charged_wherever_ranks_are() {
    for placement in PLACEMENTS {
        let job = JobConfig { levels: true, ..job(7, 64, 256, OVER_RANKS) };
        let charged = |children: usize| {
            let shape = ShardShape {
                slots: job.slots,
                elements_per_packet: job.elements_per_packet,
                children: children as u16,
                world_size: job.world_size,
                levels: true,
                options: &job.options,
            };
            // What does not follow from slots and ranks is charged as the switch's own tables.
            (PROTOCOL.memory)(&shape) + 4_096
        };
        let bytes = |below: &[Below], parent| {
            let machine = PROTOCOL.switch(Values::Elements, &switch_config(&job, 0, below, parent)).unwrap();
            machine.memory_bytes() as u64
        };
        let root: Vec<Below> =
            placement.iter().map(|rack| Below::Switch(rack.iter().copied().map(Rank).collect())).collect();
        assert!(bytes(&root, None) <= charged(root.len()), "{placement:?}");
        for rack in placement {
            let below: Vec<Below> = rack.iter().map(|&rank| Below::Worker(Rank(rank))).collect();
            let parent = Parent { port: PortId(9), child: ChildId(0) };
            assert!(bytes(&below, Some(parent)) <= charged(below.len()), "{rack:?}");
        }
    }
}

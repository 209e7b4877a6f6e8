//! The ordered accumulator: one tree, whatever the order of arrival.

use proptest::prelude::*;
use tributary_numeric::{Combine, DType, Lanes, ReduceOp, native};
use tributary_proto::aggregation::ordered::*;

/// Neither commutative nor associative: every tree and every order of operands gives another result.
static TOY: Combine = {
    fn combined(left: u32, right: u32) -> u32 {
        left.wrapping_mul(31).wrapping_add(right.rotate_left(7)).wrapping_add(17)
    }
    fn each(lanes: &mut [u8], other: &[u8], combined: fn(u32, u32) -> u32) {
        assert_eq!(lanes.len(), other.len());
        for (lane, other) in lanes.as_chunks_mut().0.iter_mut().zip(other.as_chunks().0) {
            *lane = combined(u32::from_ne_bytes(*lane), u32::from_ne_bytes(*other)).to_ne_bytes();
        }
    }
    const ADD: fn(&mut [u8], &[u8]) = |lanes, vector| each(lanes, vector, combined);
    const ADD_LEFT: fn(&mut [u8], &[u8]) = |lanes, vector| each(lanes, vector, |lane, other| combined(other, lane));
    Combine {
        name: "toy",
        wire_size: 4,
        lane_size: 4,
        partial_size: 4,
        result_size: 4,
        store: |lanes, vector| lanes.copy_from_slice(vector),
        add: ADD,
        add_left: ADD_LEFT,
        load: |lanes, vector| vector.copy_from_slice(lanes),
        store_partial: |lanes, vector| lanes.copy_from_slice(vector),
        add_partial: ADD,
        add_left_partial: ADD_LEFT,
        load_partial: |lanes, vector| vector.copy_from_slice(lanes),
        merge: ADD,
        finish: |_, _| (),
    }
};

/// Sums of three types whose order shows, and the toy.
fn combines() -> [&'static Combine; 4] {
    let sum = |dtype| native(dtype, ReduceOp::Sum).expect("it has a sum");
    [&TOY, sum(DType::F32), sum(DType::F64), sum(DType::BF16)]
}

/// A child's vector: numbers of very different magnitudes and both signs, whose sums depend on their order.
fn vector(combine: &Combine, child: usize, elements: usize) -> Vec<u8> {
    let number = |i: usize| {
        let mut x = (child * 1009 + i + 1) as u64;
        x = x.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (x << 29);
        let exponent = (x >> 20) % 12;
        ((x >> 32) as i32 as f64 / f64::from(1 << 31)) * 10f64.powi(exponent as i32)
    };
    let bytes = |i: usize| match (combine.name, combine.wire_size) {
        (_, 8) => number(i).to_be_bytes().to_vec(),
        (_, 2) => ((((number(i) as f32).to_bits() >> 16) & 0xffff) as u16).to_be_bytes().to_vec(),
        ("toy", _) => (number(i) as f32).to_bits().to_ne_bytes().to_vec(),
        _ => (number(i) as f32).to_be_bytes().to_vec(),
    };
    (0..elements).flat_map(bytes).collect()
}

fn vectors(combine: &Combine, children: usize, elements: usize) -> Vec<Vec<u8>> {
    (0..children).map(|child| vector(combine, child, elements)).collect()
}

/// An accumulator whose blocks have begun.
fn begun(combine: &'static Combine, children: usize, blocks: usize, elements: usize) -> OrderedAccumulator {
    let lane_bytes = elements * combine.lane_size;
    let mut accumulator = OrderedAccumulator::new(children, nodes_needed(children), blocks, lane_bytes);
    (0..blocks).for_each(|block| accumulator.begin(block, Rule::along_the_tree(combine)));
    accumulator
}

/// Brings the vectors in this order to one block between two others, and compares with the recursion.
fn check(combine: &'static Combine, accumulator: &mut OrderedAccumulator, vectors: &[Vec<u8>], order: &[usize]) {
    accumulator.begin(1, Rule::along_the_tree(combine));
    let mut most = 0;
    for (arrived, &child) in order.iter().enumerate() {
        assert!(!accumulator.has(1, child) && !accumulator.is_complete(1));
        let complete = accumulator.add(1, child, &vectors[child]);
        assert_eq!(complete, arrived + 1 == order.len(), "{order:?}");
        assert!(accumulator.has(1, child));
        most = most.max(accumulator.nodes_in_use(1));
    }
    assert!(most <= nodes_needed(order.len()), "{most} nodes of {} children", order.len());
    assert_eq!(accumulator.nodes_in_use(1), 1, "the result alone is left");
    assert!(accumulator.result(1) == reference_of(vectors, combine), "{combine:?} {order:?}");
}

/// Every order of 0..n (Heap's algorithm).
fn permutations(n: usize, mut each: impl FnMut(&[usize])) {
    fn go(order: &mut Vec<usize>, k: usize, each: &mut impl FnMut(&[usize])) {
        if k <= 1 {
            return each(order);
        }
        for i in 0..k {
            go(order, k - 1, each);
            order.swap(if k.is_multiple_of(2) { i } else { 0 }, k - 1);
        }
    }
    go(&mut (0..n).collect(), n, &mut each);
}

#[test]
fn every_order_of_up_to_six_children_gives_the_same_bits() {
    for combine in combines() {
        for children in 1..=6 {
            let vectors = vectors(combine, children, 5);
            let mut accumulator = begun(combine, children, 3, 5);
            let mut orders = 0;
            permutations(children, |order| {
                check(combine, &mut accumulator, &vectors, order);
                orders += 1;
            });
            assert_eq!(orders, (1..=children).product::<usize>());
        }
    }
}

proptest! {
    #[test]
    fn any_order_of_up_to_64_children_gives_the_same_bits(
        order in (1usize..=64).prop_flat_map(|n| Just((0..n).collect::<Vec<_>>()).prop_shuffle()),
        which in 0usize..4,
    ) {
        let combine = combines()[which];
        let vectors = vectors(combine, order.len(), 3);
        let mut accumulator = begun(combine, order.len(), 3, 3);
        check(combine, &mut accumulator, &vectors, &order);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]
    #[test]
    fn any_order_of_many_children_gives_the_same_bits(
        order in prop_oneof![Just(1023usize), Just(1024), Just(513), Just(1000)]
            .prop_flat_map(|n| Just((0..n).collect::<Vec<_>>()).prop_shuffle()),
    ) {
        for combine in combines() {
            let vectors = vectors(combine, order.len(), 2);
            let mut accumulator = begun(combine, order.len(), 3, 2);
            check(combine, &mut accumulator, &vectors, &order);
        }
    }
}

/// The tests above can fail: another tree, or other places, give other bits.
#[test]
fn the_tree_and_the_positions_show_in_the_result() {
    for combine in combines() {
        let many = vectors(combine, 37, 64);
        let expected = reference_of(&many, combine);
        let in_line = many[1..].iter().fold(reference_of(&many[..1], combine), |mut lanes, vector| {
            (combine.add)(&mut lanes, vector);
            lanes
        });
        assert_ne!(in_line, expected, "{combine:?}: one after the other is not a tree");
        let rotated: Vec<_> = (0..37).map(|i| many[(i + 1) % 37].clone()).collect();
        assert_ne!(reference_of(&rotated, combine), expected, "{combine:?}: places count");
    }
}

/// ((0 1) (2 3)) 4: lower places are left operands, and five split into four and one.
#[test]
fn the_tree_splits_at_the_largest_power_of_two() {
    let five = vectors(&TOY, 5, 1);
    let two = |left: &[u8], right: &[u8]| {
        let mut lanes = left.to_vec();
        (TOY.merge)(&mut lanes, right);
        lanes
    };
    let four = two(&two(&five[0], &five[1]), &two(&five[2], &five[3]));
    assert_eq!(reference_of(&five, &TOY), two(&four, &five[4]));
}

/// Every other child first: `ceil(n/2)` nodes wait, which is what there is room for.
#[test]
fn the_bound_on_waiting_nodes_is_reached() {
    for children in [1, 2, 3, 4, 5, 6, 7, 8, 33, 64, 65, 1023] {
        let vectors = vectors(&TOY, children, 1);
        let mut accumulator = begun(&TOY, children, 1, 1);
        for child in (0..children).step_by(2) {
            accumulator.add(0, child, &vectors[child]);
        }
        assert_eq!(accumulator.nodes_in_use(0), nodes_needed(children), "{children} children");
        assert_eq!(nodes_needed(children), children.div_ceil(2));
    }
}

/// In their order a balanced tree's logarithm waits.
#[test]
fn children_in_their_order_leave_a_logarithm_of_nodes_waiting() {
    let mut accumulator = begun(&TOY, 1023, 1, 1);
    for child in 0..1023 {
        accumulator.add(0, child, &vector(&TOY, child, 1));
        assert_eq!(accumulator.nodes_in_use(0), if child == 1022 { 1 } else { (child + 1).count_ones() as usize });
    }
}

#[test]
fn a_child_that_comes_twice_changes_nothing() {
    let vectors = vectors(&TOY, 7, 4);
    let other = vector(&TOY, 99, 4);
    let mut accumulator = begun(&TOY, 7, 1, 4);
    for (at, child) in [6, 3, 0, 1, 5, 2, 4].into_iter().enumerate() {
        accumulator.add(0, child, &vectors[child]);
        assert_eq!(accumulator.add(0, child, &other), at == 6, "as complete as it was");
    }
    assert_eq!(accumulator.result(0), reference_of(&vectors, &TOY));
}

/// Blocks in turns, each of its own length, used again for shorter and for longer vectors.
#[test]
fn blocks_do_not_touch_each_other() {
    let combine = native(DType::F32, ReduceOp::Sum).unwrap();
    let mut accumulator = begun(combine, 5, 3, 40);
    for lengths in [[40, 1, 17], [3, 40, 39], [0, 16, 40]] {
        let blocks = lengths.map(|elements| vectors(combine, 5, elements));
        for child in [3, 4, 0, 2, 1] {
            for (block, vectors) in blocks.iter().enumerate() {
                accumulator.add(block, child, &vectors[child]);
            }
        }
        for (block, vectors) in blocks.iter().enumerate() {
            assert_eq!(accumulator.result(block), reference_of(vectors, combine));
            accumulator.begin(block, Rule::along_the_tree(combine));
            assert_eq!((accumulator.is_complete(block), accumulator.nodes_in_use(block)), (false, 0));
        }
    }
}

/// Switches below bring binary32 where hosts bring bf16; the average is divided before it is rounded, once.
#[test]
fn partial_results_and_hosts_vectors_mix() {
    let combine = native(DType::BF16, ReduceOp::Avg).unwrap();
    let hosts = vectors(combine, 3, 8);
    // Places 1 and 2 behind a switch, that is the second child of two.
    let mut below = begun(combine, 2, 1, 8);
    below.add(0, 1, &hosts[2]);
    assert!(below.add(0, 0, &hosts[1]));
    let mut partial = vec![0; 8 * combine.partial_size];
    below.load_partial(0, &mut partial);
    for partial_first in [true, false] {
        let mut root = begun(combine, 2, 1, 8);
        let first = partial_first && root.add_partial(0, 1, &partial);
        let host = root.add(0, 0, &hosts[0]);
        let last = host || root.add_partial(0, 1, &partial);
        assert!(!first && host == partial_first && last);
        let mut expected = reference_of(&hosts[..1], combine);
        (combine.merge)(&mut expected, &reference_of(&hosts[1..], combine));
        assert_eq!(root.result(0), expected);
        root.finish(0, 3);
        (combine.finish)(&mut expected, 3);
        assert_eq!(root.result(0), expected);
    }
}

#[test]
fn memory_is_taken_when_made_and_known_before() {
    let combine = native(DType::BF16, ReduceOp::Sum).unwrap();
    for (children, blocks, elements) in [(1, 1, 1), (8, 512, 720), (1023, 2, 360), (3, 0, 8)] {
        let accumulator = begun(combine, children, blocks, elements);
        let needed =
            OrderedAccumulator::memory_needed(children, nodes_needed(children), blocks, elements * combine.lane_size);
        assert_eq!(accumulator.memory_bytes(), needed);
        let nodes = blocks * nodes_needed(children) * (elements * 4).next_multiple_of(64);
        assert!(needed >= nodes && needed < nodes + blocks * 200 + 512, "{needed} for {nodes} bytes of nodes");
        assert!(Lanes::memory_needed(nodes) <= needed);
    }
}

/// What comes in turn lies in the buffers in turn, and the last vector brings them together, the later ones into the
/// first.
#[test]
fn buffers_take_vectors_in_turn_and_are_brought_together_at_the_end() {
    const ELEMENTS: usize = 5;
    for combine in combines() {
        for (children, buffers) in [(1, 1), (2, 1), (7, 1), (2, 2), (3, 2), (7, 2), (7, 3), (8, 4), (5, 8)] {
            let arrival: Vec<usize> = (0..children).rev().collect();
            let width = usize::from(buffers);
            let mut accumulator = OrderedAccumulator::new(children, width, 2, ELEMENTS * combine.lane_size);
            accumulator.begin(1, Rule::arranged(combine, Arrangement::Buffers(buffers)));
            for (count, &child) in arrival.iter().enumerate() {
                assert_eq!(accumulator.nodes_in_use(1), count.min(width));
                let vector = vector(combine, child, ELEMENTS);
                let is_last = count + 1 == children;
                assert_eq!(accumulator.add(1, child, &vector), is_last);
                assert_eq!(accumulator.add(1, child, &vector), is_last, "a second time changes nothing");
            }
            let vectors = |buffer: usize| arrival.iter().skip(buffer).step_by(width).copied();
            let line = |children: &mut dyn Iterator<Item = usize>| {
                let mut lanes = vec![0; ELEMENTS * combine.lane_size];
                let first = children.next().expect("a buffer that is used");
                (combine.store)(&mut lanes, &vector(combine, first, ELEMENTS));
                children.for_each(|child| (combine.add)(&mut lanes, &vector(combine, child, ELEMENTS)));
                lanes
            };
            let mut lines = (0..width.min(children)).map(|buffer| line(&mut vectors(buffer)));
            let mut expected = lines.next().expect("the first buffer");
            lines.for_each(|other| (combine.merge)(&mut expected, &other));
            assert!(accumulator.result(1) == expected, "{}: {children} in {buffers} buffers", combine.name);
        }
    }
}

/// Two switches share the ranks in any way, vectors come in any order, and a third makes of what they send what one
/// would.
#[test]
fn switches_that_combine_what_they_have_of_one_tree_make_that_tree() {
    const ELEMENTS: usize = 3;
    /// What a switch makes of vectors of these nodes of the tree, which come in an order that the seed draws.
    fn combined(
        combine: &'static Combine,
        world_size: u16,
        nodes: &[(std::ops::Range<u16>, Vec<u8>)],
        seed: usize,
    ) -> Vec<Vec<u8>> {
        let ranges: Vec<_> = nodes.iter().map(|(node, _)| node.clone()).collect();
        let forest = Forest::new(&ranges, world_size);
        let (width, roots) = (forest.buffers(), forest.roots());
        let bytes = ELEMENTS * combine.lane_size;
        let mut accumulator = OrderedAccumulator::new(nodes.len(), width, 1, bytes).with_forest(Some(forest));
        accumulator.begin(0, Rule::arranged(combine, Arrangement::Forest));
        let mut arrival: Vec<usize> = (0..nodes.len()).collect();
        arrival.sort_by_key(|position| (position * 7919 + seed * 104_729) % 31);
        for (count, &position) in arrival.iter().enumerate() {
            assert_eq!(accumulator.add_partial(0, position, &nodes[position].1), count + 1 == nodes.len());
            assert!(accumulator.nodes_in_use(0) <= nodes.len());
        }
        assert_eq!(accumulator.nodes_in_use(0), roots);
        let load = |root| {
            let mut partial = vec![0; ELEMENTS * combine.partial_size];
            accumulator.load_root(0, root, &mut partial);
            partial
        };
        (0..roots).map(load).collect()
    }
    for combine in combines() {
        for world_size in 1..20u16 {
            for seed in 0..8usize {
                let vectors = vectors(combine, world_size.into(), ELEMENTS);
                let partial = |rank: u16| {
                    let mut partial = vec![0; ELEMENTS * combine.partial_size];
                    (combine.load_partial)(&reference_of(&vectors[rank.into()..=rank.into()], combine), &mut partial);
                    partial
                };
                let mut parents = Vec::new();
                for side in 0..2 {
                    let here = |rank: &u16| (usize::from(*rank) * 31 + seed * 17) % 7 % 2 == side;
                    let ranks: Vec<u16> = (0..world_size).filter(here).collect();
                    let nodes: Vec<_> = ranks.iter().map(|&rank| (rank..rank + 1, partial(rank))).collect();
                    if !nodes.is_empty() {
                        let sums = combined(combine, world_size, &nodes, seed);
                        parents.extend(cover(&ranks, world_size).into_iter().zip(sums));
                    }
                }
                parents.sort_by_key(|(node, _)| node.start);
                let sum = combined(combine, world_size, &parents, seed + 1);
                let mut expected = vec![0; ELEMENTS * combine.partial_size];
                (combine.load_partial)(&reference_of(&vectors, combine), &mut expected);
                assert!(sum == [expected], "{}: {world_size} ranks, seed {seed}", combine.name);
            }
        }
    }
}

/// The same tree by recursion, of vectors that need not be there: a place without one is bypassed.
fn reference_of_some(vectors: &[Option<Vec<u8>>], combine: &Combine) -> Option<Vec<u8>> {
    if let [vector] = vectors {
        return vector.as_ref().map(|vector| reference_of(std::slice::from_ref(vector), combine));
    }
    let (left, right) = vectors.split_at(vectors.len().next_power_of_two() / 2);
    let (left, right) = (reference_of_some(left, combine), reference_of_some(right, combine));
    let (Some(mut lanes), Some(right)) = (left.clone(), right.clone()) else { return left.or(right) };
    (combine.merge)(&mut lanes, &right);
    Some(lanes)
}

proptest! {
    #[test]
    fn what_has_come_of_a_block_is_combined_along_the_same_tree(
        children in 1usize..80, seed in any::<u64>(), elements in 1usize..20, which in 0usize..4
    ) {
        let combine = combines()[which];
        let mut order: Vec<usize> = (0..children).collect();
        order.sort_by_key(|&child| (child as u64 + 1).wrapping_mul(seed | 1));
        order.truncate(1 + (seed >> 32) as usize % children);
        let mut accumulator = begun(combine, children, 3, elements);
        let mut some = vec![None; children];
        for &child in &order {
            let vector = vector(combine, child, elements);
            accumulator.add(1, child, &vector);
            some[child] = Some(vector);
        }
        accumulator.close(1);
        let right = reference_of_some(&some, combine).expect("one is there");
        prop_assert_eq!(&accumulator.result(1)[..right.len()], &right[..], "{:?} of {}", order, children);
    }
}

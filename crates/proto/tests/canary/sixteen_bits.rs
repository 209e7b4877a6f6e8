//! 16-bit floats: two bytes an element from hosts and back to them, four where switches have summed, and the bits of
//! words that hosts encode.

use tributary_numeric::{Element, ReduceOp, bf16, codec, f16};
use tributary_proto::canary::wire::Kind;
use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::time::Span;

use crate::fabric::{Fabric, bad_cables};
use crate::harness::encoded::encoded_by_hosts;
use crate::results::{collective, output};
use crate::setup::switch_config;

const PATIENCE: Span = Span::from_millis(200);

/// Elements of a block: as many as their sums fill a packet.
const BLOCK: usize = 8;

fn inputs<T: Element>(world_size: usize, elements: usize, of: impl Fn(f32) -> T) -> Vec<Vec<T>> {
    let value = |rank: usize, i: usize| match (rank * 31 + i * 7) % 97 {
        0 if i > 200 => f32::INFINITY,
        1 if i > 200 && rank == 1 => f32::NAN,
        odd => (odd as f32 - 48.5) * 10f32.powi((i / BLOCK + rank) as i32 % 7 - 4),
    };
    (0..world_size).map(|rank| (0..elements).map(|i| of(value(rank, i))).collect()).collect()
}

fn sums<T: Element>(fabric: &mut Fabric, inputs: &[Vec<T>], op: ReduceOp) -> Vec<u8> {
    (0..inputs.len()).for_each(|rank| fabric.submit(rank, collective(inputs[rank].clone(), op)));
    fabric.run(PATIENCE);
    let outputs: Vec<Vec<u8>> = fabric
        .events
        .iter_mut()
        .map(|events| {
            let sum = output::<T>(events);
            let mut bytes = vec![0; T::DTYPE.size() * sum.len()];
            codec::write_native(&sum, &mut bytes);
            bytes
        })
        .collect();
    assert!(outputs.windows(2).all(|pair| pair[0] == pair[1]), "the same bits on every rank");
    outputs.into_iter().next().expect("a rank")
}

#[test]
fn the_bits_are_those_of_words_that_hosts_encode_whatever_is_lost() {
    fn check<T: Element>(of: impl Fn(f32) -> T) {
        for (leaves, spines, per_leaf) in [(1, 1, 2), (2, 1, 1), (2, 2, 3)] {
            let inputs = inputs((leaves * per_leaf) as usize, 300, &of);
            for op in [ReduceOp::Sum, ReduceOp::Avg] {
                let expected = encoded_by_hosts(&inputs, op, BLOCK);
                for seed in 0..4 {
                    let mut fabric = Fabric::leaf_spine(leaves, spines, per_leaf, 4, switch_config());
                    if seed > 0 {
                        fabric.fate = bad_cables(seed);
                    }
                    let sum = sums(&mut fabric, &inputs, op);
                    assert!(sum == expected, "{op} of {}, {leaves} x {per_leaf} hosts, seed {seed}", T::DTYPE);
                }
            }
        }
    }
    check(f16::from_f32);
    check(bf16::from_f32);
}

/// Small tensors through the same places, scaled by a guess; of both widths in turns.
#[test]
fn a_guess_never_changes_a_result() {
    let mut fabric = Fabric::leaf_spine(2, 2, 2, 4, switch_config());
    for round in 0..20usize {
        let scale = [1.0, 1.0, 3e4, 0.0, 1e-5][round % 5];
        let elements = 1 + round * 7 % 30;
        let narrow = inputs(4, elements, |value| bf16::from_f32(value * scale));
        let expected = encoded_by_hosts(&narrow, ReduceOp::Sum, BLOCK);
        assert!(sums(&mut fabric, &narrow, ReduceOp::Sum) == expected, "round {round}: bf16");
        let wide = inputs(4, elements, |value| value * scale);
        let expected = encoded_by_hosts(&wide, ReduceOp::Sum, BLOCK);
        assert!(sums(&mut fabric, &wide, ReduceOp::Sum) == expected, "round {round}: f32");
    }
}

#[test]
fn hosts_send_and_get_two_bytes_an_element_and_switches_send_sums_of_four() {
    let mut fabric = Fabric::leaf_spine(2, 1, 2, 4, switch_config());
    sums(&mut fabric, &inputs(4, 64, bf16::from_f32), ReduceOp::Sum);
    let is_host = |node: NodeId| node.index() < 4;
    let vectors = |kind, from_host: bool| -> Vec<usize> {
        let fits = fabric.sent.iter().filter(|sent| sent.kind == kind && is_host(sent.from) == from_host);
        let mut lengths: Vec<usize> = fits.map(|sent| sent.vector_bytes()).filter(|&bytes| bytes > 0).collect();
        lengths.sort_unstable();
        lengths.dedup();
        lengths
    };
    assert_eq!(vectors(Kind::Reduce, true), [2 * BLOCK]);
    // A contribution that nothing was added to goes on as it came.
    assert!(vectors(Kind::Reduce, false).ends_with(&[4 * BLOCK]), "{:?}", vectors(Kind::Reduce, false));
    assert_eq!(vectors(Kind::Broadcast, true), [2 * BLOCK]);
    assert_eq!(vectors(Kind::Broadcast, false), [2 * BLOCK]);
}

/// docs/numerics.md: one exponent serves a block, and what is small beside it is lost.
#[test]
fn small_values_beside_large_ones_are_lost_as_in_all_fixed_point() {
    for (pair, expected) in [([2.5f32, 1e9], [4.0f32, 2e9]), ([1e-4, 1e6], [0.0, 2e6])] {
        let mut fabric = Fabric::leaf_spine(1, 1, 2, 4, switch_config());
        (0..2).for_each(|rank| fabric.submit(rank, collective(pair.to_vec(), ReduceOp::Sum)));
        fabric.run(PATIENCE);
        for events in &mut fabric.events {
            assert_eq!(output::<f32>(events), expected);
        }
    }
}

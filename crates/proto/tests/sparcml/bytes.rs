//! The bytes that each algorithm sends, against what the paper counts.

use tributary_numeric::ReduceOp;

use crate::harness::Network;
use crate::harness::link::LinkConfig;
use crate::harness::reduction::star;
use crate::harness::sparse::{drawn, reduce, whole};
use crate::setup::sparse_job;

const WORLD_SIZE: u16 = 8;
const SIZE: u32 = 400_000;

/// Bytes of bodies that all ranks sent, nearly: what links carried without headers and acknowledgements.
fn sent(algorithm: &str, density: f64) -> f64 {
    let mut net: Network = star(1, LinkConfig::default(), &sparse_job(WORLD_SIZE, 358, algorithm));
    net.record_trace();
    let inputs = drawn(3, WORLD_SIZE, SIZE, density, whole);
    reduce(&mut net, &inputs, SIZE, ReduceOp::Sum);
    let hosts = |node: &crate::harness::nodes::Node| matches!(node, crate::harness::nodes::Node::Host(_));
    let trace = net.trace.expect("it is recorded");
    trace.iter().filter(|entry| hosts(&entry.from)).map(|entry| (entry.wire_len as f64 - 44.0).max(0.0)).sum()
}

/// Elements of the union of this many ranks' random indices.
fn union(ranks: i32, density: f64) -> f64 {
    f64::from(SIZE) * (1.0 - (1.0 - density).powi(ranks))
}

fn about(sent: f64, expected: f64) {
    assert!((sent / expected - 1.0).abs() < 0.05, "{sent} bytes sent, and {expected} expected");
}

#[test]
fn doubling_sends_unions_of_one_two_and_four_ranks() {
    let expected = 8.0 * (union(1, 0.01) + union(2, 0.01) + union(4, 0.01));
    about(sent("ssar_recursive_double", 0.01), f64::from(WORLD_SIZE) * expected);
}

#[test]
fn splitting_sends_what_each_brings_and_the_union_once() {
    let share = 7.0 / 8.0;
    let expected = 8.0 * share * (union(1, 0.01) + union(8, 0.01));
    about(sent("ssar_split_allgather", 0.01), f64::from(WORLD_SIZE) * expected);
}

/// Pairs in the first phase; four bytes and a bit for each element in the second.
#[test]
fn a_dense_gather_sends_every_element_once() {
    let share = 7.0 / 8.0;
    let expected = share * (8.0 * union(1, 0.01) + 4.125 * f64::from(SIZE));
    about(sent("dsar_split_allgather", 0.01), f64::from(WORLD_SIZE) * expected);
}

/// Where pairs are longer than elements, they become elements: 50 % of 8 bytes, against 4.125.
#[test]
fn a_stream_that_is_shorter_dense_is_sent_dense() {
    let share = 7.0 / 8.0;
    let expected = share * (8.0 * union(1, 0.3) + 4.125 * f64::from(SIZE));
    about(sent("ssar_split_allgather", 0.3), f64::from(WORLD_SIZE) * expected);
}

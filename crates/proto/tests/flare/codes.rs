//! Scaled sums (`numbers=fixed`, `int8`, `thc4`): the same bits as the other protocols in trees have that scale floats, by
//! whose tests the sums are right.

use tributary_numeric::{DType, Element, ReduceOp, bf16};
use tributary_proto::contract::config::JobConfig;
use tributary_proto::contract::numbers::Numbers;
use tributary_proto::contract::protocol::{Placement, Protocol};
use tributary_proto::contract::tensor::Spec;
use tributary_proto::flare::PROTOCOL;
use tributary_proto::protocols;

use crate::harness::Network;
use crate::harness::link::LinkConfig;
use crate::harness::reduction::{reduce, star};
use crate::setup::{inputs, job, lossy, options, racks};

type Given<'a> = &'a [(&'a str, &'a str)];

const NUMBERS: [Given<'static>; 4] =
    [&[("numbers", "fixed")], &[("numbers", "int8")], &[("numbers", "int8"), ("down", "16")], &[("numbers", "thc4")]];
/// Flare's own choices, none of which changes a scaled sum.
const CHOICES: [Given<'static>; 4] = [&[], &[("design", "tree")], &[("design", "multi:3")], &[("stagger", "true")]];

fn of(protocol: &'static Protocol, world_size: u16, given: Given<'_>) -> JobConfig {
    let given = given.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
    let options = protocol.options.read(&given).unwrap();
    JobConfig { protocol: protocol.code, options, ..job(world_size, 8, 16, &[]) }
}

/// The other protocol that scales floats in trees of switches.
fn other() -> &'static Protocol {
    let scales = |protocol: &&&'static Protocol| {
        let has_choice = protocol.options.specs.contains(&Numbers::OPTION);
        has_choice && protocol.placement == Placement::Trees && protocol.code != PROTOCOL.code
    };
    protocols::ALL.iter().find(scales).expect("one")
}

fn sum<T: Element>(mut network: Network, inputs: &[Vec<T>], op: ReduceOp) -> Vec<u8> {
    reduce(&mut network, inputs, op)
}

#[test]
fn a_scaled_sum_has_the_same_bits_as_the_other_protocols() {
    fn check<T: Element>(make: impl Fn(f32) -> T + Copy) {
        for numbers in NUMBERS {
            let inputs = inputs(5, 700, make);
            for op in [ReduceOp::Sum, ReduceOp::Avg] {
                let wanted = sum(star(1, LinkConfig::default(), &of(other(), 5, numbers)), &inputs, op);
                for (seed, choice) in (1..).zip(CHOICES) {
                    let job = of(&PROTOCOL, 5, &[numbers, choice].concat());
                    for link in [LinkConfig::default(), lossy()] {
                        assert!(sum(star(seed, link, &job), &inputs, op) == wanted, "{op}, {numbers:?}, {choice:?}");
                    }
                }
            }
        }
    }
    check(|value| value);
    check(bf16::from_f32);
}

#[test]
fn in_levels_scaled_sums_have_the_same_bits() {
    const RACKS: [&[u16]; 2] = [&[0, 2], &[1, 3, 4]];
    for numbers in NUMBERS {
        let inputs = inputs(5, 300, |value| value);
        let wanted = sum(racks(1, LinkConfig::default(), &of(other(), 5, numbers), &RACKS), &inputs, ReduceOp::Sum);
        for seed in 1..4 {
            let network = racks(seed, lossy(), &of(&PROTOCOL, 5, numbers), &RACKS);
            assert!(sum(network, &inputs, ReduceOp::Sum) == wanted, "{numbers:?}, seed {seed}");
        }
    }
}

#[test]
fn a_byte_an_element_takes_a_quarter_of_the_packets_and_results_have_no_order() {
    let packets = |given| {
        let mut network = star(1, LinkConfig::default(), &of(&PROTOCOL, 2, given));
        reduce(&mut network, &vec![vec![1.0f32; 6_400]; 2], ReduceOp::Sum);
        let stats = network.hosts[0].machine.stats();
        (stats.packets_sent, stats.order.is_some())
    };
    assert_eq!(packets(&[("design", "tree")]), (400, true));
    // Each of the eight slots asks for an exponent first.
    assert_eq!(packets(&[("design", "tree"), ("numbers", "fixed")]), (8 + 400, false));
    assert_eq!(packets(&[("design", "tree"), ("numbers", "int8")]), (8 + 100, false));
}

#[test]
fn integers_of_such_a_job_are_summed_as_they_are() {
    let inputs: Vec<Vec<i32>> = (0..3).map(|rank| vec![i32::MAX - rank, rank, -7]).collect();
    for numbers in NUMBERS {
        let got = sum(star(1, lossy(), &of(&PROTOCOL, 3, numbers)), &inputs, ReduceOp::Sum);
        assert_eq!(got, [i32::MAX.wrapping_mul(3).wrapping_sub(3), 3, -21].map(i32::to_be_bytes).concat());
    }
}

#[test]
fn what_scaled_sums_cannot_do_is_refused_with_a_sentence() {
    let refusal = |given: Given<'_>| {
        let given = given.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        PROTOCOL.options.read(&given).unwrap_err().to_string()
    };
    assert_eq!(
        refusal(&[("numbers", "int8"), ("reproducible", "ranks")]),
        "flare: scaled sums have the same bits in any order: leave reproducible or numbers out"
    );
    assert_eq!(
        refusal(&[("numbers", "thc4"), ("sparse", "auto")]),
        "flare: elements of sparse tensors are not scaled: leave numbers or sparse out"
    );
    assert_eq!(refusal(&[("down", "16")]), "flare: down=16 is for sums of codes: add numbers=int8, or leave down out");
    let largest = Spec::allreduce(5, DType::F32, ReduceOp::Max);
    assert_eq!(
        (PROTOCOL.check)(&largest, &options(&[("numbers", "int8")])).unwrap_err().to_string(),
        "flare cannot do a max of 5 f32 elements in codes of 8 bits: choose numbers=float, or sum or average f32, f16 or \
         bf16"
    );
}

//! Accumulators in the guest's memory: each has its own vector, whatever others have had before and beside it.

use tributary_operators::{Sandbox, UserOperator, element::Element, expression, source};
use tributary_proto::contract::custom_op::{Capacity, CustomOp};

/// Does not commute: its result says which operands met, and on which side.
fn sided() -> UserOperator {
    let element = Element::parse("i32").unwrap();
    Sandbox::new().load_as(&expression::compile("3 * a - b", &element).unwrap(), "sided", Some(&element)).unwrap()
}

fn vector(seed: i32, elements: i32) -> Vec<u8> {
    (0..elements).flat_map(|i| (seed * 1_000 + i * 7).to_le_bytes()).collect()
}

fn combined(left: &[u8], right: &[u8]) -> Vec<u8> {
    let word = |bytes: &[u8]| i32::from_le_bytes(bytes.try_into().unwrap());
    let both = left.chunks(4).zip(right.chunks(4));
    both.flat_map(|(a, b)| word(a).wrapping_mul(3).wrapping_sub(word(b)).to_le_bytes()).collect()
}

#[test]
fn an_accumulator_that_is_used_again_has_nothing_of_what_it_had_and_its_neighbours_keep_theirs() {
    let operator = sided();
    const ACCUMULATORS: usize = 5;
    let mut instance = operator.instance(Capacity { vector_bytes: 1_432, accumulators: ACCUMULATORS });
    let mut expected = vec![Vec::new(); ACCUMULATORS];
    // Longer and shorter vectors in turn, from whole packets to nothing.
    for turn in 0..400i32 {
        let at = (turn * 7 % 5) as usize;
        let elements = [358, 1, 0, 17, 357, 64][turn as usize % 6];
        let (stored, left, right) = (vector(turn, elements), vector(-turn, elements), vector(turn + 9, elements));
        instance.store(at, &stored).unwrap();
        instance.add(at, &right).unwrap();
        instance.add_left(at, &left).unwrap();
        expected[at] = combined(&left, &combined(&stored, &right));
        let other = (at + 1 + turn as usize % 4) % ACCUMULATORS;
        if expected[other].len() == expected[at].len() {
            instance.merge(at, other, expected[at].len()).unwrap();
            expected[at] = combined(&expected[at], &expected[other]);
        }
        for (number, expected) in expected.iter().enumerate() {
            assert!(instance.lanes(number, expected.len()) == expected, "{number} after turn {turn}");
        }
    }
}

#[test]
fn a_copy_of_an_instance_has_its_accumulators_and_goes_its_own_way() {
    let operator = source::operator(&Sandbox::new(), "xor", None).unwrap();
    let mut one = operator.instance(Capacity { vector_bytes: 64, accumulators: 2 });
    one.store(1, &[5; 64]).unwrap();
    let mut other = one.fork();
    assert_eq!(one.state(), other.state());
    other.add(1, &[3; 64]).unwrap();
    assert_eq!((one.lanes(1, 64), other.lanes(1, 64)), (&[5; 64][..], &[6; 64][..]));
    assert_ne!(one.state(), other.state());
}

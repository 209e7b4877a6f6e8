//! Arithmetic on floats: there is one NaN, whatever the operands' NaN are, although its modules make that NaN themselves.

use tributary_operators::element::Element;
use tributary_operators::{Sandbox, UserOperator, expression, source};
use tributary_proto::contract::operator::{Operator, Room};

const LONGEST: usize = 70;

fn loaded(module: &[u8], element: &str) -> UserOperator {
    Sandbox::new().load_as(module, "arithmetic", Some(&Element::parse(element).unwrap())).unwrap()
}

fn combined(operator: &UserOperator, left: &[u8], right: &[u8]) -> Vec<u8> {
    let mut instance = operator.instance(Room { vector_bytes: LONGEST * 8, accumulators: 1 });
    instance.store(0, left).unwrap();
    instance.add(0, right).unwrap();
    instance.lanes(0, left.len()).to_vec()
}

/// Random bits, of which many are NaN of many kinds, infinities and zeros.
fn drawn(random: &mut u64) -> u64 {
    *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *random ^ (*random >> 29)
}

fn f32_of(random: &mut u64) -> f32 {
    let bits = (drawn(random) >> 16) as u32;
    f32::from_bits(match drawn(random) >> 32 & 15 {
        0 => bits | 0x7f80_0000,
        1 => 0x7fc0_0000 | bits << 31,
        2 => 0x7f80_0000 | bits << 31,
        3 => bits << 31,
        _ => (bits & 0x807f_ffff) | 0x3f80_0000,
    })
}

fn f64_of(random: &mut u64) -> f64 {
    let bits = drawn(random).rotate_left(17);
    f64::from_bits(match drawn(random) >> 32 & 15 {
        0 => bits | 0x7ff0_0000_0000_0000,
        1 => 0x7ff8_0000_0000_0000 | bits << 63,
        2 => 0x7ff0_0000_0000_0000 | bits << 63,
        3 => bits << 63,
        _ => (bits & 0x800f_ffff_ffff_ffff) | 0x3ff0_0000_0000_0000,
    })
}

#[test]
fn every_nan_of_a_result_is_the_one_nan_at_every_length() {
    let one_nan = |value: f32| if value.is_nan() { 0x7fc0_0000 } else { value.to_bits() };
    let cases: [(&str, fn(f32, f32) -> f32); 4] = [
        ("a + b", |a, b| a + b),
        ("a - b", |a, b| a - b),
        ("a * b", |a, b| a * b),
        ("(a * 0.5 - -b) / (a + b)", |a, b| (a * 0.5 - -b) / (a + b)),
    ];
    let mut random = 1;
    for (source, apply) in cases {
        let operator = loaded(&expression::compile(source, &Element::parse("f32").unwrap()).unwrap(), "f32");
        for elements in 0..=LONGEST {
            let mut vector = || (0..elements).map(|_| f32_of(&mut random)).collect::<Vec<f32>>();
            let (left, right) = (vector(), vector());
            let bytes = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
            let got = combined(&operator, &bytes(&left), &bytes(&right));
            for (at, got) in got.chunks(4).enumerate() {
                let (got, expected) = (u32::from_le_bytes(got.try_into().unwrap()), apply(left[at], right[at]));
                assert_eq!(got, one_nan(expected), "{source} of {} and {}, {elements}", left[at], right[at]);
            }
        }
    }
}

#[test]
fn doubles_have_one_nan_too() {
    let one_nan = |value: f64| if value.is_nan() { 0x7ff8_0000_0000_0000 } else { value.to_bits() };
    let operator = loaded(&expression::compile("a + b", &Element::parse("f64").unwrap()).unwrap(), "f64");
    let mut random = 2;
    for elements in 0..=LONGEST {
        let mut vector = || (0..elements).map(|_| f64_of(&mut random)).collect::<Vec<f64>>();
        let (left, right) = (vector(), vector());
        let bytes = |values: &[f64]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
        let got = combined(&operator, &bytes(&left), &bytes(&right));
        let expected: Vec<u8> = left.iter().zip(&right).flat_map(|(a, b)| one_nan(a + b).to_le_bytes()).collect();
        assert_eq!(got, expected, "{elements}");
    }
}

/// What a person writes by hand has the NaN of the sandbox's compiler, with the same bits.
#[test]
fn the_same_sum_written_by_hand_gives_the_same_bits() {
    let by_hand = source::from_wat(
        r#"(module
          (memory (export "memory") 1)
          (global (export "tributary_abi") i32 (i32.const 1))
          (global (export "element_size") i32 (i32.const 4))
          (func (export "combine") (param $acc i32) (param $with i32) (param $n i32)
            (block $end (loop $each
              (br_if $end (i32.eqz (local.get $n)))
              (f32.store (local.get $acc) (f32.add (f32.load (local.get $acc)) (f32.load (local.get $with))))
              (local.set $acc (i32.add (local.get $acc) (i32.const 4)))
              (local.set $with (i32.add (local.get $with) (i32.const 4)))
              (local.set $n (i32.sub (local.get $n) (i32.const 1)))
              (br $each)))))"#,
    )
    .unwrap();
    let own = expression::compile("a + b", &Element::parse("f32").unwrap()).unwrap();
    let operators = [loaded(&own, "f32"), loaded(&by_hand, "f32")];
    let mut random = 3;
    for elements in 0..=LONGEST {
        let mut vector = || (0..elements).flat_map(|_| f32_of(&mut random).to_le_bytes()).collect::<Vec<u8>>();
        let (left, right) = (vector(), vector());
        let [own, by_hand] = operators.each_ref().map(|operator| combined(operator, &left, &right));
        assert_eq!(own, by_hand, "{elements}");
    }
}

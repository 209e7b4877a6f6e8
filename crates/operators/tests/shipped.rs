//! The operators that come along, against what they say that they do.

use half::f16;
use tributary_operators::{Sandbox, reduce, shipped, source};
use tributary_proto::contract::custom_op::{CustomOp, OrderDependence};
use tributary_proto::contract::sum_tree::SumTree;

fn load(name: &str) -> tributary_operators::UserOperator {
    source::operator(&Sandbox::new(), name, None).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Vectors of ranks, combined in their order.
fn combined(name: &str, vectors: &[&[u8]]) -> Vec<u8> {
    reduce(&load(name), vectors, &SumTree::star(vectors.len() as u16)).unwrap().unwrap()
}

fn bytes<const N: usize>(values: impl IntoIterator<Item = [u8; N]>) -> Vec<u8> {
    values.into_iter().flatten().collect()
}

#[test]
fn each_passes_the_self_test_and_says_which_order_it_needs() {
    let needs = shipped::ALL.map(|shipped| (shipped.name, load(shipped.name).order_dependence()));
    assert_eq!(
        needs,
        [
            ("maxloc", OrderDependence::Nothing),
            ("saturating-i8", OrderDependence::Arrangement),
            ("int4x2", OrderDependence::Nothing),
            ("fp8-e4m3", OrderDependence::Arrangement),
            ("complex-product", OrderDependence::Arrangement),
            ("log-sum-exp", OrderDependence::Arrangement),
            ("matrix-2x2", OrderDependence::RankOrder),
            ("xor", OrderDependence::Nothing),
        ]
    );
}

#[test]
fn maxloc_finds_the_greatest_and_the_first_of_several() {
    let element = |v: f32, i: i32| [v.to_le_bytes(), i.to_le_bytes()].concat();
    let ranks = [
        [element(1.0, 0), element(-0.0, 0), element(5.0, 7), element(f32::NAN, 9)].concat(),
        [element(3.0, 1), element(0.0, 1), element(5.0, 2), element(1.0, 1)].concat(),
        [element(2.0, 2), element(0.0, 2), element(4.0, 1), element(2.0, 2)].concat(),
    ];
    let result = combined("maxloc", &[&ranks[0], &ranks[1], &ranks[2]]);
    let (values, indices): (Vec<f32>, Vec<i32>) = result
        .chunks(8)
        .map(|e| (f32::from_le_bytes(e[..4].try_into().unwrap()), i32::from_le_bytes(e[4..].try_into().unwrap())))
        .unzip();
    assert_eq!(indices, [1, 0, 2, 9]);
    assert_eq!((values[0], values[1].to_bits(), values[2], values[3].is_nan()), (3.0, 0, 5.0, true));
}

/// Every pair of bytes.
fn pairs() -> (Vec<u8>, Vec<u8>) {
    (0..65_536u32).map(|pair| ((pair >> 8) as u8, pair as u8)).unzip()
}

#[test]
fn saturating_i8_and_int4x2_are_right_for_every_pair_of_bytes() {
    let (left, right) = pairs();
    let saturated = combined("saturating-i8", &[&left, &right]);
    let nibbles = combined("int4x2", &[&left, &right]);
    for ((&a, &b), (sum, packed)) in left.iter().zip(&right).zip(saturated.into_iter().zip(nibbles)) {
        assert_eq!(sum as i8, (a as i8).saturating_add(b as i8), "{a} {b}");
        let halves = (a & 15).wrapping_add(b & 15) & 15 | ((a >> 4).wrapping_add(b >> 4) & 15) << 4;
        assert_eq!(packed, halves, "{a} {b}");
    }
}

/// E4M3 without infinities: bias 7, NaN where all bits but the sign are set.
fn e4m3(code: u8) -> f64 {
    let (exponent, mantissa) = (i32::from(code >> 3 & 15), f64::from(code & 7));
    let size = match exponent {
        15 if code & 7 == 7 => f64::NAN,
        0 => mantissa / 8.0 * 2f64.powi(-6),
        _ => (1.0 + mantissa / 8.0) * 2f64.powi(exponent - 7),
    };
    if code >= 128 { -size } else { size }
}

/// The nearest, ties to the even code, by looking at all of them.
fn to_e4m3(value: f64) -> u8 {
    if value.is_nan() || value.abs() > 464.0 {
        return 127;
    }
    let sign = if value.is_sign_negative() { 128 } else { 0 };
    let distance = |code: &u8| (e4m3(*code) - value.abs()).abs();
    let nearest =
        (0..127u8).min_by(|one, other| distance(one).total_cmp(&distance(other)).then((one & 1).cmp(&(other & 1))));
    nearest.unwrap() | sign
}

#[test]
fn fp8_e4m3_is_right_for_every_pair_of_bytes() {
    let (left, right) = pairs();
    let sums = combined("fp8-e4m3", &[&left, &right]);
    for ((&a, &b), sum) in left.iter().zip(&right).zip(sums) {
        assert_eq!(sum, to_e4m3(e4m3(a) + e4m3(b)), "{a:#x} + {b:#x}: {} + {}", e4m3(a), e4m3(b));
    }
    assert_eq!(f16::from_f64(e4m3(0x7e)).to_f64(), 448.0, "the greatest");
}

#[test]
fn complex_products_and_matrices_are_those_of_binary32_in_the_order_of_ranks() {
    let number = |re: f32, im: f32| [re.to_le_bytes(), im.to_le_bytes()].concat();
    let product = combined("complex-product", &[&number(1.5, -2.0), &number(0.25, 3.0), &number(-1.0, 0.5)]);
    // Of three, the first two are combined first.
    let multiply = |(a, b): (f32, f32), (c, d): (f32, f32)| (a * c - b * d, a * d + b * c);
    let (re, im) = multiply(multiply((1.5, -2.0), (0.25, 3.0)), (-1.0, 0.5));
    assert_eq!(product, number(re, im));

    let matrix = |m: [f32; 4]| bytes(m.map(f32::to_le_bytes));
    let (a, b) = ([1.0, 2.0, 3.0, 4.0], [0.0, 1.0, 1.0, 1.0]);
    assert_eq!(combined("matrix-2x2", &[&matrix(a), &matrix(b)]), matrix([2.0, 3.0, 4.0, 7.0]));
    assert_eq!(combined("matrix-2x2", &[&matrix(b), &matrix(a)]), matrix([3.0, 4.0, 4.0, 6.0]));
}

#[test]
fn log_sum_exp_is_as_exact_as_binary32_and_does_not_overflow() {
    let values = |of: &[f32]| bytes(of.iter().map(|value| value.to_le_bytes()));
    let left: Vec<f32> = (-400..400).map(|i| i as f32 / 4.0).chain([f32::NEG_INFINITY, f32::INFINITY, 1e30]).collect();
    let right: Vec<f32> =
        (-400..400).map(|i| (i * 37 % 401) as f32 / 8.0).chain([f32::NEG_INFINITY, 2.0, 1e30]).collect();
    let result = combined("log-sum-exp", &[&values(&left), &values(&right)]);
    for ((&a, &b), sum) in left.iter().zip(&right).zip(result.chunks(4)) {
        let (sum, a, b) = (f64::from(f32::from_le_bytes(sum.try_into().unwrap())), f64::from(a), f64::from(b));
        let expected = if a == b { a + 2f64.ln() } else { a.max(b) + (-(a - b).abs()).exp().ln_1p() };
        let fits = sum == expected as f32 as f64 || (sum - expected).abs() <= 3e-7 * expected.abs().max(1.0);
        assert!(fits, "{a} {b}: {sum}, not {expected}");
    }
}

#[test]
fn xor_is_xor() {
    let words = |seed: u64| bytes((0..1_000u64).map(|i| i.wrapping_mul(seed).to_le_bytes()));
    let (a, b) = (words(0x9e37_79b9_7f4a_7c15), words(77));
    let expected: Vec<u8> = a.iter().zip(&b).map(|(a, b)| a ^ b).collect();
    assert_eq!(combined("xor", &[&a, &b]), expected);
}

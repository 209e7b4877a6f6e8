//! Expressions: what they compute, one by one and in vectors, and what is wrong with those that are none.

use tributary_operators::element::Element;
use tributary_operators::{Sandbox, expression, reduce};
use tributary_proto::contract::custom_op::{CustomOp, OrderDependence};
use tributary_proto::contract::sum_tree::SumTree;

fn run(source: &str, element: &str, left: &[u8], right: &[u8]) -> Vec<u8> {
    let element = Element::parse(element).unwrap();
    let module = expression::compile(source, &element).unwrap_or_else(|error| panic!("{source}: {error}"));
    let operator = Sandbox::new().load_as(&module, "expression", Some(&element)).unwrap();
    reduce(&operator, &[left, right], &SumTree::star(2)).unwrap().unwrap()
}

fn of_f32(source: &str, apply: impl Fn(f32, f32) -> f32) {
    let vector = |seed: i32| (0..103).map(|i| ((i * seed) % 41 - 20) as f32 / 4.0).collect::<Vec<f32>>();
    let (left, right) = (vector(7), vector(11));
    let bytes = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    let expected: Vec<f32> = left.iter().zip(&right).map(|(&a, &b)| apply(a, b)).collect();
    let got = run(source, "f32", &bytes(&left), &bytes(&right));
    for ((got, expected), (a, b)) in got.chunks(4).zip(expected).zip(left.iter().zip(&right)) {
        let got = f32::from_le_bytes(got.try_into().unwrap());
        assert!(got == expected || got.is_nan() && expected.is_nan(), "{source} of {a} and {b}: {got}, not {expected}");
    }
}

fn of_i32(source: &str, apply: impl Fn(i32, i32) -> i32) {
    let vector = |seed: i32| (0..103).map(|i: i32| i.wrapping_mul(seed)).collect::<Vec<i32>>();
    let (left, right) = (vector(0x1234_5679), vector(-77));
    let bytes = |values: &[i32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    let expected: Vec<i32> = left.iter().zip(&right).map(|(&a, &b)| apply(a, b)).collect();
    assert_eq!(run(source, "i32", &bytes(&left), &bytes(&right)), bytes(&expected), "{source}");
}

#[test]
fn floats_are_those_of_binary32() {
    of_f32("a + b", |a, b| a + b);
    of_f32("a if abs(a) > abs(b) else b", |a, b| if a.abs() > b.abs() { a } else { b });
    of_f32("(a * a + b * b) / 2", |a, b| (a * a + b * b) / 2.0);
    of_f32("sqrt(abs(a)) - floor(b) + ceil(a)", |a, b| a.abs().sqrt() - b.floor() + a.ceil());
    of_f32("min(a, b) if not (a < 0 or b < 0) else -max(a, b)", |a, b| {
        if !(a < 0.0 || b < 0.0) { a.min(b) } else { -a.max(b) }
    });
    of_f32("f32(i32(a) & 3) + f32(f64(b) * 0.1)", |a, b| (a as i32 & 3) as f32 + (f64::from(b) * 0.1) as f32);
    of_f32("1 if a == b else 0.5", |a, b| if a == b { 1.0 } else { 0.5 });
    of_f32("half = 0.5\nx = a * half\nx - b", |a, b| a * 0.5 - b);
}

#[test]
fn one_number_with_a_name_is_computed_as_one_without() {
    for (named, plain) in [("v = a.v * b.v", "a * b"), ("t = a.v + 1\nv = max(t, b.v)", "t = a + 1\nmax(t, b)")] {
        for number in ["f32", "f64", "i32", "i64", "u16"] {
            let vector = |seed: u8| (0..103 * 8).map(|i: usize| (i as u8).wrapping_mul(seed) >> 2).collect::<Vec<u8>>();
            let (left, right) = (vector(7), vector(11));
            let expected = run(plain, number, &left, &right);
            assert_eq!(run(named, &format!("v:{number}"), &left, &right), expected, "{named} of {number}");
        }
    }
}

#[test]
fn integers_wrap() {
    of_i32("a + b * 3", |a, b| a.wrapping_add(b.wrapping_mul(3)));
    of_i32("(a ^ b) & 0xff | ~a << 8", |a, b| ((a ^ b) & 0xff) | (!a << 8));
    of_i32("a >> 3 if a < b else -b", |a, b| if a < b { a >> 3 } else { b.wrapping_neg() });
    of_i32("max(a, b) - min(a, b) + abs(a)", |a, b| a.max(b).wrapping_sub(a.min(b)).wrapping_add(a.wrapping_abs()));
    of_i32("i32(i64(a) * i64(b) >> 16)", |a, b| ((i64::from(a) * i64::from(b)) >> 16) as i32);
}

#[test]
fn narrow_and_unsigned_integers_are_stored_in_their_own_width() {
    assert_eq!(run("a + b", "u8", &[200, 255], &[100, 255]), [44, 254]);
    assert_eq!(run("(a + b) >> 1", "u8", &[200, 255], &[100, 255]), [150, 255], "computed with 32 bits");
    assert_eq!(
        run("a >> 1 if a > b else b", "u32", &u32::MAX.to_le_bytes(), &[1, 0, 0, 0]),
        (u32::MAX >> 1).to_le_bytes()
    );
    assert_eq!(
        run("a >> 1 if a > b else b", "u64", &u64::MAX.to_le_bytes(), &[1, 0, 0, 0, 0, 0, 0, 0]),
        (u64::MAX >> 1).to_le_bytes()
    );
    let both = run("hi = max(a.hi, b.hi)\nlo = min(a.lo, b.lo)", "lo:i16,hi:i16", &[5, 0, 9, 0], &[0xfe, 0xff, 3, 0]);
    assert_eq!(both, [0xfe, 0xff, 9, 0]);
}

#[test]
fn exponentials_and_logarithms_are_exact_to_some_units_of_the_last_digit() {
    let values: Vec<f64> =
        (-2_000..2_000).map(|i| f64::from(i) * 0.37).chain([0.0, -0.0, 1e-300, 709.0, -745.0, 800.0]).collect();
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    for (source, exact) in
        [("exp(a) + 0 * b", f64::exp as fn(f64) -> f64), ("log(abs(a)) + 0 * b", |x: f64| x.abs().ln())]
    {
        let got = run(source, "f64", &bytes, &vec![0; bytes.len()]);
        for (got, &value) in got.chunks(8).zip(&values) {
            let (got, expected) = (f64::from_le_bytes(got.try_into().unwrap()), exact(value));
            let close =
                got == expected || (got - expected).abs() <= 4e-16 * 4.0 * expected.abs().max(f64::MIN_POSITIVE);
            assert!(close, "{source} of {value}: {got}, not {expected}");
        }
    }
}

#[test]
fn the_self_test_knows_what_commutes() {
    let needs = |source: &str| {
        let element = Element::parse("f32").unwrap();
        let module = expression::compile(source, &element).unwrap();
        Sandbox::new().load_as(&module, "x", Some(&element)).unwrap()
    };
    assert_eq!(needs("max(a, b)").order_dependence(), OrderDependence::Nothing);
    assert_eq!(needs("a + b").order_dependence(), OrderDependence::Arrangement);
    let magnitude = needs("a if abs(a) > abs(b) else b");
    assert_eq!(magnitude.order_dependence(), OrderDependence::RankOrder, "of 1 and -1 the right one");
    assert!(magnitude.verdict().examples[0].starts_with("combine("), "{:?}", magnitude.verdict());
}

#[test]
fn what_has_no_meaning_is_a_sentence() {
    let sentence = |source: &str, element: &str| {
        expression::compile(source, &Element::parse(element).unwrap()).unwrap_err().to_string()
    };
    assert_eq!(sentence("a + c", "f32"), "nothing is called c: the elements are a and b");
    assert_eq!(sentence("a.x", "f32"), "a has no field x: it is one number");
    assert_eq!(sentence("v = a", "v:f32"), "a has fields: write a.v");
    assert_eq!(sentence("v = a.w", "v:f32,i:i32"), "a has no field w: it has v, i");
    assert_eq!(sentence("v = a.v", "v:f32,i:i32"), "the field i is missing: add a line \"i = ...\"");
    assert_eq!(sentence("a.v", "v:f32"), "a line without a name: say which field it is, as in \"v = ...\"");
    assert_eq!(
        sentence("a < b", "f32"),
        "the result is a comparison: write \"1 if ... else 0\", or the values that it chooses"
    );
    assert_eq!(sentence("a & b", "f32"), "\"&\" of f32 has no meaning: it is for integers");
    assert_eq!(sentence("a / b", "i32"), "\"/\" is for floats: integers have >>, or write f64(x)");
    assert_eq!(
        sentence("a + 0.5", "i32"),
        "\"+\" of i32 and a number with a point: change one of them, as in f32(x) or i32(x)"
    );
    assert_eq!(sentence("f64(a)", "f32"), "the result is f64 and the element f32: write f32(...)");
    assert_eq!(sentence("a if a else b", "f32"), "\"if\" takes a comparison, not f32");
    assert_eq!(
        sentence("sin(a)", "f32"),
        "there is no function sin: there are abs, min, max, sqrt, floor, ceil, exp, log, f32, f64, i32 and i64"
    );
    assert_eq!(sentence("min(a)", "f32"), "min takes 2 values, not 1");
    assert_eq!(sentence("a + b", "bf16"), "expressions cannot compute with bf16: take WAT or C, or another type");
    assert_eq!(sentence("a = b\na", "f32"), "the name a is taken: choose another");
}

//! The entry points of the operators' fuzzers in `fuzz/`, driven on the stable compiler with bytes that are nearly right.

#[path = "../../../fuzz/src/operators.rs"]
mod entries;

use proptest::collection::vec;
use proptest::prelude::*;

/// Words of expressions in any order: some make sense.
fn words() -> impl Strategy<Value = String> {
    const WORDS: [&str; 36] = [
        "a",
        "b",
        "a",
        "b",
        "a.v",
        "b.i",
        "a.re",
        "1",
        "2",
        "0.5",
        "0x1f",
        "+",
        "-",
        "*",
        "/",
        "&",
        "<<",
        ">>",
        "<",
        "==",
        "if",
        "else",
        "and",
        "not",
        "(",
        ")",
        "min(a, b)",
        "exp(a)",
        "f32(",
        "abs(",
        "\nv =",
        "\ni =",
        "re = a.re\nim =",
        "x =",
        "x",
        "~",
    ];
    vec(prop::sample::select(&WORDS[..]), 1..12).prop_map(|words| words.join(" "))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn operator_changed(bytes in vec(any::<u8>(), 0..8)) {
        entries::operator_changed(&bytes);
    }

    #[test]
    fn operator_module(bytes in vec(any::<u8>(), 0..300), with_preamble in any::<bool>()) {
        let preamble = if with_preamble { &b"\0asm\x01\0\0\0"[..] } else { &[] };
        entries::operator_module(&[preamble, &bytes].concat());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn operator_expression(first in any::<u8>(), source in words()) {
        entries::operator_expression(&[&[first], source.as_bytes()].concat());
    }
}

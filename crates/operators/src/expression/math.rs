//! Functions that WebAssembly lacks: exponentials and logarithms, in binary64, with errors of a few units in the last
//! place.

/// `exp`: `x = k ln 2 + r`, a polynomial of degree 13 in `r`, and `2^k` in two factors, so that small results are right.
pub const EXP: &str = r#"
  (func $exp (param $x f64) (result f64) (local $k f64) (local $r f64)
    (local.set $x (f64.max (f64.const -800) (f64.min (f64.const 800) (local.get $x))))
    (if (f64.ne (local.get $x) (local.get $x)) (then (return (local.get $x))))
    (local.set $k (f64.nearest (f64.mul (local.get $x) (f64.const 1.4426950408889634))))
    (local.set $r (f64.sub (f64.sub (local.get $x) (f64.mul (local.get $k) (f64.const 0x1.62e42fefp-1)))
      (f64.mul (local.get $k) (f64.const 0x1.473de6af278edp-34))))
    (f64.mul (f64.mul POLYNOMIAL (call $two (i32.shr_s (i32.trunc_sat_f64_s (local.get $k)) (i32.const 1))))
      (call $two (i32.sub (i32.trunc_sat_f64_s (local.get $k))
        (i32.shr_s (i32.trunc_sat_f64_s (local.get $k)) (i32.const 1))))))
  (func $two (param $k i32) (result f64)
    (f64.reinterpret_i64 (i64.shl (i64.extend_i32_s (i32.add (local.get $k) (i32.const 1023))) (i64.const 52))))
"#;

/// `log`: `x = 2^k m` with `m` near 1, and the series of `2 artanh((m - 1) / (m + 1))`.
pub const LOG: &str = r#"
  (func $log (param $x f64) (result f64) (local $k i32) (local $m f64) (local $s f64) (local $t f64) (local $bits i64)
    (if (f64.ne (local.get $x) (local.get $x)) (then (return (local.get $x))))
    (if (f64.lt (local.get $x) (f64.const 0)) (then (return (f64.const nan))))
    (if (f64.eq (local.get $x) (f64.const 0)) (then (return (f64.const -inf))))
    (if (f64.eq (local.get $x) (f64.const inf)) (then (return (local.get $x))))
    (if (f64.lt (local.get $x) (f64.const 0x1p-1022))
      (then (local.set $x (f64.mul (local.get $x) (f64.const 0x1p54))) (local.set $k (i32.const -54))))
    (local.set $bits (i64.sub (i64.reinterpret_f64 (local.get $x)) (i64.const 0x3fe6a09e667f3bcd)))
    (local.set $k (i32.add (local.get $k) (i32.wrap_i64 (i64.shr_s (local.get $bits) (i64.const 52)))))
    (local.set $m (f64.reinterpret_i64 (i64.add (i64.and (local.get $bits) (i64.const 0x000fffffffffffff))
      (i64.const 0x3fe6a09e667f3bcd))))
    (local.set $s (f64.div (f64.sub (local.get $m) (f64.const 1)) (f64.add (local.get $m) (f64.const 1))))
    (local.set $t (f64.mul (local.get $s) (local.get $s)))
    (f64.add (f64.mul (f64.convert_i32_s (local.get $k)) (f64.const 0x1.62e42fefa39efp-1))
      (f64.mul (f64.mul (f64.const 2) (local.get $s)) POLYNOMIAL)))
"#;

/// `exp` with its polynomial.
pub fn exp() -> String {
    let mut factorial = 1.0;
    let coefficients: Vec<f64> = (0..14)
        .map(|n| {
            factorial *= f64::from(n.max(1));
            1.0 / factorial
        })
        .collect();
    EXP.replace("POLYNOMIAL", &horner(&coefficients, "$r"))
}

/// `log` with its polynomial.
pub fn log() -> String {
    let coefficients: Vec<f64> = (0..11).map(|n| 1.0 / f64::from(2 * n + 1)).collect();
    LOG.replace("POLYNOMIAL", &horner(&coefficients, "$t"))
}

fn horner(coefficients: &[f64], of: &str) -> String {
    let (last, rest) = coefficients.split_last().expect("a polynomial has a coefficient");
    rest.iter().rev().fold(format!("(f64.const {last:e})"), |inner, coefficient| {
        format!("(f64.add (f64.const {coefficient:e}) (f64.mul (local.get {of}) {inner}))")
    })
}

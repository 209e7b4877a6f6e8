//! F as instructions: which operation, which register, which flags. What operations give is tested where they are.

use tributary_pspin::Fault;

use super::asm::*;

const NAN: u32 = 0x7fc0_0000;

/// Moves two arguments into f1 and f2, and the result from f0.
fn of(instruction: u32, a: f32, b: f32) -> f32 {
    let program = [r(OP_FP, 0, 0x78, 1, A0, 0), r(OP_FP, 0, 0x78, 2, A1, 0), instruction, r(OP_FP, 0, 0x70, A0, 0, 0)];
    f32::from_bits(result(&program, &[a.to_bits(), b.to_bits()]))
}

/// The same with an integer that comes out.
fn integer_of(instruction: u32, a: f32, b: f32) -> u32 {
    let program = [r(OP_FP, 0, 0x78, 1, A0, 0), r(OP_FP, 0, 0x78, 2, A1, 0), instruction];
    result(&program, &[a.to_bits(), b.to_bits()])
}

#[test]
fn arithmetic() {
    let by = |funct7, funct3| of(r(OP_FP, funct3, funct7, 0, 1, 2), 6.25, -2.5);
    assert_eq!([by(0, 0), by(4, 0), by(8, 0), by(0xc, 7)], [3.75, 8.75, -15.625, -2.5]);
    assert_eq!([by(0x14, 0), by(0x14, 1)], [-2.5, 6.25]);
    assert_eq!(of(r(OP_FP, 0, 0x2c, 0, 1, 0), 6.25, 0.0), 2.5);
}

#[test]
fn signs_are_copied_negated_and_multiplied_and_no_nan_is_made_canonical_by_it() {
    let by = |funct3, a, b| of(r(OP_FP, funct3, 0x10, 0, 1, 2), a, b);
    assert_eq!([by(0, 3.0, -1.0), by(1, 3.0, -1.0), by(2, -3.0, -1.0)], [-3.0, 3.0, 3.0]);
    assert_eq!(by(1, f32::from_bits(0x7f80_0001), 1.0).to_bits(), 0xff80_0001);
}

#[test]
fn fused_operations_have_the_four_signs() {
    // rs3 is f2 again: 3 * 2 and 2.
    let by = |opcode| of(2 << 27 | r(opcode, 0, 0, 0, 1, 2), 3.0, 2.0);
    assert_eq!([0x43, 0x47, 0x4b, 0x4f].map(by), [8.0, 4.0, -4.0, -8.0]);
}

#[test]
fn comparisons_classes_and_conversions_give_integers() {
    let compare = |funct3, a, b| integer_of(r(OP_FP, funct3, 0x50, A0, 1, 2), a, b);
    assert_eq!([compare(0, 1.0, 1.0), compare(1, 1.0, 1.0), compare(2, 1.0, 1.0)], [1, 0, 1]);
    assert_eq!([compare(0, f32::NAN, 1.0), compare(2, f32::NAN, f32::NAN)], [0, 0]);
    assert_eq!(integer_of(r(OP_FP, 1, 0x70, A0, 1, 0), -0.0, 0.0), 1 << 3);
    let convert = |rs2, mode, a| integer_of(r(OP_FP, mode, 0x60, A0, 1, rs2), a, 0.0);
    assert_eq!([convert(0, 0, 2.5), convert(0, 1, -2.5), convert(0, 3, 2.5)], [2, -2i32 as u32, 3]);
    assert_eq!([convert(1, 1, -1.0), convert(1, 1, 4e9), convert(0, 1, f32::NAN)], [0, 4_000_000_000, i32::MAX as u32]);
}

#[test]
fn integers_become_floats() {
    let of = |rs2, value: u32| {
        let program = [r(OP_FP, 0, 0x68, 0, A0, rs2), r(OP_FP, 0, 0x70, A0, 0, 0)];
        f32::from_bits(result(&program, &[value]))
    };
    assert_eq!([of(0, -5i32 as u32), of(1, u32::MAX)], [-5.0, 4_294_967_296.0]);
}

#[test]
fn flags_add_up_until_they_are_cleared() {
    let program =
        [r(OP_FP, 0, 0x78, 1, A0, 0), r(OP_FP, 0, 0x0c, 2, 1, 0), r(OP_FP, 0, 0x0c, 3, 0, 0), i(SYSTEM, 2, A0, 0, 1)];
    // 1 / 0, then 0 / 0.
    assert_eq!(result(&program, &[1f32.to_bits()]), 8 | 16);
}

#[test]
fn a_nan_that_a_program_computes_is_canonical() {
    let bits = of(r(OP_FP, 0, 0, 0, 1, 2), f32::from_bits(0xffc1_2345), 1.0).to_bits();
    assert_eq!(bits, NAN);
}

#[test]
fn other_rounding_modes_are_refused_and_not_ignored() {
    let mut machine = Machine::new(&[r(OP_FP, 1, 0, 0, 1, 2), RET]);
    assert_eq!(machine.run(&[]), Err(Fault::Rounding { pc: CODE, mode: 1 }));
    let mut machine = Machine::new(&[i(SYSTEM, 5, 0, 3, 2), r(OP_FP, 7, 0, 0, 1, 2), RET]);
    assert_eq!(machine.run(&[]), Err(Fault::Rounding { pc: CODE + 4, mode: 3 }));
}

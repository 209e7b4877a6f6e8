//! The table of cycles, row by row, and each hazard with and without.

use tributary_pspin::Stalls;

use super::asm::*;

const LW: u32 = 2;

fn cycles(program: &[u32], arguments: &[u32]) -> u64 {
    let counts = cost(program, arguments);
    assert_eq!(counts.cycles, counts.instructions + counts.stalls.total(), "every cycle is one or the other");
    counts.cycles
}

#[test]
fn integers_take_one_cycle_and_high_products_five() {
    assert_eq!(cycles(&[add(A0, A0, A1), add(A0, A0, A1)], &[]), 2);
    assert_eq!(cycles(&[r(OP, 0, 1, A0, A0, A1)], &[]), 1);
    assert_eq!(cycles(&[r(OP, 3, 1, A0, A0, A1)], &[]), 5);
    assert_eq!(cycles(&[r(PACKED, 1, 0, A0, A0, A1), r(OP, 0, 0x21, A0, A1, A2)], &[]), 2);
}

#[test]
fn a_division_takes_a_cycle_for_each_leading_zero_of_the_divisor() {
    let of = |funct3, divisor| cycles(&[r(OP, funct3, 1, A0, A0, A1)], &[100, divisor]);
    assert_eq!([of(5, 1 << 31), of(5, 1), of(5, 0), of(7, 1 << 15)], [3, 34, 35, 19]);
    assert_eq!([of(4, -1i32 as u32), of(4, 1 << 31)], [34, 3]);
}

#[test]
fn a_load_takes_one_cycle_and_who_uses_it_at_once_waits_for_one() {
    let load = i(LOAD, LW, A2, A0, 0);
    assert_eq!(cycles(&[load], &[DATA]), 1);
    let used = cost(&[load, add(A3, A2, A2)], &[DATA]);
    assert_eq!((used.cycles, used.stalls), (3, Stalls { load_use: 1, ..Stalls::default() }));
    assert_eq!(cycles(&[load, NOP, add(A3, A2, A2)], &[DATA]), 3);
    assert_eq!(cycles(&[load, s(STORE, LW, A0, A2, 4)], &[DATA]), 3, "a store uses what it stores");
    assert_eq!(cycles(&[i(LOAD_POST, LW, A2, A0, 4), i(LOAD_POST, LW, A3, A0, 4)], &[DATA]), 2, "the base is there");
}

#[test]
fn what_crosses_a_word_takes_one_cycle_more() {
    let of = |funct3, offset| cycles(&[i(LOAD, funct3, A2, A0, offset)], &[DATA]);
    assert_eq!([of(LW, 1), of(LW, 4), of(1, 1), of(1, 3), of(0, 3)], [2, 1, 1, 2, 1]);
    assert_eq!(cost(&[s(STORE, LW, A0, A1, 2)], &[DATA]).stalls.misaligned, 1);
}

#[test]
fn jumps_take_two_and_branches_one_or_three() {
    assert_eq!(cycles(&[jal(0, 4)], &[]), 2);
    assert_eq!(cycles(&[b(1, 0, 0, 8)], &[]), 1);
    assert_eq!(cycles(&[b(0, 0, 0, 4)], &[]), 3);
    // auipc, then a jump to what it gave: the register was written just before.
    assert_eq!(cycles(&[0x17 | A1 << 7, i(0x67, 0, 0, A1, 8)], &[]), 1 + 1 + 2);
    assert_eq!(cycles(&[0x17 | A1 << 7, NOP, i(0x67, 0, 0, A1, 12)], &[]), 1 + 1 + 2);
}

#[test]
fn a_float_is_there_a_cycle_later_and_a_quotient_eighteen() {
    let add = r(OP_FP, 0, 0, 1, 2, 3);
    assert_eq!(cycles(&[add], &[]), 1);
    let used = cost(&[add, r(OP_FP, 0, 0, 4, 1, 1)], &[]);
    assert_eq!((used.cycles, used.stalls), (3, Stalls { float: 1, ..Stalls::default() }));
    assert_eq!(cycles(&[add, r(OP_FP, 0, 0, 4, 2, 3)], &[]), 2, "the FPU is a pipeline");
    assert_eq!(cycles(&[add, s(STORE_FP, 2, A0, 1, 0)], &[DATA]), 3);
    let div = r(OP_FP, 0, 0xc, 1, 2, 3);
    assert_eq!(cycles(&[div, s(STORE_FP, 2, A0, 1, 0)], &[DATA]), 20);
    assert_eq!(cycles(&[div, add], &[DATA]), 20, "the divider is none");
    assert_eq!(cycles(&[div, NOP, NOP], &[DATA]), 3);
    assert_eq!(cycles(&[i(LOAD_FP, 2, 2, A0, 0), add], &[DATA]), 3);
}

#[test]
fn a_hardware_loop_costs_its_set_up_and_its_instructions() {
    let program = [i(LOOP, 4, 0, A1, 4), i(LOAD_POST, LW, A2, A0, 4), add(A3, A3, A4)];
    assert_eq!(cycles(&program, &[DATA, 50]), 1 + 50 * 2);
}

#[test]
fn counters_take_four_cycles_and_flags_one() {
    assert_eq!(cycles(&[i(SYSTEM, 2, A0, 0, 0xb00 - 0x1000)], &[]), 4);
    assert_eq!(cycles(&[i(SYSTEM, 2, A0, 0, 1)], &[]), 1);
}

#[test]
fn loads_and_stores_are_counted() {
    let counts = cost(&[i(LOAD, 0, A2, A0, 0), s(STORE, 0, A0, A1, 0), s(STORE, 0, A0, A1, 1)], &[DATA]);
    assert_eq!((counts.loads, counts.stores, counts.instructions), (1, 2, 3));
}

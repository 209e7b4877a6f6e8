//! What is there of Xpulp.

use tributary_pspin::instruction::{Instruction, LoopSetting, Mode, Width, decode};

use super::asm::*;

#[test]
fn words_of_a_listing_of_gap8_mean_what_it_says() {
    // Its loops end at 0x1a and at 12 bytes behind these instructions, the second with p.mac as its last instruction.
    let setup = LoopSetting::Setup { rs1: 30, end: 0x1a };
    assert_eq!(decode(0x00df_407b), Some(Instruction::Loop { number: 0, set: setup }));
    let setup = LoopSetting::SetupImmediate { count: 5, end: 12 };
    assert_eq!(decode(0x0053_50fb), Some(Instruction::Loop { number: 1, set: setup }));
    let mode = Mode::PostOffset(1);
    assert_eq!(
        decode(0x0018_0e8b),
        Some(Instruction::Load { width: Width::Byte, signed: true, rd: 29, rs1: 16, mode })
    );
    assert_eq!(decode(0x43ce_8333), Some(Instruction::Accumulate { subtract: false, rd: 6, rs1: 29, rs2: 28 }));
}

#[test]
fn a_post_increment_access_is_at_the_base_and_moves_it() {
    let program = [
        i(LOAD_POST, 2, A2, A0, 4),
        i(LOAD_POST, 1, A3, A0, -2),
        i(LOAD_POST, 4, A4, A0, 1),
        s(STORE_POST, 2, A1, A2, 8),
        s(STORE_POST, 1, A1, A3, -4),
        s(STORE_POST, 0, A1, A4, 1),
        RET,
    ];
    let mut machine = Machine::new(&program);
    machine.memory.write(DATA, &[1, 2, 0xfe, 4, 0xff, 0xff]).unwrap();
    machine.run(&[DATA, DATA + 16]).unwrap();
    assert_eq!([machine.core.integer(10), machine.core.integer(11)], [DATA + 3, DATA + 16 + 5]);
    assert_eq!(machine.data(8)[4..], [0x04fe_0201, 0xfe, 0xffff, 0]);
}

#[test]
fn an_offset_may_be_a_register() {
    let program = [
        r(LOAD, 7, 0x10, A2, A0, A1),
        r(LOAD_POST, 7, 0x28, A3, A0, A1),
        r(STORE, 6, 0, A1, A0, A2),
        r(STORE_POST, 5, 0, A1, A0, A3),
        RET,
    ];
    let mut machine = Machine::new(&program);
    machine.memory.write(DATA, &[1, 0x80, 0, 0, 7]).unwrap();
    machine.run(&[DATA, 4]).unwrap();
    assert_eq!(machine.core.integer(10), DATA + 8);
    assert_eq!(machine.core.integer(13), 0x8001);
    assert_eq!(machine.data(3), [0x8001, 0x8001, 7]);
}

#[test]
fn lanes_know_nothing_of_their_neighbours() {
    let of = |funct3, funct7, a, b| result(&[r(PACKED, funct3, funct7, A0, A0, A1)], &[a, b]);
    assert_eq!(of(0, 0, 0xffff_0001, 0x0001_ffff), 0);
    assert_eq!(of(1, 0, 0xff01_7f80, 0x01ff_0180), 0x0000_8000);
    assert_eq!(of(0, 4, 0x0000_0001, 0x0001_0002), 0xffff_ffff);
    assert_eq!(of(1, 4, 0x0000_0505, 0x0101_0605), 0xffff_ff00);
    assert_eq!(of(0, 0, 0x7fff_0000, 0x0001_0000), 0x8000_0000, "sums wrap");
}

#[test]
fn products_are_accumulated_and_extremes_chosen() {
    assert_eq!(result(&[r(OP, 0, 0x21, A0, A1, A2)], &[5, 6, 7]), 47);
    assert_eq!(result(&[r(OP, 1, 0x21, A0, A1, A2)], &[5, 6, 7]), -37i32 as u32);
    let of = |funct3| result(&[r(OP, funct3, 2, A0, A0, A1)], &[u32::MAX, 1]);
    assert_eq!([of(4), of(5), of(6), of(7)], [u32::MAX, 1, 1, u32::MAX]);
}

#[test]
fn a_hardware_loop_runs_up_to_its_last_instruction_as_often_as_its_count_says() {
    for rounds in [1, 2, 9] {
        // The last instruction of the loop is the second.
        let program = [li(A0, 0), i(LOOP, 4, 0, A1, 4), add(A0, A0, A2), i(OP_IMM, 0, A2, A2, 1)];
        assert_eq!(result(&program, &[0, rounds, 1]), (1..=rounds).sum::<u32>());
        // Of one instruction alone.
        let program = [li(A0, 0), i(LOOP, 4, 0, A1, 2), add(A0, A0, A2)];
        assert_eq!(result(&program, &[0, rounds, 3]), 3 * rounds);
    }
}

#[test]
fn the_first_loop_may_be_inside_of_the_second() {
    let program = [
        li(A0, 0),
        i(LOOP, 3, 1, 0, 3), // lp.counti 1, 3
        i(LOOP, 0, 1, 0, 4), // lp.starti 1, 8 bytes on
        i(LOOP, 1, 1, 0, 8), // lp.endi 1, 16 bytes on
        i(LOOP, 5, 0, 3, 5), // lp.setupi 0, 5 rounds, 6 bytes on: replaced below
        i(OP_IMM, 0, A0, A0, 1),
        i(OP_IMM, 0, A0, A0, 1),
        i(OP_IMM, 0, A0, A0, 100),
    ];
    // In lp.setupi the count is above and the end, in halves, where others have rs1.
    let mut program = program;
    program[4] = i(LOOP, 5, 0, 4, 5);
    assert_eq!(result(&program, &[]), 3 * (5 * 2 + 100));
}

#[test]
fn two_halves_are_added_in_registers_of_the_fpu() {
    // The word of `vfadd.h f0, f0, f0` in the encodings of PULP's compiler.
    assert_eq!(decode(0x8200_2033), Some(Instruction::PackedHalves { rd: 0, rs1: 0, rs2: 0 }));
    let program = [
        r(OP_FP, 0, 0x78, 1, A0, 0),
        r(OP_FP, 0, 0x78, 2, A1, 0),
        r(OP, 2, 0x41, 0, 1, 2),
        r(OP_FP, 0, 0x70, A0, 0, 0),
    ];
    // 1.5 + 2.25 above, 1 - 1 below.
    assert_eq!(result(&program, &[0x3e00_3c00, 0x4080_bc00]), 0x4380_0000);
}

#[test]
fn what_is_not_there_is_no_instruction() {
    let unknown = [
        r(PACKED, 2, 0, A0, A0, A1),
        r(PACKED, 0, 8, A0, A0, A1),
        i(LOOP, 6, 0, A0, 0),
        i(LOOP, 4, 2, A0, 4),
        i(LOAD_POST, 3, A0, A1, 0),
        s(STORE_POST, 3, A0, A1, 0),
        r(LOAD, 7, 1, A0, A1, A2),
        r(OP, 2, 0x21, A0, A1, A2),
    ];
    for word in unknown {
        assert_eq!(decode(word), None, "{word:#x}");
    }
}

//! Loads and stores; and what stops a program, with the core where it was.

use tributary_pspin::{Fault, OutOfBounds, Stop};

use super::asm::*;

#[test]
fn an_access_outside_of_memory_is_a_fault_and_changes_nothing() {
    let mut machine = Machine::new(&[NOP, i(LOAD_POST, 2, A0, A1, 4), RET]);
    let what = OutOfBounds { address: DATA + 0xffd, bytes: 4 };
    assert_eq!(machine.run(&[7, DATA + 0xffd]), Err(Fault::Access { pc: CODE + 4, what }));
    assert_eq!((machine.core.pc(), machine.core.integer(10), machine.core.integer(11)), (CODE + 4, 7, DATA + 0xffd));
    let mut machine = Machine::new(&[s(STORE, 0, A0, A1, 0), RET]);
    let what = OutOfBounds { address: 0, bytes: 1 };
    assert_eq!(machine.run(&[0]), Err(Fault::Access { pc: CODE, what }));
}

#[test]
fn an_access_that_is_not_aligned_is_none() {
    assert_eq!(Machine::new(&[i(LOAD, 2, A0, A0, 1), RET]).run(&[DATA]), Ok(Stop::Returned));
}

#[test]
fn words_that_are_not_instructions_are_faults() {
    for word in [0, u32::MAX, 0x0000_0001, r(OP, 0, 3, 0, 0, 0), i(SYSTEM, 2, A0, 0, 0x345), i(SYSTEM, 1, 0, A0, 0x400)]
    {
        assert_eq!(Machine::new(&[word]).run(&[]), Err(Fault::Illegal { pc: CODE, word }), "{word:#x}");
    }
}

#[test]
fn any_word_is_an_instruction_or_a_fault() {
    let mut machine = Machine::new(&[]);
    let mut state = 1u64;
    for _ in 0..2_000_000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // All instructions are of four bytes, which the two low bits say.
        machine.memory.store(CODE, 4, (state >> 32) as u32 | 3).unwrap();
        machine.core.call(CODE, DATA, &[DATA, DATA + 8]);
        let _ = machine.core.step(&mut machine.memory);
    }
    assert!(machine.core.counts().instructions > 100_000, "many of them are instructions");
}

#[test]
fn nothing_is_fetched_from_elsewhere() {
    let mut machine = Machine::new(&[i(0x67, 0, 0, A0, 0)]);
    assert_eq!(machine.run(&[0x4_0000]), Err(Fault::Fetch { pc: 0x4_0000 }));
    let mut machine = Machine::new(&[i(0x67, 0, 0, A0, 0)]);
    assert_eq!(machine.run(&[CODE + 2]), Err(Fault::Fetch { pc: CODE + 2 }));
}

#[test]
fn a_program_that_does_not_end_is_stopped() {
    assert_eq!(Machine::new(&[jal(0, 0)]).run(&[]), Err(Fault::CycleLimit { limit: 10_000 }));
}

#[test]
fn loads_extend_with_the_sign_or_with_zeros() {
    let of = |funct3, offset| {
        let mut machine = Machine::new(&[i(LOAD, funct3, A0, A1, offset), RET]);
        machine.memory.write(DATA, &[0x80, 0xff, 0x7f, 0x01, 0xfe]).unwrap();
        machine.run(&[0, DATA + 4]).unwrap();
        machine.core.integer(10)
    };
    assert_eq!(of(0, -4), -128i32 as u32);
    assert_eq!(of(4, -4), 128);
    assert_eq!(of(1, -4), -128i32 as u32);
    assert_eq!(of(5, -4), 0xff80);
    assert_eq!(of(2, -4), 0x017f_ff80);
    assert_eq!(of(2, -3), 0xfe01_7fff);
}

#[test]
fn stores_write_their_width_alone() {
    let program = [s(STORE, 2, A0, A1, 4), s(STORE, 1, A0, A1, 1), s(STORE, 0, A0, A1, -1), RET];
    let mut machine = Machine::new(&program);
    machine.run(&[DATA + 4, 0x1122_3344]).unwrap();
    assert_eq!(machine.memory.bytes(DATA, 12).unwrap(), [0, 0, 0, 0x44, 0, 0x44, 0x33, 0, 0x44, 0x33, 0x22, 0x11]);
}

#[test]
fn floats_travel_as_they_are() {
    let mut machine = Machine::new(&[i(LOAD_FP, 2, 3, A0, 0), s(STORE_FP, 2, A0, 3, 4), RET]);
    machine.memory.store(DATA, 4, 0x7f80_0001).unwrap();
    machine.run(&[DATA]).unwrap();
    assert_eq!(machine.data(2), [0x7f80_0001; 2]);
}

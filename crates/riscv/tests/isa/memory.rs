//! Loads and stores.

use super::asm::*;

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

//! RV32I and M, and the status registers.

use tributary_pspin::instruction::{Alu, Instruction, Operand, decode};
use tributary_pspin::{Core, Memory, Stop, Timing};

use super::asm::*;

const MINUS: fn(i32) -> u32 = |value| -value as u32;

#[test]
fn words_that_gcc_made_mean_what_its_listing_says() {
    let add_a0_a0_a1 = Instruction::Alu { op: Alu::Add, rd: 10, rs1: 10, operand: Operand::Register(11) };
    assert_eq!(decode(0x00b5_0533), Some(add_a0_a0_a1));
    let srai_a5_a0_31 =
        Instruction::Alu { op: Alu::ShiftRightSigned, rd: 15, rs1: 10, operand: Operand::Immediate(31) };
    assert_eq!(decode(0x41f5_5793), Some(srai_a5_a0_31));
    assert_eq!(decode(0xffdf_f06f), Some(Instruction::Jal { rd: 0, offset: -4 }));
    assert_eq!(decode(RET), Some(Instruction::Jalr { rd: 0, rs1: 1, offset: 0 }));
}

#[test]
fn arithmetic_of_registers() {
    let of = |funct3, funct7, a, b| result(&[r(OP, funct3, funct7, A0, A0, A1)], &[a, b]);
    assert_eq!(of(0, 0, u32::MAX, 2), 1);
    assert_eq!(of(0, 0x20, 1, 2), u32::MAX);
    assert_eq!(of(1, 0, 1, 35), 8);
    assert_eq!(of(2, 0, MINUS(1), 0), 1);
    assert_eq!(of(3, 0, MINUS(1), 0), 0);
    assert_eq!(of(4, 0, 0b1100, 0b1010), 0b0110);
    assert_eq!(of(5, 0, 1 << 31, 31), 1);
    assert_eq!(of(5, 0x20, 1 << 31, 31), u32::MAX);
    assert_eq!(of(6, 0, 0b1100, 0b1010), 0b1110);
    assert_eq!(of(7, 0, 0b1100, 0b1010), 0b1000);
}

#[test]
fn arithmetic_with_immediates() {
    let of = |funct3, imm, a| result(&[i(OP_IMM, funct3, A0, A0, imm)], &[a]);
    assert_eq!(of(0, -2048, 0), MINUS(2048));
    assert_eq!(of(2, -1, MINUS(2)), 1);
    assert_eq!(of(3, -1, 5), 1, "the immediate is extended with its sign, then compared without");
    assert_eq!(of(4, -1, 5), !5);
    assert_eq!(of(6, 8, 5), 13);
    assert_eq!(of(7, 4, 5), 4);
    assert_eq!(of(1, 4, 1), 16);
    assert_eq!(of(5, 4, 1 << 31), 1 << 27);
    assert_eq!(of(5, 4 | 0x400, 1 << 31), 0xf800_0000);
}

#[test]
fn the_first_register_stays_zero() {
    assert_eq!(result(&[li(0, 5), add(A0, 0, 0)], &[1]), 0);
}

#[test]
fn upper_immediates_and_addresses() {
    assert_eq!(result(&[0xabcd_e000 | A0 << 7 | 0x37], &[]), 0xabcd_e000);
    assert_eq!(result(&[NOP, 0x0000_1000 | A0 << 7 | 0x17], &[]), CODE + 4 + 0x1000);
}

#[test]
fn products_and_quotients_of_all_signs() {
    let of = |funct3, a, b| result(&[r(OP, funct3, 1, A0, A0, A1)], &[a, b]);
    let least = 1u32 << 31;
    assert_eq!(of(0, 0x10001, 0x10001), 0x20001);
    assert_eq!(of(1, MINUS(1), MINUS(1)), 0);
    assert_eq!(of(2, MINUS(1), u32::MAX), u32::MAX);
    assert_eq!(of(3, u32::MAX, u32::MAX), u32::MAX - 1);
    assert_eq!(of(4, MINUS(7), 2), MINUS(3));
    assert_eq!(of(5, MINUS(7), 2), 0x7fff_fffc);
    assert_eq!(of(6, MINUS(7), 2), MINUS(1));
    assert_eq!(of(7, 7, 4), 3);
    // What has no quotient has one that is defined.
    assert_eq!([of(4, 5, 0), of(5, 5, 0), of(6, 5, 0), of(7, 5, 0)], [u32::MAX, u32::MAX, 5, 5]);
    assert_eq!([of(4, least, u32::MAX), of(6, least, u32::MAX)], [least, 0]);
}

#[test]
fn branches_go_where_their_condition_says() {
    let is_taken = |funct3, a, b| {
        let program = [b_over(funct3), li(A0, 0), jal(0, 8), li(A0, 1)];
        result(&program, &[a, b]) == 1
    };
    fn b_over(funct3: u32) -> u32 {
        super::asm::b(funct3, A0, A1, 12)
    }
    let (minus, one) = (MINUS(1), 1);
    for (funct3, expected) in [(0, false), (1, true), (4, true), (5, false), (6, false), (7, true)] {
        assert_eq!(is_taken(funct3, minus, one), expected, "{funct3}");
    }
    for (funct3, expected) in [(0, true), (1, false), (4, false), (5, true), (6, false), (7, true)] {
        assert_eq!(is_taken(funct3, one, one), expected, "{funct3}");
    }
}

#[test]
fn a_loop_goes_back_and_a_call_returns() {
    // a0 = a1 * 3 by adding; then a call of what is behind the return, which doubles.
    let program = [
        li(A0, 0),
        add(A0, A0, A1),
        i(OP_IMM, 0, A2, A2, -1),
        b(1, A2, 0, -8),
        add(A4, 1, 0),
        jal(1, 12),
        add(1, A4, 0),
        RET,
        add(A0, A0, A0),
        RET,
    ];
    assert_eq!(result(&program, &[0, 7, 3]), 42);
}

#[test]
fn a_call_by_register_clears_the_lowest_bit() {
    let program = [0x17 | A1 << 7, i(0x67, 0, 5, A1, 13), li(A0, 1), add(A0, 5, 0)];
    assert_eq!(result(&program, &[]), CODE + 8);
}

#[test]
fn counters_count_and_flags_can_be_written() {
    let read = |csr| i(SYSTEM, 2, A0, 0, csr);
    assert_eq!(result(&[NOP, NOP, read(0xb00 - 0x1000)], &[]), 2);
    assert_eq!(result(&[NOP, NOP, NOP, read(0xc02 - 0x1000)], &[]), 3);
    // fcsr = 0xa5; fflags |= 2; frm &= !1, each giving the old value.
    let program = [
        i(SYSTEM, 1, 0, A0, 3),
        i(SYSTEM, 6, A1, 2, 1),
        i(SYSTEM, 7, A2, 1, 2),
        i(SYSTEM, 2, A0, 0, 3),
        add(A0, A0, A1),
        add(A0, A0, A2),
    ];
    assert_eq!(result(&program, &[0xa5]), 0x87 + 5 + 5);
}

#[test]
fn calls_of_the_environment_stop_and_running_goes_on_behind_them() {
    let mut memory = Memory::new().with_region(CODE, 64);
    let program = [0x73, 0x0010_0073, li(A0, 3), RET];
    for (at, word) in program.into_iter().enumerate() {
        memory.store(CODE + 4 * at as u32, 4, word).unwrap();
    }
    let mut core = Core::new(Timing::RI5CY);
    core.call(CODE, 0, &[]);
    for expected in [Stop::Called, Stop::Break, Stop::Returned] {
        assert_eq!(core.run(&mut memory, 100), Ok(expected));
    }
    assert_eq!(core.integer(10), 3);
}

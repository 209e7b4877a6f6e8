//! A processing unit: what a function gets and gives, what the command unit does, and what stops a handler.

use std::collections::BTreeMap;

use tributary_pspin::{CallError, Command, CommandKind, Fault, OutOfBounds, Program, Segment, Timing, Unit, map};

const RET: u32 = 0x0000_8067;
/// Where the tests' data are.
const DATA: u32 = map::L1 + 0x100;

/// A unit whose program is one function, `f`.
fn unit(function: &[u32]) -> Unit {
    let bytes: Vec<u8> = function.iter().flat_map(|word| word.to_le_bytes()).collect();
    let memory_bytes = bytes.len() as u32;
    let segments = vec![Segment { address: map::PROGRAM, bytes, memory_bytes }];
    let symbols = BTreeMap::from([("f".to_owned(), map::PROGRAM)]);
    Unit::new(&Program { entry: 0, segments, symbols }, Timing::RI5CY).unwrap()
}

/// sw a(REGISTER), OFFSET(a0)
fn store(register: u32, offset: u32) -> u32 {
    (10 + register) << 20 | 10 << 15 | 2 << 12 | offset << 7 | 0x23
}

/// A function that writes its arguments but the first to the four registers behind `pending`, whose address is the first.
fn commander() -> Unit {
    unit(&[store(1, 4), store(2, 8), store(3, 12), store(4, 16), RET])
}

#[test]
fn a_copy_is_done_when_the_next_instruction_runs_and_a_send_takes_what_is_there() {
    let mut unit = commander();
    unit.memory().write(DATA, &[1, 2, 3]).unwrap();
    let (counts, commands) = unit.call("f", &[map::COMMANDS, DATA, DATA + 8, 3, 2], 100).unwrap();
    let data = vec![1, 2, 3];
    let copy = Command { kind: CommandKind::Copy, source: DATA, destination: DATA + 8, data };
    assert_eq!(commands, [copy]);
    assert_eq!((counts.instructions, counts.stores, counts.cycles), (5, 4, 6), "four stores and a jump of two");
    assert_eq!(unit.memory().bytes(DATA + 8, 3).unwrap(), [1, 2, 3]);
    let (_, commands) = unit.call("f", &[map::COMMANDS, DATA + 7, 99, 2, 1], 100).unwrap();
    assert_eq!(commands, [Command { kind: CommandKind::Send, source: DATA + 7, destination: 99, data: vec![0, 1] }]);
}

#[test]
fn commands_that_mean_nothing_are_errors() {
    let call = |arguments: &[u32]| commander().call("f", arguments, 100).unwrap_err();
    assert_eq!(call(&[map::COMMANDS, DATA, DATA, 4, 3]), CallError::CommandKind(3));
    let nowhere = OutOfBounds { address: 8, bytes: 4 };
    assert_eq!(call(&[map::COMMANDS, 8, DATA, 4, 1]), CallError::Command(nowhere));
    assert_eq!(call(&[map::COMMANDS, DATA, 8, 4, 2]), CallError::Command(nowhere));
}

#[test]
fn what_stops_a_handler_is_said() {
    assert_eq!(unit(&[RET]).call("g", &[], 100).unwrap_err().to_string(), "the program has no function g");
    assert_eq!(unit(&[0x73, RET]).call("f", &[], 100), Err(CallError::Trap(map::PROGRAM + 4)));
    assert_eq!(unit(&[0x6f]).call("f", &[], 100), Err(CallError::Fault(Fault::CycleLimit { limit: 100 })));
}

#[test]
fn a_function_costs_what_it_costs_whatever_ran_before() {
    let mut unit = commander();
    let mut cost = || unit.call("f", &[DATA, 1, 2, 3, 4], 100).unwrap().0;
    assert_eq!(cost(), cost());
}

#[test]
fn a_program_that_does_not_fit_is_refused() {
    let segment = Segment { address: map::PROGRAM + map::PROGRAM_BYTES - 2, bytes: vec![0; 4], memory_bytes: 4 };
    let program = Program { entry: 0, segments: vec![segment], symbols: BTreeMap::new() };
    let expected = OutOfBounds { address: map::PROGRAM + map::PROGRAM_BYTES - 2, bytes: 4 };
    assert_eq!(Unit::new(&program, Timing::RI5CY).unwrap_err(), expected);
}

//! Ranks that die in the middle of a collective, at a byte that a seed chooses; and what many groups leave behind.
//!
//! A rank that must die runs in a process of its own, and lends memory of which one page cannot be used: the kernel kills
//! it where it touches that page. Copying in, reducing and copying out each use other bytes of the input and the output,
//! so that the page decides in which stage it dies. No time is measured: the survivors wait for minutes, so that only the
//! descriptor of the dead process can tell them.

use std::ops::Range;
use std::process::{Command, Output};

use tributary_local::{Description, Group, Kind, Lent, LocalError, Operands};
use tributary_numeric::{DType, ReduceOp};

use crate::hosts;
use crate::ranks::{PAGE, PATIENCE, join, leave_no_core, lent, name, together, with_trap};

/// What the process is to do that this program starts again.
const TASK: &str = "TRIBUTARY_TEST_TASK";
const RANKS: usize = 3;
const DOOMED: usize = 1;
/// Collectives that go well before the one in which the rank dies, so that all slots have been used.
const BEFORE: u32 = 4;

/// Runs a test of this file in a process of its own.
fn in_process(test: &str, task: &str) -> Output {
    let program = std::env::current_exe().unwrap();
    let words = ["--exact", "--ignored", "--nocapture", "--test-threads", "1"];
    Command::new(program).arg(format!("deaths::{test}")).args(words).env(TASK, task).output().unwrap()
}

/// What this process is to do, in words; none if a person runs all ignored tests.
fn task() -> Vec<String> {
    std::env::var(TASK).map(|task| task.split(' ').map(str::to_owned).collect()).unwrap_or_default()
}

/// Where the memory of the last collective cannot be used: a page of the input, or of the output.
#[derive(Clone, Copy, Debug)]
struct Trap {
    is_input: bool,
    page: usize,
}

fn description(elements: usize) -> Description {
    Description { kind: Kind::AllReduce, dtype: DType::I32, op: ReduceOp::Sum, elements }
}

fn all_reduce(group: &Group, elements: usize, input: Lent, output: Lent) -> Result<(), LocalError> {
    let operands = Operands { input, output, kept: 0..elements };
    group.submit(description(elements), operands, PATIENCE).unwrap().wait(PATIENCE).expect("it ends")
}

#[test]
#[ignore = "the process of a rank that dies, which other tests start"]
fn the_rank_that_dies() {
    let [name, elements, is_input, page] = &task()[..] else { return };
    let (elements, page) = (elements.parse::<usize>().unwrap(), page.parse().unwrap());
    let is_input = is_input == "input";
    leave_no_core();
    let group = join(name, DOOMED, RANKS);
    let bytes = 4 * elements;
    for _ in 0..BEFORE {
        all_reduce(&group, elements, with_trap(bytes, None), with_trap(bytes, None)).unwrap();
    }
    let trap = |is_here| with_trap(bytes, Some(page).filter(|_| is_here));
    let ended = all_reduce(&group, elements, trap(is_input), trap(!is_input));
    panic!("it should be dead: {ended:?}");
}

/// The survivors' collectives until one fails: how many went well, with the right sums.
fn survive(group: &Group, elements: usize) -> u32 {
    for number in 0.. {
        let mut memory: Vec<u8> = [1, 0, 0, 0].repeat(elements);
        let mut output = vec![0; 4 * elements];
        match all_reduce(group, elements, lent(&mut memory), lent(&mut output)) {
            Ok(()) => assert!(output.chunks(4).all(|sum| sum == [RANKS as u8, 0, 0, 0]), "a wrong sum"),
            Err(error) => {
                let expected = format!("rank {DOOMED} is gone: its process ended");
                assert!(matches!(&error, LocalError::Lost { missing, .. } if missing == &[DOOMED as u16]), "{error}");
                assert_eq!(error.to_string(), expected);
                return number;
            }
        }
    }
    unreachable!("a dead rank ends the group")
}

/// A rank dies at the trap; how many collectives went well on both others.
fn bereave(elements: usize, trap: Trap) -> [u32; 2] {
    let name = name();
    let operand = if trap.is_input { "input" } else { "output" };
    let task = format!("{name} {elements} {operand} {}", trap.page);
    std::thread::scope(|scope| {
        let doomed = scope.spawn(|| in_process("the_rank_that_dies", &task));
        let survivors = [0, 2].map(|rank| {
            let name = &name;
            scope.spawn(move || survive(&join(name, rank, RANKS), elements))
        });
        let ended = survivors.map(|survivor| survivor.join().unwrap());
        let doomed = doomed.join().unwrap();
        assert!(!doomed.status.success() && doomed.status.code().is_none(), "{doomed:?}");
        ended
    })
}

/// Draws pages of the operands, so that each stage of several chunks is hit.
fn traps(seed: u64, pages: Range<usize>) -> Vec<Trap> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize
    };
    (0..12).map(|index| Trap { is_input: index % 2 == 0, page: pages.start + next() % pages.len() }).collect()
}

#[test]
fn a_rank_killed_at_any_byte_is_named_and_no_sum_is_wrong() {
    let elements = 300_000;
    let pages = 0..(4 * elements) / PAGE;
    let mut outcomes = Vec::new();
    for trap in traps(43, pages) {
        let ended = bereave(elements, trap);
        // Survivors that need nothing more of it get the last sum, too; what was before the death is there.
        assert!(ended.iter().all(|well| (BEFORE..=BEFORE + 1).contains(well)), "{trap:?}: {ended:?}");
        outcomes.push(ended);
    }
    assert!(outcomes.contains(&[BEFORE; 2]), "no death was in the middle of a sum that others need: {outcomes:?}");
}

#[test]
fn a_rank_killed_in_a_small_sum_is_named_and_no_sum_is_wrong() {
    for is_input in [true, false] {
        let ended = bereave(10, Trap { is_input, page: 0 });
        // It dies before it has brought anything, or when it has brought everything.
        let well = if is_input { BEFORE } else { BEFORE + 1 };
        assert_eq!(ended, [well; 2], "input: {is_input}");
    }
}

/// What a process has: descriptors, threads, and mappings of groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Holdings {
    descriptors: usize,
    threads: usize,
    mappings: usize,
}

fn holdings() -> Holdings {
    let count = |path: &str| std::fs::read_dir(path).unwrap().count();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    Holdings {
        descriptors: count("/proc/self/fd"),
        threads: count("/proc/self/task"),
        mappings: maps.matches("memfd:tributary").count(),
    }
}

/// What is there when threads that have ended are gone, which the kernel does a moment later: as much as is expected, or
/// the same for a while.
fn at_rest(expected: Option<Holdings>) -> Holdings {
    let mut last = holdings();
    let mut alike = 0;
    for _ in 0..1000 {
        if expected == Some(last) || (expected.is_none() && alike == 20) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
        let now = holdings();
        alike = if now == last { alike + 1 } else { 0 };
        last = now;
    }
    last
}

/// KiB of memory that the process occupies.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// A group on one host with a thread of its own, and one that spans hosts.
fn make_groups() {
    together(2, |group| {
        group.go_on().unwrap();
        let mut memory = [1, 0, 0, 0].repeat(1000);
        let lent = lent(&mut memory);
        all_reduce(group, 1000, lent, lent).unwrap();
    });
    hosts::sum_once(&[0, 0, 1, 1]);
}

#[test]
#[ignore = "a process that makes groups, which other tests start"]
fn the_process_that_makes_groups() {
    let [count] = &task()[..] else { return };
    let count: u64 = count.parse().unwrap();
    let warm_up = 20;
    (0..warm_up).for_each(|_| make_groups());
    let (before, resident) = (at_rest(None), resident_kib());
    (0..count).for_each(|_| make_groups());
    assert_eq!(at_rest(Some(before)), before);
    // A group that left a page behind would show: the allocator's own noise is a few MiB, whatever the count.
    let more = resident_kib().saturating_sub(resident);
    assert!(more < 8192 + count / 2, "{more} KiB more after {count} groups of each kind");
    println!("{before:?}, {more} KiB more after {count} groups of each kind");
}

fn many_groups(count: u32) {
    let ran = in_process("the_process_that_makes_groups", &count.to_string());
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success() && said.contains("KiB more"), "{said}{}", String::from_utf8_lossy(&ran.stderr));
    println!("{said}");
}

#[test]
fn nothing_is_left_of_many_groups() {
    many_groups(100);
}

#[test]
#[ignore = "10,000 groups of each kind take minutes: `make test-long` runs it"]
fn nothing_is_left_of_ten_thousand_groups() {
    many_groups(10_000);
}

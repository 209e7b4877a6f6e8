//! The program of a switch is replaced while jobs run: the earlier one keeps its jobs, the next one begins all others.

use crate::harness::{MIB, TestSwitch, name, request};
use tributary_control::{Client, JoinRequest, Limits, Phase};
use tributary_proto::contract::ids::JobId;
use tributary_proto::contract::time::Span;
use tributary_proto::protocols;

/// A program that has jobs, and the one that takes over from it.
fn handed_over(memory_mib: u64, jobs: &[&str]) -> (TestSwitch, TestSwitch) {
    let (mut earlier, mut next) = (TestSwitch::new(memory_mib * MIB), TestSwitch::new(memory_mib * MIB));
    for job in jobs {
        earlier.start(job, 2, 1);
    }
    next.control.succeed(earlier.control.hand_over());
    earlier.carry_out();
    (earlier, next)
}

#[test]
fn jobs_run_on_and_ranks_that_wait_join_again() {
    let mut earlier = TestSwitch::new(64 * MIB);
    let plan = earlier.start("runs", 2, 1);
    let (forms, again) = (earlier.join("forms", request(0, 2, 1)), earlier.join("runs", request(0, 2, 9)));
    let succession = earlier.control.hand_over();
    earlier.carry_out();
    let late = earlier.join("late", request(0, 1, 1));
    for ticket in [forms, again, late] {
        assert_eq!(earlier.refusal(ticket).0, "handed_over");
    }
    earlier.pass(Span::from_millis(30_000), &[(&plan, &[0, 1])]);
    assert_eq!(earlier.phases(), [("runs".to_owned(), Phase::Running)]);
    let mut next = TestSwitch::new(64 * MIB);
    next.control.succeed(succession);
    assert!(next.phases().is_empty() && next.control.earlier_jobs().count() == 1);
    next.start("forms", 2, 1);
    earlier.leave(&plan, 0);
    earlier.leave(&plan, 1);
    assert!(earlier.phases().is_empty());
}

#[test]
fn ids_of_jobs_that_stay_behind_are_not_given_again_before_they_have_ended() {
    let (_earlier, mut next) = handed_over(64, &["a", "b"]);
    let mut given = Vec::new();
    for _ in 0..u16::MAX - 2 {
        let plan = next.start("c", 1, 1);
        given.push(plan.config.job);
        next.leave(&plan, 0);
    }
    assert_eq!(given[0], JobId(3));
    assert!(!given.contains(&JobId(1)) && !given.contains(&JobId(2)), "both still run");
    next.control.earlier_job_ended(JobId(1));
    assert_eq!(next.start("c", 1, 1).config.job, JobId(1));
}

#[test]
fn memory_of_jobs_that_stay_behind_is_in_use_until_they_have_ended() {
    let mut alone = TestSwitch::new(64 * MIB);
    let all = alone.start("new", 2, 1).slots;
    let needed = alone.control.memory_used();
    let (earlier, mut next) = handed_over(64, &["a"]);
    assert_eq!(next.control.memory_used(), earlier.control.memory_used());
    let limits = next.control.limits().clone();
    next.control.reload(Limits { memory_bytes: needed + needed / 2, ..limits });
    let less = next.start("less", 2, 1);
    assert!(less.slots < all, "{} of {all} slots beside the job that stays behind", less.slots);
    for rank in 0..2 {
        next.leave(&less, rank);
    }
    next.control.earlier_job_ended(JobId(1));
    assert_eq!(next.start("all", 2, 1).slots, all);
}

#[test]
fn jobs_that_stay_behind_do_not_grow_into_what_the_next_program_gives_away() {
    let protocol = protocols::ALL.iter().find(|protocol| protocol.resizes).expect("one of them does");
    let wish = |rank| JoinRequest {
        protocol,
        options: protocol.options.defaults(),
        suggested_slots: 4_096,
        ..request(rank, 1, 1)
    };
    let mut earlier = TestSwitch::new(MIB);
    let plans: Vec<_> = ["a", "b"].into_iter().map(|job| earlier.join(job, wish(0))).collect();
    let [first, second] = [0, 1].map(|job: usize| earlier.answer(plans[job]).unwrap());
    earlier.control.hand_over();
    let before = earlier.slots[&second.config.job];
    earlier.leave(&first, 0);
    assert_eq!(earlier.slots[&second.config.job], before);
}

#[test]
fn what_operators_have_done_holds_in_the_next_program() {
    let mut earlier = TestSwitch::new(64 * MIB);
    let guest = Client::at([10, 0, 0, 1].into());
    earlier.control.set_banned(guest.clone(), true);
    earlier.control.set_cordoned(true);
    let mut next = TestSwitch::new(64 * MIB);
    next.control.succeed(earlier.control.hand_over());
    assert!(next.control.is_cordoned() && next.control.banned().eq([&guest]));
}

#[test]
fn a_program_whose_next_one_has_failed_takes_joins_again() {
    let (mut earlier, _) = handed_over(64, &["a"]);
    earlier.control.take_back();
    earlier.start("b", 2, 1);
    assert!(earlier.control.jobs_named(&name("a")).is_ok());
}

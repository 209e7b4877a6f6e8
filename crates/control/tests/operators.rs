//! What operators do while a switch runs.

use crate::harness::{MIB, TestSwitch, name, request};
use tributary_control::{Client, Departed, End, Gone, JobEvent, JoinRequest, Phase};
use tributary_proto::contract::time::Span;

#[test]
fn a_cordoned_switch_begins_no_job_and_lets_those_go_on_that_are_there() {
    let mut switch = TestSwitch::new(64 * MIB);
    let running = switch.start("runs", 2, 1);
    let first = switch.join("forms", request(0, 2, 1));
    switch.control.set_cordoned(true);
    let new = switch.join("new", request(0, 1, 1));
    assert_eq!(switch.refusal(new).0, "cordoned");
    let again = switch.join("runs", request(0, 2, 9));
    assert_eq!(switch.refusal(again).0, "cordoned", "a restart of a job is a new job");
    let second = switch.join("forms", request(1, 2, 1));
    assert!(switch.answer(first).is_ok() && switch.answer(second).is_ok(), "it was there before");
    switch.pass(Span::from_millis(30_000), &[(&running, &[0, 1])]);
    assert!(switch.phases().contains(&("runs".to_owned(), Phase::Running)));
    switch.control.set_cordoned(false);
    let new = switch.join("new", request(0, 1, 1));
    assert!(switch.answer(new).is_ok());
}

#[test]
fn an_operator_ends_the_jobs_of_a_name_whether_they_run_or_form() {
    let mut switch = TestSwitch::new(64 * MIB);
    switch.start("runs", 2, 1);
    let waits = switch.join("forms", request(0, 2, 1));
    assert_eq!(switch.control.jobs_named(&name("nobody")).unwrap_err().code(), "unknown_job");
    for job in ["runs", "forms"] {
        assert!(switch.control.jobs_named(&name(job)).is_ok());
        switch.control.end_jobs(&name(job), "ops");
        switch.carry_out();
    }
    let (code, sentence) = switch.refusal(waits);
    assert_eq!((code.as_str(), sentence.as_str()), ("ended_by_operator", "operator 'ops' has ended job 'forms'"));
    assert!(switch.phases().is_empty() && switch.installed.is_empty());
    let events: Vec<JobEvent> = std::iter::from_fn(|| switch.control.poll_event()).collect();
    assert!(matches!(events.last(), Some(JobEvent::Ended { end: End::Operator, .. })), "{events:?}");
}

#[test]
fn an_evicted_member_is_lost_whatever_it_sends_and_the_others_learn_its_rank() {
    let mut switch = TestSwitch::new(64 * MIB);
    let plan = switch.start("a", 3, 1);
    assert_eq!(switch.control.evict(switch.now, &name("a"), 3).unwrap_err().code(), "no_member");
    assert_eq!(switch.control.evict(switch.now, &name("b"), 0).unwrap_err().code(), "unknown_job");
    switch.control.evict(switch.now, &name("a"), 1).unwrap();
    let gone = Departed { members: vec![Gone { rank: 1, completed: None }], ..Departed::default() };
    switch.pass(Span::from_millis(5_000), &[(&plan, &[0, 1, 2])]);
    assert_eq!(switch.control.gone(plan.config.job), Some(gone));
}

#[test]
fn a_banned_client_joins_nothing_and_its_jobs_go_on() {
    let of = |host, request: JoinRequest| JoinRequest { client: Client::at([10, 0, 0, host].into()), ..request };
    let mut switch = TestSwitch::new(64 * MIB);
    let ticket = switch.join("runs", of(1, request(0, 1, 1)));
    assert!(switch.answer(ticket).is_ok());
    switch.control.set_banned(Client::at([10, 0, 0, 1].into()), true);
    let ticket = switch.join("b", of(1, request(0, 2, 1)));
    let (code, sentence) = switch.refusal(ticket);
    assert!(code == "banned" && sentence.contains("10.0.0.1"), "{sentence}");
    let ticket = switch.join("b", of(2, request(0, 1, 1)));
    assert!(switch.answer(ticket).is_ok());
    assert_eq!(switch.phases().len(), 2);
    switch.control.set_banned(Client::at([10, 0, 0, 1].into()), false);
    let ticket = switch.join("c", of(1, request(0, 1, 1)));
    assert!(switch.answer(ticket).is_ok());
}

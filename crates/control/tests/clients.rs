//! What one client may take of a switch, and whose a job's name is.

use crate::harness::{MIB, TestSwitch, request};
use tributary_control::{Client, ClientLimits, JoinRequest, Limits};

fn tenant(name: &str) -> Client {
    Client::Tenant(name.into())
}

fn host(number: u8) -> Client {
    Client::at([10, 0, 0, number].into())
}

fn of(client: Client, request: JoinRequest) -> JoinRequest {
    JoinRequest { client, ..request }
}

#[test]
fn jobs_that_one_client_lets_form_leave_memory_for_those_of_others() {
    let share = ClientLimits { jobs: Some(3), ..ClientLimits::default() };
    let mut switch = TestSwitch::with(Limits { each_client: share, max_jobs: 8, ..Limits::new(64 * MIB, 2) });
    for (number, name) in ["a", "b", "c"].into_iter().enumerate() {
        let ticket = switch.join(name, of(host(1), request(0, 2, number as u64)));
        assert!(switch.waits(ticket));
    }
    let fourth = switch.join("d", of(host(1), request(0, 2, 9)));
    let (code, sentence) = switch.refusal(fourth);
    assert_eq!(code, "over_client_limit");
    assert!(sentence.contains("10.0.0.1") && sentence.contains("3 jobs at a time"), "{sentence}");
    // Another host may, also in a job of the first.
    let own = switch.join("d", of(host(2), request(0, 1, 11)));
    assert!(switch.answer(own).is_ok());
    let joins = switch.join("a", of(host(2), request(1, 2, 10)));
    assert!(switch.answer(joins).is_ok());
}

#[test]
fn a_client_s_memory_is_bounded_over_all_its_jobs_whatever_their_names() {
    let share = ClientLimits { memory_bytes: Some(MIB), ..ClientLimits::default() };
    let mut switch = TestSwitch::with(Limits { each_client: share, ..Limits::new(4 * MIB, 2) });
    let wish = |client, incarnation| JoinRequest { slots: Some(8_192), ..of(client, request(0, 1, incarnation)) };
    for (name, incarnation) in [("a", 1), ("b", 2), ("c", 3)] {
        switch.join(name, wish(host(1), incarnation));
    }
    assert!(switch.control.memory_used() <= MIB);
    let other = switch.join("d", wish(host(2), 4));
    assert!(switch.answer(other).unwrap().memory_bytes > MIB / 2);
}

#[test]
fn a_name_is_its_tenant_s_while_its_job_forms_or_runs() {
    let mut switch = TestSwitch::new(64 * MIB);
    let first = switch.join("a", of(tenant("x"), request(0, 2, 1)));
    for other in [tenant("y"), host(1)] {
        let refused = switch.join("a", of(other, request(1, 2, 2)));
        assert_eq!(switch.refusal(refused).0, "other_tenant");
    }
    let second = switch.join("a", of(tenant("x"), request(1, 2, 3)));
    assert!(switch.answer(first).is_ok() && switch.answer(second).is_ok());
    let takes = switch.join("a", of(tenant("y"), request(0, 2, 4)));
    assert_eq!(switch.refusal(takes).0, "other_tenant");
}

#[test]
fn a_member_keeps_four_connections_at_most() {
    let mut switch = TestSwitch::new(64 * MIB);
    let plan = switch.start("a", 2, 1);
    let mut open = 0;
    while switch.control.watch(&plan.name, plan.config.job, 0, plan.config.key).is_ok() {
        open += 1;
        assert!(open < 10);
    }
    assert!(open >= 2, "an old connection may stay behind");
    assert!(switch.control.watch(&plan.name, plan.config.job, 1, plan.config.key).is_ok(), "the other has its own");
}

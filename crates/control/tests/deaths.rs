//! How soon a death is known, in virtual time: a process that is killed closes its connection and sends nothing more. What its
//! job's ranks hear then, they are told at once. And what other jobs on the switch notice: nothing.

use crate::harness::{MIB, TestSwitch, request, secs};
use tributary_control::servers::ServerOffer;
use tributary_control::{Client, Gone, JoinRequest, MemberState, Phase};
use tributary_proto::contract::ids::ChildId;
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::contract::time::Span;
use tributary_proto::protocols;

/// From a death until the switch knows it. Ranks give up 0.3 s after that at the latest (`group/outlook.rs`), which leaves
/// half a second of the two for processes and packets.
const KNOWN: Span = Span::from_millis(1_100);

/// The protocols whose jobs can have servers on hosts of their own.
fn served() -> impl Iterator<Item = &'static Protocol> {
    protocols::ALL.iter().copied().filter(|protocol| protocol.server_machine().is_some())
}

fn server(number: u64) -> ServerOffer {
    let addr = format!("10.1.0.{number}:4242").parse().unwrap();
    ServerOffer {
        incarnation: 1_000 + number,
        addr,
        receive_buffer: 1 << 20,
        client: Client::at("10.1.0.0".parse().unwrap()),
    }
}

/// A job of three ranks, each of which listens for news.
fn start(switch: &mut TestSwitch, name: &str, protocol: &'static Protocol) -> std::sync::Arc<tributary_control::Plan> {
    let join = |rank| JoinRequest {
        protocol,
        options: protocol.options.defaults(),
        ..request(rank, 3, u64::from(name.as_bytes()[0]))
    };
    let tickets: Vec<_> = (0..3).map(|rank| switch.join(name, join(rank))).collect();
    let plan = switch.answer(tickets[0]).unwrap();
    for rank in 0..3 {
        switch.control.watch(&plan.name, plan.config.job, rank, plan.config.key).unwrap();
    }
    plan
}

fn phase(switch: &TestSwitch, name: &str) -> Phase {
    switch.phases().into_iter().find(|(job, _)| job == name).expect("the job").1
}

#[test]
fn a_worker_that_is_killed_is_known_by_its_rank_in_little_more_than_a_second_and_other_jobs_keep_what_they_have() {
    for protocol in protocols::ALL {
        let mut switch = TestSwitch::new(512 * MIB);
        let (doomed, other) = (start(&mut switch, "doomed", protocol), start(&mut switch, "other", protocol));
        switch.pass(secs(2.2), &[(&doomed, &[0, 1, 2]), (&other, &[0, 1, 2])]);
        let (slots, news) = (switch.slots[&other.config.job], switch.control.departures(other.config.job));
        switch.control.unwatch(switch.now, doomed.config.job, doomed.child_of(1).unwrap_or(ChildId(1)));
        switch.pass(KNOWN, &[(&doomed, &[0, 2]), (&other, &[0, 1, 2])]);
        let gone = switch.control.gone(doomed.config.job).unwrap();
        assert_eq!((gone.members, phase(&switch, "doomed")), (vec![Gone { rank: 1, completed: None }], Phase::Failed));
        assert_eq!(switch.control.departures(other.config.job), news, "{protocol}: others get no report");
        assert_eq!((switch.slots[&other.config.job], phase(&switch, "other")), (slots, Phase::Running), "{protocol}");
        // The ranks that know of it leave, and what the job had is free at once.
        [0, 2].into_iter().for_each(|rank| switch.leave(&doomed, rank));
        assert!(!switch.installed.contains_key(&doomed.config.job), "{protocol}");
        assert!(switch.installed.contains_key(&other.config.job), "{protocol}");
    }
}

#[test]
fn a_server_that_is_killed_is_known_by_number_and_address_in_little_more_than_a_second() {
    for protocol in served() {
        let mut switch = TestSwitch::new(512 * MIB);
        (1..=2).for_each(|number| switch.control.offer(switch.now, server(number)).unwrap());
        let plan = start(&mut switch, "doomed", protocol);
        assert_eq!(plan.servers.dedicated().len(), 2, "{protocol}");
        switch.pass(secs(0.4), &[(&plan, &[0, 1, 2])]);
        switch.control.close_offer(switch.now, server(2).incarnation);
        let end = switch.now + KNOWN;
        while switch.now < end {
            // The other server asks again every half a second.
            switch.control.close_offer(switch.now, server(1).incarnation);
            switch.control.offer(switch.now, server(1)).unwrap();
            switch.pass(Span::from_millis(100), &[(&plan, &[0, 1, 2])]);
        }
        let gone = switch.control.gone(plan.config.job).unwrap();
        let servers: Vec<_> = gone.servers.iter().map(|gone| (gone.server, gone.addr)).collect();
        assert_eq!(servers, [(1, server(2).addr)], "{protocol}");
        assert!(gone.members.is_empty() && phase(&switch, "doomed") == Phase::Failed, "{protocol}");
        let states: Vec<MemberState> = switch.control.server_views().into_iter().map(|offer| offer.state).collect();
        assert_eq!(states, [MemberState::Present, MemberState::Lost], "{protocol}");
    }
}

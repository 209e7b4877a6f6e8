//! Servers of a fabric's jobs in virtual time: one on a host, and a control plane that was started again finds those of running
//! jobs.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::harness::{MIB, TestSwitch, adopted, request, secs};
use tributary_control::servers::{ServerAddr, ServerOffer, Servers};
use tributary_control::{AdoptedJob, Client, JoinRequest, Limits, MemberState, Phase, Plan, Refusal};
use tributary_proto::contract::ids::ServerId;
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::protocols;

fn fabric() -> TestSwitch {
    TestSwitch::with(Limits { planned_trees: Some(2), ..Limits::new(64 * MIB, 1) })
}

/// The protocols whose jobs share a switch's memory and can have servers on hosts of their own.
fn served() -> impl Iterator<Item = &'static Protocol> {
    let shared = |protocol: &&'static Protocol| protocol.shared.as_ref().is_some_and(|shared| shared.server.is_some());
    protocols::ALL.iter().copied().filter(shared)
}

/// The server with this number, on a host of its own, at its port.
fn offer(number: u64, port: u16) -> ServerOffer {
    let addr: SocketAddr = format!("10.1.0.{number}:{port}").parse().unwrap();
    let incarnation = 1_000 * number + u64::from(port);
    ServerOffer { incarnation, addr, receive_buffer: 1 << 20, client: Client::at(addr.ip()) }
}

fn start(switch: &mut TestSwitch, protocol: &'static Protocol, job: &str) -> Arc<Plan> {
    let of = |rank| JoinRequest { protocol, options: protocol.options.defaults(), ..request(rank, 2, 1) };
    let tickets = [0, 1].map(|rank| switch.join(job, of(rank)));
    switch.answer(tickets[1]).unwrap()
}

#[test]
fn servers_on_offer_are_given_a_job_with_its_whole_window() {
    for protocol in served() {
        let mut switch = fabric();
        for number in [2, 1, 3] {
            switch.control.offer(switch.now, offer(number, 1)).unwrap();
        }
        let plan = start(&mut switch, protocol, "a");
        let addrs = plan.servers.dedicated().iter().map(|server| server.addr);
        assert!(addrs.eq([1, 2, 3].map(|number| offer(number, 1).addr)), "{protocol}");
        assert_eq!((plan.config.trees, plan.config.slots), (1, 64), "{protocol}");
        assert_eq!(switch.control.served_by(offer(2, 1).incarnation)[0].1, ServerId(1));
        switch.control.retire(switch.now, offer(2, 1).incarnation);
        let gone = switch.control.gone(plan.config.job).unwrap().servers;
        assert_eq!(gone, [ServerAddr { server: 1, addr: offer(2, 1).addr }], "{protocol}");
    }
}

#[test]
fn a_host_of_a_fabric_has_one_server_and_the_next_comes_when_it_has_ended() {
    let mut switch = fabric();
    let (first, second) = (offer(1, 1), offer(1, 2));
    switch.control.offer(switch.now, first.clone()).unwrap();
    let refused = switch.control.offer(switch.now, second.clone()).unwrap_err();
    assert_eq!((refused.code(), &refused), ("host_serves", &Refusal::HostServes { at: first.addr }));
    switch.control.offer(switch.now, offer(2, 2)).unwrap();
    // Between two questions a server has no connection; soon after that it makes way, though it might have come back.
    switch.control.close_offer(switch.now, first.incarnation);
    assert_eq!(switch.control.offer(switch.now, second.clone()), Err(Refusal::HostServes { at: first.addr }));
    switch.pass(secs(0.2), &[]);
    switch.control.offer(switch.now, second.clone()).unwrap();
    let present: Vec<SocketAddr> = switch.control.server_views().iter().map(|offer| offer.addr).collect();
    assert_eq!(present, [second.addr, offer(2, 2).addr]);
    // Beside a switch that stands alone as many may be on a host as like.
    let mut star = TestSwitch::new(MIB);
    star.control.offer(star.now, first).unwrap();
    star.control.offer(star.now, second).unwrap();
}

#[test]
fn a_control_plane_that_was_started_again_knows_a_jobs_servers_and_waits_a_lease_for_them() {
    for protocol in served() {
        let mut before = fabric();
        [1, 2].iter().for_each(|&number| before.control.offer(before.now, offer(number, 1)).unwrap());
        let plan = start(&mut before, protocol, "a");
        let mut switch = fabric();
        let servers = plan.servers.dedicated().to_vec();
        switch.control.adopt(switch.now, AdoptedJob { servers, ..adopted(&plan) });
        switch.installed.insert(plan.config.job, plan.clone());
        let id = plan.config.job;
        assert!(switch.control.gone(id).unwrap().is_empty());
        // One asks again, and learns of its job; the other one died meanwhile.
        switch.control.offer(switch.now, offer(2, 1)).unwrap();
        assert_eq!(switch.control.served_by(offer(2, 1).incarnation)[0].1, ServerId(1), "{protocol}");
        // A job that comes now gets the one that is known to be there.
        let next = start(&mut switch, protocol, "b");
        assert!(next.servers.dedicated().iter().map(|server| server.addr).eq([offer(2, 1).addr]), "{protocol}");
        let lease = switch.timers().lease;
        let until = switch.now + lease + secs(1.0);
        while switch.now < until {
            switch.pass(secs(1.0), &[(&plan, &[0, 1]), (&next, &[0, 1])]);
            switch.control.close_offer(switch.now, offer(2, 1).incarnation);
            switch.control.offer(switch.now, offer(2, 1)).unwrap();
        }
        let gone = switch.control.gone(id).unwrap().servers;
        assert_eq!(gone, [ServerAddr { server: 0, addr: offer(1, 1).addr }], "{protocol}");
        let phases: Vec<Phase> = switch.phases().into_iter().map(|(_, phase)| phase).collect();
        assert_eq!(phases, [Phase::Failed, Phase::Running], "{protocol}");
        let states: Vec<MemberState> = switch.control.server_views().iter().map(|offer| offer.state).collect();
        assert_eq!(states, [MemberState::Lost, MemberState::Present], "{protocol}");
    }
}

#[test]
fn without_servers_on_offer_ranks_serve_by_themselves() {
    for protocol in served() {
        let mut switch = fabric();
        assert_eq!(start(&mut switch, protocol, "a").servers, Servers::None, "{protocol}");
    }
}

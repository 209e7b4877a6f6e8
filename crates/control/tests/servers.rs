//! Servers in virtual time: who is given which job, and what is said when one is gone.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::harness::{MIB, TestSwitch, request, secs};
use tributary_control::servers::{ServerAddr, ServerOffer, Servers};
use tributary_control::{Client, Control, JoinRequest, Limits, MemberState, Phase, Plan, Refusal};
use tributary_proto::contract::ids::ServerId;
use tributary_proto::contract::time::Span;
use tributary_proto::protocols;

/// One second of silence behind a closed connection.
const SOON: Span = Span::from_millis(1_100);

fn addr(number: u64) -> SocketAddr {
    format!("10.1.0.{number}:4242").parse().unwrap()
}

fn client() -> Client {
    Client::at("10.1.0.0".parse().unwrap())
}

fn offer(number: u64) -> ServerOffer {
    ServerOffer { incarnation: 1_000 + number, addr: addr(number), receive_buffer: 1 << 20, client: client() }
}

/// A server opens its connection; the last one is closed meanwhile.
fn ask(switch: &mut TestSwitch, number: u64) {
    switch.control.close_offer(switch.now, offer(number).incarnation);
    switch.control.offer(switch.now, offer(number)).unwrap();
    switch.carry_out();
}

fn of_servers(rank: u16, world_size: u16, incarnation: u64) -> JoinRequest {
    let protocol = protocols::named("ps").unwrap();
    JoinRequest { protocol, options: protocol.options.defaults(), ..request(rank, world_size, incarnation) }
}

fn start(switch: &mut TestSwitch, job: &str, ranks: u16, incarnation: u64) -> Arc<Plan> {
    let tickets: Vec<_> = (0..ranks).map(|rank| switch.join(job, of_servers(rank, ranks, incarnation))).collect();
    switch.answer(tickets[0]).unwrap()
}

fn served(switch: &TestSwitch, number: u64) -> Vec<(String, ServerId)> {
    let jobs = switch.control.served_by(offer(number).incarnation);
    jobs.into_iter().map(|(plan, server)| (plan.name.to_string(), server)).collect()
}

fn changes(switch: &TestSwitch, number: u64) -> Option<u64> {
    switch.control.server_changes(offer(number).incarnation)
}

/// Lets time pass; members live, and these servers ask again every 500 ms.
fn pass(switch: &mut TestSwitch, span: Span, plan: &Plan, servers: &[u64]) {
    let end = switch.now + span;
    let ranks: Vec<u16> = (0..plan.config.world_size).collect();
    while switch.now < end {
        switch.pass(Span::from_millis(500), &[(plan, &ranks)]);
        servers.iter().for_each(|&server| ask(switch, server));
    }
}

#[test]
fn all_servers_on_offer_share_a_jobs_slots_and_are_given_the_job() {
    let mut switch = TestSwitch::new(MIB);
    for number in [2, 1, 3] {
        ask(&mut switch, number);
    }
    let before = changes(&switch, 1);
    let plan = start(&mut switch, "a", 4, 1);
    let addrs: Vec<SocketAddr> = plan.servers.dedicated().iter().map(|server| server.addr).collect();
    assert_eq!(addrs, [addr(1), addr(2), addr(3)]);
    assert_eq!((plan.config.trees, plan.config.slots % 3), (3, 0));
    assert_eq!(served(&switch, 2), [("a".to_string(), ServerId(1))]);
    assert_ne!(changes(&switch, 1), before, "it learns of its job");
    start(&mut switch, "b", 2, 1);
    assert_eq!(served(&switch, 3).len(), 2, "a server has many jobs at once");

    let before = changes(&switch, 3);
    (0..4).for_each(|rank| switch.leave(&plan, rank));
    assert_eq!(served(&switch, 3), [("b".to_string(), ServerId(2))]);
    assert_ne!(changes(&switch, 3), before, "it learns that a job is over");
}

#[test]
fn with_none_on_offer_each_worker_is_a_server_besides() {
    let mut switch = TestSwitch::new(MIB);
    let plan = start(&mut switch, "a", 3, 1);
    assert_eq!(plan.servers, Servers::Colocated);
    assert_eq!((plan.config.trees, plan.config.slots % 3), (3, 0));
    // Who comes later serves later jobs only.
    ask(&mut switch, 1);
    assert_eq!(served(&switch, 1), []);
    let others = switch.start("b", 2, 1);
    assert_eq!((others.servers.clone(), others.config.trees), (Servers::None, 2), "other protocols have no servers");
}

#[test]
fn a_server_whose_connection_closes_is_reported_to_the_members_by_number_and_address() {
    let mut switch = TestSwitch::new(MIB);
    [1, 2].iter().for_each(|&number| ask(&mut switch, number));
    let plan = start(&mut switch, "a", 2, 1);
    switch.control.close_offer(switch.now, offer(2).incarnation);
    pass(&mut switch, Span::from_millis(500), &plan, &[1]);
    assert!(switch.control.gone(plan.config.job).unwrap().is_empty(), "it may ask again");
    pass(&mut switch, SOON, &plan, &[1]);
    let gone = switch.control.gone(plan.config.job).unwrap();
    assert_eq!((gone.servers, gone.members.len()), (vec![ServerAddr { server: 1, addr: addr(2) }], 0));
    assert_eq!(switch.phases(), [("a".to_string(), Phase::Failed)]);
    let states: Vec<MemberState> = switch.control.server_views().into_iter().map(|offer| offer.state).collect();
    assert_eq!(states, [MemberState::Present, MemberState::Lost]);

    let grace = switch.timers().grace;
    pass(&mut switch, grace + SOON, &plan, &[1]);
    assert_eq!(switch.phases(), [], "a job without its sums is removed after the grace period");
    assert_eq!(switch.control.server_views().len(), 1, "and so is what is known of the lost server");
}

#[test]
fn a_server_that_comes_back_in_time_is_the_same_and_one_that_was_started_again_is_not() {
    let mut switch = TestSwitch::new(MIB);
    ask(&mut switch, 1);
    let plan = start(&mut switch, "a", 2, 1);
    switch.control.close_offer(switch.now, offer(1).incarnation);
    pass(&mut switch, SOON, &plan, &[]);
    assert_eq!(switch.control.gone(plan.config.job).unwrap().servers.len(), 1);
    ask(&mut switch, 1);
    assert!(switch.control.gone(plan.config.job).unwrap().is_empty());
    assert_eq!(served(&switch, 1).len(), 1);

    let successor = ServerOffer { incarnation: 7, ..offer(1) };
    switch.control.offer(switch.now, successor).unwrap();
    assert_eq!(switch.control.gone(plan.config.job).unwrap().servers.len(), 1, "its sums died with it");
    assert_eq!(switch.control.served_by(7).len(), 0);
    let next = start(&mut switch, "b", 2, 1);
    assert_eq!(next.servers.dedicated().iter().map(|server| server.incarnation).collect::<Vec<_>>(), [Some(7)]);
}

#[test]
fn a_server_on_a_host_that_vanished_is_lost_by_the_lease() {
    let mut switch = TestSwitch::new(MIB);
    ask(&mut switch, 1);
    switch.pass(switch.timers().lease - secs(0.1), &[]);
    assert!(changes(&switch, 1).is_some());
    switch.pass(secs(0.2), &[]);
    assert_eq!(changes(&switch, 1), None, "although its connection was never closed");
    assert_eq!(switch.control.server_views(), []);
}

#[test]
fn a_server_that_ends_in_good_order_is_gone_at_once() {
    let mut switch = TestSwitch::new(MIB);
    [1, 2].iter().for_each(|&number| ask(&mut switch, number));
    let plan = start(&mut switch, "a", 2, 1);
    switch.control.retire(switch.now, offer(1).incarnation);
    assert_eq!(switch.control.gone(plan.config.job).unwrap().servers, [ServerAddr { server: 0, addr: addr(1) }]);
    assert_eq!(start(&mut switch, "b", 2, 1).config.trees, 1);
}

#[test]
fn a_request_that_a_server_sent_before_it_ended_is_not_a_new_offer() {
    let mut switch = TestSwitch::new(MIB);
    ask(&mut switch, 1);
    switch.control.retire(switch.now, offer(1).incarnation);
    assert_eq!(switch.control.offer(switch.now, offer(1)), Err(Refusal::OfferOver));
    assert_eq!(start(&mut switch, "a", 2, 1).servers, Servers::Colocated, "no job is given a server that has ended");
    switch.control.offer(switch.now, ServerOffer { incarnation: 7, ..offer(1) }).unwrap();
    assert_eq!(switch.control.server_views().len(), 1, "another process at its address is another server");
}

#[test]
fn a_job_whose_server_is_gone_gives_its_name_to_the_next() {
    let mut switch = TestSwitch::new(MIB);
    ask(&mut switch, 1);
    start(&mut switch, "a", 2, 1);
    switch.control.retire(switch.now, offer(1).incarnation);
    let next = start(&mut switch, "a", 2, 2);
    assert_eq!(next.servers, Servers::Colocated);
}

#[test]
fn servers_offer_themselves_where_jobs_are_formed() {
    let mut below = Control::with_parent(Limits::new(MIB, 1));
    let refused = below.offer(Default::default(), offer(1)).unwrap_err();
    assert_eq!((refused.code(), &refused), ("offer_below", &Refusal::OfferBelow));
    let mut switch = TestSwitch::new(MIB);
    for number in 0..Control::MAX_SERVERS as u64 {
        let addr: SocketAddr = format!("10.2.{}.{}:1", number / 256, number % 256).parse().unwrap();
        // Four clients with as many as one may have.
        let client = Client::at([10, 2, (number / 256) as u8, 0].into());
        let server = ServerOffer { incarnation: number, addr, receive_buffer: 0, client };
        switch.control.offer(switch.now, server).unwrap();
    }
    let one_more = switch.control.offer(switch.now, ServerOffer { incarnation: 99_999, ..offer(250) });
    assert_eq!(one_more.unwrap_err().code(), "too_many_servers");
    switch.control.stop();
    assert_eq!(switch.control.offer(switch.now, offer(1)).unwrap_err(), Refusal::Stopping);
}

#[test]
fn a_tenants_jobs_get_its_own_servers_only() {
    let mut switch = TestSwitch::new(MIB);
    let of = |number: u64, tenant: &str| ServerOffer { client: Client::Tenant(tenant.into()), ..offer(number) };
    switch.control.offer(switch.now, of(1, "a")).unwrap();
    switch.control.offer(switch.now, of(2, "b")).unwrap();
    let mut start = |job: &str, tenant: &str| {
        let ticket = switch.join(job, JoinRequest { client: Client::Tenant(tenant.into()), ..of_servers(0, 1, 1) });
        switch.answer(ticket).unwrap().servers.dedicated().iter().map(|server| server.addr).collect::<Vec<_>>()
    };
    assert_eq!(start("one", "a"), [addr(1)]);
    assert_eq!(start("two", "b"), [addr(2)]);
    assert_eq!(start("three", "c"), [], "its worker serves itself");
}

fn of_tenant(number: u64) -> ServerOffer {
    ServerOffer { client: Client::Tenant("a".into()), ..offer(number) }
}

#[test]
fn servers_for_everybody_are_on_the_switch_s_machine_or_where_its_operator_says() {
    let named = Limits { servers: vec!["10.1.0.0/24".parse().unwrap()], ..Limits::new(MIB, 2) };
    let (strict, lenient) = (TestSwitch::new(MIB).control, TestSwitch::with(named).control);
    let at = |text: &str| text.parse().unwrap();
    let own = at("10.0.0.1");
    let receives_at = |text: &str| ServerOffer { addr: format!("{text}:4242").parse().unwrap(), ..offer(1) };
    let may = |control: &Control, from, to| control.may_serve(&receives_at(to), at(from), own).is_ok();
    for addr in ["10.0.0.1", "127.0.0.1", "127.9.9.9"] {
        assert!(may(&strict, addr, addr), "its own host: {addr}");
    }
    assert!(may(&lenient, "10.1.0.1", "10.1.0.1") && may(&lenient, "10.1.0.1", "10.0.0.1"));
    for (from, to) in [("10.1.0.1", "10.1.0.1"), ("10.0.0.1", "10.1.0.1"), ("10.1.0.1", "10.0.0.1")] {
        assert!(!may(&strict, from, to), "from {from} at {to}");
    }
    assert!(!may(&lenient, "10.2.0.1", "10.1.0.1") && !may(&lenient, "10.1.0.1", "10.2.0.1"));
    let refusal = strict.may_serve(&offer(1), at("10.1.0.9"), own).unwrap_err();
    assert!(refusal.to_string().contains("--servers 10.1.0.9"), "{refusal}");
    assert!(strict.may_serve(&of_tenant(1), at("10.2.0.1"), own).is_ok(), "a tenant's serve that tenant alone");
}

#[test]
fn one_client_does_not_offer_all_servers_that_a_switch_knows() {
    let mut switch = TestSwitch::new(MIB);
    for number in 0..=Control::MAX_SERVERS_OF_A_CLIENT as u16 {
        let at = SocketAddr::new(addr(1).ip(), 1_000 + number);
        let incarnation = 10_000 + u64::from(number);
        let offered = switch.control.offer(switch.now, ServerOffer { incarnation, addr: at, ..offer(1) });
        let fits = usize::from(number) < Control::MAX_SERVERS_OF_A_CLIENT;
        assert_eq!(offered.is_ok(), fits, "{number}: {offered:?}");
    }
    assert_eq!(switch.control.offer(switch.now, of_tenant(2)), Ok(()));
}

#[test]
fn a_host_with_a_server_of_a_running_job_is_let_in_among_the_members() {
    let mut switch = TestSwitch::new(MIB);
    ask(&mut switch, 9);
    let is_let_in = |switch: &TestSwitch| switch.control.has_members_at(addr(9).ip());
    assert!(!is_let_in(&switch), "it serves nobody yet");
    let plan = start(&mut switch, "a", 2, 1);
    assert!(is_let_in(&switch));
    (0..2).for_each(|rank| switch.leave(&plan, rank));
    assert!(!is_let_in(&switch));
}

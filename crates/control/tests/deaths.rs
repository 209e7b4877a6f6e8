//! How soon a death is known, in virtual time: a process that is killed closes its connection and sends nothing more. What its
//! job's ranks hear then, they are told at once. And what other jobs on the switch notice: nothing.

use crate::harness::{MIB, World, request, secs};
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
fn start(world: &mut World, name: &str, protocol: &'static Protocol) -> std::sync::Arc<tributary_control::Plan> {
    let asked = |rank| JoinRequest {
        protocol,
        options: protocol.options.defaults(),
        ..request(rank, 3, u64::from(name.as_bytes()[0]))
    };
    let tickets: Vec<_> = (0..3).map(|rank| world.join(name, asked(rank))).collect();
    let plan = world.answer(tickets[0]).unwrap();
    for rank in 0..3 {
        world.control.watch(&plan.name, plan.config.job, rank, plan.config.key).unwrap();
    }
    plan
}

fn phase(world: &World, name: &str) -> Phase {
    world.phases().into_iter().find(|(job, _)| job == name).expect("the job").1
}

#[test]
fn a_worker_that_is_killed_is_known_by_its_rank_in_little_more_than_a_second_and_other_jobs_keep_what_they_have() {
    for protocol in protocols::ALL {
        let mut world = World::new(512 * MIB);
        let (doomed, other) = (start(&mut world, "doomed", protocol), start(&mut world, "other", protocol));
        world.pass(secs(2.2), &[(&doomed, &[0, 1, 2]), (&other, &[0, 1, 2])]);
        let (slots, news) = (world.slots[&other.config.job], world.control.departures(other.config.job));
        world.control.unwatch(world.now, doomed.config.job, doomed.child_of(1).unwrap_or(ChildId(1)));
        world.pass(KNOWN, &[(&doomed, &[0, 2]), (&other, &[0, 1, 2])]);
        let gone = world.control.gone(doomed.config.job).unwrap();
        assert_eq!((gone.members, phase(&world, "doomed")), (vec![Gone { rank: 1, left: false }], Phase::Failed));
        assert_eq!(world.control.departures(other.config.job), news, "{protocol}: nothing is told to others");
        assert_eq!((world.slots[&other.config.job], phase(&world, "other")), (slots, Phase::Running), "{protocol}");
        // The ranks that were told leave, and what the job had is free at once.
        [0, 2].into_iter().for_each(|rank| world.leave(&doomed, rank));
        assert!(!world.installed.contains_key(&doomed.config.job), "{protocol}");
        assert!(world.installed.contains_key(&other.config.job), "{protocol}");
    }
}

#[test]
fn a_server_that_is_killed_is_known_by_number_and_address_in_little_more_than_a_second() {
    for protocol in served() {
        let mut world = World::new(512 * MIB);
        (1..=2).for_each(|number| world.control.offer(world.now, server(number)).unwrap());
        let plan = start(&mut world, "doomed", protocol);
        assert_eq!(plan.servers.dedicated().len(), 2, "{protocol}");
        world.pass(secs(0.4), &[(&plan, &[0, 1, 2])]);
        world.control.close_offer(world.now, server(2).incarnation);
        let end = world.now + KNOWN;
        while world.now < end {
            // The other server asks again every half a second.
            world.control.close_offer(world.now, server(1).incarnation);
            world.control.offer(world.now, server(1)).unwrap();
            world.pass(Span::from_millis(100), &[(&plan, &[0, 1, 2])]);
        }
        let gone = world.control.gone(plan.config.job).unwrap();
        let places: Vec<_> = gone.servers.iter().map(|place| (place.server, place.addr)).collect();
        assert_eq!(places, [(1, server(2).addr)], "{protocol}");
        assert!(gone.members.is_empty() && phase(&world, "doomed") == Phase::Failed, "{protocol}");
        let states: Vec<MemberState> = world.control.server_views().into_iter().map(|offer| offer.state).collect();
        assert_eq!(states, [MemberState::Present, MemberState::Lost], "{protocol}");
    }
}

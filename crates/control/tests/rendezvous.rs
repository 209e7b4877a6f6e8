//! How ranks come together, and what they hear when they cannot.

use crate::harness::{MIB, World, name, request, secs};
use tributary_control::{JoinRequest, Limits, Phase, Quota};
use tributary_proto::contract::ids::{JobId, JobKey};
use tributary_proto::contract::time::Span;
use tributary_proto::protocols;

/// How a test's request differs from the usual one.
type Change = fn(&mut JoinRequest);

#[test]
fn nobody_is_answered_before_the_last_rank_came() {
    let mut world = World::new(64 * MIB);
    let early = [0, 2].map(|rank| world.join("a", request(rank, 3, 1)));
    assert!(early.iter().all(|&ticket| world.waits(ticket)));
    assert_eq!(world.control.jobs()[0].missing, [1]);
    let last = world.join("a", request(1, 3, 1));
    let plan = world.answer(last).unwrap();
    assert!(early.iter().all(|&ticket| world.answer(ticket).as_ref() == Ok(&plan)));
    assert_eq!(plan.workers, [0, 1, 2].map(|rank| request(rank, 3, 1).addr), "by rank, not by arrival");
    assert_eq!(world.phases(), [("a".into(), Phase::Running)]);
}

#[test]
fn a_job_gets_the_fewest_elements_and_the_most_slots_that_any_rank_names() {
    let cases: [(Change, u16, u16); 4] = [
        (|_| (), 64, 360),
        (|r| r.max_elements_per_packet = 256 + 8 * r.rank, 64, 256),
        (|r| r.suggested_slots = 64 << r.rank, 256, 360),
        (|r| (r.slots, r.elements_per_packet) = ((r.rank == 1).then_some(16), (r.rank == 2).then_some(64)), 16, 64),
    ];
    for (wish, slots, elements) in cases {
        let mut world = World::new(64 * MIB);
        let tickets = [0, 1, 2].map(|rank| {
            let mut request = request(rank, 3, 1);
            wish(&mut request);
            world.join("a", request)
        });
        let config = &world.answer(tickets[0]).unwrap().config;
        assert_eq!((config.slots, config.elements_per_packet, config.trees), (slots, elements, 2));
    }
}

#[test]
fn who_is_missing_is_named_when_time_is_over() {
    let mut world = World::new(64 * MIB);
    let tickets = [0, 1, 2].map(|rank| world.join("a", request(rank, 4, 1)));
    world.pass(secs(30.0), &[]);
    for ticket in tickets {
        let (code, sentence) = world.refusal(ticket);
        assert_eq!(code, "rendezvous_timeout");
        assert!(sentence.starts_with("rank 3 of 4 did not come within 30 s (job 'a')"), "{sentence}");
    }
    assert_eq!(world.phases(), []);
    assert_eq!(world.control.poll_timeout(), None);
}

#[test]
fn the_most_impatient_rank_ends_the_wait_for_all() {
    let mut world = World::new(64 * MIB);
    let patient = world.join("a", request(0, 3, 1));
    world.pass(secs(3.0), &[]);
    let hasty = world.join("a", JoinRequest { timeout: secs(2.0), ..request(1, 3, 1) });
    world.pass(secs(1.9), &[]);
    assert!(world.waits(patient) && world.waits(hasty));
    world.pass(secs(0.1), &[]);
    assert!(world.refusal(patient).1.contains("within 2 s"));
    assert_eq!(world.refusal(patient), world.refusal(hasty));
}

#[test]
fn a_difference_is_told_to_every_rank_with_who_says_what() {
    let cases: [(Change, &str); 4] = [
        (|r| r.world_size = 5, "the world size: ranks 0, 1 say 4; rank 2 says 5"),
        (|r| r.protocol = protocols::named("ring").unwrap(), "the protocol: ranks 0, 1 say switchml; rank 2 says ring"),
        (|r| r.slots = Some(32), "the number of slots: ranks 0, 1 say 16; rank 2 says 32"),
        (|r| r.elements_per_packet = Some(64), "the elements per packet: ranks 0, 1 say 256; rank 2 says 64"),
    ];
    for (differ, sentence) in cases {
        let mut world = World::new(64 * MIB);
        let mut tickets = Vec::new();
        for rank in [0, 1, 2] {
            let mut request = JoinRequest { slots: Some(16), elements_per_packet: Some(256), ..request(rank, 4, 1) };
            if rank == 2 {
                differ(&mut request);
            }
            tickets.push(world.join("a", request));
        }
        // Rank 3 comes late to the quarrel, and hears of it instead of waiting for the others in vain.
        tickets.push(world.join("a", request(3, 4, 1)));
        for ticket in tickets {
            let (code, said) = world.refusal(ticket);
            assert_eq!(code, "disagreement");
            assert!(said.contains(sentence), "{said}");
        }
        assert_eq!(world.phases(), []);
    }
}

#[test]
fn a_new_attempt_after_a_difference_starts_afresh() {
    let mut world = World::new(64 * MIB);
    world.join("a", request(0, 3, 1));
    world.join("a", request(1, 2, 1));
    // Both were told; when one of them comes again it is a new attempt, and the late rank belongs to it.
    for rank in [0, 2, 1] {
        world.join("a", request(rank, 3, 2));
    }
    assert_eq!(world.phases(), [("a".into(), Phase::Running)]);

    let mut world = World::new(64 * MIB);
    world.join("a", request(0, 3, 1));
    world.join("a", request(1, 2, 1));
    world.pass(secs(5.0), &[]);
    let late = world.join("a", request(2, 3, 1));
    assert!(world.waits(late), "a quarrel is forgotten after a while");
}

#[test]
fn a_path_that_is_too_narrow_for_the_wish_is_named_to_all() {
    let mut world = World::new(64 * MIB);
    let wish = world.join("a", JoinRequest { elements_per_packet: Some(256), ..request(0, 3, 1) });
    let narrow = world.join("a", JoinRequest { max_elements_per_packet: 128, ..request(1, 3, 1) });
    for ticket in [wish, narrow] {
        let (code, sentence) = world.refusal(ticket);
        assert_eq!(code, "path_too_narrow");
        assert!(sentence.contains("rank 1's path") && sentence.contains("128 elements"), "{sentence}");
    }
}

#[test]
fn requests_that_make_no_sense_are_refused_and_disturb_nothing() {
    let cases: [(Change, &str); 8] = [
        (|r| r.world_size = 0, "bad_world_size"),
        (|r| r.world_size = 16_385, "bad_world_size"),
        (|r| r.rank = 4, "bad_rank"),
        (|r| r.max_elements_per_packet = 0, "bad_elements_per_packet"),
        (|r| r.elements_per_packet = Some(0), "bad_elements_per_packet"),
        (|r| r.elements_per_packet = Some(16_129), "bad_elements_per_packet"),
        (|r| r.slots = Some(0), "bad_slots"),
        (|r| r.slots = Some(u16::MAX), "bad_slots"),
    ];
    let mut world = World::new(64 * MIB);
    let waiting = world.join("a", request(0, 4, 1));
    for (spoil, code) in cases {
        let mut request = request(1, 4, 1);
        spoil(&mut request);
        let ticket = world.join("a", request);
        assert_eq!(world.refusal(ticket).0, code);
    }
    assert!(world.waits(waiting));
}

#[test]
fn a_second_process_for_a_waiting_rank_is_refused_and_the_first_undisturbed() {
    let mut world = World::new(64 * MIB);
    let first = world.join("a", request(0, 2, 1));
    // Not even with another world size does it disturb.
    for second in [request(0, 2, 2), request(0, 7, 2)] {
        let second = world.join("a", second);
        let (code, sentence) = world.refusal(second);
        assert_eq!(code, "rank_taken");
        assert!(sentence.contains("rank 0 of job 'a'") && sentence.contains("10.0.0.1:5001"), "{sentence}");
    }
    let other = world.join("a", request(1, 2, 1));
    assert_eq!(world.answer(first), world.answer(other));
}

#[test]
fn a_process_that_asks_again_replaces_its_own_request() {
    let mut world = World::new(64 * MIB);
    let lost = world.join("a", request(0, 2, 1));
    let again = world.join("a", JoinRequest { addr: "10.0.0.1:7777".parse().unwrap(), ..request(0, 2, 1) });
    assert_eq!(world.refusal(lost).0, "newer_request");
    world.join("a", request(1, 2, 1));
    assert_eq!(world.answer(again).unwrap().workers[0].port(), 7777);
}

#[test]
fn a_process_may_ask_again_with_another_world_size_while_its_job_waits_for_memory() {
    let wish = |rank, world| JoinRequest { slots: Some(256), ..request(rank, world, 1) };
    let mut world = World::new(MIB);
    let tickets = [0, 1].map(|rank| world.join("a", wish(rank, 2)));
    let old = world.answer(tickets[0]).unwrap();
    world.leave(&old, 0);
    let alone = world.join("a", wish(0, 1));
    assert!(world.waits(alone), "rank 1 of the old job may give its slots back in a moment");
    let again = world.join("a", wish(0, 2));
    assert_eq!(world.refusal(alone).0, "newer_request");
    world.pass(secs(29.9), &[(&old, &[1])]);
    assert!(world.waits(again), "rank 1 may still come");
    world.pass(secs(0.1), &[(&old, &[1])]);
    assert_eq!(world.refusal(again).0, "rendezvous_timeout");
}

#[test]
fn a_rank_whose_process_went_away_while_waiting_may_come_anew() {
    let mut world = World::new(64 * MIB);
    let dead = world.join("a", request(0, 2, 1));
    world.withdraw(dead);
    assert_eq!(world.phases(), [], "a job without ranks is none");
    let anew = world.join("a", request(0, 2, 2));
    world.join("a", request(1, 2, 2));
    assert!(world.answer(anew).is_ok());
    assert!(world.waits(dead), "who went away is not answered");
}

#[test]
fn two_ranks_cannot_share_a_socket() {
    let mut world = World::new(64 * MIB);
    let first = world.join("a", request(0, 3, 1));
    let second = world.join("a", JoinRequest { addr: request(0, 3, 1).addr, ..request(1, 3, 1) });
    assert_eq!(world.refusal(second).0, "address_taken");
    assert!(world.waits(first));
}

#[test]
fn jobs_have_their_own_ids_and_keys_and_an_id_does_not_come_back_soon() {
    let mut world = World::new(64 * MIB);
    let (a, b) = (world.start("a", 2, 1), world.start("b", 2, 1));
    assert_ne!(a.config.job, b.config.job);
    assert_ne!(a.config.key, b.config.key);
    for rank in [0, 1] {
        world.leave(&a, rank);
    }
    let mut seen = vec![a.config.job, b.config.job];
    for incarnation in 2..100 {
        let plan = world.start("a", 1, incarnation);
        assert!(!seen.contains(&plan.config.job));
        seen.push(plan.config.job);
        world.leave(&plan, 0);
    }
}

#[test]
fn ids_go_round_past_those_in_use() {
    let mut world = World::new(64 * MIB);
    let stays = world.start("stays", 1, 1);
    for _ in 0..70_000 {
        let ticket = world.join("a", request(0, 1, 2));
        let plan = world.answers.remove(&ticket).unwrap().unwrap();
        assert_ne!(plan.config.job, stays.config.job);
        assert_ne!(plan.config.job, JobId(0));
        world.leave(&plan, 0);
    }
}

#[test]
fn a_full_switch_says_so_at_once_and_with_figures() {
    let mut world = World::new(MIB / 4);
    let small = JoinRequest { slots: Some(8), ..request(0, 1, 1) };
    let big = JoinRequest { max_elements_per_packet: 8_000, ..request(0, 2, 1) };
    let first = world.join("a", small.clone());
    assert!(world.answer(first).is_ok());
    let refused = world.join("b", big);
    let (code, sentence) = world.refusal(refused);
    assert_eq!(code, "full");
    for part in ["of 256.0 KiB are free", "job 'b'", "8 slots of 8000 elements for 2 ranks", "more memory"] {
        assert!(sentence.contains(part), "{part}: {sentence}");
    }
}

#[test]
fn a_pool_shrinks_to_what_is_free_and_grows_again_with_what_comes_back() {
    // Room for 256 slots and 64, with what the switch remembers of each, and not for 128 more.
    const MEMORY: u64 = MIB + MIB / 8;
    let mut world = World::new(MEMORY);
    let wish = |incarnation| JoinRequest { slots: Some(256), ..request(0, 1, incarnation) };
    let slots = |world: &World, ticket| world.answer(ticket).unwrap().config.slots;
    let first = world.join("a", wish(1));
    assert_eq!(slots(&world, first), 256);
    let second = world.join("b", wish(1));
    assert_eq!(slots(&world, second), 64);
    let plan = world.answer(first).unwrap();
    world.leave(&plan, 0);
    let third = world.join("c", wish(1));
    assert_eq!(slots(&world, third), 256);
    assert!(world.control.memory_used() <= MEMORY);
}

#[test]
fn jobs_are_counted_while_they_form_too() {
    let mut world = World::with(Limits { max_jobs: 2, ..Limits::new(64 * MIB, 1) });
    world.join("a", request(0, 2, 1));
    world.start("b", 1, 1);
    let third = world.join("c", request(0, 1, 1));
    assert_eq!(world.refusal(third).0, "too_many_jobs");
    let second_rank = world.join("a", request(1, 2, 1));
    assert!(world.answer(second_rank).is_ok(), "a job that is there already may complete");
}

#[test]
fn a_quota_is_shared_by_all_jobs_of_its_pattern() {
    let quota = Quota { jobs: "a*".into(), memory_bytes: Some(MIB / 2), max_slots: None, max_world_size: Some(2) };
    let mut world = World::with(Limits { quotas: vec![quota], ..Limits::new(64 * MIB, 1) });
    let wish = JoinRequest { slots: Some(8), max_elements_per_packet: 3_600, ..request(0, 1, 1) };
    let first = world.join("a1", wish.clone());
    assert!(world.answer(first).is_ok());
    let second = world.join("a2", wish.clone());
    assert!(world.answer(second).is_ok());
    let third = world.join("a3", wish.clone());
    let (code, sentence) = world.refusal(third);
    assert_eq!(code, "over_quota");
    assert!(sentence.contains("'a*'") && sentence.contains("job 'a3'"), "{sentence}");
    let wide = world.join("a4", request(0, 3, 1));
    assert_eq!(world.refusal(wide).0, "over_quota");
    let other = world.join("b", wish);
    assert!(world.answer(other).is_ok());
}

#[test]
fn only_members_speak_for_a_job() {
    let mut world = World::new(64 * MIB);
    let plan = world.start("a", 2, 1);
    let (id, key) = (plan.config.job, plan.config.key);
    let now = world.now;
    let cases = [
        ("a", id, 0, JobKey(key.0 ^ 1), "wrong_key"),
        ("a", JobId(999), 0, key, "unknown_job"),
        ("b", id, 0, key, "unknown_job"),
        ("a", id, 2, key, "bad_rank"),
    ];
    for (job, id, rank, key, code) in cases {
        let refusal = world.control.leave(now, &name(job), id, rank, key).unwrap_err();
        assert_eq!(refusal.code(), code);
    }
    assert_eq!(world.phases(), [("a".into(), Phase::Running)]);
    assert_eq!(world.control.check_member(&name("a"), id, key), Ok(()));
    assert_eq!(world.control.check_member(&name("a"), id, JobKey(0)).unwrap_err().code(), "wrong_key");
}

#[test]
fn a_job_that_the_shards_cannot_take_is_refused_to_all_and_leaves_nothing() {
    use tributary_control::{Control, Effect};
    let mut control = Control::new(Limits::new(64 * MIB, 1));
    let now = tributary_proto::contract::time::Time::ZERO;
    for rank in [0, 1] {
        control.join(now, &name("a"), request(rank, 2, 1), JobKey(7));
    }
    let Some(Effect::Install(plan)) = control.poll_effect() else { panic!("no installation") };
    assert_eq!(control.poll_effect(), None, "nobody is answered before the shards are ready");
    assert_eq!(control.jobs()[0].phase, Phase::Installing);
    control.installed(now + Span::from_millis(1), plan.config.job, Err("no ports".into()));
    assert_eq!(control.poll_effect(), Some(Effect::Remove(plan.config.job)), "some shards may have taken it");
    for _ in [0, 1] {
        let Some(Effect::Answer { admitted: Err(refusal), .. }) = control.poll_effect() else { panic!("no refusal") };
        assert_eq!(refusal.code(), "not_installed");
    }
    assert_eq!((control.memory_used(), control.jobs().len()), (0, 0));
}

#[test]
fn a_switch_that_stops_refuses_all_who_wait_and_all_who_come() {
    let mut world = World::new(64 * MIB);
    let waiting = world.join("a", request(0, 2, 1));
    world.start("b", 2, 1);
    world.control.stop();
    world.carry_out();
    assert_eq!(world.refusal(waiting).0, "stopping");
    let late = world.join("c", request(0, 1, 1));
    assert_eq!(world.refusal(late).0, "stopping");
    assert!(world.installed.is_empty());
}

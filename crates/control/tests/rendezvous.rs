//! How ranks come together, and how they are refused when they cannot.

use crate::harness::{MIB, TestSwitch, in_numbers, name, request, secs};
use tributary_control::{JoinRequest, Limits, Phase, Quota, Refusal};
use tributary_proto::contract::ids::{JobId, JobKey};
use tributary_proto::contract::protocol::{Placement, Protocol};
use tributary_proto::contract::time::Span;
use tributary_proto::protocols;

/// How a test's request differs from the usual one.
type Change = fn(&mut JoinRequest);

#[test]
fn nobody_is_answered_before_the_last_rank_came() {
    let mut switch = TestSwitch::new(64 * MIB);
    let early = [0, 2].map(|rank| switch.join("a", request(rank, 3, 1)));
    assert!(early.iter().all(|&ticket| switch.waits(ticket)));
    assert_eq!(switch.control.jobs()[0].missing, [1]);
    let last = switch.join("a", request(1, 3, 1));
    let plan = switch.answer(last).unwrap();
    assert!(early.iter().all(|&ticket| switch.answer(ticket).as_ref() == Ok(&plan)));
    assert_eq!(plan.workers, [0, 1, 2].map(|rank| request(rank, 3, 1).addr), "by rank, not by arrival");
    assert_eq!(switch.phases(), [("a".into(), Phase::Running)]);
}

#[test]
fn the_ranks_that_wait_learn_at_once_why_another_was_refused() {
    let mut switch = TestSwitch::new(64 * MIB);
    let waits = switch.join("a", request(0, 2, 1));
    let other = switch.join("b", request(0, 2, 1));
    let (came, job) = (request(1, 2, 1), name("a"));
    let why = Refusal::AddressUnproven { job: job.clone(), addr: came.addr };
    // The others do not wait for a rank that has joined already.
    switch.control.rank_refused(&job, &request(0, 2, 1), &why);
    assert!(switch.waits(waits));
    switch.control.rank_refused(&job, &came, &why);
    switch.carry_out();
    assert_eq!(switch.answer(waits), Err(Refusal::RankRefused { job, rank: 1, why: why.to_string() }));
    assert!(switch.waits(other), "another job waits on");
}

#[test]
fn ranks_whose_packets_go_to_each_other_come_by_one_family_of_addresses() {
    let mixed = |protocol: &'static Protocol, rank| {
        let addr = if rank == 1 { "[fd00::1]:40001".parse().unwrap() } else { request(rank, 2, 1).addr };
        JoinRequest { protocol, options: protocol.options.defaults(), addr, ..request(rank, 2, 1) }
    };
    let sums_at = |placement| protocols::ALL.iter().find(|protocol| protocol.placement == placement).unwrap();
    let mut switch = TestSwitch::new(64 * MIB);
    for ticket in [0, 1].map(|rank| switch.join("a", mixed(sums_at(Placement::Hosts), rank))) {
        let (code, sentence) = switch.refusal(ticket);
        assert_eq!(code, "disagreement");
        assert!(sentence.contains("from rank to rank: rank 0 says IPv4; rank 1 says IPv6"), "{sentence}");
    }
    let tickets = [0, 1].map(|rank| switch.join("b", mixed(sums_at(Placement::Trees), rank)));
    assert!(switch.answer(tickets[0]).is_ok(), "a switch sends to both");
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
        let mut switch = TestSwitch::new(64 * MIB);
        let tickets = [0, 1, 2].map(|rank| {
            let mut request = request(rank, 3, 1);
            wish(&mut request);
            switch.join("a", request)
        });
        let config = &switch.answer(tickets[0]).unwrap().config;
        assert_eq!((config.slots, config.elements_per_packet, config.trees), (slots, elements, 2));
    }
}

#[test]
fn who_is_missing_is_named_when_time_is_over() {
    let mut switch = TestSwitch::new(64 * MIB);
    let tickets = [0, 1, 2].map(|rank| switch.join("a", request(rank, 4, 1)));
    switch.pass(secs(30.0), &[]);
    for ticket in tickets {
        let (code, sentence) = switch.refusal(ticket);
        assert_eq!(code, "rendezvous_timeout");
        assert!(sentence.starts_with("rank 3 of 4 did not come within 30 s (job 'a')"), "{sentence}");
    }
    assert_eq!(switch.phases(), []);
    assert_eq!(switch.control.poll_timeout(), None);
}

#[test]
fn the_most_impatient_rank_ends_the_wait_for_all() {
    let mut switch = TestSwitch::new(64 * MIB);
    let patient = switch.join("a", request(0, 3, 1));
    switch.pass(secs(3.0), &[]);
    let hasty = switch.join("a", JoinRequest { timeout: secs(2.0), ..request(1, 3, 1) });
    switch.pass(secs(1.9), &[]);
    assert!(switch.waits(patient) && switch.waits(hasty));
    switch.pass(secs(0.1), &[]);
    assert!(switch.refusal(patient).1.contains("within 2 s"));
    assert_eq!(switch.refusal(patient), switch.refusal(hasty));
}

#[test]
fn a_difference_is_reported_to_every_rank_with_who_says_what() {
    let cases: [(Change, &str); 4] = [
        (|r| r.world_size = 5, "the world size: ranks 0, 1 say 4; rank 2 says 5"),
        (|r| r.protocol = protocols::named("ring").unwrap(), "the protocol: ranks 0, 1 say switchml; rank 2 says ring"),
        (|r| r.slots = Some(32), "the number of slots: ranks 0, 1 say 16; rank 2 says 32"),
        (|r| r.elements_per_packet = Some(64), "the elements per packet: ranks 0, 1 say 256; rank 2 says 64"),
    ];
    for (differ, sentence) in cases {
        let mut switch = TestSwitch::new(64 * MIB);
        let mut tickets = Vec::new();
        for rank in [0, 1, 2] {
            let mut request = JoinRequest { slots: Some(16), elements_per_packet: Some(256), ..request(rank, 4, 1) };
            if rank == 2 {
                differ(&mut request);
            }
            tickets.push(switch.join("a", request));
        }
        // Rank 3 comes late to the disagreement, and is refused with it instead of waiting for the others in vain.
        tickets.push(switch.join("a", request(3, 4, 1)));
        for ticket in tickets {
            let (code, said) = switch.refusal(ticket);
            assert_eq!(code, "disagreement");
            assert!(said.contains(sentence), "{said}");
        }
        assert_eq!(switch.phases(), []);
    }
}

#[test]
fn a_new_attempt_after_a_difference_starts_afresh() {
    let mut switch = TestSwitch::new(64 * MIB);
    switch.join("a", request(0, 3, 1));
    switch.join("a", request(1, 2, 1));
    // Both were refused; when one of them comes again it is a new attempt, and the late rank belongs to it.
    for rank in [0, 2, 1] {
        switch.join("a", request(rank, 3, 2));
    }
    assert_eq!(switch.phases(), [("a".into(), Phase::Running)]);

    let mut switch = TestSwitch::new(64 * MIB);
    switch.join("a", request(0, 3, 1));
    switch.join("a", request(1, 2, 1));
    switch.pass(secs(5.0), &[]);
    let late = switch.join("a", request(2, 3, 1));
    assert!(switch.waits(late), "a disagreement is forgotten after a while");
}

#[test]
fn a_path_that_is_too_narrow_for_the_wish_is_named_to_all() {
    let mut switch = TestSwitch::new(64 * MIB);
    let wish = switch.join("a", JoinRequest { elements_per_packet: Some(256), ..request(0, 3, 1) });
    let narrow = switch.join("a", JoinRequest { max_elements_per_packet: 128, ..request(1, 3, 1) });
    for ticket in [wish, narrow] {
        let (code, sentence) = switch.refusal(ticket);
        assert_eq!(code, "path_too_narrow");
        assert!(sentence.contains("rank 1's path") && sentence.contains("128 elements"), "{sentence}");
    }
}

#[test]
fn requests_that_make_no_sense_are_refused_and_disturb_nothing() {
    let cases: [(Change, &str); 9] = [
        (|r| r.world_size = 0, "bad_world_size"),
        (|r| r.world_size = 16_385, "bad_world_size"),
        (|r| (r.world_size, r.options) = (2185, in_numbers("thc4")), "bad_world_size"),
        (|r| r.rank = 4, "bad_rank"),
        (|r| r.max_elements_per_packet = 0, "bad_elements_per_packet"),
        (|r| r.elements_per_packet = Some(0), "bad_elements_per_packet"),
        (|r| r.elements_per_packet = Some(16_129), "bad_elements_per_packet"),
        (|r| r.slots = Some(0), "bad_slots"),
        (|r| r.slots = Some(u16::MAX), "bad_slots"),
    ];
    let mut switch = TestSwitch::new(64 * MIB);
    let waiting = switch.join("a", request(0, 4, 1));
    for (spoil, code) in cases {
        let mut request = request(1, 4, 1);
        spoil(&mut request);
        let ticket = switch.join("a", request);
        assert_eq!(switch.refusal(ticket).0, code);
    }
    assert!(switch.waits(waiting));
}

#[test]
fn a_second_process_for_a_waiting_rank_is_refused_and_the_first_undisturbed() {
    let mut switch = TestSwitch::new(64 * MIB);
    let first = switch.join("a", request(0, 2, 1));
    // Not even with another world size does it disturb.
    for second in [request(0, 2, 2), request(0, 7, 2)] {
        let second = switch.join("a", second);
        let (code, sentence) = switch.refusal(second);
        assert_eq!(code, "rank_taken");
        assert!(sentence.contains("rank 0 of job 'a'") && sentence.contains("10.0.0.1:5001"), "{sentence}");
    }
    let other = switch.join("a", request(1, 2, 1));
    assert_eq!(switch.answer(first), switch.answer(other));
}

#[test]
fn a_process_that_asks_again_replaces_its_own_request() {
    let mut switch = TestSwitch::new(64 * MIB);
    let lost = switch.join("a", request(0, 2, 1));
    let again = switch.join("a", JoinRequest { addr: "10.0.0.1:7777".parse().unwrap(), ..request(0, 2, 1) });
    assert_eq!(switch.refusal(lost).0, "newer_request");
    switch.join("a", request(1, 2, 1));
    assert_eq!(switch.answer(again).unwrap().workers[0].port(), 7777);
}

#[test]
fn a_process_may_ask_again_with_another_world_size_while_its_job_waits_for_memory() {
    let wish = |rank, world_size| JoinRequest { slots: Some(256), ..request(rank, world_size, 1) };
    let mut switch = TestSwitch::new(MIB);
    let tickets = [0, 1].map(|rank| switch.join("a", wish(rank, 2)));
    let old = switch.answer(tickets[0]).unwrap();
    switch.leave(&old, 0);
    let alone = switch.join("a", wish(0, 1));
    assert!(switch.waits(alone), "rank 1 of the old job may give its slots back in a moment");
    let again = switch.join("a", wish(0, 2));
    assert_eq!(switch.refusal(alone).0, "newer_request");
    switch.pass(secs(29.9), &[(&old, &[1])]);
    assert!(switch.waits(again), "rank 1 may still come");
    switch.pass(secs(0.1), &[(&old, &[1])]);
    assert_eq!(switch.refusal(again).0, "rendezvous_timeout");
}

#[test]
fn a_rank_whose_process_went_away_while_waiting_may_come_again() {
    let mut switch = TestSwitch::new(64 * MIB);
    let dead = switch.join("a", request(0, 2, 1));
    switch.withdraw(dead);
    assert_eq!(switch.phases(), [], "a job without ranks is none");
    let again = switch.join("a", request(0, 2, 2));
    switch.join("a", request(1, 2, 2));
    assert!(switch.answer(again).is_ok());
    assert!(switch.waits(dead), "who went away is not answered");
}

#[test]
fn two_ranks_cannot_share_a_socket() {
    let mut switch = TestSwitch::new(64 * MIB);
    let first = switch.join("a", request(0, 3, 1));
    let second = switch.join("a", JoinRequest { addr: request(0, 3, 1).addr, ..request(1, 3, 1) });
    assert_eq!(switch.refusal(second).0, "address_taken");
    assert!(switch.waits(first));
}

#[test]
fn jobs_have_their_own_ids_and_keys_and_an_id_does_not_come_back_soon() {
    let mut switch = TestSwitch::new(64 * MIB);
    let (a, b) = (switch.start("a", 2, 1), switch.start("b", 2, 1));
    assert_ne!(a.config.job, b.config.job);
    assert_ne!(a.config.key, b.config.key);
    for rank in [0, 1] {
        switch.leave(&a, rank);
    }
    let mut seen = vec![a.config.job, b.config.job];
    for incarnation in 2..100 {
        let plan = switch.start("a", 1, incarnation);
        assert!(!seen.contains(&plan.config.job));
        seen.push(plan.config.job);
        switch.leave(&plan, 0);
    }
}

#[test]
fn ids_go_round_past_those_in_use() {
    let mut switch = TestSwitch::new(64 * MIB);
    let stays = switch.start("stays", 1, 1);
    for _ in 0..70_000 {
        let ticket = switch.join("a", request(0, 1, 2));
        let plan = switch.answers.remove(&ticket).unwrap().unwrap();
        assert_ne!(plan.config.job, stays.config.job);
        assert_ne!(plan.config.job, JobId(0));
        switch.leave(&plan, 0);
    }
}

#[test]
fn a_full_switch_says_so_at_once_and_with_figures() {
    let mut switch = TestSwitch::new(MIB / 4);
    let small = JoinRequest { slots: Some(8), ..request(0, 1, 1) };
    let big = JoinRequest { max_elements_per_packet: 8_000, ..request(0, 2, 1) };
    let first = switch.join("a", small.clone());
    assert!(switch.answer(first).is_ok());
    let refused = switch.join("b", big);
    let (code, sentence) = switch.refusal(refused);
    assert_eq!(code, "full");
    for words in ["of 256.0 KiB are free", "job 'b'", "8 slots of 8000 elements for 2 ranks", "more memory"] {
        assert!(sentence.contains(words), "{words}: {sentence}");
    }
}

#[test]
fn a_pool_shrinks_to_what_is_free_and_grows_again_with_what_comes_back() {
    // Room for 256 slots and 64, with what the switch remembers of each, and not for 128 more.
    const MEMORY: u64 = MIB + MIB / 8;
    let mut switch = TestSwitch::new(MEMORY);
    let wish = |incarnation| JoinRequest { slots: Some(256), ..request(0, 1, incarnation) };
    let slots = |switch: &TestSwitch, ticket| switch.answer(ticket).unwrap().config.slots;
    let first = switch.join("a", wish(1));
    assert_eq!(slots(&switch, first), 256);
    let second = switch.join("b", wish(1));
    assert_eq!(slots(&switch, second), 64);
    let plan = switch.answer(first).unwrap();
    switch.leave(&plan, 0);
    let third = switch.join("c", wish(1));
    assert_eq!(slots(&switch, third), 256);
    assert!(switch.control.memory_used() <= MEMORY);
}

#[test]
fn jobs_are_counted_while_they_form_too() {
    let mut switch = TestSwitch::with(Limits { max_jobs: 2, ..Limits::new(64 * MIB, 1) });
    switch.join("a", request(0, 2, 1));
    switch.start("b", 1, 1);
    let third = switch.join("c", request(0, 1, 1));
    assert_eq!(switch.refusal(third).0, "too_many_jobs");
    let second_rank = switch.join("a", request(1, 2, 1));
    assert!(switch.answer(second_rank).is_ok(), "a job that is there already may complete");
}

#[test]
fn a_quota_is_shared_by_all_jobs_of_its_pattern() {
    let quota = Quota { jobs: "a*".into(), memory_bytes: Some(MIB / 2), max_slots: None, max_world_size: Some(2) };
    let mut switch = TestSwitch::with(Limits { quotas: vec![quota], ..Limits::new(64 * MIB, 1) });
    let wish = JoinRequest { slots: Some(8), max_elements_per_packet: 3_600, ..request(0, 1, 1) };
    let first = switch.join("a1", wish.clone());
    assert!(switch.answer(first).is_ok());
    let second = switch.join("a2", wish.clone());
    assert!(switch.answer(second).is_ok());
    let third = switch.join("a3", wish.clone());
    let (code, sentence) = switch.refusal(third);
    assert_eq!(code, "over_quota");
    assert!(sentence.contains("'a*'") && sentence.contains("job 'a3'"), "{sentence}");
    let wide = switch.join("a4", request(0, 3, 1));
    assert_eq!(switch.refusal(wide).0, "over_quota");
    let other = switch.join("b", wish);
    assert!(switch.answer(other).is_ok());
}

#[test]
fn only_members_speak_for_a_job() {
    let mut switch = TestSwitch::new(64 * MIB);
    let plan = switch.start("a", 2, 1);
    let (id, key) = (plan.config.job, plan.config.key);
    let now = switch.now;
    let cases = [
        ("a", id, 0, JobKey(key.0 ^ 1), "wrong_key"),
        ("a", JobId(999), 0, key, "unknown_job"),
        ("b", id, 0, key, "unknown_job"),
        ("a", id, 2, key, "bad_rank"),
    ];
    for (job, id, rank, key, code) in cases {
        let refusal = switch.control.leave(now, &name(job), id, rank, key, Some(0)).unwrap_err();
        assert_eq!(refusal.code(), code);
    }
    assert_eq!(switch.phases(), [("a".into(), Phase::Running)]);
    assert_eq!(switch.control.check_member(&name("a"), id, key), Ok(()));
    assert_eq!(switch.control.check_member(&name("a"), id, JobKey(0)).unwrap_err().code(), "wrong_key");
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
    let mut switch = TestSwitch::new(64 * MIB);
    let waiting = switch.join("a", request(0, 2, 1));
    switch.start("b", 2, 1);
    switch.control.stop();
    switch.carry_out();
    assert_eq!(switch.refusal(waiting).0, "stopping");
    let late = switch.join("c", request(0, 1, 1));
    assert_eq!(switch.refusal(late).0, "stopping");
    assert!(switch.installed.is_empty());
}

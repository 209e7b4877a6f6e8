//! When slots are sent again, in virtual time.

use proptest::prelude::*;

use super::*;
use crate::contract::ids::JobKey;

fn job(slots: u16, trees: u16) -> JobConfig {
    JobConfig {
        job: JobId(1),
        key: JobKey(1),
        protocol: 1,
        world_size: 2,
        slots,
        elements_per_packet: 64,
        trees,
        levels: false,
        options: Default::default(),
    }
}

fn recovery(rank: u16, trees: u16) -> Recovery {
    Recovery::new(&job(8, trees), Rank(rank), TimerConfig::default(), Order::Sent)
}

/// The first of all timers, found by looking at every slot.
fn first_timer(recovery: &Recovery) -> Option<Time> {
    let of_tree = |tree: usize| {
        let TreeFlow { waiting, probes, .. } = recovery.trees[tree];
        let front = |list| Some(recovery.due(tree, list % BACK_OFFS, recovery.lists.first(list)?));
        let slots = lists_of(tree).filter_map(front).filter(|_| probes == 0);
        (waiting > 0).then(|| slots.chain([recovery.probe_at(tree, recovery.stirred_last())]).min())?
    };
    (0..recovery.trees.len()).filter_map(of_tree).min()
}

proptest! {
    /// Slots of two trees are sent, answered, stirred and forgotten, and timers run.
    #[test]
    fn the_timer_is_the_first_of_all_though_not_all_slots_are_visited(
        steps in prop::collection::vec((0u8..5, 0u16..8, 0u64..3_000), 0..120),
    ) {
        let (mut recovery, mut queue, mut now) = (recovery(0, 2), SendQueue::new(8), Time::ZERO);
        for (step, slot, micros) in steps {
            now += Span::from_micros(micros);
            let waits = recovery.flights[usize::from(slot)].sends > 0;
            match step {
                0 if waits => drop(recovery.answered(now, slot, &mut queue)),
                1 if waits => recovery.stirred(now, slot),
                2 if waits => recovery.forget(slot),
                3 => recovery.handle_timeout(now, &mut queue),
                _ => drop(recovery.sent(now, slot, step == 4)),
            }
            while let Some(slot) = queue.pop() {
                recovery.sent(now, slot, false);
            }
            let first = first_timer(&recovery);
            prop_assert_eq!(recovery.poll_timeout(), first);
            let limits = [now, now + Span::from_millis(1), now + Span::from_millis(20), Time(u64::MAX)];
            for limit in limits.into_iter().chain(first).chain(first.map(|due| Time(due.0 + 1))) {
                prop_assert_eq!(recovery.poll_timeout_before(limit), first.filter(|&due| due < limit));
            }
        }
    }
}

/// Algorithm 4, lines 20 to 22: a packet whose timer runs out is sent and its timer starts again. No answer and no silence moves another's timer, no
/// time doubles, and all packets that are due are sent.
#[test]
fn with_a_timer_for_each_packet_each_is_sent_again_after_the_same_time_whatever_comes() {
    let timers = TimerConfig::default();
    let (mut recovery, mut queue) = (Recovery::new(&job(16, 2), Rank(0), timers, Order::Timer), SendQueue::new(16));
    let at = |micros: u64| Time::ZERO + Span::from_micros(micros);
    (0..16).for_each(|slot| _ = recovery.sent(at(u64::from(slot)), slot, false));
    // Later packets are answered, in one tree and not in the other.
    (12..16).for_each(|slot| _ = recovery.answered(at(500), slot, &mut queue));
    assert_eq!(queue.pop(), None, "nobody looks at the order of answers");
    for round in 1..=12 {
        for slot in 0..12 {
            let due = at(u64::from(slot)) + timers.initial_rto.times(round);
            assert_eq!(recovery.poll_timeout(), Some(due), "slot {slot}, time {round}");
            assert_eq!(recovery.poll_timeout_before(due), None);
            assert_eq!(recovery.poll_timeout_before(Time(due.0 + 1)), Some(due));
            recovery.handle_timeout(Time(due.0 - 1), &mut queue);
            assert_eq!(queue.pop(), None);
            recovery.handle_timeout(due, &mut queue);
            assert_eq!((queue.pop(), queue.pop()), (Some(slot), None));
            assert!(recovery.sent(due, slot, false) && !recovery.is_quiet(slot));
        }
    }
    (0..12).for_each(|slot| recovery.forget(slot));
    assert_eq!(recovery.poll_timeout(), None);
}

/// When the trees of a rank that never gets an answer are probed, from the second time on.
fn probes(rank: u16, trees: u16, count: usize) -> Vec<(Time, u16)> {
    let (mut recovery, mut queue) = (recovery(rank, trees), SendQueue::new(8));
    (0..8).for_each(|slot| _ = recovery.sent(Time::ZERO, slot, false));
    let mut times = Vec::new();
    while times.len() < count {
        let due = recovery.poll_timeout().unwrap();
        recovery.handle_timeout(due, &mut queue);
        let mut probed = Vec::new();
        while let Some(slot) = queue.pop() {
            recovery.sent(due, slot, false);
            probed.push((due, recovery.tree_of_slot(slot).0));
        }
        probed.dedup();
        times.extend(probed);
    }
    times.split_off(usize::from(trees))
}

/// A queue that holds one packet lets only the first probe pass.
#[test]
fn each_slot_of_a_quiet_tree_leads_in_its_turn() {
    for waiting in 1..=8 {
        let (mut recovery, mut queue) = (recovery(0, 1), SendQueue::new(8));
        (0..waiting).for_each(|slot| _ = recovery.sent(Time::ZERO, slot, false));
        let mut leaders = std::collections::BTreeSet::new();
        for _ in 0..20 * waiting {
            let due = recovery.poll_timeout().unwrap();
            recovery.handle_timeout(due, &mut queue);
            leaders.extend(queue.pop().inspect(|&leader| _ = recovery.sent(due, leader, false)));
            while let Some(slot) = queue.pop() {
                recovery.sent(due, slot, false);
            }
        }
        assert_eq!(leaders.into_iter().collect::<Vec<_>>(), (0..waiting).collect::<Vec<_>>());
    }
}

/// If they probed together, a short queue would always let packets of the same few pass.
#[test]
fn ranks_and_shards_that_lost_all_at_one_time_do_not_probe_at_one_time_again() {
    let ranks: Vec<Time> = (0..10).flat_map(|rank| probes(rank, 1, 30)).map(|(time, _)| time).collect();
    let trees: Vec<Time> = probes(0, 4, 200).into_iter().map(|(time, _)| time).collect();
    for mut times in [ranks, trees] {
        let all = times.len();
        times.sort();
        times.dedup_by(|b, a| b.since(*a) < Span::from_micros(20));
        assert!(times.len() > all * 9 / 10, "{} of {all} apart", times.len());
    }
}

/// Sends one packet, which is answered after `took`; returns how often it was sent again meanwhile.
fn round(recovery: &mut Recovery, sent_at: Time, took: Span) -> usize {
    let (mut queue, mut again) = (SendQueue::new(8), 0);
    recovery.sent(sent_at, 0, false);
    while let Some(due) = recovery.poll_timeout().filter(|&due| due < sent_at + took) {
        recovery.handle_timeout(due, &mut queue);
        while let Some(slot) = queue.pop() {
            recovery.sent(due, slot, false);
            again += 1;
        }
    }
    recovery.answered(sent_at + took, 0, &mut queue);
    again
}

/// A run of 44 packets takes 5.4 ms at 0.1 Gbit/s: its answers come together, and then nothing comes for as long again.
#[test]
fn answers_that_come_in_runs_make_nobody_send_again() {
    let mut recovery = Recovery::new(&job(512, 1), Rank(0), TimerConfig::default(), Order::Sent);
    let (mut queue, mut again, mut now) = (SendQueue::new(512), 0, Time::ZERO);
    (0..512).for_each(|slot| _ = recovery.sent(now, slot, false));
    for run in 0..100 {
        let next = now + Span::from_micros(if run == 0 { 300 } else { 5_400 });
        while let Some(due) = recovery.poll_timeout().filter(|&due| due < next) {
            recovery.handle_timeout(due, &mut queue);
            while let Some(slot) = queue.pop() {
                recovery.sent(due, slot, false);
                again += 1;
            }
        }
        now = next;
        for slot in (0..44).map(|offset| (run * 44 + offset) % 512) {
            recovery.answered(now, slot, &mut queue);
            recovery.sent(now, slot, true);
        }
    }
    // The first gap is not known beforehand.
    assert!(again <= 2 * PROBES, "{again}");
}

/// Runs timers until `until`; returns how many packets were sent again.
fn resent_until(recovery: &mut Recovery, until: Time, queue: &mut SendQueue) -> usize {
    let mut again = 0;
    while let Some(due) = recovery.poll_timeout().filter(|&due| due < until) {
        recovery.handle_timeout(due, queue);
        while let Some(slot) = queue.pop() {
            recovery.sent(due, slot, false);
            again += 1;
        }
    }
    again
}

/// The switch's process is not scheduled for 5 ms, again and again, and nothing is lost: 880 answers come in between,
/// many more than the gaps that are known one by one. One early timeout is enough.
#[test]
fn a_network_that_stands_still_at_times_makes_nobody_send_again_twice() {
    let mut recovery = Recovery::new(&job(512, 1), Rank(0), TimerConfig::default(), Order::Sent);
    let (mut queue, mut again, mut now) = (SendQueue::new(512), [0; 10], Time::ZERO);
    (0..512).for_each(|slot| _ = recovery.sent(now, slot, false));
    for run in 0..200 {
        let next = now + Span::from_micros(if run % 20 == 19 { 5_000 } else { 300 });
        again[usize::from(run / 20)] += resent_until(&mut recovery, next, &mut queue);
        now = next;
        for slot in (0..44).map(|offset| (run * 44 + offset) % 512) {
            recovery.answered(now, slot, &mut queue);
            recovery.sent(now, slot, true);
        }
    }
    assert!(again[0] > 0, "the first silence is not known beforehand: {again:?}");
    assert_eq!(again[1..], [0; 9], "{again:?}");
}

/// Sends 32 packets, all of which but the last are answered at once, and the last when the rank has asked for them;
/// returns after which silence it asked.
fn round_with_losses(recovery: &mut Recovery, now: &mut Time, lost: u16) -> Span {
    let mut queue = SendQueue::new(32);
    (0..32).for_each(|slot| _ = recovery.sent(*now, slot, true));
    *now += Span::from_micros(100);
    (0..32 - lost).for_each(|slot| _ = recovery.answered(*now, slot, &mut queue));
    let silence = recovery.poll_timeout().unwrap().since(*now);
    while let Some(due) = recovery.poll_timeout() {
        recovery.handle_timeout(due, &mut queue);
        let probed: Vec<u16> = std::iter::from_fn(|| queue.pop()).collect();
        probed.iter().for_each(|&slot| _ = recovery.sent(due, slot, false));
        *now = due + Span::from_micros(100);
        probed.iter().for_each(|&slot| _ = recovery.answered(*now, slot, &mut queue));
    }
    silence
}

/// A rank whose last packets are lost asks for them. The network did not stand still: the next silence is not longer.
/// Nor is it where more are lost than one set of probes asks for.
#[test]
fn a_silence_after_a_loss_is_not_remembered() {
    for lost in [2, 6, 20] {
        let mut recovery = Recovery::new(&job(32, 1), Rank(0), TimerConfig::default(), Order::Sent);
        let mut now = Time::ZERO;
        let waits: Vec<Span> = (0..40).map(|_| round_with_losses(&mut recovery, &mut now, lost)).collect();
        assert!(waits[10..].iter().max() <= waits[..10].iter().max(), "{lost} lost: {waits:?}");
        assert_eq!(recovery.floor(0), Span::ZERO, "{lost} lost");
    }
}

/// Losses lengthen silences. If each that is taken for spurious doubled the next patience, a rank would not be heard of again.
#[test]
fn the_longest_silence_that_is_remembered_delays_no_timer_beyond_the_first_timeout() {
    let timers = TimerConfig::default();
    let mut recovery = Recovery::new(&job(512, 1), Rank(0), timers, Order::Sent);
    let (mut queue, mut now) = (SendQueue::new(512), Time::ZERO);
    for micros in [100, 100, 150_000, 150_000] {
        (0..512).for_each(|slot| _ = recovery.sent(now, slot, true));
        now += Span::from_micros(micros);
        resent_until(&mut recovery, now, &mut queue);
        (0..512).for_each(|slot| _ = recovery.answered(now, slot, &mut queue));
    }
    assert_eq!(recovery.floor(0), timers.initial_rto);
}

/// Where packets are lost too, the memory of a silence costs time, and each timeout that was needed halves it.
#[test]
fn timeouts_that_are_needed_shorten_what_one_that_was_not_has_lengthened() {
    let mut recovery = Recovery::new(&job(32, 1), Rank(0), TimerConfig::default(), Order::Sent);
    let (mut queue, mut now) = (SendQueue::new(32), Time::ZERO);
    let mut round = |recovery: &mut Recovery, now: &mut Time, micros: u64| {
        (0..32).for_each(|slot| _ = recovery.sent(*now, slot, true));
        *now += Span::from_micros(micros);
        resent_until(recovery, *now, &mut queue);
        (0..32).for_each(|slot| _ = recovery.answered(*now, slot, &mut queue));
    };
    [100, 100, 5_000].into_iter().for_each(|micros| round(&mut recovery, &mut now, micros));
    assert_eq!(recovery.floor(0), Span::from_millis(10));
    for _ in 0..8 {
        // Meanwhile the gaps that the losses make are forgotten.
        (0..9).for_each(|_| round(&mut recovery, &mut now, 100));
        round_with_losses(&mut recovery, &mut now, 1);
    }
    assert!(recovery.floor(0) <= Span::from_micros(160), "{:?}", recovery.floor(0));
}

#[test]
fn a_quiet_that_was_none_makes_the_next_one_wait_for_longer() {
    let mut recovery = recovery(0, 1);
    assert_eq!(round(&mut recovery, Time::ZERO, Span::from_micros(300)), 0, "the fastest so far");
    // From now on answers take a hundred times as long, and none of them gives a sample.
    let start = Time::ZERO + Span::from_millis(100);
    let again: Vec<usize> =
        (0..10).map(|i| round(&mut recovery, start + Span::from_millis(100 * i), Span::from_millis(30))).collect();
    assert!(again[0] > 1, "{again:?}");
    assert!(again[5..].iter().all(|&again| again <= 1), "{again:?}");
}

/// An answer of a hundred packets takes ten milliseconds: the time between two of them is not a round trip.
#[test]
fn packets_of_an_answer_keep_a_slot_waiting_and_are_not_round_trips() {
    let (mut recovery, mut queue) = (recovery(0, 1), SendQueue::new(8));
    recovery.sent(Time::ZERO, 0, false);
    let time_of = |i: u64| Time::ZERO + Span::from_micros(100 * i);
    for i in 1..=100 {
        assert!(recovery.poll_timeout().unwrap() > time_of(i), "part {i} is in time");
        recovery.stirred(time_of(i), 0);
    }
    recovery.answered(time_of(100), 0, &mut queue);
    assert_eq!(round(&mut recovery, time_of(200), Span::from_millis(15)), 0);
}

//! Quiet shards are probed, and what is probed.

use super::*;
use crate::ids::{JobId, JobKey};

fn recovery(rank: u16, shards: u16) -> Recovery {
    let job = JobConfig { job: JobId(1), key: JobKey(1), world: 2, slots: 8, elements_per_packet: 64, shards };
    Recovery::new(&job, WorkerId(rank), TimerConfig::default(), Order::Sent)
}

/// When the shards of a rank that never hears anything are probed, from the second time on.
fn probes(rank: u16, shards: u16, count: usize) -> Vec<(Time, u16)> {
    let (mut recovery, mut queue) = (recovery(rank, shards), SendQueue::new(8));
    (0..8).for_each(|slot| _ = recovery.sent(Time::ZERO, slot, false));
    let mut times = Vec::new();
    while times.len() < count {
        let due = recovery.poll_timeout().unwrap();
        recovery.handle_timeout(due, &mut queue);
        let mut probed = Vec::new();
        while let Some(slot) = queue.pop() {
            recovery.sent(due, slot, false);
            probed.push((due, recovery.shard_of(slot).0));
        }
        probed.dedup();
        times.extend(probed);
    }
    times.split_off(usize::from(shards))
}

/// Where they meet, a short queue would take the packets of the same few for ever.
#[test]
fn ranks_and_shards_that_lost_all_at_one_time_do_not_probe_at_one_time_again() {
    let ranks: Vec<Time> = (0..10).flat_map(|rank| probes(rank, 1, 30)).map(|(time, _)| time).collect();
    let shards: Vec<Time> = probes(0, 4, 200).into_iter().map(|(time, _)| time).collect();
    for mut times in [ranks, shards] {
        let all = times.len();
        times.sort();
        times.dedup_by(|b, a| b.since(*a) < Span::from_micros(20));
        assert!(times.len() > all * 9 / 10, "{} of {all} apart", times.len());
    }
}

/// In a queue with room for one packet the first of a burst is the only one that comes through.
#[test]
fn each_of_the_slots_that_wait_leads_a_probe() {
    for waiting in 2..=8 {
        let (mut recovery, mut queue) = (recovery(0, 1), SendQueue::new(8));
        (0..waiting).for_each(|slot| _ = recovery.sent(Time::ZERO, slot, false));
        let mut led = std::collections::BTreeSet::new();
        for _ in 0..3 * waiting {
            let due = recovery.poll_timeout().unwrap();
            recovery.handle_timeout(due, &mut queue);
            led.extend(queue.pop().inspect(|&slot| _ = recovery.sent(due, slot, false)));
            while let Some(slot) = queue.pop() {
                recovery.sent(due, slot, false);
            }
        }
        assert_eq!(led.len(), usize::from(waiting), "of {waiting} only {led:?} led");
    }
}

/// One packet, answered after `took`; how often it was sent again meanwhile.
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

#[test]
fn a_quiet_that_was_none_makes_the_next_one_wait_for_longer() {
    let mut recovery = recovery(0, 1);
    assert_eq!(round(&mut recovery, Time::ZERO, Span::from_micros(300)), 0, "the fastest so far");
    // From now on answers take a hundred times as long, and none of them is a sample.
    let start = Time::ZERO + Span::from_millis(100);
    let again: Vec<usize> =
        (0..10).map(|i| round(&mut recovery, start + Span::from_millis(100 * i), Span::from_millis(30))).collect();
    assert!(again[0] > 1, "{again:?}");
    assert!(again[5..].iter().all(|&again| again <= 1), "{again:?}");
}

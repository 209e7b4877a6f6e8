//! Losses in a stream of blocks: who acts, and what it costs the others.

use tributary_numeric::ReduceOp;
use tributary_proto::aggregation::best_effort::wire::{Flags, Kind};
use tributary_proto::contract::host::{Collective, CollectiveError, HostEvent};
use tributary_proto::contract::ids::{NodeId, Rank};
use tributary_proto::contract::time::{Span, Time};

use crate::fabric::{Choice, Fabric, Fate, Sent};
use crate::setup::{LEASE, acknowledging, at_us, clocked_by_results, collective, expected, family, input, output};

fn whole(fabric: &mut Fabric, elements: usize) {
    let world_size = fabric.hosts.len();
    let expected = expected(world_size, elements);
    fabric.events.iter_mut().for_each(|events| assert_eq!(output::<i32>(events), expected));
}

#[test]
fn one_loss_in_the_middle_is_made_good_by_the_ranks_concerned_and_no_sum_of_others_leaves_early() {
    for protocol in family() {
        for kind in [Kind::Gradient, Kind::Sum, Kind::Aack] {
            let mut fabric = Fabric::star(4, &Choice { slots: 64, ..Choice::of(protocol) });
            let mut seen = 0;
            fabric.fate = Box::new(move |sent: &Sent| {
                seen += usize::from(sent.kind == kind);
                if seen == 101 && sent.kind == kind { Fate::IsLost } else { Fate::Arrives }
            });
            (0..4).for_each(|rank| fabric.submit(rank, collective(input(rank, 8 * 1000), ReduceOp::Sum)));
            fabric.run(Span::from_millis(20));
            whole(&mut fabric, 8000);
            assert!(fabric.figure(0, "released") <= 1.0, "{protocol}: {kind:?}");
            let resent = fabric
                .sent
                .iter()
                .filter(|sent| sent.kind == Kind::Gradient && sent.header.flags.has(Flags::RESEND) && sent.from.0 < 4);
            assert!(resent.count() <= 4, "{protocol}: {kind:?}");
        }
    }
}

/// What is overtaken is asked about, which is for nothing where packets change places on the way: then a rank becomes
/// patient. A block of rank 1 that was lost is another case, though the result comes to all at once: rank 2 goes on to
/// find its own losses by what overtakes them, without a silence for each.
#[test]
fn losses_of_one_rank_do_not_teach_the_others_that_packets_are_reordered() {
    let mut fabric = Fabric::star(5, &Choice { slots: 64, ..Choice::of(clocked_by_results()) });
    fabric.fate = Box::new(|sent: &Sent| {
        let (flags, wid, early) = (sent.header.flags, sent.header.wid, sent.header.seq < 1000);
        let of_rank_1 = early && sent.kind == Kind::Gradient && wid == Rank(1) && !flags.has(Flags::RESEND);
        let to_rank_2 = !early && sent.kind == Kind::Aack && sent.to == NodeId(2) && flags.has(Flags::MULTICAST);
        if (of_rank_1 || to_rank_2) && sent.header.seq % 50 == 25 { Fate::IsLost } else { Fate::Arrives }
    });
    (0..5).for_each(|rank| fabric.submit(rank, collective(input(rank, 8 * 2000), ReduceOp::Sum)));
    fabric.run(Span::from_millis(20));
    whole(&mut fabric, 8 * 2000);
    let last = fabric.sent.iter().filter(|sent| sent.kind == Kind::Aack).map(|sent| sent.at).max();
    assert!(last < Some(at_us(200)), "a silence is four timeouts of 50 us: {last:?}");
}

/// Five servers and a window of four packets: three later results of the same server never come. Results of other
/// servers do, and after a round trip more the rank asks, so that a loss costs a few round trips of 2 us and not a
/// silence of 200 us.
#[test]
fn where_windows_are_short_results_of_other_servers_show_a_loss() {
    for kind in [Kind::Gradient, Kind::Sum, Kind::Aack] {
        let job = [("initial_window", "4"), ("increase", "1")];
        let mut fabric = Fabric::star(5, &Choice { slots: 64, job: &job, ..Choice::of(clocked_by_results()) });
        let mut lost = 0;
        fabric.fate = Box::new(move |sent: &Sent| {
            // One packet in fifty blocks, and the first of its kind about them.
            let is_it = sent.kind == kind && sent.header.seq == 50 * lost + 25;
            lost += u32::from(is_it);
            if is_it { Fate::IsLost } else { Fate::Arrives }
        });
        (0..5).for_each(|rank| fabric.submit(rank, collective(input(rank, 8 * 1000), ReduceOp::Sum)));
        fabric.run(Span::from_millis(20));
        whole(&mut fabric, 8 * 1000);
        let last = fabric.sent.iter().filter(|sent| sent.kind == Kind::Aack).map(|sent| sent.at).max();
        assert!(last < Some(at_us(400)), "{kind:?}: {last:?}");
    }
}

/// One server's results come ten round trips later than the others' all the time. Nothing is lost, and the ranks learn
/// to wait.
#[test]
fn questions_for_nothing_become_rare() {
    let mut fabric = Fabric::star(5, &Choice { slots: 64, ..Choice::of(clocked_by_results()) });
    fabric.fate = Box::new(|sent: &Sent| match sent.kind == Kind::Aack && sent.from.0 == 0 {
        true => Fate::IsLate(Span::from_micros(20)),
        false => Fate::Arrives,
    });
    (0..5).for_each(|rank| fabric.submit(rank, collective(input(rank, 8 * 2000), ReduceOp::Sum)));
    fabric.run(Span::from_millis(20));
    whole(&mut fabric, 8 * 2000);
    let queries = fabric.sent.iter().filter(|sent| sent.kind == Kind::Query && sent.to.0 == 0).count();
    assert!((1..=4 * 8).contains(&queries), "{queries} questions of four ranks about 400 blocks");
    assert!(fabric.sent.iter().all(|sent| !sent.header.flags.has(Flags::RESEND)));
}

#[test]
fn a_switch_that_was_started_again_in_the_middle_of_a_stream_delays_it() {
    for protocol in family() {
        for racks in [1, 2] {
            let mut fabric = Fabric::leaf_spine(racks, 1, 4 / racks, &Choice { slots: 64, ..Choice::of(protocol) });
            (0..4).for_each(|rank| fabric.submit(rank, collective(input(rank, 8 * 3000), ReduceOp::Sum)));
            for at in [10, 20, 40] {
                fabric.run_until(at_us(at));
                fabric.restart(0);
            }
            fabric.run(Span::from_millis(100));
            whole(&mut fabric, 24_000);
            fabric.run(LEASE + LEASE);
            assert_eq!(fabric.in_use(), 0, "{protocol}");
        }
    }
}

/// Each block lacks one rank's part, of which only that rank's question would tell; the others are told to wait.
#[test]
fn losses_of_one_contribution_to_every_block_are_made_good_together() {
    for protocol in family() {
        let mut fabric = Fabric::star(4, &Choice::of(protocol));
        fabric.fate = Box::new(|sent: &Sent| {
            let is_first = sent.kind == Kind::Gradient && !sent.header.flags.has(Flags::RESEND);
            // Not the server's, which is rank `block mod 4`, but the next one's.
            if is_first && sent.header.seq % 4 == u32::from(sent.header.wid.0) { Fate::IsLost } else { Fate::Arrives }
        });
        (0..4).for_each(|rank| fabric.submit(rank, collective(input(rank, 8 * 16), ReduceOp::Sum)));
        fabric.run(Span::from_millis(8));
        whole(&mut fabric, 8 * 16);
    }
}

/// A queue was full for long: one rank lacks the results of many blocks, and the first answers to its questions too.
#[test]
fn results_and_answers_that_are_lost_together_are_made_good_together() {
    for protocol in family() {
        let mut fabric = Fabric::star(4, &Choice { slots: 256, ..Choice::of(protocol) });
        let mut results_of = [0; 256];
        fabric.fate = Box::new(move |sent: &Sent| {
            let seq = sent.header.seq as usize;
            if sent.kind != Kind::Aack || sent.to != NodeId(0) || !(8..100).contains(&seq) {
                return Fate::Arrives;
            }
            results_of[seq] += 1;
            if results_of[seq] <= 2 { Fate::IsLost } else { Fate::Arrives }
        });
        (0..4).for_each(|rank| fabric.submit(rank, collective(input(rank, 8 * 120), ReduceOp::Sum)));
        fabric.run(Span::from_millis(8));
        whole(&mut fabric, 8 * 120);
    }
}

/// What is lost between a switch without room and the server was sent, and never comes: results would always be
/// marked as if memory were short.
#[test]
fn what_overflowed_and_was_lost_is_not_outstanding_once_it_was_sent_again() {
    for protocol in family() {
        let switch = [("aggregators", "0"), ("lease", "1 s")];
        let mut fabric = Fabric::star(4, &Choice { slots: 64, switch: &switch, ..Choice::of(protocol) });
        let mut lost = 0;
        fabric.fate = Box::new(move |sent: &Sent| {
            let overflows = sent.kind == Kind::Gradient && sent.header.flags.has(Flags::COLLISION);
            let is_lost = overflows && !sent.header.flags.has(Flags::RESEND) && sent.header.seq % 7 == 3 && lost < 40;
            lost += u32::from(is_lost);
            if is_lost { Fate::IsLost } else { Fate::Arrives }
        });
        (0..4).for_each(|rank| fabric.submit(rank, collective(input(rank, 8 * 200), ReduceOp::Sum)));
        fabric.run(Span::from_millis(20));
        whole(&mut fabric, 8 * 200);
        assert!(fabric.figure(0, "overflowed") > 100.0);
        assert_eq!(fabric.figure(0, "outstanding"), 0.0, "{protocol}");
    }
}

/// A queue that has room for a gradient, or for questions.
#[test]
fn questions_do_not_displace_what_is_sent_again() {
    for protocol in family() {
        let mut fabric = Fabric::star(4, &Choice::of(protocol));
        let mut questioned = [Time::ZERO; 4];
        fabric.fate = Box::new(move |sent: &Sent| {
            let (header, sender) = (&sent.header, usize::from(sent.header.wid.0));
            match sent.kind {
                Kind::Query => questioned[sender] = sent.at,
                Kind::Gradient if header.wid != Rank(1) => {}
                Kind::Gradient if !header.flags.has(Flags::RESEND) => return Fate::IsLost,
                Kind::Gradient if questioned[sender] == sent.at => return Fate::IsLost,
                _ => {}
            }
            Fate::Arrives
        });
        (0..4).for_each(|rank| fabric.submit(rank, collective(input(rank, 8 * 16), ReduceOp::Sum)));
        fabric.run(Span::from_millis(20));
        whole(&mut fabric, 8 * 16);
    }
}

/// Fourteen packets of a window of sixteen blocks are lost, which halves it, and the first result after that adds one:
/// no more than nine are sent again at once.
#[test]
fn what_is_sent_again_keeps_to_the_window() {
    let choice =
        Choice { slots: 64, job: &[("initial_window", "16"), ("increase", "1")], ..Choice::of(clocked_by_results()) };
    let mut fabric = Fabric::star(8, &choice);
    fabric.fate = Box::new(|sent: &Sent| {
        let is_first = sent.kind == Kind::Gradient && !sent.header.flags.has(Flags::RESEND);
        if is_first && sent.from == NodeId(1) { Fate::IsLost } else { Fate::Arrives }
    });
    (0..8).for_each(|rank| fabric.submit(rank, collective(input(rank, 8 * 16), ReduceOp::Sum)));
    fabric.run(Span::from_millis(20));
    whole(&mut fabric, 8 * 16);
    let resent = |sent: &&Sent| sent.from == NodeId(1) && sent.header.flags.has(Flags::RESEND);
    let resent: Vec<Time> = fabric.sent.iter().filter(resent).map(|sent| sent.at).collect();
    assert_eq!(resent.len(), 14);
    // The first alone, whose result makes the rank ask about the others; then as many as the window has packets.
    assert!(resent[0] < resent[1], "{resent:?}");
    let most_at_once = resent.chunk_by(|a, b| a == b).map(<[Time]>::len).max();
    assert_eq!(most_at_once, Some(9), "{resent:?}");
}

/// One rank loses single gradients until its window is the smallest, and then a hundred in a row. One after the other
/// is sent again, each when something has come of the one before, which takes 2 us, and not one in each timeout of 50
/// us.
#[test]
fn a_short_window_sends_the_next_one_again_when_the_last_has_arrived() {
    for protocol in family() {
        let mut fabric = Fabric::star(4, &Choice { slots: 128, ..Choice::of(protocol) });
        fabric.fate = Box::new(|sent: &Sent| {
            let is_first = sent.kind == Kind::Gradient && !sent.header.flags.has(Flags::RESEND);
            let seq = sent.header.seq;
            let is_lost = (100..500).contains(&seq) && seq % 10 < 2 || (500..600).contains(&seq);
            if is_first && sent.from == NodeId(1) && is_lost { Fate::IsLost } else { Fate::Arrives }
        });
        (0..4).for_each(|rank| fabric.submit(rank, collective(input(rank, 8 * 800), ReduceOp::Sum)));
        fabric.run(Span::from_millis(20));
        whole(&mut fabric, 8 * 800);
        let last = fabric.sent.iter().filter(|sent| sent.kind == Kind::Aack).map(|sent| sent.at).max();
        // With one in each timeout these took 138 and 2,571 us. Where gradients are acknowledged, a timeout finds out
        // about each short window.
        let most_us = if protocol.code == acknowledging().code { 1_800 } else { 110 };
        assert!(last < Some(at_us(most_us)), "{protocol}: {last:?}");
    }
}

/// A thread of a switch sleeps: no acknowledgement comes for ten timeouts, and then all come. What is sent again goes
/// past all aggregators, so it is one block at a timeout that grows, and not a window. Nothing was lost, as the
/// acknowledgements of the first transmissions tell, so that ranks go on as fast as before.
#[test]
fn a_pause_of_all_acknowledgements_sends_hardly_a_block_to_its_server_and_costs_no_window() {
    let pause = at_us(200)..at_us(1_200);
    let mut fabric = Fabric::star(4, &Choice { slots: 64, ..Choice::of(acknowledging()) });
    let asleep = pause.clone();
    fabric.fate = Box::new(move |sent: &Sent| match asleep.contains(&sent.at) && sent.from == NodeId(4) {
        true => Fate::IsLate(asleep.end.since(sent.at)),
        false => Fate::Arrives,
    });
    (0..4).for_each(|rank| fabric.submit(rank, collective(input(rank, 8 * 8000), ReduceOp::Sum)));
    fabric.run(Span::from_millis(20));
    whole(&mut fabric, 8 * 8000);
    let resent = |rank: u32| {
        let is_resent = |sent: &&Sent| {
            sent.kind == Kind::Gradient && sent.from == NodeId(rank) && sent.header.flags.has(Flags::RESEND)
        };
        fabric.sent.iter().filter(is_resent).count()
    };
    for rank in 0..4 {
        assert!((1..=8).contains(&resent(rank)), "rank {rank}: {}", resent(rank));
    }
    let sent_from = |from: Time| {
        let is_own = |sent: &&Sent| sent.kind == Kind::Gradient && sent.from == NodeId(0);
        let is_then = |sent: &&Sent| (from..from + Span::from_micros(20)).contains(&sent.at);
        fabric.sent.iter().filter(is_own).filter(is_then).count()
    };
    let (before, after) = (sent_from(at_us(170)), sent_from(at_us(1_210)));
    assert!(before > 400 && 10 * after > 9 * before, "{before} gradients before the pause and {after} after it");
}

/// A queue that overflows loses packets in a row. Nothing overtakes the last ones of a window, so a timer must find
/// out; and it need not find out about each.
#[test]
fn the_lost_end_of_a_window_is_sent_again_within_some_timeouts() {
    let choice = Choice { slots: 64, job: &[("initial_window", "64")], ..Choice::of(acknowledging()) };
    let mut fabric = Fabric::star(4, &choice);
    fabric.fate = Box::new(|sent: &Sent| {
        let is_first = sent.kind == Kind::Gradient && !sent.header.flags.has(Flags::RESEND);
        if is_first && sent.from == NodeId(1) && sent.header.seq > 24 { Fate::IsLost } else { Fate::Arrives }
    });
    (0..4).for_each(|rank| fabric.submit(rank, collective(input(rank, 8 * 64), ReduceOp::Sum)));
    // A timeout is 50 us here.
    fabric.run(Span::from_micros(300));
    whole(&mut fabric, 8 * 64);
}

/// All results of the end are lost on their way to one rank, and no later one will come. The first question after a
/// silence brings one of them, and tells of the others: they are asked for within round trips, not each after a silence
/// of 200 us.
#[test]
fn lost_results_of_the_end_are_requested_together() {
    let mut fabric = Fabric::star(4, &Choice { slots: 1024, ..Choice::of(acknowledging()) });
    fabric.fate = Box::new(|sent: &Sent| {
        let at_once = sent.kind == Kind::Aack && sent.header.flags.has(Flags::MULTICAST);
        if at_once && sent.to == NodeId(1) && sent.header.seq >= 700 { Fate::IsLost } else { Fate::Arrives }
    });
    (0..4).for_each(|rank| fabric.submit(rank, collective(input(rank, 8 * 1000), ReduceOp::Sum)));
    fabric.run(Span::from_millis(200));
    whole(&mut fabric, 8 * 1000);
    let last = fabric.sent.iter().filter(|sent| sent.kind == Kind::Aack).map(|sent| sent.at).max();
    assert!(last < Some(at_us(1000)), "{last:?}");
    // Rank 1 serves a quarter of the blocks itself.
    let queries = fabric.sent.iter().filter(|sent| sent.kind == Kind::Query && sent.from == NodeId(1)).count();
    assert!((225..=230).contains(&queries), "{queries} questions about 225 blocks");
}

fn with_deadline(rank: usize, elements: usize) -> Collective {
    Collective { deadline: Some(at_us(20_000)), ..collective(input(rank, elements), ReduceOp::Sum) }
}

fn error(events: &[HostEvent]) -> &CollectiveError {
    match &events[0] {
        HostEvent::Failed { error, .. } => error,
        HostEvent::Done { .. } => panic!("it is done"),
    }
}

#[test]
fn who_is_missing_is_named_on_every_rank() {
    for protocol in family() {
        for elements in [8, 8 * 100] {
            let mut fabric = Fabric::star(4, &Choice::of(protocol));
            for rank in [0, 1, 3] {
                fabric.submit(rank, with_deadline(rank, elements));
            }
            fabric.run(Span::from_millis(30));
            for rank in [0, 1, 3] {
                let CollectiveError::Missing { missing, .. } = error(&fabric.events[rank]) else {
                    panic!("{protocol}: {}", error(&fabric.events[rank]))
                };
                assert_eq!(missing, &[Rank(2)], "{protocol}: rank {rank}, {elements} elements");
            }
        }
    }
}

#[test]
fn a_rank_that_has_died_is_named_as_missing_or_as_silent() {
    for protocol in family() {
        let mut fabric = Fabric::star(4, &Choice::of(protocol));
        (0..4).for_each(|rank| fabric.submit(rank, with_deadline(rank, 8 * 3000)));
        fabric.run_until(at_us(15));
        fabric.alive[2] = false;
        fabric.run(Span::from_millis(30));
        for rank in [0, 1, 3] {
            match error(&fabric.events[rank]) {
                CollectiveError::Missing { missing, .. } => assert_eq!(missing, &[Rank(2)], "{protocol}"),
                CollectiveError::PeerSilent { worker, .. } => assert_eq!(*worker, Rank(2), "{protocol}"),
                other => panic!("{protocol}: {other}"),
            }
        }
        fabric.run(LEASE + LEASE + LEASE);
        assert_eq!(fabric.in_use(), 0, "{protocol}");
    }
}

#[test]
fn all_ranks_learn_that_ranks_disagree() {
    for protocol in family() {
        for odd in 0..4 {
            let mut fabric = Fabric::leaf_spine(2, 1, 2, &Choice::of(protocol));
            for rank in 0..4 {
                let op = if rank == odd { ReduceOp::Max } else { ReduceOp::Sum };
                let tensor = collective(input(rank, 100), op);
                fabric.submit(rank, Collective { deadline: Some(at_us(50_000)), ..tensor });
            }
            fabric.run(Span::from_millis(60));
            for events in &fabric.events {
                let CollectiveError::Mismatch { a, b, .. } = error(events) else {
                    panic!("{protocol}: {}", error(events))
                };
                assert!((a.index() == odd) != (b.index() == odd), "{protocol}: {a} and {b}, not {odd}");
            }
            fabric.run(LEASE + LEASE + LEASE);
            assert_eq!(fabric.in_use(), 0, "{protocol}");
        }
    }
}

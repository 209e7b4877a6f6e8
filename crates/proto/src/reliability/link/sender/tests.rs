//! The link's sending end against a receiver that the tests play.

use super::*;
use crate::congestion::Dctcp;
use crate::contract::drop_reason::DropReason;
use crate::reliability::link::wire::{Ack, MAX_ACK_WORDS};

/// The link does not read what packets carry.
const ITEM: () = ();

fn at_us(us: u64) -> Time {
    Time::ZERO + Span::from_micros(us)
}

/// Sends as much as the sender allows; returns the packets' numbers.
fn send_all(sender: &mut Sender<()>, now: Time) -> Vec<Numbers> {
    let mut sent = Vec::new();
    while sender.may_resend(now) {
        sent.push(sender.resend(now).unwrap().0);
    }
    while sender.may_send(now) {
        sent.push(sender.send(now, ITEM, true));
    }
    sent
}

/// Acknowledges all packets before `cum` and the listed packets after it; returns how many items that reported.
fn acknowledge(sender: &mut Sender<()>, now: Time, cum: u64, others: &[u64], echo: (u64, u8)) -> usize {
    let mut words = [0; MAX_ACK_WORDS];
    for seq in others {
        words[(seq / 64 - cum / 64) as usize] |= 1 << (seq % 64);
    }
    let ack =
        Ack { cum: cum as u32, limit: (cum + WINDOW) as u32, echo_seq: echo.0 as u32, echo_attempt: echo.1, marks: 0 };
    let mut items = 0;
    sender.handle_ack(now, &ack, &words, |_| items += 1).unwrap();
    items
}

#[test]
fn three_later_arrivals_make_a_loss_and_two_do_not() {
    let mut sender = Sender::new(TimerConfig::default(), Box::new(Dctcp::new(LIMITS)));
    assert_eq!(send_all(&mut sender, at_us(0)).len(), 16);
    assert_eq!(acknowledge(&mut sender, at_us(50), 0, &[1, 2], (2, 1)), 2);
    assert!(!sender.may_resend(at_us(50)));
    assert_eq!(acknowledge(&mut sender, at_us(51), 0, &[1, 2, 3], (3, 1)), 1);
    assert!(sender.may_resend(at_us(1_000)));
    let (numbers, _) = sender.resend(at_us(1_000)).unwrap();
    assert_eq!(numbers, Numbers { seq: 0, attempt: 2, ack_now: true });
    assert_eq!(acknowledge(&mut sender, at_us(1_050), 4, &[], (0, 2)), 1);
    assert_eq!(sender.base, 4);
}

#[test]
fn a_retransmission_that_is_lost_too_is_found_by_what_came_after_it() {
    let mut sender = Sender::new(TimerConfig::default(), Box::new(Dctcp::new(LIMITS)));
    send_all(&mut sender, at_us(0));
    acknowledge(&mut sender, at_us(50), 0, &[1, 2, 3], (3, 1));
    let again = send_all(&mut sender, at_us(1_000));
    assert_eq!((again[0].seq, again[0].attempt), (0, 2));
    let first_window: Vec<u64> = (1..16).collect();
    acknowledge(&mut sender, at_us(1_001), 0, &first_window, (15, 1));
    assert!(send_all(&mut sender, at_us(1_002)).len() >= 3, "the window is open again");
    assert!(!sender.may_resend(at_us(1_002)));
    let and_three_later: Vec<u64> = (1..19).collect();
    acknowledge(&mut sender, at_us(1_050), 0, &and_three_later, (18, 1));
    let third = send_all(&mut sender, at_us(2_000));
    assert_eq!((third[0].seq, third[0].attempt), (0, 3));
}

#[test]
fn a_late_packet_teaches_patience() {
    let mut sender = Sender::new(TimerConfig::default(), Box::new(Dctcp::new(LIMITS)));
    send_all(&mut sender, at_us(0));
    acknowledge(&mut sender, at_us(50), 0, &[1, 2, 3], (3, 1));
    send_all(&mut sender, at_us(1_000));
    // This is the first transmission of packet 0, which arrives only now.
    acknowledge(&mut sender, at_us(1_001), 4, &[], (0, 1));
    acknowledge(&mut sender, at_us(1_002), 4, &[5, 6, 7, 8], (8, 1));
    assert!(!sender.may_resend(at_us(1_002)));
    acknowledge(&mut sender, at_us(1_003), 4, &[5, 6, 7, 8, 9, 10], (10, 1));
    assert!(sender.may_resend(at_us(2_000)));
}

#[test]
fn a_timeout_probes_first_and_gives_up_the_rest_only_when_that_is_not_answered() {
    let mut sender = Sender::new(TimerConfig::default(), Box::new(Dctcp::new(LIMITS)));
    send_all(&mut sender, at_us(0));
    let due = sender.poll_timeout(false).unwrap();
    assert_eq!(due, at_us(20_000));
    sender.handle_timeout(due, false, |()| false);
    let probe = send_all(&mut sender, due);
    assert_eq!(probe, [Numbers { seq: 0, attempt: 2, ack_now: true }]);
    let due = sender.poll_timeout(false).unwrap();
    assert_eq!(due, at_us(60_000), "twice the time");
    sender.handle_timeout(due, false, |()| false);
    let least = LIMITS.min as usize;
    let seqs: Vec<u32> = send_all(&mut sender, due).iter().map(|numbers| numbers.seq).collect();
    assert_eq!(seqs.len(), least, "and with the smallest window: {seqs:?}");
}

/// A round trip that grows beyond the timeout costs nothing then, and what was lost is found by the probe's arrival
/// (compare RFC 8985, section 7.3).
#[test]
fn a_timeout_probes_with_a_new_packet_where_one_waits() {
    let mut sender = Sender::new(TimerConfig::default(), Box::new(Dctcp::new(LIMITS)));
    send_all(&mut sender, at_us(0));
    let due = sender.poll_timeout(true).unwrap();
    sender.handle_timeout(due, true, |()| false);
    let probe = send_all(&mut sender, due);
    assert_eq!(probe.iter().map(|numbers| (numbers.seq, numbers.attempt)).collect::<Vec<_>>(), [(16, 1)]);
    let mut late = sender.clone();
    acknowledge(&mut late, due + Span::from_micros(1), 17, &[], (15, 1));
    assert!(send_all(&mut late, at_us(60_000)).iter().all(|numbers| numbers.attempt == 1), "nothing was lost");
    acknowledge(&mut sender, due + Span::from_micros(50), 0, &[16], (16, 1));
    let again = send_all(&mut sender, at_us(60_000));
    assert_eq!((again[0].seq, again[0].attempt), (0, 2), "the probe has overtaken all others");
    assert_eq!(sender.lost.len() + again.len(), 16);
}

#[test]
fn a_closed_window_is_probed_with_one_packet_at_a_time() {
    let mut sender = Sender::new(TimerConfig::default(), Box::new(Dctcp::new(LIMITS)));
    sender.limit = 10;
    assert_eq!(send_all(&mut sender, at_us(0)).len(), 10);
    let closed = Ack { cum: 10, limit: 10, echo_seq: 9, echo_attempt: 1, marks: 0 };
    sender.handle_ack(at_us(50), &closed, &[], |_| ()).unwrap();
    assert_eq!(sender.poll_timeout(false), None, "nothing is on its way, nothing waits");
    let due = sender.poll_timeout(true).unwrap();
    sender.handle_timeout(due, true, |()| false);
    assert_eq!(send_all(&mut sender, due).len(), 1);
    acknowledge(&mut sender, due + Span::from_micros(50), 11, &[], (10, 1));
    assert!(sender.may_send(due + Span::from_millis(1)));
}

#[test]
fn goes_on_where_sequence_numbers_wrap_around() {
    let start = (1 << 32) - 100;
    let mut sender = Sender {
        base: start,
        limit: start + WINDOW,
        ..Sender::new(TimerConfig::default(), Box::new(Dctcp::new(LIMITS)))
    };
    let (mut now, mut next, mut items) = (at_us(0), start, 0);
    while next < start + 1_000 {
        now += Span::from_millis(1);
        next += send_all(&mut sender, now).len() as u64;
        items += acknowledge(&mut sender, now + Span::from_micros(50), next, &[], (next - 1, 1)) as u64;
    }
    assert_eq!((sender.base, items), (next, next - start));
}

#[test]
fn acknowledgements_of_what_was_never_sent_are_refused() {
    let mut sender = Sender::new(TimerConfig::default(), Box::new(Dctcp::new(LIMITS)));
    send_all(&mut sender, at_us(0));
    let ack = Ack { cum: 17, limit: 17, echo_seq: 0, echo_attempt: 0, marks: 0 };
    assert_eq!(sender.handle_ack(at_us(1), &ack, &[], |_| ()), Err(DropReason::BadField));
    let ack = Ack { cum: 0, limit: 1025, ..ack };
    assert_eq!(sender.handle_ack(at_us(1), &ack, &[], |_| ()), Err(DropReason::BadField));
    let ack = Ack { cum: 0, limit: 1024, ..ack };
    assert_eq!(sender.handle_ack(at_us(1), &ack, &[!0; MAX_ACK_WORDS], |_| ()), Ok(()));
    assert_eq!(sender.on_its_way, 0, "only what was sent is taken for arrived");
}

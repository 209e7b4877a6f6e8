//! Both ends of a link over a path on which nothing is lost.

use std::collections::VecDeque;

use super::receiver::Receiver;
use super::sender::{LIMITS, Sender};
use super::wire::{Ack, MAX_ACK_WORDS};
use super::*;
use crate::congestion::Dctcp;
use crate::contract::config::TimerConfig;
use crate::contract::packet::Ecn;
use crate::contract::time::{Span, Time};

/// A link of 1 Gbit/s: a packet of 1,500 bytes is on the wire for so long.
const PACKET_TIME: Span = Span::from_micros(12);

/// Sends this many packets over a path with this delay each way; returns the time that it takes and the packets that
/// were sent again.
fn transfer(delay: Span, packets: u64) -> (Span, u64) {
    let (mut sender, mut receiver) =
        (Sender::new(TimerConfig::default(), Box::new(Dctcp::new(LIMITS))), Receiver::default());
    let mut data: VecDeque<(Time, Numbers)> = VecDeque::new();
    let mut acks: VecDeque<(Time, Ack, [u64; MAX_ACK_WORDS])> = VecDeque::new();
    let (mut now, mut free, mut new, mut again) = (Time::ZERO, Time::ZERO, 0, 0);
    loop {
        loop {
            let numbers = if sender.may_resend(now) {
                again += 1;
                sender.resend(now).unwrap().0
            } else if new < packets && sender.may_send(now) {
                new += 1;
                sender.send(now, (), new < packets)
            } else {
                break;
            };
            free = free.max(now) + PACKET_TIME;
            data.push_back((free + delay, numbers));
        }
        if new == packets && sender.is_idle() {
            return (now.since(Time::ZERO), again);
        }
        let more = new < packets;
        let events = [data.front().map(|first| first.0), acks.front().map(|first| first.0), sender.poll_timeout(more)];
        now = now.max(events.into_iter().flatten().min().unwrap());
        assert!(now < Time::ZERO + Span::from_millis(1_000_000), "no end: {new} packets sent, {again} again");
        if data.front().is_some_and(|first| first.0 <= now) {
            let (_, numbers) = data.pop_front().unwrap();
            if let Ok(seq) = receiver.check(numbers) {
                receiver.accept(seq, numbers, Ecn::Capable);
            }
            let mut words = [0; MAX_ACK_WORDS];
            if let Some((ack, _)) = receiver.poll_ack(0, &mut words) {
                acks.push_back((now + delay, ack, words));
            }
        } else if acks.front().is_some_and(|first| first.0 <= now) {
            let (_, ack, words) = acks.pop_front().unwrap();
            sender.handle_ack(now, &ack, &words, |()| {}).unwrap();
        } else {
            sender.handle_timeout(now, more, |()| false);
        }
    }
}

#[test]
fn nothing_is_sent_again_on_a_path_that_loses_nothing_and_is_shorter_than_the_first_timeout() {
    for delay_us in [1, 100, 1_000, 5_000, 9_900] {
        let (_, again) = transfer(Span::from_micros(delay_us), 20_000);
        assert_eq!(again, 0, "{delay_us} us");
    }
}

/// Timeouts are too short until a round trip is known. Windows of 1,024 packets need 20 round trips for 20,000, and the
/// first window has 16.
#[test]
fn timeouts_too_short_for_a_long_path_cost_little_at_first_and_nothing_later() {
    for delay_ms in [11, 20, 50, 100, 150] {
        let delay = Span::from_millis(delay_ms);
        let (time, again) = transfer(delay, 20_000);
        assert!(again <= 32 && time < delay.times(2 * 32), "{delay_ms} ms: {again} again, {time}");
    }
}

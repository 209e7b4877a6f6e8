//! The sending end by itself: what it sends, and what it takes from acknowledgements.

use super::*;

const RTT: Span = Span::from_micros(50);

fn flow(packets: u64) -> Sender {
    let settings = TransportSettings::default();
    Sender::new(&settings, 0, NodeId(1), packets * u64::from(settings.packet_bytes), true).unwrap()
}

fn send_all(sender: &mut Sender, now: Time) -> Vec<Segment> {
    std::iter::from_fn(|| sender.may_send().then(|| sender.transmit(now))).collect()
}

#[test]
fn the_last_packet_carries_the_rest() {
    let mut sender = Sender::new(&TransportSettings::default(), 0, NodeId(1), 3000, true).unwrap();
    let sizes: Vec<Body> = send_all(&mut sender, Time::ZERO).iter().map(|segment| segment.body).collect();
    let body = |bytes| Body::Data { bytes, packets: 3, in_order: false };
    assert_eq!(sizes, [body(1460), body(1460), body(80)]);
}

#[test]
fn a_packet_that_three_later_ones_overtook_is_sent_again_at_once() {
    let mut sender = flow(100);
    let sent = send_all(&mut sender, Time::ZERO);
    assert_eq!(sent.len(), 10);
    let now = Time::ZERO + RTT;
    for segment in &sent[1..3] {
        assert!(sender.handle_ack(now, segment.packet, segment.transmission, false, 0));
    }
    assert!(!send_all(&mut sender, now).iter().any(|segment| segment.packet == 0), "two are not enough");
    assert!(sender.handle_ack(now, 3, sent[3].transmission, false, 0));
    sender.handle_ack(now, 4, sent[4].transmission, false, 0);
    (5..10).for_each(|packet| {
        sender.handle_ack(now, packet, sent[packet as usize].transmission, false, 0);
    });
    let again = send_all(&mut sender, now);
    assert_eq!(again[0].packet, 0);
    assert_eq!(sender.retransmissions, 1);
}

#[test]
fn silence_sends_everything_again_from_the_least_window() {
    let mut sender = flow(4);
    send_all(&mut sender, Time::ZERO);
    let deadline = sender.deadline().unwrap();
    assert_eq!(deadline, Time::ZERO + Span::from_millis(10));
    sender.handle_timeout(deadline);
    let again: Vec<u32> = send_all(&mut sender, deadline).iter().map(|segment| segment.packet).collect();
    assert_eq!(again, [0, 1], "a window of two");
    assert_eq!(sender.deadline().unwrap().since(deadline), Span::from_millis(20), "backed off");
}

#[test]
fn an_acknowledgement_of_what_was_never_sent_is_refused() {
    let mut sender = flow(100);
    send_all(&mut sender, Time::ZERO);
    assert!(!sender.handle_ack(Time::ZERO, 10, 0, false, 0));
    assert!(!sender.handle_ack(Time::ZERO, 0, 0, false, 11));
    assert!(!sender.is_done());
}

#[test]
fn is_done_when_the_last_packet_has_arrived() {
    let mut sender = flow(3);
    let sent = send_all(&mut sender, Time::ZERO);
    sender.handle_ack(Time::ZERO + RTT, 2, sent[2].transmission, false, 0);
    assert!(!sender.is_done());
    sender.handle_ack(Time::ZERO + RTT, 1, sent[1].transmission, false, 3);
    assert!(sender.is_done());
    assert_eq!(sender.deadline(), None);
}

#[test]
fn a_refusal_begins_again_at_the_gap_and_once_for_each() {
    let settings = TransportSettings { recovery: Recovery::GoBackN, ..TransportSettings::default() };
    let mut sender = Sender::new(&settings, 0, NodeId(1), 20 * 1460, true).unwrap();
    assert_eq!(send_all(&mut sender, Time::ZERO).len(), 10);
    let now = Time::ZERO + RTT;
    assert!(sender.handle_ack(now, 0, 0, false, 1));
    assert!(sender.handle_nack(now, 2), "packet 1 has arrived, too, and its acknowledgement is late");
    let again: Vec<u32> = send_all(&mut sender, now).iter().map(|segment| segment.packet).collect();
    assert_eq!(again[..3], [2, 3, 4]);
    assert!(!sender.handle_nack(now, 20), "it was never sent");
}

#[test]
fn a_trimmed_packet_is_sent_again_at_once_and_once() {
    let mut sender = flow(100);
    let sent = send_all(&mut sender, Time::ZERO);
    let now = Time::ZERO + RTT;
    for (packet, times) in [(7, 2), (2, 1)] {
        (0..times).for_each(|_| assert!(sender.handle_trimmed(now, packet, sent[packet as usize].transmission)));
    }
    assert!(!sender.handle_trimmed(now, 10, 10), "it was never sent");
    // The window is halved once, to five packets, and eight are under way.
    assert!(send_all(&mut sender, now).is_empty());
    for segment in [0, 1, 3, 4, 5].map(|packet| sent[packet]) {
        sender.handle_ack(now, segment.packet, segment.transmission, false, 0);
    }
    let again: Vec<u32> = send_all(&mut sender, now).iter().map(|segment| segment.packet).collect();
    assert_eq!((&again[..2], sender.retransmissions), (&[7, 2][..], 2));
}

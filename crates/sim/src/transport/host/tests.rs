//! Two hosts and a wire between them.

use super::*;
use crate::rng::{Purpose, Rng};
use crate::transport::HEADER_LEN;
use tributary_proto::contract::time::Span;

const HOSTS: [NodeId; 2] = [NodeId(0), NodeId(1)];
const DELAY: Span = Span::from_micros(10);

/// Exchanges the packets of two endpoints over a wire that loses this share of them; returns the time of the last
/// arrival.
fn exchange(ends: &mut [TransportHost; 2], loss: f64) -> Time {
    let (mut now, mut last) = (Time::ZERO, Time::ZERO);
    let mut rng = Rng::new(1, Purpose::LinkFaults, 0);
    let mut wire: VecDeque<(Time, usize, [u8; HEADER_LEN])> = VecDeque::new();
    loop {
        for (index, end) in ends.iter_mut().enumerate() {
            let mut buf = [0; HEADER_LEN];
            while end.poll_transmit(now, &mut buf).is_some() {
                if !rng.chance(loss) {
                    wire.push_back((now + DELAY, 1 - index, buf));
                }
            }
        }
        let timeout = ends.iter_mut().filter_map(TransportHost::poll_timeout).min();
        match (wire.front(), timeout) {
            (Some(&(at, to, bytes)), timeout) if timeout.is_none_or(|timeout| at <= timeout) => {
                (now, last) = (at, at);
                wire.pop_front();
                ends[to].handle_packet(now, (HOSTS[1 - to], 0), &bytes, Ecn::Capable);
            }
            (_, Some(timeout)) => {
                now = now.max(timeout);
                ends.iter_mut().for_each(|end| end.handle_timeout(now));
            }
            (_, None) => return last,
        }
    }
}

fn pair() -> [TransportHost; 2] {
    std::array::from_fn(|_| TransportHost::new(TransportSettings::default()))
}

#[test]
fn slow_start_doubles_the_window_each_round() {
    let mut ends = pair();
    ends[0].start(Time::ZERO, HOSTS[1], 1460 * 70, 0);
    let end = exchange(&mut ends, 0.0);
    // 10, 20 and 40 packets take three rounds; the last packet arrives half a round before the last
    // acknowledgement.
    assert_eq!(end, Time::ZERO + DELAY.times(6));
    assert_eq!(ends[1].arrived(), [Arrived { from: HOSTS[0], flow: 0, at: Time::ZERO + DELAY.times(5) }]);
}

#[test]
fn flows_both_ways_arrive_whole_over_a_lossy_wire() {
    for loss in [0.5, 0.3, 0.1, 0.02] {
        let mut ends = pair();
        for flow in 0..5 {
            ends[0].start(Time::ZERO, HOSTS[1], 1000 * (flow * 17 + 1), 0);
            ends[1].start(Time::ZERO, HOSTS[0], 1000 * (flow * 31 + 1), 0);
        }
        exchange(&mut ends, loss);
        for end in &mut ends {
            assert_eq!(end.arrived().len(), 5, "{loss} lost");
            assert_eq!(end.take_balance(), Balance { opened: 5, closed: 5 });
            assert_eq!(end.refused(), 0);
        }
        assert!(ends[0].retransmissions() > 0);
    }
}

#[test]
fn garbage_is_counted_and_changes_nothing() {
    let mut ends = pair();
    ends[0].start(Time::ZERO, HOSTS[1], 10, 0);
    ends[0].handle_packet(Time::ZERO, (HOSTS[1], 0), &[7; HEADER_LEN], Ecn::Capable);
    let mut ack = [0; HEADER_LEN];
    let body = Body::Ack { marked: false, next: 1 };
    Segment { flow: 9, packet: 0, transmission: 0, body }.write(&mut ack);
    ends[0].handle_packet(Time::ZERO, (HOSTS[1], 0), &ack, Ecn::Capable);
    assert_eq!(ends[0].refused(), 2);
    exchange(&mut ends, 0.0);
    assert_eq!(ends[1].arrived().len(), 1);
}

//! A stream: packets of one size from one host to another at a fixed rate, whatever losses there are (UDP without
//! control).

use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::time::{Span, Time};

/// The source of one sender.
#[derive(Clone, Debug)]
pub struct Stream {
    to: NodeId,
    pattern: u8,
    packet_bytes: u16,
    /// The time from one packet to the next.
    pace: Span,
    next: Time,
    end: Time,
}

impl Stream {
    /// Packets of `packet_bytes` bytes on a link, one every `pace`, from `start` on and before `end`.
    pub fn new(to: NodeId, pattern: u8, packet_bytes: u16, pace: Span, start: Time, end: Option<Time>) -> Stream {
        Stream { to, pattern, packet_bytes, pace, next: start, end: end.unwrap_or(Time(u64::MAX)) }
    }

    /// The number of its pattern, which its packets carry as their lane.
    pub fn pattern(&self) -> u8 {
        self.pattern
    }

    /// Destination and size of the next packet; or the time from pattern there is one, pattern is the end of time if there
    /// is none.
    pub fn poll(&mut self, now: Time) -> Result<(NodeId, u16), Time> {
        if now >= self.end {
            return Err(Time(u64::MAX));
        }
        if now < self.next {
            return Err(self.next);
        }
        // A NIC that was busy for less than a packet's time does not slow the stream down.
        self.next = self.next.max(Time(now.0.saturating_sub(self.pace.0))) + self.pace;
        Ok((self.to, self.packet_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_keeps_its_rate_from_its_start_to_its_end() {
        let at = |ns: u64| Time::ZERO + Span::from_nanos(ns);
        let mut stream = Stream::new(NodeId(3), 0, 1000, Span::from_nanos(200), at(1_000), Some(at(21_000)));
        assert_eq!(stream.poll(Time::ZERO), Err(at(1_000)));
        let (mut now, mut packets) = (at(1_000), 0);
        loop {
            match stream.poll(now) {
                Ok((to, bytes)) => {
                    assert_eq!((to, bytes), (NodeId(3), 1000));
                    packets += 1;
                }
                Err(Time(u64::MAX)) => break,
                // Now and then the NIC is late by less than a packet's time.
                Err(next) => now = next + Span::from_nanos(packets % 3 * 50),
            }
        }
        assert_eq!(packets, 100, "20 us of one packet in 200 ns");
    }
}

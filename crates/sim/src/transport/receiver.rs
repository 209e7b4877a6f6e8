//! The receiving end of a flow: which packets have arrived.

use std::cmp::Ordering;
use std::collections::VecDeque;

/// What a receiver does with a packet that must come in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InOrder {
    /// It is acknowledged: it is the next one, or came before.
    Taken,
    /// It came after a gap, and the sender is notified.
    Refused,
    /// It came after a gap of which the sender was notified.
    Dropped,
}

/// A flow at its receiver.
#[derive(Debug, Default)]
pub(super) struct Receiver {
    /// The first packet that has not arrived.
    next: u32,
    /// For the packets after it, whether they have arrived.
    later: VecDeque<bool>,
    /// The gap of which the sender was notified.
    refused: Option<u32>,
}

impl Receiver {
    /// Takes a packet; true if it came for the first time.
    pub fn take(&mut self, packet: u32) -> bool {
        let Some(ahead) = packet.checked_sub(self.next) else { return false };
        if ahead > 0 {
            let index = ahead as usize - 1;
            if self.later.len() <= index {
                self.later.resize(index + 1, false);
            }
            return !std::mem::replace(&mut self.later[index], true);
        }
        self.next += 1;
        while let Some(arrived) = self.later.pop_front() {
            if !arrived {
                break;
            }
            self.next += 1;
        }
        true
    }

    /// Takes a packet only if all before it have arrived. The sender is notified of each gap once.
    pub fn take_in_order(&mut self, packet: u32) -> InOrder {
        match packet.cmp(&self.next) {
            Ordering::Less => InOrder::Taken,
            Ordering::Equal => {
                self.next += 1;
                InOrder::Taken
            }
            Ordering::Greater if self.refused.replace(self.next) == Some(self.next) => InOrder::Dropped,
            Ordering::Greater => InOrder::Refused,
        }
    }

    /// The first packet that has not arrived.
    pub fn next(&self) -> u32 {
        self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_in_any_order_count_once() {
        let mut receiver = Receiver::default();
        let mut next = |packet| (receiver.take(packet), receiver.next());
        assert_eq!(next(1), (true, 0));
        assert_eq!(next(3), (true, 0));
        assert_eq!(next(1), (false, 0));
        assert_eq!(next(0), (true, 2));
        assert_eq!(next(0), (false, 2));
        assert_eq!(next(2), (true, 4));
        assert_eq!(next(4), (true, 5));
    }

    #[test]
    fn in_order_a_gap_is_reported_once_until_it_is_closed() {
        let mut receiver = Receiver::default();
        let mut take = |packet| (receiver.take_in_order(packet), receiver.next());
        assert_eq!(take(0), (InOrder::Taken, 1));
        assert_eq!(take(2), (InOrder::Refused, 1));
        assert_eq!(take(3), (InOrder::Dropped, 1));
        assert_eq!(take(1), (InOrder::Taken, 2));
        assert_eq!(take(3), (InOrder::Refused, 2), "what was dropped must come again");
        assert_eq!(take(0), (InOrder::Taken, 2), "its acknowledgement was lost");
    }
}

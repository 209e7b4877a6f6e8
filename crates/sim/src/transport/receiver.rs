//! One flow's receiving end: which packets have arrived.

use std::collections::VecDeque;

/// A flow at its receiver.
#[derive(Debug, Default)]
pub(super) struct Receiver {
    /// The first packet that has not arrived.
    next: u32,
    /// For the packets after it, whether they have arrived.
    later: VecDeque<bool>,
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
}

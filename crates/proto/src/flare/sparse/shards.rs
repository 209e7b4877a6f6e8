//! The packets of one block of one sender, its *shards*: which of them have come, and which may go.
//!
//! Both ends keep a window of [`WINDOW`] shards. By its number a shard that comes twice is recognized, however late it
//! comes; the last shard says how many there are. So a block may have any number of shards, and each end needs only a
//! few words of state.

use crate::contract::drop_reason::DropReason;

/// How many shards a sender may be ahead of the first shard that its receiver lacks.
pub const WINDOW: u32 = 64;

/// The shards that have come: all shards below `next`, and of the later ones those whose bit is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// The first shard that is missing.
    pub next: u32,
    /// Bit `i` is set if shard `next + i` has come. Bit 0 is never set.
    pub bits: u64,
    /// How many shards there are; 0 until the last one has come.
    count: u32,
}

impl Received {
    /// Checks that a shard is still missing. `count` is the number of shards that it states: 0 if it is not the last.
    pub fn check(&self, shard: u32, count: u32) -> Result<(), DropReason> {
        let behind = shard.checked_add(1).ok_or(DropReason::BadField)?;
        // The last shard states its own number, counted from 1. No shard lies beyond it, and no other shard states a
        // number.
        let is_last = count == behind && self.end() <= count && (self.count == 0 || self.count == count);
        let is_other = count == 0 && (self.count == 0 || behind < self.count);
        if !is_last && !is_other {
            return Err(DropReason::BadField);
        }
        match shard.checked_sub(self.next) {
            Some(ahead @ 0..WINDOW) if self.bits >> ahead & 1 == 0 => Ok(()),
            None | Some(0..WINDOW) => Err(DropReason::Duplicate),
            Some(_) => Err(DropReason::Ahead),
        }
    }

    /// Notes a shard that [`Received::check`] has accepted.
    pub fn take(&mut self, shard: u32, count: u32) {
        self.bits |= 1 << (shard - self.next);
        self.count = self.count.max(count);
        let run = self.bits.trailing_ones();
        self.next += run;
        self.bits = self.bits.checked_shr(run).unwrap_or(0);
    }

    /// The number behind the last shard that has come.
    fn end(&self) -> u32 {
        self.next + (u64::BITS - self.bits.leading_zeros())
    }

    /// True if all shards have come.
    pub fn is_complete(&self) -> bool {
        self.count != 0 && self.next == self.count
    }
}

/// The shards that were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The receiver has all shards below this one.
    pub released: u32,
    /// The next shard to send: for the first time, or again because the receiver had no room for it.
    pub next: u32,
    /// The number behind the last shard that was ever sent.
    most: u32,
    /// How many shards may be ahead of the first that the receiver lacks.
    window: u32,
}

impl Default for Sent {
    fn default() -> Sent {
        Sent { released: 0, next: 0, most: 0, window: WINDOW }
    }
}

impl Sent {
    /// The state for the next block, of which nothing was sent, to the same receiver.
    #[must_use]
    pub fn restarted(&self) -> Sent {
        Sent { window: self.window, ..Sent::default() }
    }

    /// True if another shard may go, where this many are available.
    pub fn may_go_on(&self, available: u32) -> bool {
        self.next < available && self.next - self.released < self.window
    }

    /// Takes the next shard to send: its number, and whether it was sent before.
    pub fn advance(&mut self) -> (u32, bool) {
        let shard = self.next;
        self.next += 1;
        let again = self.next <= self.most;
        self.most = self.most.max(self.next);
        (shard, again)
    }

    /// The receiver has all shards below `next`; true if that is news.
    pub fn release(&mut self, next: u32) -> bool {
        let is_news = next > self.released && next <= self.most;
        if is_news {
            (self.released, self.next) = (next, self.next.max(next));
        }
        is_news
    }

    /// True if at least this many shards were sent.
    pub fn has_sent(&self, shards: u32) -> bool {
        shards <= self.most
    }

    /// The receiver had no room: the window halves, and sending starts again from the first shard that the receiver
    /// lacks.
    pub fn shrink(&mut self) {
        self.window = (self.window / 2).max(1);
        self.next = self.released;
    }

    /// The receiver had room: the window grows by one.
    pub fn grow(&mut self) {
        self.window = (self.window + 1).min(WINDOW);
    }

    /// True if the next shard is the last that the narrowed window allows, so that it must ask the receiver.
    pub fn is_narrow(&self) -> bool {
        self.window < WINDOW && self.next + 1 - self.released >= self.window
    }

    /// The last shard that was sent: a receiver that gets it sees which shards are missing before it.
    pub fn last(&self) -> Lacking {
        Lacking { from: self.next.saturating_sub(1), bits: u64::from(self.next > self.released) }
    }

    /// The shards that were sent and that the receiver lacks, according to the receiver.
    pub fn lacking(&self, next: u32, bits: u64) -> Lacking {
        let sent = self.next.saturating_sub(next).min(WINDOW);
        let went = if sent == WINDOW { u64::MAX } else { (1 << sent) - 1 };
        Lacking { from: next, bits: went & !bits }
    }

    /// The same without shards that may still be on their way: only shards of which a later one has come.
    pub fn overtaken(&self, next: u32, bits: u64) -> Lacking {
        let highest = bits.checked_ilog2().unwrap_or(0);
        let Lacking { from, bits } = self.lacking(next, bits);
        Lacking { from, bits: bits & ((1 << highest) - 1) }
    }
}

/// Shards that must go again: bit `i` is shard `from + i`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lacking {
    from: u32,
    bits: u64,
}

impl Lacking {
    /// True if no shard must go again.
    pub fn is_empty(&self) -> bool {
        self.bits == 0
    }

    /// Removes the first shard and returns its number.
    pub fn pop(&mut self) -> Option<u32> {
        let at = (self.bits != 0).then(|| self.bits.trailing_zeros())?;
        self.bits &= self.bits - 1;
        Some(self.from + at)
    }

    /// The shards of both that lie in the window of the earlier one. A receiver that lacks others asks again.
    #[must_use]
    pub fn and(self, other: Lacking) -> Lacking {
        match (self.is_empty(), other.is_empty()) {
            (_, true) => self,
            (true, _) => other,
            _ => {
                let from = self.from.min(other.from);
                let shifted = |Lacking { from: own, bits }: Lacking| bits.checked_shl(own - from).unwrap_or(0);
                Lacking { from, bits: shifted(self) | shifted(other) }
            }
        }
    }

    /// The same without shards below `first`.
    #[must_use]
    pub fn from(self, first: u32) -> Lacking {
        match first.checked_sub(self.from) {
            Some(gone) => Lacking { from: first, bits: self.bits.checked_shr(gone).unwrap_or(0) },
            None => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_shard_that_comes_twice_is_seen_and_so_is_a_forged_count() {
        let mut received = Received::default();
        received.take(1, 0);
        assert_eq!(received.check(1, 0), Err(DropReason::Duplicate));
        assert_eq!(received.check(64, 0), Err(DropReason::Ahead));
        // The count is the last shard's number plus one, and is not less than the number of shards that have come.
        assert_eq!(received.check(0, 1), Err(DropReason::BadField));
        assert_eq!(received.check(2, 2), Err(DropReason::BadField));
        assert_eq!(received.check(2, 65_535), Err(DropReason::BadField));
        received.take(2, 3);
        assert_eq!(received.check(3, 0), Err(DropReason::BadField));
        assert_eq!(received.check(3, 4), Err(DropReason::BadField));
        assert!(!received.is_complete());
        received.take(0, 0);
        assert!(received.is_complete());
        assert_eq!(received.check(0, 0), Err(DropReason::Duplicate));
    }

    proptest! {
        /// In any order and with any losses, each shard is taken once, and a sender that asks what is missing brings
        /// the rest.
        #[test]
        fn each_shard_is_taken_once_and_what_is_lacking_comes_again(count in 1u32..300, seed: u64) {
            let (mut sent, mut received, mut taken) = (Sent::default(), Received::default(), vec![0; count as usize]);
            let mut draw = tributary_numeric::splitmix64(seed);
            let mut rounds = 0;
            while !received.is_complete() {
                let mut batch: Vec<u32> = Vec::new();
                while sent.may_go_on(count) {
                    batch.push(sent.advance().0);
                }
                let mut lacking = sent.lacking(received.next, received.bits);
                batch.extend(std::iter::from_fn(|| lacking.pop()));
                for shard in batch {
                    draw = tributary_numeric::splitmix64(draw);
                    let last = if shard + 1 == count { count } else { 0 };
                    if !draw.is_multiple_of(3) && received.check(shard, last).is_ok() {
                        received.take(shard, last);
                        taken[shard as usize] += 1;
                    }
                }
                sent.release(received.next);
                rounds += 1;
                prop_assert!(rounds < 1_000);
            }
            prop_assert!(taken.iter().all(|&times| times == 1));
        }
    }

    #[test]
    fn what_two_receivers_lack_is_kept_together() {
        let sent = Sent { next: 70, most: 70, ..Sent::default() };
        let mut both = sent.lacking(3, !0b101).and(sent.lacking(1, !0b1));
        assert_eq!(std::iter::from_fn(|| both.pop()).collect::<Vec<_>>(), [1, 3, 5]);
        let mut rest = sent.lacking(1, !0b10011).from(3);
        assert_eq!(std::iter::from_fn(|| rest.pop()).collect::<Vec<_>>(), [5]);
        assert_eq!(sent.overtaken(4, 0b1010), Lacking { from: 4, bits: 0b101 });
        assert!(sent.overtaken(4, 0).is_empty());
    }
}

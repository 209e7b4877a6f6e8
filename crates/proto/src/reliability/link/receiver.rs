//! The receiving end: which packets have arrived, and when to acknowledge them.

use super::Numbers;
use super::wire::{Ack, MAX_ACK_WORDS, SeqSet, WINDOW, expand};
use crate::contract::drop_reason::DropReason;
use crate::contract::packet::Ecn;

/// An acknowledgement is due after this many packets without one, even if the sender does not ask for it.
pub const PACKETS_PER_ACK: u32 = 8;

/// Which packets of the link have arrived.
#[derive(Clone, Debug, Default, Hash)]
pub struct Receiver {
    /// Every packet before this one has arrived.
    cum: u64,
    /// One more than the highest packet that has arrived.
    end: u64,
    arrived: SeqSet,
    /// The number of packets with a congestion mark.
    marks: u16,
    /// The number of packets since the last acknowledgement.
    unsaid: u32,
    due: bool,
    /// The packet that the next acknowledgement answers.
    echo: Option<(u32, u8)>,
}

impl Receiver {
    /// The full sequence number of a packet that has not arrived before.
    pub fn check(&mut self, numbers: Numbers) -> Result<u64, DropReason> {
        let seq = expand(self.cum, numbers.seq).ok_or(DropReason::Duplicate)?;
        if seq < self.cum || seq < self.end && self.arrived.contains(seq) {
            // The acknowledgement was lost, or the network duplicated the packet: acknowledge it again.
            self.due = true;
            self.echo = Some((numbers.seq, numbers.attempt));
            return Err(DropReason::Duplicate);
        }
        if seq >= self.cum + WINDOW { Err(DropReason::Ahead) } else { Ok(seq) }
    }

    /// The first packet for which there is no place, while `kept` packets are held for later collectives.
    pub fn limit(&self, kept: usize) -> u64 {
        self.cum + WINDOW - kept as u64
    }

    /// The packet was taken in and need not come again.
    pub fn accept(&mut self, seq: u64, numbers: Numbers, ecn: Ecn) {
        let in_order = seq == self.end && seq == self.cum;
        self.arrived.insert(seq);
        self.end = self.end.max(seq + 1);
        let old = self.cum;
        while self.cum < self.end && self.arrived.contains(self.cum) {
            self.cum += 1;
        }
        self.arrived.rise(old, self.cum);
        self.marks = self.marks.wrapping_add(u16::from(ecn == Ecn::CongestionExperienced));
        self.unsaid += 1;
        self.due |= numbers.ack_now || !in_order || self.unsaid >= PACKETS_PER_ACK;
        self.echo = Some((numbers.seq, numbers.attempt));
    }

    /// Sends an acknowledgement that no packet asks for: places are free again, or a packet found none.
    pub fn announce(&mut self) {
        self.due = true;
    }

    /// The next acknowledgement, if one is due, and the number of its words.
    pub fn poll_ack(&mut self, kept: usize, words: &mut [u64; MAX_ACK_WORDS]) -> Option<(Ack, usize)> {
        if !self.due {
            return None;
        }
        self.due = false;
        self.unsaid = 0;
        let mut count = 0;
        if self.end > self.cum {
            for first in (self.cum / 64 * 64..self.end).step_by(64) {
                words[count] = self.arrived.word(first);
                count += 1;
            }
        }
        let (echo_seq, echo_attempt) = self.echo.take().unwrap_or_default();
        let limit = self.limit(kept) as u32;
        Some((Ack { cum: self.cum as u32, limit, echo_seq, echo_attempt, marks: self.marks }, count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    fn arrive(receiver: &mut Receiver, seq: u64, ack_now: bool) -> Result<(), DropReason> {
        let numbers = Numbers { seq: seq as u32, attempt: 1, ack_now };
        let seq = receiver.check(numbers)?;
        receiver.accept(seq, numbers, Ecn::CongestionExperienced);
        Ok(())
    }

    fn poll(receiver: &mut Receiver) -> Option<(Ack, Vec<u64>)> {
        let mut words = [0; MAX_ACK_WORDS];
        receiver.poll_ack(0, &mut words).map(|(ack, count)| (ack, words[..count].to_vec()))
    }

    #[test]
    fn acknowledges_after_eight_packets_or_on_request() {
        let mut receiver = Receiver::default();
        for seq in 0..7 {
            arrive(&mut receiver, seq, false).unwrap();
            assert_eq!(poll(&mut receiver), None);
        }
        arrive(&mut receiver, 7, false).unwrap();
        let (ack, words) = poll(&mut receiver).unwrap();
        assert_eq!((ack.cum, ack.limit, ack.echo_seq, ack.echo_attempt, ack.marks), (8, 8 + 1024, 7, 1, 8));
        assert!(words.is_empty());
        arrive(&mut receiver, 8, true).unwrap();
        assert_eq!(poll(&mut receiver).unwrap().0.cum, 9);
        assert_eq!(poll(&mut receiver), None);
    }

    #[test]
    fn reports_gaps_and_what_lies_behind_them_at_once() {
        let mut receiver = Receiver::default();
        arrive(&mut receiver, 1, false).unwrap();
        arrive(&mut receiver, 70, false).unwrap();
        let (ack, words) = poll(&mut receiver).unwrap();
        assert_eq!((ack.cum, words), (0, vec![0b10, 1 << 6]));
        arrive(&mut receiver, 0, false).unwrap();
        assert_eq!(poll(&mut receiver).unwrap().0.cum, 2);
        assert_eq!(arrive(&mut receiver, 70, false), Err(DropReason::Duplicate));
        assert!(poll(&mut receiver).is_some(), "a duplicate is answered");
        assert_eq!(arrive(&mut receiver, 2 + 1024, false), Err(DropReason::Ahead));
    }

    #[test]
    fn goes_on_where_sequence_numbers_wrap_around() {
        let start = (1 << 32) - 100;
        let mut receiver = Receiver { cum: start, end: start, ..Receiver::default() };
        for seq in start..start + 1000 {
            arrive(&mut receiver, seq, seq % 3 == 0).unwrap();
            assert_eq!(arrive(&mut receiver, seq, false), Err(DropReason::Duplicate));
        }
        assert_eq!(poll(&mut receiver).unwrap().0.cum, 900);
    }
}

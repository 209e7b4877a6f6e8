//! Memory for received messages, allocated once.

use std::net::SocketAddr;
use std::ops::Range;

use tributary_proto::contract::packet::Ecn;

/// The most messages that one call receives. If the path does not coalesce, each message is one packet, and the batch
/// saves calls.
pub(super) const BATCH: usize = 8;
/// If the path coalesces, a message is a run of up to 64 KiB. After a message of this length, the next call receives
/// one message only, into the same memory, so that the core's own cache still holds it while the packets are processed
/// and forwarded.
const LONG: usize = 1 << 14;
/// Bytes for one message. The longest UDP payload fits.
pub const MESSAGE_LEN: usize = 1 << 16;

/// One message: a run of packets from one sender. All have `segment` bytes, except the last, which may be shorter.
#[derive(Clone, Copy, Debug)]
pub struct Message {
    /// The sender.
    pub from: SocketAddr,
    /// Where the message begins in the inbox's memory.
    pub start: usize,
    /// Bytes of all packets.
    pub len: usize,
    /// Bytes of each packet.
    pub segment: usize,
    /// The congestion bits with which the message arrived.
    pub ecn: Ecn,
}

impl Message {
    /// Where in the inbox's memory each packet is. A message without any byte is one empty packet.
    pub fn segments(&self) -> Segments {
        Segments { at: self.start, end: self.start + self.len, step: self.segment.max(1), empty: self.len == 0 }
    }
}

/// Where the packets of a message are, one after the other. The default has none.
#[derive(Clone, Debug, Default)]
pub struct Segments {
    at: usize,
    end: usize,
    step: usize,
    /// True if one empty packet is left.
    empty: bool,
}

impl Iterator for Segments {
    type Item = Range<usize>;

    #[inline]
    fn next(&mut self) -> Option<Range<usize>> {
        if self.at == self.end && !std::mem::take(&mut self.empty) {
            return None;
        }
        let at = self.at;
        self.at = self.end.min(at + self.step);
        Some(at..self.at)
    }
}

/// The messages that one call received.
pub struct Inbox {
    /// The bytes of all messages.
    pub memory: Box<[u8]>,
    /// The messages.
    pub messages: Vec<Message>,
    /// The number of packets that the kernel has dropped for lack of buffer, as it last reported.
    pub(super) overflows: u32,
    /// The number of messages that the next call asks for, at most [`BATCH`].
    batch_len: usize,
}

impl Inbox {
    /// An empty inbox with all its memory.
    pub fn new() -> Inbox {
        let memory = vec![0; BATCH * MESSAGE_LEN].into_boxed_slice();
        Inbox { memory, messages: Vec::with_capacity(BATCH), overflows: 0, batch_len: BATCH }
    }

    /// The number of messages that the next call asks for, at most [`BATCH`].
    pub(super) fn batch_len(&self) -> usize {
        self.batch_len
    }

    /// Notes how many messages a call has received. True if it received as many as it asked for, so that there may be
    /// more.
    pub(super) fn note_batch(&mut self) -> bool {
        let is_full = self.messages.len() == self.batch_len;
        let long = self.messages.iter().any(|message| message.len >= LONG);
        self.batch_len = if long { 1 } else { BATCH };
        is_full
    }
}

impl Default for Inbox {
    fn default() -> Self {
        Inbox::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(len: usize, segment: usize) -> Message {
        Message { from: "127.0.0.1:1".parse().unwrap(), start: 100, len, segment, ecn: Ecn::NotCapable }
    }

    #[test]
    fn a_run_is_cut_into_its_packets() {
        let cut: Vec<_> = message(25, 10).segments().collect();
        assert_eq!(cut, [100..110, 110..120, 120..125]);
    }

    #[test]
    fn after_a_long_run_the_next_comes_by_itself_and_after_a_short_one_in_a_batch() {
        let mut inbox = Inbox::new();
        inbox.messages.push(message(44 * 1472, 1472));
        assert!(!inbox.note_batch(), "one of {BATCH}");
        assert_eq!(inbox.batch_len(), 1);
        assert!(inbox.note_batch(), "one of one");
        inbox.messages = vec![message(100, 100)];
        assert!(inbox.note_batch());
        assert_eq!(inbox.batch_len(), BATCH);
    }

    #[test]
    fn an_empty_datagram_is_one_packet() {
        assert!(message(0, 0).segments().eq(std::iter::once(100..100)));
    }
}

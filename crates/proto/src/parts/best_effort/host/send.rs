//! What a host sends: what its server has to say first, then what is sent again, then questions, then as much as its
//! windows allow.

use super::BestEffortHost;
use super::scaling::Magnitude;
use crate::contract::ids::{NodeId, Rank};
use crate::contract::packet::{Addr, Ecn, Transmit};
use crate::contract::tensor::Spec;
use crate::contract::time::Time;
use crate::contract::wire::COMMON_LEN;
use crate::parts::best_effort::form::Form;
use crate::parts::best_effort::seq;
use crate::parts::best_effort::server::Outgoing;
use crate::parts::best_effort::server::served::{Served, State};
use crate::parts::best_effort::wire::{Flags, HEADER_LEN, Header, Kind};
use crate::parts::farewell::Word;
use crate::parts::mismatch::Mismatch;
use crate::parts::report::Report;
use crate::parts::stream::Op;

/// A header that says nothing but which block and rank are meant.
fn bare(served: &Served, block: u64, wid: Rank) -> Header {
    Header {
        seq: seq::of_block(block),
        prog: 0,
        index: 0,
        received: 0,
        flags: Flags::default(),
        wid,
        count: 0,
        attempt: served.attempt,
        exponent: served.exponent,
        scale: served.scale,
        // Nobody may have said yet what the block is of.
        spec: served.what.map_or(Spec::NOTHING, |(_, spec)| spec),
    }
}

impl BestEffortHost {
    pub(super) fn next_packet(&mut self, now: Time, buf: &mut [u8]) -> Option<Transmit> {
        self.bring_served(now);
        if let Some(said) = self.farewell.poll() {
            return Some(self.write_farewell(said, buf));
        }
        while let Some(outgoing) = self.server.outbox.pop_front() {
            if let Some(transmit) = self.write_outgoing(outgoing, buf) {
                return Some(transmit);
            }
        }
        if let Some((block, is_resend)) = self.window.next_again()
            && (!is_resend || self.may_resend(now))
        {
            self.window.pop_again();
            self.resent.1 += u64::from(is_resend);
            let is_repetition = self.window.waiting(block).is_some_and(|place| place.sends > 0);
            self.stats.retransmissions += u64::from(is_repetition);
            return Some(self.write_gradient(now, block, buf));
        }
        // After what is sent again, which is longer: questions that came first would fill a short queue, at each try.
        if let Some(question) = self.next_question(buf) {
            return Some(question);
        }
        let next = self.window.next;
        if self.window.flying >= self.windows.packets() || !self.may_begin(next) {
            return None;
        }
        self.begin();
        Some(self.write_gradient(now, next, buf))
    }

    /// The next block was submitted, and the last result allows it.
    pub(super) fn may_begin(&self, next: u64) -> bool {
        let reach = self.windows.ahead().clamp(1, self.config.job.slots.max(1).into());
        next < self.submitted && next < self.window.first + reach && self.life.broken().is_none()
    }

    /// The next block takes its place in the window.
    pub(super) fn begin(&mut self) {
        let place = self.window.begin();
        let op = self.life.stream.op_of(place.block).expect("the block was submitted");
        place.scale = BestEffortHost::guess(op, place.block, place.base);
    }

    fn emit(
        &self,
        kind: Kind,
        header: &Header,
        (len, wire_len): (usize, usize),
        to: NodeId,
        buf: &mut [u8],
    ) -> Transmit {
        buf[..COMMON_LEN].copy_from_slice(&self.common);
        header.emit(kind, buf);
        // Header-only packets have no queue to answer for.
        let ecn = if matches!(kind, Kind::Gradient | Kind::Aack) { Ecn::Capable } else { Ecn::NotCapable };
        Transmit { to: Addr::Node(to), len: HEADER_LEN + len, wire_len: HEADER_LEN + wire_len, ecn }
    }

    /// What this rank says of a block of its own in any packet.
    pub(super) fn own_header(&self, op: &Op, block: u64, magnitude: &Magnitude) -> Header {
        let place = self.window.waiting(block);
        Header {
            seq: seq::of_block(block),
            prog: 0,
            index: place.map_or(0, |place| place.index),
            received: 0,
            flags: magnitude.flags,
            wid: self.own(),
            count: 1,
            attempt: place.map_or(0, |place| place.attempt),
            exponent: magnitude.exponent,
            scale: magnitude.scale,
            spec: op.spec,
        }
    }

    /// A block of this rank, towards its server.
    fn write_gradient(&mut self, now: Time, block: u64, buf: &mut [u8]) -> Transmit {
        self.window.sent(now, block);
        self.recovery.begin(now);
        let op = self.life.stream.op_of(block).expect("a block that waits has a collective");
        let magnitude = self.magnitude(op, block);
        let header = self.own_header(op, block, &magnitude);
        let resend = self.window.waiting(block).is_some_and(|place| place.resend);
        let header = Header { flags: header.flags.with_if(resend, Flags::RESEND), ..header };
        let elements = if header.has_vector() { op.range(block).len() } else { 0 };
        let len = op.encoding.buffer_len(elements);
        self.read_own(op, block, &magnitude, &mut buf[HEADER_LEN..HEADER_LEN + len]);
        let lengths = (len, op.encoding.wire_len(elements));
        let to = self.places.node_of(self.places.server_of_block(block));
        self.emit(Kind::Gradient, &header, lengths, to, buf)
    }

    /// What this rank brings to a block.
    pub(super) fn read_own(&self, op: &Op, block: u64, magnitude: &Magnitude, vector: &mut [u8]) {
        if !vector.is_empty() && op.spec.primitive.brings(self.config.rank) {
            op.read(block, Some(magnitude.scale), self.world(), vector);
        } else {
            // Nothing, of a rank that a broadcast is for: the sum is the root's words as they are.
            vector.fill(0);
        }
    }

    /// A question about a block that another host serves.
    fn next_question(&mut self, buf: &mut [u8]) -> Option<Transmit> {
        while let Some(block) = self.questions.pop_front() {
            let (Some(_), Some(op)) = (self.window.waiting(block), self.life.stream.op_of(block)) else { continue };
            let magnitude = self.magnitude(op, block);
            let header = Header { flags: Flags::default(), count: 0, ..self.own_header(op, block, &magnitude) };
            let to = self.places.node_of(self.places.server_of_block(block));
            return Some(self.emit(Kind::Query, &header, (0, 0), to, buf));
        }
        None
    }

    /// What the server has to say, if it still has.
    fn write_outgoing(&self, outgoing: Outgoing, buf: &mut [u8]) -> Option<Transmit> {
        let to = |rank: Rank| self.places.node_of(rank);
        match outgoing {
            Outgoing::Gack { header, marked } => {
                let flags = Flags::default().with_if(marked, Flags::ECN);
                let header = Header { flags, count: 0, received: 0, ..header };
                Some(self.emit(Kind::Gack, &header, (0, 0), to(header.wid), buf))
            }
            Outgoing::Tell(block, rank) => {
                let switch = self.places.switch_of(rank);
                self.write_result(block, rank, Flags::MULTICAST, switch, buf)
            }
            Outgoing::Answer(block, rank) => self.write_result(block, rank, Flags::default(), to(rank), buf),
            Outgoing::Need(block, rank) => {
                let served = self.server.get(block).filter(|served| served.state == State::Gathering)?;
                let header = bare(served, block, rank);
                Some(self.emit(Kind::Need, &header, (0, 0), to(rank), buf))
            }
            Outgoing::Report(block, rank) => {
                let mut report = Report::NOBODY;
                self.server.missing(block).into_iter().for_each(|rank| report.miss(rank));
                if self.server.get(block).is_some_and(|served| !served.own) {
                    report.miss(self.own());
                }
                self.write_report(block, &report, rank, buf)
            }
            Outgoing::Prompt(block, rank) => {
                let mut report = Report::NOBODY;
                report.miss(rank);
                self.write_report(block, &report, rank, buf)
            }
            Outgoing::Mismatch(block, rank) => {
                let served = self.server.get(block)?;
                let State::Refused(mismatch) = served.state else { return None };
                let header = bare(served, block, rank);
                mismatch.emit(&mut buf[HEADER_LEN..]);
                Some(self.emit(Kind::Mismatch, &header, (Mismatch::LEN, Mismatch::LEN), to(rank), buf))
            }
        }
    }

    /// Whom a block waits for.
    fn write_report(&self, block: u64, report: &Report, to: Rank, buf: &mut [u8]) -> Option<Transmit> {
        let served = self.server.get(block).filter(|served| served.state == State::Gathering)?;
        let header = bare(served, block, to);
        let len = report.emit(&mut buf[HEADER_LEN..]);
        Some(self.emit(Kind::Report, &header, (len, len), self.places.node_of(to), buf))
    }

    /// The result, or the word to send again.
    fn write_result(&self, block: u64, wid: Rank, flags: Flags, to: NodeId, buf: &mut [u8]) -> Option<Transmit> {
        let served = self.server.get(block)?;
        let is_again = served.state == State::Gathering;
        if matches!(served.state, State::Refused(_)) || is_again && served.attempt == 0 {
            return None;
        }
        let header = bare(served, block, wid);
        let header = Header {
            flags: flags.with_if(served.ecn, Flags::ECN).with_if(is_again, Flags::AGAIN),
            index: served.index.wrapping_add(served.collided.into()),
            received: self.server.received(),
            count: served.singles,
            ..header
        };
        if is_again {
            return Some(self.emit(Kind::Aack, &header, (0, 0), to, buf));
        }
        let result = served.result();
        buf[HEADER_LEN..HEADER_LEN + result.len()].copy_from_slice(result);
        let form = Form::new(self.values, &header.spec, header.scale, self.world()).ok()?;
        let wire_len = form.wire_len(served.elements);
        Some(self.emit(Kind::Aack, &header, (result.len(), wire_len), to, buf))
    }

    fn write_farewell(&self, (to, word, completed): (Rank, Word, u64), buf: &mut [u8]) -> Transmit {
        let kind = if word == Word::Leaving { Kind::Leaving } else { Kind::Parted };
        let header = Header { wid: to, count: self.own().0, ..super::failing::NO_BLOCK };
        buf[HEADER_LEN..HEADER_LEN + 8].copy_from_slice(&completed.to_be_bytes());
        self.emit(kind, &header, (8, 8), self.places.node_of(to), buf)
    }
}

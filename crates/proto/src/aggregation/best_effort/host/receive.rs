//! Packets that come to a host: contributions and questions for its server, acknowledgements and results for its
//! worker.

use super::BestEffortHost;
use crate::aggregation::best_effort::wire::{Flags, HEADER_LEN, Header, Kind, PROG_MASK, block_near};
use crate::aggregation::report::{Mismatch, Report};
use crate::aggregation::shutdown::Word;
use crate::congestion::{Ack, Loss};
use crate::contract::drop_reason::DropReason;
use crate::contract::ids::Rank;
use crate::contract::packet::{Ecn, Packet};
use crate::contract::time::{Span, Time};
use crate::contract::wire::Common;

/// The window holds a worker back if no more packets than this would still fit.
const LIMITED_SLACK: u64 = 4;

impl BestEffortHost {
    pub(super) fn receive(&mut self, now: Time, packet: Packet<'_>) -> Result<(), DropReason> {
        Common::parse_kind(packet.bytes, &self.config.job.common())?;
        let header = Header::parse(packet.bytes)?;
        let kind = Kind::of(packet.bytes)?;
        if packet.wire_len < HEADER_LEN {
            return Err(DropReason::BadLength);
        }
        if matches!(kind, Kind::Leaving | Kind::Parted) {
            return self.handle_shutdown(now, kind, &header, packet.bytes);
        }
        let block = block_near(self.window.first, header.seq).ok_or(DropReason::Stale)?;
        let window = u64::from(self.config.job.slots.max(1));
        match kind {
            Kind::Gradient | Kind::Sum | Kind::Query => {
                if !self.serves(block) {
                    return Err(DropReason::NotAMember);
                }
                // No rank sends a block before it has the result of the block a window earlier, to which this rank has
                // contributed.
                if block >= self.window.next + window {
                    return Err(DropReason::Ahead);
                }
                if kind == Kind::Query {
                    self.question(block, &header)
                } else {
                    self.server.contribution(block, kind, &header, packet, &self.topology)
                }
            }
            Kind::Gack | Kind::Need | Kind::Report | Kind::Mismatch if header.wid != self.own() => {
                Err(DropReason::WrongWorker)
            }
            Kind::Gack => self.acknowledged(now, block, &header),
            Kind::Aack => self.result(now, block, &header, packet),
            Kind::Need => self.needed(now, block, &header),
            Kind::Report => {
                self.window.waiting(block).ok_or(DropReason::Stale)?;
                let report = Report::parse(&packet.bytes[HEADER_LEN..])?;
                if report.missing.named().contains(&self.own()) {
                    self.prompted(now, block);
                } else {
                    self.last_report = Some((block, report));
                    self.on_others_late(block);
                }
                Ok(())
            }
            Kind::Mismatch => self.mismatch(block, Mismatch::parse(&packet.bytes[HEADER_LEN..])?),
            Kind::Leaving | Kind::Parted => Err(DropReason::BadKind),
        }
    }

    fn handle_shutdown(&mut self, now: Time, kind: Kind, header: &Header, bytes: &[u8]) -> Result<(), DropReason> {
        let count: &[u8; 8] = bytes[HEADER_LEN..].try_into().map_err(|_| DropReason::BadLength)?;
        if header.wid != self.own() {
            return Err(DropReason::WrongWorker);
        }
        let word = if kind == Kind::Leaving { Word::Leaving } else { Word::Parted };
        self.shutdown.receive(now, word, Rank(header.count), u64::from_be_bytes(*count))
    }

    fn question(&mut self, block: u64, header: &Header) -> Result<(), DropReason> {
        if header.wid.0 >= self.world_size() || header.wid == self.own() {
            return Err(DropReason::BadField);
        }
        self.server.query(block, header)
    }

    /// Notes the newest PROG.
    fn note_progress(&mut self, prog: u32) {
        let is_newer = |known: u32| (prog.wrapping_sub(known) & PROG_MASK) <= PROG_MASK / 2;
        if self.prog.is_none_or(is_newer) {
            self.prog = Some(prog);
        }
    }

    /// The switch or the server says that a gradient has arrived.
    fn acknowledged(&mut self, now: Time, block: u64, header: &Header) -> Result<(), DropReason> {
        if !self.rules.acknowledges {
            return Err(DropReason::BadKind);
        }
        self.note_progress(header.prog);
        let entry = self.window.waiting(block).ok_or(DropReason::Stale)?;
        if entry.attempt != header.attempt {
            return Err(DropReason::Stale);
        }
        if entry.acked {
            return Err(DropReason::Duplicate);
        }
        let is_resent = header.flags.has(Flags::RESEND);
        let (transmission, rtt) = (entry.transmission, now.since(entry.first_sent_at));
        let counted_as_lost = entry.resend;
        self.stirred(now);
        if counted_as_lost {
            match is_resent {
                true => self.congestion.on_loss_confirmed(),
                false => self.congestion.on_spurious(),
            }
        }
        // Which transmission has arrived is known, so that a timeout that was too short is measured too (RFC 3522).
        let rtt = (!is_resent).then_some(rtt);
        if let Some(rtt) = rtt {
            self.rtt.sample(rtt);
            self.recovery.sample(rtt);
        }
        self.window.ack(block);
        self.note_ack(now, transmission, header.flags.has(Flags::ECN), rtt);
        if is_resent {
            self.resend_overdue(now);
        }
        Ok(())
    }

    /// A gradient was acknowledged for the first time, by itself or by its block's result.
    pub(super) fn note_ack(&mut self, now: Time, transmission: u64, is_marked: bool, rtt: Option<Span>) {
        let ack = Ack {
            now,
            rtt,
            packets: 1,
            marked: is_marked.into(),
            newest: transmission,
            next: self.window.transmissions,
            limited: self.window.flying + LIMITED_SLACK >= self.congestion.window(),
            progress: self.progress(),
        };
        self.congestion.on_ack(&ack);
    }

    /// A transmission was lost.
    pub(super) fn note_loss(&mut self, now: Time, transmission: u64) {
        let next = self.window.transmissions;
        self.congestion.on_loss(Loss { now, transmission, next });
    }

    /// The result of a block, or the message that there is none yet.
    fn result(&mut self, now: Time, block: u64, header: &Header, packet: Packet<'_>) -> Result<(), DropReason> {
        let multicast = header.flags.has(Flags::MULTICAST);
        let is_for_us = header.wid == self.own()
            || multicast
                && header.wid.0 < self.world_size()
                && self.topology.switch_of(header.wid) == self.topology.switch_of(self.own());
        if !is_for_us || self.serves(block) {
            return Err(DropReason::WrongWorker);
        }
        if block >= self.window.next {
            return Err(DropReason::Ahead);
        }
        let entry = self.window.waiting(block).ok_or(DropReason::Stale)?;
        let (attempt, transmission, sent_at) = (entry.attempt, entry.transmission, entry.sent_at);
        let was_queried_early = entry.queried_early;
        let op = self.life.stream.op_of(block).ok_or(DropReason::Unexpected)?;
        if header.spec != op.spec {
            return Err(DropReason::BadField);
        }
        if header.flags.has(Flags::AGAIN) {
            if header.attempt != attempt.wrapping_add(1) || attempt == u8::MAX {
                return Err(DropReason::Stale);
            }
            self.again(now, block, header.attempt, header.scale);
            return Ok(());
        }
        if header.attempt != attempt {
            return Err(if header.attempt < attempt { DropReason::Stale } else { DropReason::Ahead });
        }
        let elements = op.range(block).len();
        let (len, wire_len) = (op.encoding.buffer_len(elements), op.encoding.wire_len(elements));
        if packet.bytes.len() != HEADER_LEN + len || packet.wire_len != HEADER_LEN + wire_len {
            return Err(DropReason::BadLength);
        }
        let marked = packet.ecn == Ecn::CongestionExperienced || header.flags.has(Flags::ECN);
        let was_silent = self.is_silent();
        self.conclude(now, block, header, &packet.bytes[HEADER_LEN..], marked);
        // Where gradients are acknowledged, a rank knows its own losses, and need not have asked about another's.
        let was_another = header.flags.has(Flags::RESEND) && !self.rules.acknowledges;
        let came_by_itself = multicast && !was_another;
        self.overtake(now, block, transmission, came_by_itself);
        if was_queried_early {
            self.judge_early_question(came_by_itself);
        }
        if !self.rules.acknowledges {
            self.pass(now, transmission, sent_at);
        }
        if !multicast {
            self.answered(now);
            self.on_lost_result(now, was_silent);
        }
        Ok(())
    }
}

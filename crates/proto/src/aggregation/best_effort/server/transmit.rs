//! A server's packets: they are written when they leave, from what the server knows then.

use super::served::{Served, State};
use super::{Outgoing, Server};
use crate::aggregation::best_effort::codec::Codec;
use crate::aggregation::best_effort::topology::Topology;
use crate::aggregation::best_effort::wire::{Flags, HEADER_LEN, Header, Kind, emit, seq_of_block};
use crate::aggregation::report::{Mismatch, Report};
use crate::contract::ids::{NodeId, Rank};
use crate::contract::packet::Transmit;
use crate::contract::tensor::Spec;

/// A header that only names a block and a rank.
fn bare(served: &Served, block: u64, wid: Rank) -> Header {
    Header {
        seq: seq_of_block(block),
        prog: 0,
        index: 0,
        received: 0,
        flags: Flags::default(),
        wid,
        count: 0,
        attempt: served.attempt,
        exponent: served.exponent,
        scale: served.scale,
        // Possibly no rank has named the block's collective yet.
        spec: served.what.map_or(Spec::NOTHING, |(_, spec)| spec),
    }
}

impl Server {
    /// The next packet that the server has to send.
    pub fn next_packet(&mut self, topology: &Topology, buf: &mut [u8]) -> Option<Transmit> {
        while let Some(outgoing) = self.outbox.pop_front() {
            if let Some(transmit) = self.write(outgoing, topology, buf) {
                return Some(transmit);
            }
        }
        None
    }

    /// Writes a packet, if it is still needed.
    fn write(&self, outgoing: Outgoing, topology: &Topology, buf: &mut [u8]) -> Option<Transmit> {
        let to = |rank: Rank| topology.node_of(rank);
        match outgoing {
            Outgoing::Gack { header, marked } => {
                // Tells the worker which of its transmissions has arrived, if the first one was lost.
                let is_resent = header.flags.has(Flags::RESEND);
                let flags = Flags::default().with_if(marked, Flags::ECN).with_if(is_resent, Flags::RESEND);
                let header = Header { flags, count: 0, received: 0, ..header };
                Some(emit(&self.common, Kind::Gack, &header, (0, 0), to(header.wid), buf))
            }
            Outgoing::AnswerRack(block, rank) => {
                let switch = topology.switch_of(rank);
                self.write_result(block, rank, Flags::MULTICAST, switch, buf)
            }
            Outgoing::Answer(block, rank) => self.write_result(block, rank, Flags::default(), to(rank), buf),
            Outgoing::Need(block, rank) => {
                let served = self.get(block).filter(|served| served.state == State::Gathering)?;
                let header = bare(served, block, rank);
                Some(emit(&self.common, Kind::Need, &header, (0, 0), to(rank), buf))
            }
            Outgoing::Report(block, rank) => {
                let mut report = Report::NOBODY;
                self.missing(block).into_iter().for_each(|rank| report.miss(rank));
                if self.brings && self.get(block).is_some_and(|served| !served.own) {
                    report.miss(self.own);
                }
                self.write_report(block, &report, rank, to(rank), buf)
            }
            Outgoing::Prompt(block, rank) => {
                let mut report = Report::NOBODY;
                report.miss(rank);
                self.write_report(block, &report, rank, to(rank), buf)
            }
            Outgoing::Mismatch(block, rank) => {
                let served = self.get(block)?;
                let State::Refused(mismatch) = served.state else { return None };
                let header = bare(served, block, rank);
                mismatch.emit(&mut buf[HEADER_LEN..]);
                Some(emit(&self.common, Kind::Mismatch, &header, (Mismatch::LEN, Mismatch::LEN), to(rank), buf))
            }
        }
    }

    /// Writes a report of the ranks that a block waits for.
    fn write_report(&self, block: u64, report: &Report, rank: Rank, to: NodeId, buf: &mut [u8]) -> Option<Transmit> {
        let served = self.get(block).filter(|served| served.state == State::Gathering)?;
        let header = bare(served, block, rank);
        let len = report.emit(&mut buf[HEADER_LEN..]);
        Some(emit(&self.common, Kind::Report, &header, (len, len), to, buf))
    }

    /// Writes the result, or the order to send again.
    fn write_result(&self, block: u64, wid: Rank, flags: Flags, to: NodeId, buf: &mut [u8]) -> Option<Transmit> {
        let served = self.get(block)?;
        let is_again = served.state == State::Gathering;
        if matches!(served.state, State::Refused(_)) || is_again && served.attempt == 0 {
            return None;
        }
        let header = bare(served, block, wid);
        let flags = flags.with_if(served.ecn, Flags::ECN).with_if(served.resent, Flags::RESEND);
        let header = Header {
            flags: flags.with_if(is_again, Flags::AGAIN),
            index: served.index.wrapping_add(served.collided.into()),
            received: self.received(),
            count: served.singles,
            ..header
        };
        if is_again {
            return Some(emit(&self.common, Kind::Aack, &header, (0, 0), to, buf));
        }
        let result = served.result();
        buf[HEADER_LEN..HEADER_LEN + result.len()].copy_from_slice(result);
        let codec = Codec::new(self.values, &header.spec, header.scale, self.world_size).ok()?;
        let wire_len = codec.wire_len(served.elements);
        Some(emit(&self.common, Kind::Aack, &header, (result.len(), wire_len), to, buf))
    }
}

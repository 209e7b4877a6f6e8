//! Packets that the switch makes itself, because they are longer than the ones that ask for them: REPORT and MISMATCH.

use std::collections::VecDeque;

use super::pool::Pool;
use crate::config::{Parent, SwitchConfig};
use crate::packet::Ecn;
use crate::registry::Protocol;
use crate::switch::{Emission, Verdict};
use crate::switchml::wire::{HEADER_LEN, Header, Kind, MISMATCH_LEN, Report};
use crate::values::Values;
use crate::wire::Common;

struct Notice {
    to: Verdict,
    kind: Kind,
    header: Header,
}

/// Notices that wait to be sent: at most one for each destination, so that memory stays bounded. A later one takes
/// the place of an earlier: who still wants the earlier asks again.
pub struct Notices {
    waiting: VecDeque<Notice>,
    common: Common,
    parent: Option<Parent>,
}

impl Notices {
    /// None yet, and room for one to each child, to the group and to the parent.
    pub fn new(config: &SwitchConfig) -> Notices {
        Notices {
            waiting: VecDeque::with_capacity(config.members.len() + 2),
            common: Common { protocol: Protocol::SwitchMl.code(), kind: 0, job: config.job.job, key: config.job.key },
            parent: config.parent,
        }
    }

    /// Answers a QUERY.
    pub fn report(&mut self, to: Verdict, query: Header) {
        self.push(Notice { to, kind: Kind::Report, header: query });
    }

    /// Tells children that ranks disagree in the slot and phase of `header`.
    pub fn tell_mismatch(&mut self, to: Verdict, header: Header) {
        self.push(Notice { to, kind: Kind::Mismatch, header });
    }

    /// Tells the parent, if there is one.
    pub fn tell_parent(&mut self, header: Header) {
        if let Some(Parent { port, worker }) = self.parent {
            let header = Header { wid: worker, ..header };
            self.push(Notice { to: Verdict::Port(port), kind: Kind::Mismatch, header });
        }
    }

    fn push(&mut self, notice: Notice) {
        self.waiting.retain(|waiting| waiting.to != notice.to);
        self.waiting.push_back(notice);
    }

    /// Writes the next notice.
    pub fn poll<V: Values>(&mut self, pool: &Pool<V>, buf: &mut [u8]) -> Option<Emission> {
        loop {
            let Notice { to, kind, header } = self.waiting.pop_front()?;
            let len = match kind {
                Kind::Report => {
                    Report::emit(buf, pool.children() as u16, |wid| pool.has_contributed(header.idx, header.phase, wid))
                }
                _ => match pool.mismatch(header.idx, header.phase) {
                    Some(mismatch) => {
                        mismatch.emit(&mut buf[HEADER_LEN..]);
                        MISMATCH_LEN
                    }
                    None => continue,
                },
            };
            Common { kind: kind as u8, ..self.common }.emit(buf);
            header.emit(buf);
            return Some(Emission { len, wire_len: len, ecn: Ecn::NotCapable, verdict: to });
        }
    }

    /// Bytes of the queue.
    pub fn memory_bytes(&self) -> usize {
        self.waiting.capacity() * size_of::<Notice>()
    }
}

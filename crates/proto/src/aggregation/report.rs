//! The body of packets that report which ranks a sum waits for, as far as the switch that writes it knows.
//!
//! ```text
//!  0       1          2         4         6 ...
//!  | above | reserved | missing | unheard | ranks of the missing ... | ranks of the unheard ... |
//! ```

use crate::contract::drop_reason::DropReason;
use crate::contract::host::CollectiveError;
use crate::contract::ids::{OpId, Rank, TreeId};
use crate::contract::tensor::Spec;
use crate::contract::wire::{SPEC_LEN, put_spec, spec_at, u16};

/// Ranks in a report: their number, and the names of the first ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RankList {
    total: u16,
    named: [Rank; RankList::MOST_NAMED],
}

impl RankList {
    /// The most ranks that are named; further ranks are only counted.
    pub const MOST_NAMED: usize = 48;
    const EMPTY: RankList = RankList { total: 0, named: [Rank(0); RankList::MOST_NAMED] };

    /// The number of ranks.
    pub fn total(&self) -> u16 {
        self.total
    }

    /// The ranks that are named.
    pub fn named(&self) -> &[Rank] {
        &self.named[..usize::from(self.total).min(RankList::MOST_NAMED)]
    }

    /// The number of ranks that are not named.
    pub fn unnamed(&self) -> u16 {
        self.total - self.named().len() as u16
    }

    fn push(&mut self, rank: Rank) {
        if let Some(entry) = self.named.get_mut(usize::from(self.total)) {
            *entry = rank;
        }
        self.total = self.total.saturating_add(1);
    }

    fn extend(&mut self, other: &RankList) {
        other.named().iter().for_each(|&rank| self.push(rank));
        self.total = self.total.saturating_add(other.unnamed());
    }

    /// Bytes of the names.
    fn len(&self) -> usize {
        2 * self.named().len()
    }
}

/// The ranks that a sum waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Report {
    /// How many levels above the writer is the first switch of which nothing was heard; 0 if there is none.
    pub levels_up: u8,
    /// Ranks that have not contributed.
    pub missing: RankList,
    /// Ranks below switches that have neither contributed nor reported.
    pub unheard: RankList,
}

impl Report {
    /// Bytes of the longest body.
    pub const MAX_LEN: usize = 6 + 4 * RankList::MOST_NAMED;

    /// No rank is waited for.
    pub const NOBODY: Report = Report { levels_up: 0, missing: RankList::EMPTY, unheard: RankList::EMPTY };

    /// A rank has not contributed.
    pub fn miss(&mut self, rank: Rank) {
        self.missing.push(rank);
    }

    /// The switch above these ranks has not reported.
    pub fn miss_word_of(&mut self, ranks: &[Rank]) {
        ranks.iter().for_each(|&rank| self.unheard.push(rank));
    }

    /// Joins the report of a switch below.
    pub fn extend(&mut self, other: &Report) {
        self.missing.extend(&other.missing);
        self.unheard.extend(&other.unheard);
    }

    /// Joins the report of the switch above, if it has reported.
    pub fn extend_from_parent(&mut self, parent: Option<&Report>) {
        match parent {
            None => self.levels_up = 1,
            Some(report) => {
                self.levels_up = if report.levels_up == 0 { 0 } else { report.levels_up.saturating_add(1) };
                self.extend(report);
            }
        }
    }

    /// True if this report leaves fewer questions open than another.
    pub fn knows_more_than(&self, other: &Report) -> bool {
        (self.levels_up > 0, self.unheard.total) < (other.levels_up > 0, other.unheard.total)
    }

    /// The error of a collective that has waited for `block` in `slot` too long, if the report names a rank or a
    /// switch.
    pub fn blame(&self, slot: u32, block: u32, op: OpId) -> Option<CollectiveError> {
        let (missing, unheard) = (self.missing.named().to_vec(), self.unheard.named().to_vec());
        if !missing.is_empty() {
            Some(CollectiveError::Missing { missing, others: self.missing.unnamed(), slot, block, op })
        } else if self.levels_up > 0 {
            Some(CollectiveError::ParentSilent { levels_up: self.levels_up, slot, block, op })
        } else if !unheard.is_empty() {
            Some(CollectiveError::ChildSwitchSilent { ranks: unheard, others: self.unheard.unnamed(), slot, block, op })
        } else {
            None
        }
    }

    /// Reads the body behind a packet's headers.
    pub fn parse(body: &[u8]) -> Result<Report, DropReason> {
        if body.len() < 6 {
            return Err(DropReason::Truncated);
        }
        let mut report = Report { levels_up: body[0], ..Report::NOBODY };
        (report.missing.total, report.unheard.total) = (u16(body, 2), u16(body, 4));
        if body.len() != 6 + report.missing.len() + report.unheard.len() {
            return Err(DropReason::BadLength);
        }
        let mut names = body[6..].chunks_exact(2).map(|name| Rank(u16(name, 0)));
        for list in [&mut report.missing, &mut report.unheard] {
            let named = list.named().len();
            list.named[..named].fill_with(|| names.next().expect("the length was checked"));
        }
        Ok(report)
    }

    /// Writes the body; returns its length.
    pub fn emit(&self, body: &mut [u8]) -> usize {
        let len = 6 + self.missing.len() + self.unheard.len();
        let body = &mut body[..len];
        (body[0], body[1]) = (self.levels_up, 0);
        body[2..4].copy_from_slice(&self.missing.total.to_be_bytes());
        body[4..6].copy_from_slice(&self.unheard.total.to_be_bytes());
        let names = self.missing.named().iter().chain(self.unheard.named());
        for (entry, rank) in body[6..].chunks_exact_mut(2).zip(names) {
            entry.copy_from_slice(&rank.0.to_be_bytes());
        }
        len
    }
}

/// A switch's last report and its subject: a slot's phase, or a packet of a tree.
#[derive(Clone, Debug, Default, Hash)]
pub struct LastReport<A>(Option<Box<(A, Report)>>);

impl<A: PartialEq> LastReport<A> {
    /// A later report replaces an earlier one, unless it knows less: a switch forgets reports.
    pub fn on_report(&mut self, about: A, report: Report) {
        if self.of(&about).is_none_or(|before| !before.knows_more_than(&report)) {
            self.0 = Some(Box::new((about, report)));
        }
    }

    /// The last report, if it was about this.
    pub fn of(&self, about: &A) -> Option<&Report> {
        self.0.as_deref().filter(|(known, _)| known == about).map(|(_, report)| report)
    }

    /// The error of a collective that has waited for `block` in `slot` of a tree too long: what the report names, or
    /// else the silent switch.
    pub fn blame(&self, about: &A, (slot, tree): (u32, TreeId), block: u32, op: OpId) -> CollectiveError {
        let blamed = self.of(about).and_then(|report| report.blame(slot, block, op));
        blamed.unwrap_or(CollectiveError::SwitchSilent { tree, block, op })
    }
}

/// The body of a `Mismatch`: two ranks, and the collective that each brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mismatch {
    /// One rank.
    pub a: Rank,
    /// The collective that `a` brings.
    pub a_spec: Spec,
    /// The other rank.
    pub b: Rank,
    /// The collective that `b` brings.
    pub b_spec: Spec,
}

impl Mismatch {
    /// Bytes of the body.
    pub const LEN: usize = 4 + 2 * SPEC_LEN;

    /// Reads the body behind a packet's headers.
    pub fn parse(body: &[u8]) -> Result<Mismatch, DropReason> {
        if body.len() != Mismatch::LEN {
            return Err(DropReason::BadLength);
        }
        let (a_spec, b_spec) = (spec_at(body, 4)?, spec_at(body, 4 + SPEC_LEN)?);
        Ok(Mismatch { a: Rank(u16(body, 0)), a_spec, b: Rank(u16(body, 2)), b_spec })
    }

    /// Writes the body; returns its length.
    pub fn emit(&self, body: &mut [u8]) -> usize {
        body[0..2].copy_from_slice(&self.a.0.to_be_bytes());
        body[2..4].copy_from_slice(&self.b.0.to_be_bytes());
        put_spec(&mut body[4..], &self.a_spec);
        put_spec(&mut body[4 + SPEC_LEN..], &self.b_spec);
        Mismatch::LEN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_back_what_it_wrote_with_one_rank_and_with_too_many_to_name() {
        for (missing, unheard) in [(0, 0), (1, 0), (0, 3), (48, 48), (49, 1), (1_000, 1_023)] {
            let mut report = Report { levels_up: 2, ..Report::NOBODY };
            (0..missing).for_each(|rank| report.miss(Rank(rank)));
            report.miss_word_of(&(0..unheard).map(Rank).collect::<Vec<_>>());
            let mut bytes = [0; Report::MAX_LEN];
            let len = report.emit(&mut bytes);
            assert_eq!(Report::parse(&bytes[..len]), Ok(report));
            assert_eq!(report.missing.named().len() as u16 + report.missing.unnamed(), missing);
            assert!(Report::parse(&bytes[..len - 1]).is_err());
        }
    }
}

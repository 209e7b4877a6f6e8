//! Which ranks are missing, through all levels: a switch knows its own children, and asks those neighbours that are
//! switches.
//!
//! A question is answered at once with what is known, and passed on to the switches that may know more. The last report
//! of each of them is kept, and told to the neighbours whose last question was about the same phase of the same slot.

use crate::aggregation::report::Report;
use crate::contract::config::{Below, SwitchConfig};
use crate::contract::ids::{ChildId, Rank};
use crate::heap::heap_bytes;

/// A child, or the switch above.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Neighbour {
    /// A child, by its `wid`.
    Child(ChildId),
    /// The switch above.
    Parent,
}

/// The phase of a slot that a question is about.
pub type Question = (u16, u32);

/// The questions and reports of a switch's neighbours.
#[derive(Clone, Hash)]
pub struct MissingRanks {
    below: Vec<Below>,
    has_parent: bool,
    /// The last question of each child, and behind them that of the parent.
    questions: Vec<Option<Question>>,
    /// The children that are switches, in the order of `reports`.
    switches: Vec<ChildId>,
    /// The last report of each switch below, and behind them that of the parent.
    reports: Vec<Option<(Question, Report)>>,
}

impl MissingRanks {
    /// No neighbour has asked yet.
    pub fn new(config: &SwitchConfig) -> MissingRanks {
        assert_eq!(config.below.len(), config.members.len(), "a port for each child");
        let is_switch = |wid: &ChildId| matches!(config.below[wid.index()], Below::Switch(_));
        let switches: Vec<ChildId> = (0..config.below.len() as u16).map(ChildId).filter(is_switch).collect();
        MissingRanks {
            questions: vec![None; config.below.len() + 1],
            reports: vec![None; switches.len() + usize::from(config.parent.is_some())],
            switches,
            has_parent: config.parent.is_some(),
            below: config.below.clone(),
        }
    }

    /// True if the rank is the child, or is below it.
    pub fn leads_to(&self, child: ChildId, rank: Rank) -> bool {
        self.below[child.index()].ranks().binary_search(&rank).is_ok()
    }

    /// The child that a rank is, or is below; `None` if the rank is below another switch.
    pub fn way_to(&self, rank: Rank) -> Option<ChildId> {
        (0..self.below.len() as u16).map(ChildId).find(|&child| self.leads_to(child, rank))
    }

    /// A rank that is the child, or is below it.
    pub fn rank_of(&self, child: ChildId) -> Rank {
        self.below[child.index()].ranks().first().copied().unwrap_or(Rank(child.0))
    }

    /// True if the neighbour is a switch, which answers questions.
    pub fn is_switch(&self, neighbour: Neighbour) -> bool {
        self.report_index(neighbour).is_some()
    }

    /// The neighbours that may know more about ranks that have not contributed.
    pub fn informants(&self, has_contributed: impl Fn(ChildId) -> bool) -> impl Iterator<Item = Neighbour> {
        let silent = self.switches.iter().copied().filter(move |&wid| !has_contributed(wid)).map(Neighbour::Child);
        silent.chain(self.has_parent.then_some(Neighbour::Parent))
    }

    fn report_index(&self, neighbour: Neighbour) -> Option<usize> {
        match neighbour {
            Neighbour::Child(wid) => self.switches.binary_search(&wid).ok(),
            Neighbour::Parent => self.has_parent.then_some(self.switches.len()),
        }
    }

    fn question_index(&self, neighbour: Neighbour) -> usize {
        match neighbour {
            Neighbour::Child(wid) => wid.index(),
            Neighbour::Parent => self.below.len(),
        }
    }

    /// Notes a question.
    pub fn ask(&mut self, by: Neighbour, question: Question) {
        let at = self.question_index(by);
        self.questions[at] = Some(question);
    }

    /// Keeps a switch's report; true if it is new.
    pub fn on_report(&mut self, from: Neighbour, question: Question, report: Report) -> bool {
        let Some(at) = self.report_index(from) else { return false };
        self.reports[at].replace((question, report)) != Some((question, report))
    }

    /// The neighbours that have asked this question, without the one that has just reported.
    pub fn askers(&self, question: Question, but: Neighbour) -> impl Iterator<Item = Neighbour> {
        let children = (0..self.below.len() as u16).map(|wid| Neighbour::Child(ChildId(wid)));
        let all = children.chain(self.has_parent.then_some(Neighbour::Parent));
        all.filter(move |&other| other != but && self.questions[self.question_index(other)] == Some(question))
    }

    fn said(&self, neighbour: Neighbour, question: Question) -> Option<&Report> {
        let (about, report) = self.reports[self.report_index(neighbour)?].as_ref()?;
        (*about == question).then_some(report)
    }

    /// The report to a neighbour: all that is known, except about ranks behind that neighbour. `parent_is_done`: the
    /// sum has come down.
    pub fn report(
        &self,
        to: Neighbour,
        question: Question,
        has_contributed: impl Fn(ChildId) -> bool,
        parent_is_done: bool,
    ) -> Report {
        let mut report = Report::NOBODY;
        for (wid, below) in self.below.iter().enumerate() {
            let child = ChildId(wid as u16);
            if has_contributed(child) {
                continue;
            }
            match below {
                Below::Worker(rank) => report.miss(*rank),
                Below::Switch(_) if to == Neighbour::Child(child) => {}
                Below::Switch(ranks) => match self.said(Neighbour::Child(child), question) {
                    Some(said) => report.extend(said),
                    None => report.miss_word_of(ranks),
                },
            }
        }
        if self.has_parent && to != Neighbour::Parent && !parent_is_done {
            report.extend_from_parent(self.said(Neighbour::Parent, question));
        }
        report
    }

    /// Bytes on the heap.
    pub fn memory_bytes(&self) -> usize {
        let ranks = |below: &Below| match below {
            Below::Worker(_) => 0,
            Below::Switch(ranks) => heap_bytes(ranks),
        };
        heap_bytes(&self.below)
            + self.below.iter().map(ranks).sum::<usize>()
            + heap_bytes(&self.questions)
            + heap_bytes(&self.switches)
            + heap_bytes(&self.reports)
    }
}

// Sets of a job's ranks.
/// A set of ranks.
#[derive(Clone, Debug, Default, Hash)]
pub struct Ranks {
    words: Vec<u64>,
    count: u16,
}

impl Ranks {
    /// An empty set, for a job of this many ranks.
    pub fn new(world_size: u16) -> Ranks {
        Ranks { words: vec![0; usize::from(world_size).div_ceil(64)], count: 0 }
    }

    /// Adds a rank of the job; false if the set had it already.
    pub fn insert(&mut self, rank: Rank) -> bool {
        let (word, bit) = (&mut self.words[rank.index() / 64], 1 << (rank.index() % 64));
        let fresh = *word & bit == 0;
        *word |= bit;
        self.count += u16::from(fresh);
        fresh
    }

    /// True if the rank is in the set.
    pub fn contains(&self, rank: Rank) -> bool {
        self.words[rank.index() / 64] >> (rank.index() % 64) & 1 != 0
    }

    /// The number of ranks in the set.
    pub fn len(&self) -> u16 {
        self.count
    }

    /// True if the set has no rank.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Removes all ranks.
    pub fn clear(&mut self) {
        self.words.fill(0);
        self.count = 0;
    }

    /// True if some rank is in both sets.
    pub fn overlaps(&self, other: &Ranks) -> bool {
        self.words.iter().zip(&other.words).any(|(a, b)| a & b != 0)
    }

    /// True if all ranks of the other set are in this one.
    pub fn contains_all(&self, other: &Ranks) -> bool {
        self.words.iter().zip(&other.words).all(|(a, b)| b & !a == 0)
    }

    /// Adds all ranks of another set of the same job.
    pub fn insert_all(&mut self, other: &Ranks) {
        for (word, more) in self.words.iter_mut().zip(&other.words) {
            self.count += (more & !*word).count_ones() as u16;
            *word |= more;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(ranks: &[u16]) -> Ranks {
        let mut set = Ranks::new(130);
        ranks.iter().for_each(|&rank| assert!(set.insert(Rank(rank))));
        set
    }

    #[test]
    fn sets_are_joined_and_compared_whatever_word_a_rank_is_in() {
        let mut some = set(&[0, 63, 64]);
        let others = set(&[64, 129]);
        assert!(some.overlaps(&others) && !some.overlaps(&set(&[1, 128])));
        assert!(!some.contains_all(&others) && some.contains_all(&set(&[])));
        some.insert_all(&others);
        assert_eq!((some.len(), some.contains(Rank(129))), (4, true));
        assert!(some.contains_all(&others) && !some.insert(Rank(63)));
    }
}

//! A worker's two windows (section III-B): CWD, which gradient ACKs clock, and AWD, which bounds how far ahead of the
//! last result a rank may be.

use std::hash::{Hash, Hasher};

use crate::aggregation::best_effort::windows::{self, Ack, Answers};
use crate::contract::time::{Span, Time};

/// The weight `f` of a round's marks (section V-A).
const MARK_WEIGHT: f64 = 0.125;
/// Neither window is ever smaller (A15, A17).
const FEWEST: f64 = 2.0;

/// How a cut of CWD depends on progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Progress {
    /// Equation 1: the exponent is `1 - p / p_max`. The progress of other ranks cancels out of it.
    Printed,
    /// Ours: the exponent is `1 - p / 2`, one half for a worker whose progress is average.
    Relative,
    /// Not at all: DCTCP's cut, as in StrawAsyn.
    Off,
}

/// What a job's members have chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Choices {
    /// How cuts depend on progress.
    pub progress: Progress,
    /// AWD is used.
    pub limit: bool,
    /// CWD at first.
    pub initial_window: u64,
    /// How many packets a round trip without a mark adds to CWD.
    pub increase: u64,
    /// CWD grows by a packet with each ACK after the first mark, too: section III-B2 as it is printed (A3).
    pub always_doubles: bool,
    /// AWD at first; 0 for all places.
    pub initial_ahead: u64,
    /// The weight `w` of a round's AECN marks: 125 in section V-A.
    pub aecn_weight_permille: u64,
}

/// A count of marks among acknowledgements.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Round {
    all: f64,
    marked: f64,
}

impl Hash for Round {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Round { all, marked } = self;
        (all.to_bits(), marked.to_bits()).hash(state);
    }
}

impl Round {
    fn count(&mut self, marked: bool) {
        self.all += 1.0;
        self.marked += f64::from(u8::from(marked));
    }

    /// The share that was marked. Marks of results count too, so the sum may exceed the ACKs.
    fn share(self) -> f64 {
        (self.marked / self.all.max(1.0)).min(1.0)
    }
}

/// CWD before losses of which nobody knows yet whether they were any.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Before {
    window: f64,
    threshold: f64,
    answers: Answers,
}

impl Hash for Before {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Before { window, threshold, answers } = self;
        (window.to_bits(), threshold.to_bits(), answers).hash(state);
    }
}

/// CWD and AWD.
#[derive(Clone, Debug, PartialEq)]
pub struct Windows {
    choices: Choices,
    most: f64,
    /// CWD.
    window: f64,
    /// CWD doubles in a round below this.
    threshold: f64,
    /// The congestion level of CWD.
    alpha: f64,
    round: Round,
    /// A round ends with the ACK of a transmission whose number is at least this.
    round_end: u64,
    /// The answers to marks and losses.
    answers: Answers,
    /// What to go back to if the losses were none.
    before: Option<Before>,
    /// AWD.
    ahead: f64,
    /// How often memory was short, for AWD.
    beta: f64,
    results: Round,
    /// A round of results ends with the first result after this time.
    results_until: Option<Time>,
}

impl Hash for Windows {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Windows {
            choices,
            most,
            window,
            threshold,
            alpha,
            round,
            round_end,
            answers,
            before,
            ahead,
            beta,
            results,
            results_until,
        } = self;
        [most, window, threshold, alpha, ahead, beta].map(|number| number.to_bits()).hash(state);
        (choices, round, round_end, answers, before, results, results_until).hash(state);
    }
}

impl Windows {
    /// The windows of a worker with so many places.
    pub fn new(choices: Choices, places: u16) -> Windows {
        let most = f64::from(places.max(1));
        let ahead = if choices.initial_ahead == 0 { most } else { (choices.initial_ahead as f64).min(most) };
        Windows {
            choices,
            most,
            window: (choices.initial_window as f64).min(most),
            threshold: f64::INFINITY,
            alpha: 0.0,
            round: Round::default(),
            round_end: 0,
            answers: Answers::default(),
            before: None,
            ahead,
            beta: 0.0,
            results: Round::default(),
            results_until: None,
        }
    }

    /// CWD and AWD, unrounded.
    pub fn sizes(&self) -> (f64, f64) {
        (self.window, self.ahead)
    }

    /// The part of CWD that a marked round leaves: `1 - d / 2` (equation 1).
    fn kept(&self, progress: windows::Progress) -> f64 {
        // p / p_max = (p_l / p_avg) / (AWD / p_avg): p_avg cancels. A rank that knows no average must not divide by it.
        let printed = || (progress.own / self.ahead).min(1.0);
        let relative = || if progress.average > 0.0 { (progress.own / progress.average / 2.0).min(1.0) } else { 0.0 };
        let lead = match self.choices.progress {
            Progress::Printed => printed(),
            Progress::Relative => relative(),
            Progress::Off => 0.0,
        };
        1.0 - self.alpha.powf(1.0 - lead) / 2.0
    }

    /// Ends doubling, if the window does double.
    fn end_slow_start(&mut self) {
        self.threshold = self.threshold.min(self.window);
    }

    /// Leaves so much of CWD, as the answer to a mark or a loss.
    fn cut(&mut self, share: f64, next: u64) {
        self.window = (self.window * share).max(FEWEST);
        self.end_slow_start();
        self.answers.answer(next);
    }

    /// Keeps the window as it is before the first of the losses that nobody has confirmed.
    fn remember(&mut self) {
        let &mut Windows { window, threshold, answers, .. } = self;
        self.before.get_or_insert(Before { window, threshold, answers });
    }

    /// Updates the congestion level; it counts every mark, answered or not.
    fn end_round(&mut self, next: u64) {
        self.alpha = (1.0 - MARK_WEIGHT) * self.alpha + MARK_WEIGHT * self.round.share();
        (self.round, self.round_end) = (Round::default(), next);
    }

    fn end_results(&mut self) {
        let (share, weight) = (self.results.share(), self.choices.aecn_weight_permille as f64 / 1000.0);
        self.beta = (1.0 - weight) * self.beta + weight * share;
        self.ahead = match share > 0.0 {
            true => (self.ahead * (1.0 - self.beta / 2.0)).max(FEWEST),
            false => self.ahead + 1.0,
        };
        self.ahead = self.ahead.min(self.most);
        self.results = Round::default();
    }
}

impl windows::Windows for Windows {
    fn packets(&self) -> u64 {
        self.window as u64
    }

    fn ahead(&self) -> u64 {
        if self.choices.limit { self.ahead as u64 } else { self.most as u64 }
    }

    /// The first mark since the last answer cuts, as in DCTCP. A cut at each round's end would answer marks twice: what
    /// a round acknowledges was sent before the cut at the end of the round before. So there is no cut without a mark,
    /// although the printed formula has one where p = p_max: 0^0 = 1 (A21).
    fn on_ack(&mut self, ack: &Ack) {
        self.round.count(ack.marked);
        if ack.marked {
            self.end_slow_start();
        }
        // A mark that the window before a loss would have answered: the path no longer carries that window.
        self.before.take_if(|before| before.answers.asks(ack));
        let slow_start = self.window < self.threshold;
        if self.answers.asks(ack) {
            self.cut(self.kept(ack.progress), ack.next);
        } else if self.answers.covers(ack.transmission) || slow_start {
            let doubles = slow_start || self.choices.always_doubles;
            let more = if doubles { 1.0 } else { self.choices.increase as f64 / self.window };
            self.window = (self.window + more).min(self.most.max(FEWEST));
        }
        if ack.transmission >= self.round_end {
            self.end_round(ack.next);
        }
    }

    fn on_mark(&mut self) {
        self.round.marked += 1.0;
        self.end_slow_start();
        self.answers.on_mark();
        if let Some(before) = &mut self.before {
            before.answers.on_mark();
        }
    }

    /// A round lasts a round trip of gradient ACKs. A leader's round trip of results would last as long as the
    /// straggler takes (A18).
    fn on_result(&mut self, now: Time, short: bool, round_trip: Span) {
        let until = *self.results_until.get_or_insert(now + round_trip);
        self.results.count(short);
        if now >= until {
            self.end_results();
            self.results_until = Some(now + round_trip);
        }
    }

    fn on_loss(&mut self, transmission: u64, next: u64) {
        if self.answers.covers(transmission) {
            self.remember();
            self.cut(0.5, next);
        }
    }

    /// As in DCTCP's senders: the window doubles again up to half of what it was. Silence that goes on halves no further (RFC
    /// 5681, section 3.1).
    fn on_silence(&mut self) {
        self.remember();
        if self.window > FEWEST {
            self.threshold = (self.window / 2.0).max(FEWEST);
            self.window = FEWEST;
        }
    }

    /// A timeout that was too short must not cost a window (the Eifel response, RFC 4015): where threads of one machine take
    /// turns, acknowledgements are late for as long as others run.
    fn on_verdict(&mut self, was_lost: bool) {
        if let Some(before) = self.before.take().filter(|_| !was_lost) {
            self.window = self.window.max(before.window);
            (self.threshold, self.answers) = (before.threshold, before.answers);
        }
    }
}

#[cfg(test)]
mod tests;

//! DCTCP whose cuts depend on how far a rank is ahead of the last result: a leader cuts its window more than a
//! straggler, and so makes way for it. PA-ATP's CWD (section III-B2), clocked by acknowledgements of gradients.

use super::bookkeeping::{CutGuard, MarkedShare, Real};
use super::{Ack, Algorithm, Controller, Feedback, Loss, Progress, Settings};
use crate::contract::time::Time;

/// The algorithm as a value.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "progress_aware",
    feedback: Feedback::Marks,
    make: |settings| Box::new(ProgressAware::new(settings)),
};

/// The weight `f` of a round's marks (section V-A).
const MARK_WEIGHT: f64 = 0.125;

/// How a cut depends on progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CutRule {
    /// Equation 1: the exponent is `1 - p / p_max`. The progress of other ranks cancels out of it.
    Printed,
    /// Ours: the exponent is `1 - p / 2`, one half for a worker whose progress is average.
    Relative,
    /// Not at all: DCTCP's cut, as in StrawAsyn.
    Plain,
}

/// The controller of one worker.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct ProgressAware {
    settings: Settings,
    window: Real,
    /// The window doubles in a round below this.
    threshold: Real,
    marks: MarkedShare,
    /// A round ends with the acknowledgement of a transmission whose number is at least this.
    round_end: u64,
    guard: CutGuard,
    before_loss: Option<BeforeLoss>,
}

/// The state before a loss, restored if the loss proves spurious.
#[derive(Clone, Copy, Debug, PartialEq, Hash)]
struct BeforeLoss {
    window: Real,
    threshold: Real,
    guard: CutGuard,
}

impl ProgressAware {
    /// The controller of a worker that has sent nothing.
    pub fn new(settings: &Settings) -> ProgressAware {
        ProgressAware {
            settings: *settings,
            window: Real(settings.limits.initial.into()),
            threshold: Real(f64::INFINITY),
            marks: MarkedShare::new(f64::from(settings.first_alpha_permille) / 1000.0),
            round_end: 0,
            guard: CutGuard::default(),
            before_loss: None,
        }
    }

    fn min(&self) -> f64 {
        self.settings.limits.min.into()
    }

    /// The share of the window that a cut leaves: `1 - d / 2` (equation 1).
    fn kept(&self, progress: Progress) -> f64 {
        // p / p_max = (p_l / p_avg) / (AWD / p_avg): p_avg cancels. A rank that knows no average must not divide by it.
        let printed = || (progress.own / progress.limit).min(1.0);
        let relative = || if progress.average > 0.0 { (progress.own / progress.average / 2.0).min(1.0) } else { 0.0 };
        let lead = match self.settings.cut_rule {
            CutRule::Printed => printed(),
            CutRule::Relative => relative(),
            CutRule::Plain => 0.0,
        };
        1.0 - self.marks.average().powf(1.0 - lead) / 2.0
    }

    fn end_slow_start(&mut self) {
        self.threshold.0 = self.threshold.0.min(self.window.0);
    }

    /// Leaves this share of the window.
    fn cut(&mut self, share: f64, next: u64) {
        self.window.0 = (self.window.0 * share).max(self.min());
        self.end_slow_start();
        self.guard.on_cut(next);
    }

    /// Saves the state before the first of the losses that are not confirmed.
    fn save(&mut self) {
        let &mut ProgressAware { window, threshold, guard, .. } = self;
        self.before_loss.get_or_insert(BeforeLoss { window, threshold, guard });
    }
}

impl Controller for ProgressAware {
    fn window(&self) -> u64 {
        self.window.0 as u64
    }

    /// The first mark since the last cut cuts, as in DCTCP. A cut at each round's end would answer marks twice: what a
    /// round acknowledges was sent before the cut at the end of the round before. So there is no cut without a mark,
    /// although the printed formula has one where p = p_max: 0^0 = 1 (A21).
    fn on_ack(&mut self, ack: &Ack) {
        let is_marked = ack.marked > 0;
        self.marks.count(ack.packets, ack.marked);
        if is_marked {
            self.end_slow_start();
        }
        // A mark that the window before a loss would have answered: the path no longer carries that window.
        self.before_loss.take_if(|before| before.guard.should_cut(ack.newest, is_marked));
        let slow_start = self.window < self.threshold;
        if self.guard.should_cut(ack.newest, is_marked) {
            self.cut(self.kept(ack.progress), ack.next);
        } else if self.guard.covers(ack.newest) || slow_start {
            let doubles = slow_start || self.settings.always_doubles;
            let more = if doubles { 1.0 } else { f64::from(self.settings.increase) / self.window.0 };
            let most = f64::from(self.settings.limits.max).max(self.min());
            self.window.0 = (self.window.0 + f64::from(ack.packets) * more).min(most);
        }
        if ack.newest >= self.round_end {
            // The average counts every mark, answered or not.
            self.marks.end_round(MARK_WEIGHT);
            self.round_end = ack.next;
        }
    }

    fn on_late_mark(&mut self) {
        self.marks.count(0, 1);
        self.end_slow_start();
        self.guard.on_late_mark();
        if let Some(before) = &mut self.before_loss {
            before.guard.on_late_mark();
        }
    }

    fn on_loss(&mut self, loss: Loss) -> bool {
        let is_fresh = self.guard.covers(loss.transmission);
        if is_fresh {
            self.save();
            self.cut(0.5, loss.next);
        }
        is_fresh
    }

    /// As in DCTCP's senders: the window doubles again up to half of what it was. Further timeouts halve it no further
    /// (RFC 5681, section 3.1).
    fn on_timeout(&mut self, _now: Time) {
        self.save();
        let min = self.min();
        if self.window.0 > min {
            (self.threshold.0, self.window.0) = ((self.window.0 / 2.0).max(min), min);
        }
    }

    /// A timeout that was too short must not cost a window (the Eifel response, RFC 4015): where threads of one machine
    /// take turns, acknowledgements are late for as long as others run.
    fn on_spurious(&mut self) {
        if let Some(before) = self.before_loss.take() {
            self.window.0 = self.window.0.max(before.window.0);
            (self.threshold, self.guard) = (before.threshold, before.guard);
        }
    }

    fn on_loss_confirmed(&mut self) {
        self.before_loss = None;
    }
}

#[cfg(test)]
mod tests;

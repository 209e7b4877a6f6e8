//! How many blocks a rank may be ahead of the last result: PA-ATP's AWD (section III-B3). It is cut while results say
//! that the memory of a switch is short, so that leaders do not fill it with blocks that wait for stragglers.

use super::bookkeeping::{MarkedShare, Real};
use crate::contract::time::{Span, Time};

/// The smallest limit (A15, A17).
const LEAST: f64 = 2.0;

/// The limit of one worker.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct LeadLimit {
    /// The largest limit; also the one that applies if this one only counts for [`super::Progress::limit`].
    most: Real,
    is_enforced: bool,
    blocks: Real,
    /// How often memory was short: `beta`.
    shortage: MarkedShare,
    /// The weight `w` of a round.
    weight: Real,
    /// A round ends with the first result after this time.
    round_end: Option<Time>,
}

impl LeadLimit {
    /// A limit that begins at `initial` blocks, or at `most` if that is 0. The weight of a round is in thousandths: 125
    /// in section V-A. `beta` begins at 0: see [`beginning_at`](LeadLimit::beginning_at).
    pub fn new(initial: u64, most: u16, weight_permille: u64, is_enforced: bool) -> LeadLimit {
        let most = f64::from(most.max(1));
        LeadLimit {
            most: Real(most),
            is_enforced,
            blocks: Real(if initial == 0 { most } else { (initial as f64).min(most) }),
            shortage: MarkedShare::new(0.0),
            weight: Real(weight_permille as f64 / 1000.0),
            round_end: None,
        }
    }

    /// The same limit, whose `beta` begins at this share.
    pub fn beginning_at(self, beta: f64) -> LeadLimit {
        LeadLimit { shortage: MarkedShare::new(beta), ..self }
    }

    /// How many blocks beyond the last result may be sent.
    pub fn blocks(&self) -> u64 {
        if self.is_enforced { self.blocks.0 as u64 } else { self.most.0 as u64 }
    }

    /// The limit, unrounded, whether it is enforced or not.
    pub fn size(&self) -> f64 {
        self.blocks.0
    }

    /// A result has come, which may say that memory is short. A round lasts a round trip of gradient ACKs: a leader's
    /// round trip of results would last as long as the straggler takes (A18).
    pub fn on_result(&mut self, now: Time, is_short: bool, round_trip: Span) {
        let round_end = *self.round_end.get_or_insert(now + round_trip);
        self.shortage.count(1, is_short.into());
        if now >= round_end {
            let share = self.shortage.end_round(self.weight.0);
            self.blocks.0 = match share > 0.0 {
                true => (self.blocks.0 * (1.0 - self.shortage.average() / 2.0)).max(LEAST),
                false => self.blocks.0 + 1.0,
            };
            self.blocks.0 = self.blocks.0.min(self.most.0);
            self.round_end = Some(now + round_trip);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adds_one_in_a_round_trip_without_a_mark_and_is_cut_by_half_of_beta_in_one_with() {
        let mut limit = LeadLimit::new(100, 1000, 125, true);
        let trip = Span::from_micros(10);
        let mut now = Time::ZERO;
        let mut round = |limit: &mut LeadLimit, is_short: bool| {
            for _ in 0..10 {
                now += Span::from_micros(1);
                limit.on_result(now, is_short, trip);
            }
        };
        for _ in 0..20 {
            round(&mut limit, false);
        }
        let grown = limit.size();
        assert!((115.0..=120.0).contains(&grown), "{grown}");
        round(&mut limit, true);
        round(&mut limit, true);
        let cut = limit.size();
        assert!(cut < grown && cut > grown * 0.8, "beta is small yet: {cut}");
        (0..500).for_each(|_| round(&mut limit, true));
        assert_eq!(limit.blocks(), LEAST as u64);
    }

    /// Between two teeth there are hundreds of round trips without a mark, after which nothing of beta is left. So a
    /// tooth is at least half of the weight deep: 6 % with the paper's eighth, where eq. 5 has 1.6 % of 2,000 blocks.
    #[test]
    fn a_cut_after_a_long_calm_is_half_of_the_weight() {
        for (weight, expected) in [(125, 937.5), (8, 996.0)] {
            let mut limit = LeadLimit::new(1000, 1000, weight, true);
            limit.on_result(Time::ZERO, true, Span::ZERO);
            assert_eq!(limit.size(), expected);
        }
    }

    #[test]
    fn a_limit_that_is_not_enforced_stops_nobody() {
        assert_eq!(LeadLimit::new(3, 500, 125, false).blocks(), 500);
    }
}

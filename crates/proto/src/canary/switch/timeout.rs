//! How long a partial sum waits for more (§4.3), and the paper's future work (§5.2.5): a wait that follows what the
//! switch sees.
//!
//! A descriptor tells how far apart the first and the last contribution of its block came, stragglers included. The
//! adaptive timeout tracks a quantile of that: a straggler makes it longer at once, blocks that were together sooner
//! make it a little shorter each.

use crate::config::FlushTimeout;
use crate::time::Span;

/// Of so many blocks one has stragglers, in the long run.
const BLOCKS_PER_STRAGGLER: u64 = 8;
/// A straggler makes the timeout longer by this part of itself.
const STEP: u64 = 8;

/// The timeout of one switch.
#[derive(Clone, Debug)]
pub struct Timeout {
    config: FlushTimeout,
    now: Span,
}

impl Timeout {
    /// Before anything was seen: as long as is allowed.
    pub fn new(config: FlushTimeout) -> Timeout {
        let now = match config {
            FlushTimeout::Fixed(span) => span,
            FlushTimeout::Adaptive { most, .. } => most,
        };
        Timeout { config, now }
    }

    /// How long a partial sum waits that begins now.
    pub fn span(&self) -> Span {
        self.now
    }

    /// The contributions of a block came within this span.
    pub fn sample(&mut self, spread: Span) {
        let FlushTimeout::Adaptive { least, most } = self.config else { return };
        let up = (self.now.0 / STEP).max(BLOCKS_PER_STRAGGLER);
        let next =
            if spread > self.now { self.now.0 + up } else { self.now.0.saturating_sub(up / BLOCKS_PER_STRAGGLER) };
        self.now = Span(next).clamp(least, most.max(least));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn adaptive() -> Timeout {
        Timeout::new(FlushTimeout::Adaptive { least: Span::from_nanos(100), most: Span::from_micros(100) })
    }

    #[test]
    fn a_fixed_timeout_stays() {
        let mut timeout = Timeout::new(FlushTimeout::Fixed(Span::from_micros(1)));
        (0..1000).for_each(|_| timeout.sample(Span::from_millis(1)));
        assert_eq!(timeout.span(), Span::from_micros(1));
    }

    #[test]
    fn it_falls_to_what_the_blocks_need_and_stays_near() {
        let mut timeout = adaptive();
        for i in 0..20_000u64 {
            timeout.sample(Span::from_nanos(500 + i * 7919 % 500));
        }
        let span = timeout.span();
        assert!((Span::from_nanos(800)..Span::from_nanos(1300)).contains(&span), "{span}");
    }

    #[test]
    fn a_few_stragglers_do_not_hold_it_up_and_many_do() {
        let mut few = adaptive();
        let mut many = adaptive();
        for i in 0..20_000u64 {
            let late = |every: u64| if i % every == 0 { Span::from_micros(20) } else { Span::from_micros(1) };
            few.sample(late(100));
            many.sample(late(4));
        }
        assert!(few.span() < Span::from_micros(3), "{}", few.span());
        assert!(many.span() > Span::from_micros(18), "{}", many.span());
    }

    #[test]
    fn it_may_fall_to_nothing_and_rise_again() {
        let most = Span::from_micros(1);
        let mut timeout = Timeout::new(FlushTimeout::Adaptive { least: Span::ZERO, most });
        (0..10_000).for_each(|_| timeout.sample(Span::ZERO));
        assert!(timeout.span() < Span::from_nanos(1), "{}", timeout.span());
        (0..1000).for_each(|_| timeout.sample(most));
        assert!(timeout.span() > Span::from_nanos(800), "{}", timeout.span());
    }

    #[test]
    fn it_keeps_to_its_bounds() {
        let mut timeout = adaptive();
        (0..100_000).for_each(|_| timeout.sample(Span::ZERO));
        assert_eq!(timeout.span(), Span::from_nanos(100));
        (0..1000).for_each(|_| timeout.sample(Span::from_millis(9)));
        assert_eq!(timeout.span(), Span::from_micros(100));
    }
}

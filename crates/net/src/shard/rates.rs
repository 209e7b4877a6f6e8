//! A job's rates between two looks at its counters.

use tributary_proto::contract::pipeline::JobReport;
use tributary_proto::contract::time::{Span, Time};

/// Looks that follow each other faster than this share one interval.
const INTERVAL: Span = Span::from_millis(500);

/// Rates over the last interval.
#[derive(Default)]
pub struct Rates {
    /// Members' packets per second.
    pub packets_per_s: f64,
    /// Completed sums per second.
    pub blocks_per_s: f64,
    last: Option<Look>,
}

struct Look {
    at: Time,
    packets: u64,
    blocks: u64,
}

impl Rates {
    /// Takes in the present counters.
    pub fn update(&mut self, now: Time, report: &JobReport) {
        let blocks = report.machine.as_ref().map_or(0, |machine| machine.blocks_completed);
        let look = Look { at: now, packets: report.packets, blocks };
        if let Some(last) = &self.last {
            let interval = now.since(last.at);
            if interval < INTERVAL {
                return;
            }
            let per_s = |count: u64| count as f64 / interval.as_secs_f64();
            self.packets_per_s = per_s(look.packets.saturating_sub(last.packets));
            self.blocks_per_s = per_s(look.blocks.saturating_sub(last.blocks));
        }
        self.last = Some(look);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tributary_proto::contract::drop_reason::DropCounters;

    fn report(packets: u64) -> JobReport {
        let (drops, last_seen) = (DropCounters::default(), Vec::new());
        JobReport { machine: None, fault: None, memory_bytes: 0, packets, drops, last_seen, others_last_seen: None }
    }

    #[test]
    fn a_rate_is_the_difference_over_the_interval_between_two_looks() {
        let mut rates = Rates::default();
        rates.update(Time::ZERO, &report(100));
        assert_eq!(rates.packets_per_s, 0.0);
        rates.update(Time::ZERO + Span::from_millis(2_000), &report(500));
        assert_eq!(rates.packets_per_s, 200.0);
        rates.update(Time::ZERO + Span::from_millis(2_001), &report(900));
        assert_eq!(rates.packets_per_s, 200.0, "one millisecond is no interval");
    }
}

//! Why senders were stopped: every PAUSE, with the queue of the switch in which most of that sender's packets wait.

use std::collections::BTreeMap;

use tributary_proto::contract::time::Time;

use crate::topology::LinkId;

/// The most that are kept, of all links together: at 64 bytes each, 64 MiB. Each link has an equal share, so that what is
/// kept of a link does not depend on the others, which other threads may run.
const MAX_KEPT: usize = 1 << 20;

/// What fills the buffer behind a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Most of the packets wait for this link of the switch.
    Queue(LinkId),
    /// All packets are in the switch's programs, cores or accelerator.
    Programs,
}

/// A time for which the near end of a link had to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    /// The link.
    pub link: LinkId,
    /// When its far end gave the order.
    pub ordered: Time,
    /// When the order reached the near end.
    pub from: Time,
    /// When the order to go on reached it.
    pub until: Time,
    /// Why the far end gave the order.
    pub cause: Cause,
}

/// All of a run, or of one partition of it.
#[derive(Debug, Default)]
pub struct PauseLog {
    pauses: Vec<Pause>,
    /// By link, how many are kept, and which of them is not over.
    links: BTreeMap<LinkId, (usize, Option<usize>)>,
    most_of_link: usize,
    left_out: u64,
}

impl PauseLog {
    /// A log for a network with this number of links.
    pub(super) fn new(links: usize) -> PauseLog {
        PauseLog { most_of_link: MAX_KEPT / links.max(1), ..PauseLog::default() }
    }

    /// Notes an order to stop.
    pub(super) fn stop(&mut self, link: LinkId, ordered: Time, from: Time, cause: Cause) {
        let (kept, open) = self.links.entry(link).or_default();
        if *kept == self.most_of_link {
            self.left_out += 1;
            return;
        }
        *kept += 1;
        *open = Some(self.pauses.len());
        self.pauses.push(Pause { link, ordered, from, until: Time(u64::MAX), cause });
    }

    /// Notes when a link's near end may go on.
    pub(super) fn resume(&mut self, link: LinkId, at: Time) {
        if let Some(index) = self.links.get_mut(&link).and_then(|(_, open)| open.take()) {
            self.pauses[index].until = at;
        }
    }

    /// Takes over what the switches of another partition have ordered.
    pub(super) fn absorb(&mut self, other: &PauseLog) {
        self.pauses.extend_from_slice(&other.pauses);
        self.left_out += other.left_out;
    }

    /// Those of a run that ends at this time, in the order of time; and how many there were that were not kept.
    pub fn until(&self, end: Time) -> (Vec<Pause>, u64) {
        let over = |pause: &Pause| Pause { until: pause.until.min(end).max(pause.from), ..*pause };
        let mut pauses: Vec<Pause> = self.pauses.iter().map(over).collect();
        pauses.sort_by_key(|pause| (pause.ordered, pause.link));
        (pauses, self.left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_link_keeps_as_many_as_any_other_and_the_rest_are_counted() {
        let mut log = PauseLog::new(MAX_KEPT / 2);
        for (link, time) in [(0, 1), (0, 2), (0, 3), (1, 4)] {
            log.stop(LinkId(link), Time(10 * time), Time(10 * time + 1), Cause::Programs);
            log.resume(LinkId(link), Time(10 * time + 5));
        }
        log.stop(LinkId(1), Time(50), Time(60), Cause::Programs);
        let (kept, left_out) = log.until(Time(55));
        let seen: Vec<(u32, u64, u64)> = kept.iter().map(|pause| (pause.link.0, pause.from.0, pause.until.0)).collect();
        // The last order has not arrived when the run ends.
        assert_eq!((seen, left_out), (vec![(0, 11, 15), (0, 21, 25), (1, 41, 45), (1, 60, 60)], 1));
    }
}

//! The thread of each worker that hears from the switch's control plane which members are gone, and whether the switch
//! is still there. The connection on which it waits shows the switch that this worker is alive.

use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use super::outlook::News;
use super::shared::{Identity, Shared};
use crate::rendezvous::{Departed, Rendezvous, Standing, Watched};

/// The time between news and the next question. News can be withdrawn, but not often.
const PAUSE: Duration = Duration::from_millis(500);
/// The number of failed calls in a row after which the switch counts as gone.
const ATTEMPTS: u32 = 3;
/// The same number for a switch of a fabric. It leaves time to start the switch again.
const ATTEMPTS_IN_FABRIC: u32 = 6;
/// The same number for a fabric's seat. Running jobs go on without it, and it finds them again.
const ATTEMPTS_AT_SEAT: u32 = 11;

/// Asks until the group is closed. No thread waits for this thread. A call ends after half a minute at the latest.
pub fn run(group: &Weak<Shared>, rendezvous: &Arc<dyn Rendezvous>, identity: &Identity) {
    let Identity { switch, job, job_id, key, rank, .. } = identity;
    let mut known = Departed::default();
    let attempts = if identity.in_fabric { ATTEMPTS_IN_FABRIC } else { ATTEMPTS };
    let (mut failures, mut told) = (0, false);
    loop {
        // A watch would not say for half a minute that the switch is there again.
        if told && rendezvous.standing(*job_id, *key) == Standing::Installed {
            let Some(group) = group.upgrade() else { return };
            group.hear(None);
            (told, known) = (false, Departed::default());
        }
        let watched = rendezvous.watch(*job_id, *key, *rank, &known);
        let Some(group) = group.upgrade().filter(|group| !group.is_closing()) else { return };
        let failed = matches!(watched, Watched::Unreachable(_) | Watched::NoSeat(_));
        failures = if failed { failures + 1 } else { 0 };
        match watched {
            Watched::Unwatched => return,
            Watched::Gone(gone) => {
                // After a long pause this rank itself may count as lost. The packets that it exchanges show the
                // contrary.
                let mut others = gone.clone();
                others.members.retain(|gone| gone.rank != *rank);
                group.hear((!others.is_empty()).then_some(News::Gone(others)));
                known = gone;
            }
            Watched::Unknown => {
                group.hear(Some(News::NoSwitch(unknown(switch, job))));
                return;
            }
            Watched::Broken(sentence) => {
                group.hear(Some(News::Broken(sentence)));
                return;
            }
            Watched::Unreachable(how) if failures >= attempts => {
                group.hear(Some(News::NoSwitch(format!("the switch {switch} does not answer any more: {how}"))));
                told = true;
            }
            Watched::NoSeat(why) if failures >= ATTEMPTS_AT_SEAT => {
                group.hear(Some(News::NoSwitch(why)));
                told = true;
            }
            Watched::Unreachable(_) | Watched::NoSeat(_) => {}
        }
        drop(group);
        if failures > 0 || !known.is_empty() {
            thread::sleep(PAUSE);
        }
    }
}

/// The sentence for a switch that has no such job.
pub fn unknown(switch: &str, job: &str) -> String {
    format!(
        "the switch {switch} no longer knows job \"{job}\": it was restarted, or took the job's slots back; connect \
         again to go on"
    )
}

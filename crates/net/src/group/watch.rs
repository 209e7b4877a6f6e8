//! The watch of each worker, by which it learns from the switch's control plane which members are gone, and whether the
//! switch is still there. The connection on which it waits shows the switch that this worker is alive.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tributary_proto::contract::ids::{JobId, JobKey};

use super::driver::{Driver, Identity};
use super::failure_detector::JobFailure;
use crate::rendezvous::{Departed, Rendezvous, Standing, Watched};

/// The time between a report and the next request. Reports can be withdrawn, but not often.
const PAUSE: Duration = Duration::from_millis(500);
/// The time between a failed call and the next. A stopped switch fails no call: its kernel accepts connections, and the
/// call waits for its answer.
const RETRY: Duration = Duration::from_millis(250);
/// Failed calls in a row before the switch counts as gone: 1 s.
const ATTEMPTS: u32 = 5;
/// The same for a switch of a fabric: there is time, 2 s, to start it again.
const ATTEMPTS_IN_FABRIC: u32 = 9;
/// The same for its controller, 5 s: running jobs go on without it, and it finds them again.
const ATTEMPTS_AT_CONTROLLER: u32 = 21;

/// Calls that failed one after the other.
struct Failures {
    in_fabric: bool,
    in_a_row: u32,
    /// Why the first of them failed: a switch that stops says so before it is gone.
    first: String,
}

impl Failures {
    fn new(in_fabric: bool) -> Failures {
        Failures { in_fabric, in_a_row: 0, first: String::new() }
    }

    /// Counts the outcome of a call.
    fn count(&mut self, watched: &Watched) {
        let (Watched::Unreachable(why) | Watched::NoController(why)) = watched else {
            self.in_a_row = 0;
            return;
        };
        if self.in_a_row == 0 {
            self.first.clone_from(why);
        }
        self.in_a_row += 1;
    }

    /// True if the switch counts as gone.
    fn prove_no_switch(&self) -> bool {
        self.in_a_row >= if self.in_fabric { ATTEMPTS_IN_FABRIC } else { ATTEMPTS }
    }

    /// True if the fabric's controller counts as gone.
    fn prove_no_controller(&self) -> bool {
        self.in_a_row >= ATTEMPTS_AT_CONTROLLER
    }
}

/// Asks until the group is closed.
pub async fn run(group: Weak<Driver>, rendezvous: Arc<dyn Rendezvous>, identity: Identity) {
    let Identity { switch, job, job_id, key, rank, .. } = &identity;
    let mut known = Departed::default();
    let mut failures = Failures::new(identity.in_fabric);
    let mut reported = false;
    loop {
        // A watch would not say for half a minute that the switch is there again.
        if reported && standing(&rendezvous, *job_id, *key).await == Some(Standing::Installed) {
            let Some(group) = group.upgrade() else { return };
            group.set_failure(None);
            (reported, known) = (false, Departed::default());
        }
        let watched = rendezvous.watch(*job_id, *key, *rank, &known).await;
        let Some(group) = group.upgrade().filter(|group| !group.is_closing()) else { return };
        failures.count(&watched);
        match watched {
            Watched::Unwatched => return,
            Watched::Gone(gone) => {
                // After a long pause this rank itself may count as lost, although it exchanges packets.
                let mut others = gone.clone();
                others.members.retain(|gone| gone.rank != *rank);
                group.set_failure((!others.is_empty()).then_some(JobFailure::Departed(others)));
                known = gone;
            }
            Watched::Unknown => {
                group.set_failure(Some(JobFailure::NoSwitch(unknown(switch, job))));
                return;
            }
            Watched::Broken(sentence) => {
                group.set_failure(Some(JobFailure::Broken(sentence)));
                return;
            }
            Watched::Unreachable(_) if failures.prove_no_switch() => {
                let how = &failures.first;
                group.set_failure(Some(JobFailure::NoSwitch(format!(
                    "the switch {switch} does not answer any more: {how}"
                ))));
                reported = true;
            }
            Watched::NoController(why) if failures.prove_no_controller() => {
                group.set_failure(Some(JobFailure::NoSwitch(why)));
                reported = true;
            }
            Watched::Unreachable(_) | Watched::NoController(_) => {}
        }
        drop(group);
        match failures.in_a_row {
            0 if known.is_empty() => {}
            0 => sleep(PAUSE).await,
            _ => sleep(RETRY).await,
        }
    }
}

/// What the control plane answers, while a thread waits for it that others do not need.
async fn standing(rendezvous: &Arc<dyn Rendezvous>, job: JobId, key: JobKey) -> Option<Standing> {
    let rendezvous = Arc::clone(rendezvous);
    spawn_blocking(move || rendezvous.standing(job, key)).await.ok()
}

/// The sentence for a switch that has no such job.
pub fn unknown(switch: &str, job: &str) -> String {
    format!(
        "the switch {switch} no longer knows job \"{job}\": it was restarted, or took the job's slots back; connect \
         again to go on"
    )
}

#[cfg(test)]
mod tests {
    use tributary_proto::contract::time::{Span, Time};

    use super::*;
    use crate::group::failure_detector::FailureDetector;

    /// After how long without an answer the switch counts as gone, and stalled collectives are given up.
    fn after_death(in_fabric: bool) -> (Duration, Duration) {
        let mut failures = Failures::new(in_fabric);
        let (mut failure_detector, mut waited) = (FailureDetector::default(), Duration::ZERO);
        failure_detector.on_progress(Time::ZERO);
        loop {
            failures.count(&Watched::Unreachable("nothing listens".into()));
            if failures.prove_no_switch() {
                break;
            }
            waited += RETRY;
        }
        let now = Time::ZERO + Span::from_secs_f64(waited.as_secs_f64());
        failure_detector.set_failure(now, Some(JobFailure::NoSwitch("it is gone".into())));
        (waited, Duration::from_secs_f64(failure_detector.give_up_at(0).unwrap().since(Time::ZERO).as_secs_f64()))
    }

    #[test]
    fn a_switch_that_died_is_named_in_a_second_and_one_of_a_fabric_may_be_started_again_before() {
        let (alone, in_fabric) = (after_death(false), after_death(true));
        assert_eq!(alone, (Duration::from_millis(1_000), Duration::from_millis(1_100)));
        assert_eq!(in_fabric, (Duration::from_millis(2_000), Duration::from_millis(2_100)));
    }

    #[test]
    fn calls_that_fail_with_answers_in_between_prove_nothing() {
        let mut failures = Failures::new(false);
        for _ in 0..ATTEMPTS {
            (1..ATTEMPTS).for_each(|_| failures.count(&Watched::Unreachable("reset".into())));
            assert!(!failures.prove_no_switch());
            failures.count(&Watched::Gone(Departed::default()));
        }
    }

    #[test]
    fn a_switch_that_said_that_it_stops_is_not_said_to_have_died_of_something_else() {
        let mut failures = Failures::new(true);
        failures.count(&Watched::Gone(Departed::default()));
        failures.count(&Watched::Unreachable("switch leaf1 is stopping".into()));
        (1..ATTEMPTS_IN_FABRIC).for_each(|_| failures.count(&Watched::Unreachable("nothing listens".into())));
        assert!(failures.prove_no_switch());
        assert_eq!(failures.first, "switch leaf1 is stopping");
    }

    #[test]
    fn a_controller_has_longer_than_a_switch() {
        let mut failures = Failures::new(true);
        (1..ATTEMPTS_AT_CONTROLLER).for_each(|_| failures.count(&Watched::NoController("it is asked in vain".into())));
        assert!(!failures.prove_no_controller());
        failures.count(&Watched::NoController("it is asked in vain".into()));
        assert!(failures.prove_no_controller());
    }
}

//! Members and child switches that wait to be notified that a member is gone or that the job has failed. A member's
//! connection shows that the member is alive until the *member* closes it. A stopped process cannot ask again after its
//! request was answered, but its kernel keeps its connections open. So the answer ends the request and not the watch.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use tokio::sync::watch::Receiver;
use tributary_control::{Control, Departed, JobName, LargeSums, Refusal, printable};
use tributary_proto::contract::ids::{ChildId, JobId, JobKey};

use super::ControlPlane;
use crate::shard::ShardReport;

/// A watch is answered after this time even if there is no news, so that neither side keeps a dead connection.
const LONGEST: Duration = Duration::from_secs(30);

impl ControlPlane {
    /// Returns what is gone as soon as that differs from `known`, or after [`LONGEST`]. Dropping the future, or the
    /// watch that it returns, means that the member's connection is closed.
    pub async fn watch(
        self: &Arc<Self>,
        name: &JobName,
        id: JobId,
        rank: u16,
        key: JobKey,
        known: Departed,
    ) -> Result<(Departed, OpenWatch), Refusal> {
        let open = |control: &mut Control| control.watch(name, id, rank, key);
        self.keep_watch(name, id, open, |control, _| control.gone(id), known).await
    }

    /// Like [`ControlPlane::watch`] for a child switch, which reports who is gone below it and learns who is gone
    /// elsewhere.
    pub async fn watch_from_below(
        self: &Arc<Self>,
        name: &JobName,
        id: JobId,
        wid: ChildId,
        key: JobKey,
        below: Departed,
        known: Departed,
    ) -> Result<(Departed, OpenWatch), Refusal> {
        let open = |control: &mut Control| control.watch_from_child(name, id, wid, key, below).map(|()| wid);
        self.keep_watch(name, id, open, |control, wid| control.gone_beside(id, wid), known).await
    }

    async fn keep_watch(
        self: &Arc<Self>,
        name: &JobName,
        id: JobId,
        open: impl FnOnce(&mut Control) -> Result<ChildId, Refusal>,
        read: impl Fn(&Control, ChildId) -> Option<Departed>,
        known: Departed,
    ) -> Result<(Departed, OpenWatch), Refusal> {
        let departures = self.departures.subscribe();
        let wid = open(&mut self.state().control)?;
        let open = OpenWatch { plane: Arc::clone(self), id, wid };
        // The child switch may have reported a loss that other watches wait for.
        self.changed.notify_one();
        let newest = || self.with_control(|control| control.departures(id));
        let gone = || self.with_control(|control| read(control, wid));
        match tokio::time::timeout(LONGEST, until_changed(departures, newest, gone, &known)).await {
            Ok(Some(gone)) => Ok((gone, open)),
            Ok(None) => Err(Refusal::UnknownJob { job: name.clone() }),
            Err(_) => Ok((known, open)),
        }
    }
}

impl ControlPlane {
    /// A member ends its part of the job.
    pub fn leave(
        &self,
        name: &JobName,
        id: JobId,
        rank: u16,
        key: JobKey,
        completed: Option<u64>,
    ) -> Result<(), Refusal> {
        let left = self.state().control.leave(self.now(), name, id, rank, key, completed);
        self.changed.notify_one();
        left
    }

    /// A switch below ends its part of the job.
    pub fn leave_switch(
        &self,
        name: &JobName,
        id: JobId,
        key: JobKey,
        wid: ChildId,
        completed: Option<u64>,
    ) -> Result<(), Refusal> {
        let left = self.state().control.leave_switch(self.now(), name, id, key, wid, completed);
        self.changed.notify_one();
        left
    }

    /// An error unless the caller is this child switch of the job.
    pub fn check_child(
        &self,
        name: &JobName,
        id: JobId,
        key: JobKey,
        wid: ChildId,
        incarnation: u64,
    ) -> Result<(), Refusal> {
        self.state().control.check_child(name, id, key, wid, incarnation)
    }

    /// An error unless the job is installed and the caller has its key.
    pub fn standing(&self, name: &JobName, id: JobId, key: JobKey) -> Result<(), Refusal> {
        self.state().control.check_member(name, id, key)
    }

    /// A member reports where the job's large sums are made.
    pub fn note_large_sums(&self, name: &JobName, id: JobId, key: JobKey, sums: LargeSums) -> Result<(), Refusal> {
        self.state().control.note_large_sums(name, id, key, sums)
    }
}

/// The reason for each job that has failed, because one of its custom operators has.
pub(super) type Faults = BTreeMap<JobId, String>;

impl ControlPlane {
    pub(super) fn faults(&self) -> MutexGuard<'_, Faults> {
        self.faults.lock().expect("nobody panics while it holds the faults")
    }

    /// Notes that a job is over. If there is a reason already, that reason stays.
    pub fn note_fault(&self, id: JobId, sentence: String) {
        let sentence = printable(&sentence);
        if let Entry::Vacant(entry) = self.faults().entry(id) {
            tracing::warn!(id = id.0, sentence, "job failed");
            entry.insert(sentence);
        } else {
            return;
        }
        self.departures.send_replace(());
        self.changed.notify_one();
    }

    /// Notes the faults that a shard reports of its jobs' machines.
    pub(super) fn note_faults_of(&self, report: &ShardReport) {
        for job in &report.jobs {
            if let Some(fault) = &job.report.fault {
                let switch = self.shards.first().map_or_else(String::new, |shard| format!(" {}", shard.udp_addr()));
                self.note_fault(job.id, format!("{fault}, at the switch{switch}; the job is over"));
            }
        }
    }

    /// Waits until a job is over, and returns the reason.
    pub async fn fault(&self, id: JobId) -> String {
        let mut turns = self.departures.subscribe();
        loop {
            turns.mark_unchanged();
            if let Some(sentence) = self.faults().get(&id) {
                return sentence.clone();
            }
            // The call fails only if the control plane is gone. Then this future is dropped too.
            let _ = turns.changed().await;
        }
    }
}

/// Waits until who is gone differs from `known`. It scans all members only if the number of the job's
/// departures has changed, because the control plane wakes every watch of every job at each of its turns.
async fn until_changed(
    mut turns: Receiver<()>,
    newest: impl Fn() -> Option<u32>,
    gone: impl Fn() -> Option<Departed>,
    known: &Departed,
) -> Option<Departed> {
    let mut seen = None;
    loop {
        turns.mark_unchanged();
        let newest = newest();
        if newest.is_none() || newest != seen {
            seen = newest;
            let gone = gone();
            if gone.as_ref() != Some(known) {
                return gone;
            }
        }
        // Fails only if the control plane is gone, and then this future is too.
        let _ = turns.changed().await;
    }
}

/// Reports to the state machine that a watch is over because the member has closed its end of the connection.
pub(crate) struct OpenWatch {
    plane: Arc<ControlPlane>,
    id: JobId,
    wid: ChildId,
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.plane.state().control.unwatch(self.plane.now(), self.id, self.wid);
        self.plane.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use tokio::sync::watch;

    use super::*;

    #[test]
    fn a_watch_scans_all_members_only_when_one_of_its_job_may_be_gone() {
        let (turns, departures, scans) = (watch::Sender::new(()), Cell::new(Some(1)), Cell::new(0));
        let known = Departed::default();
        let gone = || {
            scans.set(scans.get() + 1);
            departures.get().map(|_| Departed::default())
        };
        let mut wait = pin!(until_changed(turns.subscribe(), || departures.get(), gone, &known));
        let mut context = Context::from_waker(Waker::noop());
        let mut turn = || {
            turns.send_replace(());
            wait.as_mut().poll(&mut context)
        };
        for _ in 0..100 {
            assert!(turn().is_pending());
        }
        assert_eq!(scans.get(), 1);
        departures.set(Some(2));
        assert!(turn().is_pending());
        assert_eq!(scans.get(), 2);
        // `None` means that the job has ended.
        departures.set(None);
        assert!(turn().is_ready());
    }
}

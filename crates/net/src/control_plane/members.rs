//! Members and switches below that wait to hear that somebody is gone. Their own connection tells us that they live, until
//! *they* close it: a process that has stalled cannot ask anew when its question was answered, but its kernel keeps what
//! it has open. So the answer ends the question, and not the watch.

use std::sync::Arc;
use std::time::Duration;

use tributary_control::{Control, Departed, JobName, Refusal};
use tributary_proto::contract::ids::{ChildId, JobId, JobKey};

use super::ControlPlane;

/// A watch is answered after this long even if nobody has gone, lest both sides hold dead connections for ever.
const LONGEST: Duration = Duration::from_secs(30);

impl ControlPlane {
    /// Returns who is gone as soon as that differs from `known`, or after [`LONGEST`]. Dropping the future, or the watch
    /// that it gives, says that the member's connection is closed.
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

    /// The same for a switch below, which says who is gone below it and is told who is gone elsewhere.
    pub async fn watch_from_below(
        self: &Arc<Self>,
        name: &JobName,
        id: JobId,
        wid: ChildId,
        key: JobKey,
        below: Departed,
        known: Departed,
    ) -> Result<(Departed, OpenWatch), Refusal> {
        let open = |control: &mut Control| control.watch_from_below(name, id, wid, key, below).map(|()| wid);
        self.keep_watch(name, id, open, |control, wid| control.gone_beside(id, wid), known).await
    }

    async fn keep_watch(
        self: &Arc<Self>,
        name: &JobName,
        id: JobId,
        open: impl FnOnce(&mut Control) -> Result<ChildId, Refusal>,
        look: impl Fn(&Control, ChildId) -> Option<Departed>,
        known: Departed,
    ) -> Result<(Departed, OpenWatch), Refusal> {
        let mut departures = self.departures.subscribe();
        let wid = open(&mut self.state().control)?;
        let open = OpenWatch { plane: Arc::clone(self), id, wid };
        // What it has said may be news to others.
        self.changed.notify_one();
        let wait = async {
            let mut seen = None;
            loop {
                departures.mark_unchanged();
                let newest = self.with_control(|control| control.departures(id));
                if newest.is_none() || newest != seen {
                    seen = newest;
                    let gone = self.with_control(|control| look(control, wid));
                    if gone.as_ref() != Some(&known) {
                        return gone;
                    }
                }
                // Fails only if the control plane is gone, and then this future is too.
                let _ = departures.changed().await;
            }
        };
        match tokio::time::timeout(LONGEST, wait).await {
            Ok(Some(gone)) => Ok((gone, open)),
            Ok(None) => Err(Refusal::UnknownJob { job: name.clone() }),
            Err(_) => Ok((known, open)),
        }
    }
}

/// Tells the state machine that a watch is over: that its member's end of the connection is closed.
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

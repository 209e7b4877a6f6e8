//! Members that wait to hear that another member is gone. Their own connection tells us that they live.

use std::time::Duration;

use tributary_control::{Gone, JobName, Refusal};
use tributary_proto::ids::{JobId, JobKey};

use super::ControlPlane;

/// Watches at a time: they hold connections, and joins need some too.
const MAX_WATCHES: usize = 2_048;
/// A watch is answered after this long even if nobody has gone, lest both sides hold dead connections for ever.
const LONGEST: Duration = Duration::from_secs(30);

/// Why a watch is not kept.
pub(crate) enum NoWatch {
    /// The switch keeps as many as it can.
    TooMany,
    /// The member asks wrongly.
    Refused(Refusal),
}

impl ControlPlane {
    /// Returns who is gone as soon as that differs from `known`, or after [`LONGEST`]. Dropping the future says that
    /// the member's connection is closed.
    pub async fn watch(
        &self,
        name: &JobName,
        id: JobId,
        rank: u16,
        key: JobKey,
        known: &[Gone],
    ) -> Result<Vec<Gone>, NoWatch> {
        let mut departures = self.departures.subscribe();
        if self.departures.receiver_count() > MAX_WATCHES {
            return Err(NoWatch::TooMany);
        }
        self.state().control.watch(name, id, rank, key).map_err(NoWatch::Refused)?;
        let _open = OpenWatch { plane: self, id, rank };
        let wait = async {
            let mut seen = None;
            loop {
                departures.mark_unchanged();
                let newest = self.with_control(|control| control.departures(id));
                if newest.is_none() || newest != seen {
                    seen = newest;
                    let gone = self.with_control(|control| control.gone(id));
                    if gone.as_deref() != Some(known) {
                        return gone;
                    }
                }
                // Fails only if the control plane is gone, and then this future is too.
                let _ = departures.changed().await;
            }
        };
        match tokio::time::timeout(LONGEST, wait).await {
            Ok(Some(gone)) => Ok(gone),
            Ok(None) => Err(NoWatch::Refused(Refusal::UnknownJob { job: name.clone() })),
            Err(_) => Ok(known.to_vec()),
        }
    }
}

/// Tells the state machine that a watch is over, whoever ended it.
struct OpenWatch<'a> {
    plane: &'a ControlPlane,
    id: JobId,
    rank: u16,
}

impl Drop for OpenWatch<'_> {
    fn drop(&mut self) {
        self.plane.state().control.unwatch(self.plane.now(), self.id, self.rank);
        self.plane.changed.notify_one();
    }
}

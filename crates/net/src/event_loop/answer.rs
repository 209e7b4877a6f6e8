//! What a switch's thread will say to what it was asked.

use tokio::sync::oneshot;
use tributary_proto::contract::ids::TreeId;

/// The thread has ended: it answers nothing any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("shard {0} of the switch has stopped")]
pub struct Stopped(pub TreeId);

/// What a shard will say. It carries out what it was asked in the order of asking, whether anybody waits or not.
#[must_use = "what was asked may fail"]
pub struct Answer<T> {
    shard: TreeId,
    answer: oneshot::Receiver<T>,
}

impl<T> Answer<T> {
    /// An answer that will come this way.
    pub(crate) fn new(shard: TreeId, answer: oneshot::Receiver<T>) -> Answer<T> {
        Answer { shard, answer }
    }

    /// An answer that is there already.
    pub(crate) fn ready(value: T) -> Answer<T> {
        let (reply, answer) = oneshot::channel();
        // The receiver is here.
        let _ = reply.send(value);
        Answer { shard: TreeId(0), answer }
    }

    /// The answer, without holding a thread up.
    pub async fn come(self) -> Result<T, Stopped> {
        self.answer.await.map_err(|_| Stopped(self.shard))
    }

    /// The answer, on a thread that has nothing else to do; not within an asynchronous task.
    pub fn wait(self) -> Result<T, Stopped> {
        self.answer.blocking_recv().map_err(|_| Stopped(self.shard))
    }
}

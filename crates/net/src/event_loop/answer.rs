//! The answers that a switch's thread will give.

use tokio::sync::oneshot;
use tributary_proto::contract::ids::TreeId;

/// The thread has ended and answers nothing any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("shard {0} of the switch has stopped")]
pub struct Stopped(pub TreeId);

/// An answer that a shard will give. The shard carries out requests in the order in which they were made, whether or
/// not a caller waits.
#[must_use = "what was asked may fail"]
pub struct Answer<T> {
    shard: TreeId,
    answer: oneshot::Receiver<T>,
}

impl<T> Answer<T> {
    /// An answer that will come over this channel.
    pub(crate) fn new(shard: TreeId, answer: oneshot::Receiver<T>) -> Answer<T> {
        Answer { shard, answer }
    }

    /// An answer that is there already.
    pub(crate) fn ready(value: T) -> Answer<T> {
        let (reply, answer) = oneshot::channel();
        // Sending cannot fail, because the receiver still exists.
        let _ = reply.send(value);
        Answer { shard: TreeId(0), answer }
    }

    /// Waits for the answer without holding a thread up.
    pub async fn come(self) -> Result<T, Stopped> {
        self.answer.await.map_err(|_| Stopped(self.shard))
    }

    /// Waits for the answer, on a thread that has nothing else to do; not within an asynchronous task.
    pub fn wait(self) -> Result<T, Stopped> {
        self.answer.blocking_recv().map_err(|_| Stopped(self.shard))
    }
}

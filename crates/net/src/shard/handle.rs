//! The control plane's end of a switch's thread: every call is a message to the thread, and its [`Answer`] comes over a
//! channel.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread::{Builder, JoinHandle};

use tokio::sync::oneshot;
use tributary_proto::contract::ids::TreeId;

use super::event_loop::{EventLoop, Request};
use super::site::{Forwarding, Site};
use crate::os::Waker;
use crate::udp::UdpPort;

/// A running thread that takes commands `C`; dropping the handle stops the thread.
pub struct Handle<C> {
    shard: TreeId,
    udp: SocketAddr,
    receive_buffer: usize,
    requests: Sender<Request<C>>,
    waker: Arc<Waker>,
    thread: Option<JoinHandle<()>>,
}

impl<C: Send + 'static> Handle<C> {
    /// Starts the thread of a shard under this name.
    pub fn start<F>(name: String, shard: TreeId, udp: UdpPort, site: Site<F>) -> io::Result<Handle<C>>
    where
        F: Forwarding<Command = C> + Send + 'static,
    {
        let waker = Arc::new(Waker::new()?);
        let (requests, receiver) = mpsc::channel();
        let (addr, receive_buffer) = (udp.local_addr(), udp.counters().receive_buffer);
        let state = EventLoop::new(udp, site, receiver, Arc::clone(&waker));
        let thread = Some(Builder::new().name(name).spawn(move || state.run())?);
        Ok(Handle { shard, udp: addr, receive_buffer, requests, waker, thread })
    }

    /// The shard that the thread runs.
    pub fn shard(&self) -> TreeId {
        self.shard
    }

    /// The address at which the thread receives, with the port that the system chose.
    pub fn udp_addr(&self) -> SocketAddr {
        self.udp
    }

    /// Bytes of receive buffer that the kernel granted, as it counts them.
    pub fn receive_buffer(&self) -> usize {
        self.receive_buffer
    }

    /// Sends the thread a command; returns its answer.
    pub fn call<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> C) -> Answer<T> {
        let (reply, answer) = oneshot::channel();
        // If the thread has ended, the reply's sender is dropped here, and the answer becomes an error.
        let _ = self.requests.send(Request::Command(command(reply)));
        self.waker.wake();
        Answer::new(self.shard, answer)
    }
}

impl<C> Drop for Handle<C> {
    fn drop(&mut self) {
        // The call fails only if the thread has ended already.
        let _ = self.requests.send(Request::Stop);
        self.waker.wake();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!(udp = %self.udp, shard = self.shard.0, "the switch's thread panicked");
        }
    }
}

/// The error of a call to a thread that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("shard {0} of the switch has stopped")]
pub struct Stopped(pub TreeId);

/// An answer that a shard will give. The shard handles requests in their order, whether or not a caller waits.
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

    /// Waits for the answer without blocking a thread.
    pub async fn receive(self) -> Result<T, Stopped> {
        self.answer.await.map_err(|_| Stopped(self.shard))
    }

    /// Waits for the answer, blocking the thread; not for asynchronous tasks.
    pub fn wait(self) -> Result<T, Stopped> {
        self.answer.blocking_recv().map_err(|_| Stopped(self.shard))
    }
}

//! The control plane's end of a switch's thread: every call is a message to the thread.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread::{Builder, JoinHandle};

use tokio::sync::oneshot;
use tributary_proto::contract::ids::TreeId;
use tributary_proto::contract::pipeline::Pipeline;

use super::answer::Answer;
use super::{EventLoop, Order, Site};
use crate::os::Waker;
use crate::udp::UdpPort;

/// A running thread that takes commands `C`; dropping the handle stops the thread.
pub struct Handle<C> {
    shard: TreeId,
    udp: SocketAddr,
    receive_buffer: usize,
    orders: Sender<Order<C>>,
    waker: Arc<Waker>,
    thread: Option<JoinHandle<()>>,
}

impl<C: Send + 'static> Handle<C> {
    /// Starts the thread of a shard under this name. `pipeline` has what is there before any job.
    pub fn start<S>(name: String, shard: TreeId, udp: UdpPort, pipeline: Pipeline, site: S) -> io::Result<Handle<C>>
    where
        S: Site<Command = C> + Send + 'static,
    {
        let waker = Arc::new(Waker::new()?);
        let (orders, receiver) = mpsc::channel();
        let (addr, receive_buffer) = (udp.local_addr(), udp.counters().receive_buffer);
        let state = EventLoop::new(udp, pipeline, site, receiver, Arc::clone(&waker));
        let thread = Some(Builder::new().name(name).spawn(move || state.run())?);
        Ok(Handle { shard, udp: addr, receive_buffer, orders, waker, thread })
    }

    /// The part of the switch that the thread runs.
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
    pub fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> C) -> Answer<T> {
        let (reply, answer) = oneshot::channel();
        // If the thread has ended, the reply's sender is dropped here, and the answer becomes an error.
        let _ = self.orders.send(Order::Obey(command(reply)));
        self.waker.wake();
        Answer::new(self.shard, answer)
    }
}

impl<C> Drop for Handle<C> {
    fn drop(&mut self) {
        // The call fails only if the thread has ended already.
        let _ = self.orders.send(Order::Stop);
        self.waker.wake();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!(udp = %self.udp, shard = self.shard.0, "the switch's thread panicked");
        }
    }
}

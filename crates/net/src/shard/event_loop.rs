//! The loop of every switch's thread: sleep, commands, packets through the pipeline, timers.
//!
//! `drive::switch` calls the machines, and a [`Burst`] is the I/O that it gives them here.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};

use tributary_proto::contract::drive;
use tributary_proto::contract::pipeline::Pipeline;
use tributary_proto::contract::time::Time;

use super::burst::{Burst, MachinePackets};
use super::site::{Core, Forwarding, Site};
use crate::os::{self, Clock, Waker};
use crate::udp::{Inbox, UdpPort};

/// The most batches that are received before commands and timers are handled again.
const BATCHES_IN_A_TURN: usize = 16;

/// A message from a handle to the loop.
pub enum Request<C> {
    Command(C),
    Stop,
}

/// The state of a running switch. No other thread has access to it.
pub struct EventLoop<F: Forwarding> {
    core: Core,
    site: Site<F>,
    inbox: Inbox,
    packets: MachinePackets,
    requests: Receiver<Request<F::Command>>,
    waker: Arc<Waker>,
}

impl<F: Forwarding> EventLoop<F> {
    /// A switch without jobs.
    pub fn new(
        udp: UdpPort,
        site: Site<F>,
        requests: Receiver<Request<F::Command>>,
        waker: Arc<Waker>,
    ) -> EventLoop<F> {
        let core = Core { clock: Clock::start(), udp, pipeline: Pipeline::with_instruction_limit() };
        EventLoop { core, site, inbox: Inbox::new(), packets: MachinePackets::new(), requests, waker }
    }

    /// Runs until the handle is dropped.
    pub fn run(mut self) {
        loop {
            let due = self.core.pipeline.poll_timeout().into_iter().chain(self.site.forwarding.due()).min();
            let timeout = due.map(|due| os::to_duration(due.since(self.core.clock.now())));
            let ready = os::wait(self.core.udp.as_fd(), &self.waker, timeout);
            if ready.woken {
                self.waker.clear();
                if !self.handle_messages() {
                    return;
                }
            }
            if ready.packets {
                self.receive();
            }
            let now = self.core.clock.now();
            self.turn(now, |pipeline, burst| drive::switch::handle_timeout(pipeline, burst));
            self.site.forwarding.tick(now, &mut self.core.udp);
        }
    }

    /// Receives what the socket holds. It takes another batch as long as batches are full.
    fn receive(&mut self) {
        for _ in 0..BATCHES_IN_A_TURN {
            let more = self.core.udp.receive(&mut self.inbox);
            let now = self.core.clock.now();
            self.turn(now, |pipeline, burst| drive::switch::receive(pipeline, burst));
            if self.site.forwarding.after(now, &mut self.core) {
                self.turn(now, |pipeline, burst| drive::switch::transmit(pipeline, burst));
            }
            if !more {
                return;
            }
        }
    }

    /// Gives the machines an input, and then sends the packets of their own that were not sent yet.
    fn turn(&mut self, now: Time, input: impl FnOnce(&mut Pipeline, &mut Burst<'_, F>)) {
        let Core { udp, pipeline, .. } = &mut self.core;
        let mut burst = Burst::new(now, &mut self.site, udp, &mut self.inbox, &mut self.packets);
        input(pipeline, &mut burst);
        burst.end();
    }

    /// Handles the requests of the handle. False if the thread must end.
    fn handle_messages(&mut self) -> bool {
        loop {
            match self.requests.try_recv() {
                Ok(Request::Command(command)) => F::handle_command(&mut self.site, command, &mut self.core),
                Ok(Request::Stop) | Err(TryRecvError::Disconnected) => return false,
                Err(TryRecvError::Empty) => return true,
            }
        }
    }
}

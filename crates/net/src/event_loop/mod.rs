//! The loop of every switch's thread: sleep, commands, packets through the pipeline, timers.
//!
//! A [`Site`] is what one kind of switch adds: a star its ports and uplinks, a fabric its crossbar and queues.
//! `drive::switch` calls the machines; a [`burst`] is their surroundings here.

pub mod answer;
pub mod burst;
pub mod handle;
#[cfg(test)]
pub mod talker;

use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};

use tributary_proto::contract::drive;
use tributary_proto::contract::ids::PortId;
use tributary_proto::contract::packet::Ecn;
use tributary_proto::contract::pipeline::Pipeline;
use tributary_proto::contract::switch::{PortView, Verdict};
use tributary_proto::contract::time::Time;

use self::burst::{Burst, Own};
use crate::clock::{self, Clock};
use crate::udp::{Inbox, Message, UdpPort};
use crate::wake::{self, Waker};

/// Batches that are received before commands and timers have their turn again.
const BATCHES_IN_A_TURN: usize = 16;

/// What every switch's thread has.
pub struct Core {
    /// The machines' time.
    pub clock: Clock,
    /// The socket.
    pub udp: UdpPort,
    /// Jobs and their machines.
    pub pipeline: Pipeline,
}

/// Where a packet that leaves a switch comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The switch speaks for itself.
    Own,
    /// It came in by this port, or was made of what did just now.
    Packet(PortId),
    /// A machine made it of what it had collected, the last of it from this port.
    Collected(PortId),
}

/// What one kind of switch brings to the loop.
pub trait Site {
    /// What its thread may be asked.
    type Command;
    /// What machines see of its ports.
    type Ports<'a>: PortView
    where
        Self: 'a;

    /// Does what was asked.
    fn obey(&mut self, command: Self::Command, core: &mut Core);
    /// A message begins, of one packet or more; the port that it came in on.
    fn ingress(&mut self, now: Time, message: &Message, udp: &mut UdpPort) -> PortId;
    /// True if a packet is for the pipeline. Others the site has seen to, or counted.
    fn admits(
        &mut self,
        now: Time,
        ingress: PortId,
        from: SocketAddr,
        packet: &mut [u8],
        ecn: Ecn,
        udp: &mut UdpPort,
    ) -> bool;
    /// What machines see of the ports now.
    fn ports(&self) -> Self::Ports<'_>;
    /// Does what a verdict says with the packet at `place` in `memory`. True if packets have to stay there until
    /// [`Site::flush`].
    fn carry_out(
        &mut self,
        verdict: Verdict,
        place: Range<usize>,
        ecn: Ecn,
        origin: Origin,
        memory: &[u8],
        udp: &mut UdpPort,
    ) -> bool;
    /// Sends what may leave of all that was carried out since the last call, from the same memory.
    fn flush(&mut self, now: Time, memory: &[u8], udp: &mut UdpPort);
    /// A burst is over: does what it could not do in the middle. True if machines may have made packets meanwhile.
    fn after(&mut self, _now: Time, _core: &mut Core) -> bool {
        false
    }
    /// When the site itself has something to do.
    fn due(&self) -> Option<Time>;
    /// Does what is due of its own. Called at the end of every turn.
    fn tick(&mut self, now: Time, udp: &mut UdpPort);
}

/// What a handle tells the loop.
enum Order<C> {
    Obey(C),
    Stop,
}

/// The state of a running switch. Nothing of it is shared.
struct EventLoop<S: Site> {
    core: Core,
    site: S,
    inbox: Inbox,
    own: Own,
    orders: Receiver<Order<S::Command>>,
    waker: Arc<Waker>,
}

impl<S: Site> EventLoop<S> {
    /// A switch without jobs.
    fn new(
        udp: UdpPort,
        pipeline: Pipeline,
        site: S,
        orders: Receiver<Order<S::Command>>,
        waker: Arc<Waker>,
    ) -> EventLoop<S> {
        let core = Core { clock: Clock::start(), udp, pipeline };
        EventLoop { core, site, inbox: Inbox::new(), own: Own::new(), orders, waker }
    }

    /// Runs until it is told to stop, or its handle is gone.
    fn run(mut self) {
        loop {
            let due = self.core.pipeline.poll_timeout().into_iter().chain(self.site.due()).min();
            let timeout = due.map(|due| clock::duration(due.since(self.core.clock.now())));
            let ready = wake::wait(self.core.udp.as_fd(), &self.waker, timeout);
            if ready.woken {
                self.waker.clear();
                if !self.obey() {
                    return;
                }
            }
            if ready.packets {
                self.receive();
            }
            let now = self.core.clock.now();
            self.turn(now, |pipeline, burst| drive::switch::handle_timeout(pipeline, burst));
            self.site.tick(now, &mut self.core.udp);
        }
    }

    /// Takes what the socket holds, for one batch after another while they are full.
    fn receive(&mut self) {
        for _ in 0..BATCHES_IN_A_TURN {
            let more = self.core.udp.receive(&mut self.inbox);
            let now = self.core.clock.now();
            self.turn(now, |pipeline, burst| drive::switch::receive(pipeline, burst));
            if self.site.after(now, &mut self.core) {
                self.turn(now, |pipeline, burst| drive::switch::transmit(pipeline, burst));
            }
            if !more {
                return;
            }
        }
    }

    /// Gives the machines an input, and sends what is gathered of their own packets.
    fn turn(&mut self, now: Time, input: impl FnOnce(&mut Pipeline, &mut Burst<'_, S>)) {
        let Core { udp, pipeline, .. } = &mut self.core;
        let mut burst = Burst::new(now, &mut self.site, udp, &mut self.inbox, &mut self.own);
        input(pipeline, &mut burst);
        burst.end();
    }

    /// Carries out what the handle asked; false when the thread shall end.
    fn obey(&mut self) -> bool {
        loop {
            match self.orders.try_recv() {
                Ok(Order::Obey(command)) => self.site.obey(command, &mut self.core),
                Ok(Order::Stop) | Err(TryRecvError::Disconnected) => return false,
                Err(TryRecvError::Empty) => return true,
            }
        }
    }
}

//! The loop of every switch's thread: sleep, commands, packets through the pipeline, timers.
//!
//! A [`Site`] is what differs between kinds of switches: a star adds its ports and uplinks, a fabric adds its crossbar and
//! queues. `drive::switch` calls the machines, and a [`burst`] is the I/O that it gives them here.

pub mod burst;
pub mod handle;
#[cfg(test)]
pub mod testing;

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

use self::burst::{Burst, MachinePackets};
use crate::os::{self, Clock, Waker};
use crate::udp::{Inbox, Message, UdpPort};

/// The most batches that are received before commands and timers are handled again.
const BATCHES_IN_A_TURN: usize = 16;

/// What all kinds of switches have.
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
    /// The switch made the packet for itself.
    Switch,
    /// The packet came in by this port, or was made of a packet that came in by it just now.
    Packet(PortId),
    /// A machine made the packet from contributions that it had collected. The last of them came in by this port.
    Collected(PortId),
}

/// What one kind of switch adds to the loop.
pub trait Site {
    /// The commands that its thread takes.
    type Command;
    /// The machines' view of its ports.
    type Ports<'a>: PortView
    where
        Self: 'a;

    /// Handles a command.
    fn handle_command(&mut self, command: Self::Command, core: &mut Core);
    /// Notes that a message of one or more packets begins. Returns the port by which it came in.
    fn ingress(&mut self, now: Time, message: &Message, udp: &mut UdpPort) -> PortId;
    /// True if a packet is for the pipeline. If not, the site has already handled or counted the packet.
    fn accepts(
        &mut self,
        now: Time,
        ingress: PortId,
        from: SocketAddr,
        packet: &mut [u8],
        ecn: Ecn,
        udp: &mut UdpPort,
    ) -> bool;
    /// The machines' view of the ports now.
    fn ports(&self) -> Self::Ports<'_>;
    /// Carries out a verdict on the packet at `range` in `memory`. True if packets have to stay there until
    /// [`Site::flush`].
    fn carry_out(
        &mut self,
        verdict: Verdict,
        range: Range<usize>,
        ecn: Ecn,
        origin: Origin,
        memory: &[u8],
        udp: &mut UdpPort,
    ) -> bool;
    /// Sends the packets of all verdicts since the last call, as far as they may leave. Their memory is the same.
    fn flush(&mut self, now: Time, memory: &[u8], udp: &mut UdpPort);
    /// Does, after a burst, what the site could not do in the middle of it. True if machines may have made packets by
    /// that.
    fn after(&mut self, _now: Time, _core: &mut Core) -> bool {
        false
    }
    /// When the site itself has something to do next.
    fn due(&self) -> Option<Time>;
    /// Does what the site itself has to do by now. Called at the end of every turn.
    fn tick(&mut self, now: Time, udp: &mut UdpPort);
}

/// A message from a handle to the loop.
enum Request<C> {
    Command(C),
    Stop,
}

/// The state of a running switch. No other thread has access to it.
struct EventLoop<S: Site> {
    core: Core,
    site: S,
    inbox: Inbox,
    packets: MachinePackets,
    requests: Receiver<Request<S::Command>>,
    waker: Arc<Waker>,
}

impl<S: Site> EventLoop<S> {
    /// A switch without jobs.
    fn new(
        udp: UdpPort,
        pipeline: Pipeline,
        site: S,
        requests: Receiver<Request<S::Command>>,
        waker: Arc<Waker>,
    ) -> EventLoop<S> {
        let core = Core { clock: Clock::start(), udp, pipeline };
        EventLoop { core, site, inbox: Inbox::new(), packets: MachinePackets::new(), requests, waker }
    }

    /// Runs until the handle is dropped.
    fn run(mut self) {
        loop {
            let due = self.core.pipeline.poll_timeout().into_iter().chain(self.site.due()).min();
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
            self.site.tick(now, &mut self.core.udp);
        }
    }

    /// Receives what the socket holds. It takes another batch as long as batches are full.
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

    /// Gives the machines an input, and then sends the packets of their own that were not sent yet.
    fn turn(&mut self, now: Time, input: impl FnOnce(&mut Pipeline, &mut Burst<'_, S>)) {
        let Core { udp, pipeline, .. } = &mut self.core;
        let mut burst = Burst::new(now, &mut self.site, udp, &mut self.inbox, &mut self.packets);
        input(pipeline, &mut burst);
        burst.end();
    }

    /// Handles the requests of the handle. False if the thread must end.
    fn handle_messages(&mut self) -> bool {
        loop {
            match self.requests.try_recv() {
                Ok(Request::Command(command)) => self.site.handle_command(command, &mut self.core),
                Ok(Request::Stop) | Err(TryRecvError::Disconnected) => return false,
                Err(TryRecvError::Empty) => return true,
            }
        }
    }
}

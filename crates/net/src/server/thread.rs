//! The thread that serves: it gives packets to the machine of their job, and sends the machine's packets in runs.

use std::collections::{BTreeMap, HashMap};
use std::io::IoSlice;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};

use tributary_proto::contract::drive;
use tributary_proto::contract::drive::host::HostIo;
use tributary_proto::contract::host::HostEvent;
use tributary_proto::contract::ids::JobId;
use tributary_proto::contract::packet::{Addr, Ecn, Packet, Transmit};
use tributary_proto::contract::rate_limit::QueryLimit;
use tributary_proto::contract::time::Time;
use tributary_proto::contract::wire::{Common, kind};

use super::job::Job;
use crate::challenge;
use crate::os::{self, Clock, Waker};
use crate::transmit::{Addresses, Outbox};
use crate::udp::path;
use crate::udp::{Inbox, Message, Reassembly, Segments, UdpPort, key_of};

/// The most batches that are received before commands and timers get their turn again.
const BATCHES_IN_A_TURN: usize = 16;
/// The number of workers whose runs are gathered at the same time. Results go to all workers in turn.
const RECEIVERS: usize = 64;

/// A command to the thread.
pub enum Command {
    /// Serves a job, in range of any job with its id.
    Serve(Box<Job>),
    /// Ends a job.
    End(JobId),
    /// Ends the server.
    Stop,
}

/// The thread's state. No other thread shares it.
pub struct ServerThread {
    clock: Clock,
    udp: UdpPort,
    inbox: Inbox,
    outbox: Outbox<RECEIVERS>,
    jobs: BTreeMap<JobId, Job>,
    /// The incarnation in the switch's questions to this process.
    incarnation: u64,
    commands: Receiver<Command>,
    waker: Arc<Waker>,
}

impl ServerThread {
    /// A server without jobs.
    pub fn new(udp: UdpPort, incarnation: u64, commands: Receiver<Command>, waker: Arc<Waker>) -> ServerThread {
        let (inbox, outbox, jobs) = (Inbox::new(), Outbox::new(), BTreeMap::new());
        ServerThread { clock: Clock::start(), udp, inbox, outbox, jobs, incarnation, commands, waker }
    }

    /// Runs until [`Command::Stop`].
    pub fn run(mut self) {
        loop {
            let due = self.jobs.values().filter_map(|job| job.host.poll_timeout()).min();
            let timeout = due.map(|due| os::to_duration(due.since(self.clock.now())));
            let ready = os::wait(self.udp.as_fd(), &self.waker, timeout);
            if ready.woken {
                self.waker.clear();
                if !self.handle_commands() {
                    return;
                }
            }
            if ready.packets {
                self.receive();
            }
            self.handle_timeouts();
        }
    }

    /// Handles the commands. False if the thread must end.
    fn handle_commands(&mut self) -> bool {
        loop {
            match self.commands.try_recv() {
                Ok(Command::Serve(mut job)) => {
                    job.resolve_addresses(&self.udp);
                    self.jobs.insert(job.header.job, *job);
                }
                Ok(Command::End(id)) => drop(self.jobs.remove(&id)),
                Ok(Command::Stop) | Err(TryRecvError::Disconnected) => return false,
                Err(TryRecvError::Empty) => return true,
            }
        }
    }

    fn receive(&mut self) {
        for _ in 0..BATCHES_IN_A_TURN {
            let more = self.udp.receive(&mut self.inbox);
            let now = self.clock.now();
            for at in 0..self.inbox.messages.len() {
                self.handle_message(now, self.inbox.messages[at]);
            }
            if !more {
                return;
            }
        }
    }

    /// Handles the packets of one sender. Nearly always they belong to one job. Consecutive packets of a job are one
    /// turn of its machine.
    fn handle_message(&mut self, now: Time, message: Message) {
        let mut left = message.segments().peekable();
        while let Some(range) = left.peek().cloned() {
            let common = Common::parse(&self.inbox.memory[range.clone()]);
            if let Some(answer) = challenge::answer(&self.inbox.memory[range.clone()], self.incarnation) {
                let to = self.udp.destination(message.from);
                self.udp.send(&to, &[IoSlice::new(&answer)], answer.len(), Ecn::NotCapable);
            }
            // The packet may belong to a job that is over, or come from an address of no job.
            let job = common.ok().and_then(|common| self.jobs.get_mut(&common.job));
            let sender = job.as_ref().and_then(|job| job.senders.get(&key_of(message.from))).copied();
            let (Some(job), Some(from)) = (job, sender) else {
                left.next();
                continue;
            };
            let Job { header, host, addresses, query_limits, fragments, reassembled, .. } = job;
            let ServerThread { udp, inbox, outbox, .. } = self;
            let (header, ecn) = (*header, message.ecn);
            let mut io = ServerIo {
                now,
                udp,
                inbox,
                outbox,
                addresses,
                query_limits,
                fragments,
                reassembled,
                header,
                from,
                ecn,
                left: &mut left,
            };
            drive::host::receive(&mut **host, &mut io);
            drive::host::drain(&mut **host, &mut io);
        }
    }

    fn handle_timeouts(&mut self) {
        let now = self.clock.now();
        let ServerThread { udp, inbox, outbox, jobs, .. } = self;
        for Job { header, host, addresses, query_limits, fragments, reassembled, .. } in jobs.values_mut() {
            if drive::host::handle_timeout(&mut **host, now) {
                let mut none = Segments::default().peekable();
                let (header, from, ecn) = (*header, Addr::Switch(Default::default()), Ecn::NotCapable);
                let (inbox, outbox) = (&mut *inbox, &mut *outbox);
                let mut io = ServerIo {
                    now,
                    udp,
                    inbox,
                    outbox,
                    addresses,
                    query_limits,
                    fragments,
                    reassembled,
                    header,
                    from,
                    ecn,
                    left: &mut none,
                };
                drive::host::drain(&mut **host, &mut io);
            }
        }
    }
}

/// The I/O of a machine for packets of one sender.
struct ServerIo<'a> {
    now: Time,
    udp: &'a mut UdpPort,
    inbox: &'a mut Inbox,
    outbox: &'a mut Outbox<RECEIVERS>,
    addresses: &'a mut Addresses,
    query_limits: &'a mut HashMap<Addr, QueryLimit>,
    fragments: &'a mut Reassembly<Addr, Addr>,
    reassembled: &'a mut Vec<u8>,
    header: Common,
    from: Addr,
    ecn: Ecn,
    left: &'a mut std::iter::Peekable<Segments>,
}

impl ServerIo<'_> {
    /// Handles a packet of a kind that all protocols share: answers a member's ping, or returns the packet that a last
    /// fragment completes.
    fn handle_shared(&mut self, common: Common, range: Range<usize>) -> Option<Vec<u8>> {
        let packet = &mut self.inbox.memory[range];
        match common.kind {
            // The pings of one member must not become a load for other jobs.
            kind::PING if !self.query_limits.entry(self.from).or_default().try_query(self.now) => None,
            kind::PING => {
                let to = self.addresses.get_mut(&self.from)?;
                if let Some(limit) = path::advertised_limit(packet) {
                    to.set_limit(limit);
                }
                Common { kind: kind::PONG, ..common }.emit(packet);
                self.udp.send(to, &[IoSlice::new(packet)], packet.len(), Ecn::NotCapable);
                None
            }
            kind::FRAGMENT => self.fragments.add(self.now, self.from, self.from, packet),
            _ => None,
        }
    }
}

impl HostIo for ServerIo<'_> {
    fn now(&self) -> Time {
        self.now
    }

    #[inline]
    fn receive(&mut self) -> Option<(Addr, Packet<'_>)> {
        loop {
            let bytes = &self.inbox.memory[self.left.peek()?.clone()];
            let common = Common::parse(bytes).ok().filter(|common| common.job == self.header.job)?;
            let range = self.left.next()?;
            if common.kind < kind::FIRST_OF_PROTOCOL {
                let is_ours = Common { kind: 0, ..common } == self.header;
                let Some(reassembled) = is_ours.then(|| self.handle_shared(common, range)).flatten() else { continue };
                *self.reassembled = reassembled;
                return Some((
                    self.from,
                    Packet { bytes: self.reassembled, wire_len: self.reassembled.len(), ecn: self.ecn },
                ));
            }
            let bytes = &self.inbox.memory[range];
            return Some((self.from, Packet { bytes, wire_len: bytes.len(), ecn: self.ecn }));
        }
    }

    #[inline]
    fn transmit_buf(&mut self, longest: usize) -> &mut [u8] {
        self.outbox.buffer(longest, self.addresses, self.udp)
    }

    #[inline]
    fn send(&mut self, transmit: Transmit) {
        self.outbox.push(&transmit, self.addresses, self.udp);
    }

    fn flush(&mut self) {
        self.outbox.flush(self.addresses, self.udp);
    }

    fn on_event(&mut self, _: HostEvent) {
        unreachable!("a server brings nothing, and waits for nothing");
    }
}

//! One machine of a world: its state at its own time, and the effect of an input.
//!
//! Each machine has a clock of its own, as drivers on different machines have. An input takes a [`TICK`], so that no
//! two inputs of a machine come at the same time; otherwise a clock moves only when a timer runs out, to the timer's
//! time.

use std::sync::Arc;

use tributary_proto::contract::drive::record::{HostRecorder, Made};
use tributary_proto::contract::host::{Collective, Host, HostEvent};
use tributary_proto::contract::ids::{NodeId, PortId, Rank, ServerId, TreeId};
use tributary_proto::contract::packet::{Addr, Packet, PacketMut};
use tributary_proto::contract::protocol::Placement;
use tributary_proto::contract::switch::{NoQueues, Switch, Verdict};
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::tensors::{FingerprintTensor, Roster};

use crate::body::Body;
use crate::bounds::BoundsError;
use crate::fingerprint::Fingerprint;
use crate::flight::Flight;
use crate::site::Site;

/// How long each input takes.
const TICK: Span = Span::from_nanos(1);
/// The longest packet: any packet fits.
const LONGEST: usize = 1 << 16;

/// An event at a machine.
pub enum Input<'a> {
    /// Its rank submits its next collective.
    Submit,
    /// A packet arrives.
    Packet(&'a Flight),
    /// Its timer runs out.
    Timeout,
}

/// The effect of an input.
#[derive(Default)]
pub struct Outcome {
    /// Packets that were sent.
    pub sent: Vec<Flight>,
    /// The error, if there is one, as a sentence.
    pub wrong: Option<String>,
    /// The rank was told a sum.
    pub completed: bool,
    /// A hash of the sum, if sums may lack ranks.
    pub digest: u64,
}

/// A machine in one state.
pub struct Machine {
    /// The machine.
    pub body: Body,
    /// Its time.
    pub clock: Time,
    /// When its timer runs out.
    pub due: Option<Time>,
    /// What identifies its state.
    pub fingerprint: Fingerprint,
}

/// The buffers that machines write to, and the common part of their tensors.
pub struct Workbench {
    hosts: HostRecorder,
    buf: Vec<u8>,
    roster: Arc<Roster>,
}

impl Workbench {
    /// A workbench for a job of so many ranks.
    pub fn new(world: u16) -> Workbench {
        Workbench { hosts: HostRecorder::default(), buf: vec![0; LONGEST], roster: Roster::new(world) }
    }
}

impl Machine {
    /// A machine that was just made.
    pub fn new(site: &Site, body: Body) -> Result<Machine, BoundsError> {
        let fingerprint = body.fingerprint(Time::ZERO).ok_or(BoundsError::Opaque(site.bounds.protocol.name))?;
        Ok(Machine { clock: Time::ZERO, due: body.due(), fingerprint, body })
    }

    /// True if its rank may submit another collective.
    pub fn may_submit(&self, site: &Site) -> bool {
        matches!(self.body, Body::Host { submitted, .. } if submitted < site.bounds.collectives)
    }

    /// True if its rank has all its sums, and no other rank needs this host any more.
    pub fn has_ended(&self, site: &Site) -> bool {
        match &self.body {
            Body::Host { machine, completed, .. } => *completed == site.bounds.collectives && machine.may_leave(),
            Body::Switch(_) | Body::Shared(_) => true,
        }
    }

    /// The machine after an input, for which it had waited so long, and the input's other effects.
    pub fn turn(
        &self,
        site: &Site,
        node: NodeId,
        waited: Span,
        input: &Input<'_>,
        bench: &mut Workbench,
    ) -> (Machine, Outcome) {
        let mut now = self.clock + waited + TICK;
        if let (Input::Timeout, Some(due)) = (input, self.due) {
            now = now.max(due);
        }
        let mut body = self.body.fork().expect("it was hashed, so it can be copied");
        let mut turn = Turn { site, node, now, bench, outcome: Outcome::default() };
        match &mut body {
            Body::Host { machine, submitted, completed, digests } => {
                turn.host(&mut **machine, (submitted, completed, digests), input);
            }
            Body::Switch(machine) => turn.switch(&mut **machine, input),
            Body::Shared(machine) => turn.switch(&mut **machine, input),
        }
        let outcome = turn.outcome;
        let fingerprint = body.fingerprint(now).expect("it was hashed before");
        (Machine { clock: now, due: body.due(), fingerprint, body }, outcome)
    }
}

/// One input under way.
struct Turn<'a> {
    site: &'a Site,
    node: NodeId,
    now: Time,
    bench: &'a mut Workbench,
    outcome: Outcome,
}

impl Turn<'_> {
    fn host(
        &mut self,
        machine: &mut dyn Host,
        (submitted, completed, digests): (&mut u8, &mut u8, &mut Vec<u64>),
        input: &Input<'_>,
    ) {
        match input {
            Input::Submit => self.submit(machine, submitted),
            Input::Timeout => machine.handle_timeout(self.now),
            Input::Packet(flight) => {
                let from = self.sender(flight);
                let packet = Packet { bytes: &flight.bytes, wire_len: flight.wire_len, ecn: flight.ecn };
                // The machine itself counts packets that it drops.
                let _ = machine.handle_packet(self.now, from, packet);
            }
        }
        self.settle(machine, *completed);
        if self.outcome.completed {
            *completed += 1;
            digests.push(self.outcome.digest);
            if *completed == self.site.bounds.collectives {
                machine.finish(self.now);
                self.settle(machine, *completed);
            }
        }
    }

    fn submit(&mut self, machine: &mut dyn Host, submitted: &mut u8) {
        let rank = self.site.rank_at(self.node).expect("only ranks submit");
        let (spec, roster) = (self.site.bounds.spec(), self.bench.roster.clone());
        let tensor = FingerprintTensor::new(spec, roster, rank.0, u64::from(*submitted));
        let tensor = Box::new(match self.site.bounds.quorum() {
            Some(least) => tensor.in_part(least),
            None => tensor,
        });
        *submitted += 1;
        if let Err(error) = machine.submit(self.now, Collective { tensor, deadline: None }) {
            self.outcome.wrong = Some(format!("rank {rank} cannot submit: {error}"));
        }
    }

    /// The sender of a host's packet, as the host's driver would name it.
    fn sender(&self, flight: &Flight) -> Addr {
        match self.site.rank_at(flight.from) {
            // Also if the sender acts as a server: a driver that knows senders by their addresses alone cannot tell.
            Some(rank) => Addr::Worker(rank),
            None => Addr::Switch(TreeId(0)),
        }
    }

    /// Collects the packets and events of a host.
    fn settle(&mut self, machine: &mut dyn Host, completed: u8) {
        self.bench.hosts.drain(machine, self.now);
        let sent = std::mem::take(&mut self.bench.hosts.sent);
        let events = std::mem::take(&mut self.bench.hosts.events);
        for made in sent {
            self.send_from_host(made);
        }
        for event in events {
            self.hear(event, completed);
        }
    }

    fn send_from_host(&mut self, made: Made<Addr>) {
        let every_hop = self.site.bounds.protocol.placement == Placement::EveryHop;
        let next = match made.to {
            Addr::Switch(_) | Addr::Node(_) => self.site.switch_of(self.node),
            Addr::Worker(_) | Addr::Server(_) if every_hop => self.site.switch_of(self.node),
            Addr::Worker(Rank(rank)) | Addr::Server(ServerId(rank)) => NodeId(rank.into()),
        };
        let Made { bytes, wire_len, ecn, .. } = made;
        self.outcome.sent.push(Flight::new(self.node, vec![next], bytes, wire_len, ecn));
    }

    fn hear(&mut self, event: HostEvent, completed: u8) {
        let rank = self.site.name(self.node);
        match event {
            HostEvent::Failed { op, error, .. } => {
                self.outcome.wrong = Some(format!("collective {op} of {rank} failed: {error}"));
            }
            HostEvent::Done { op, tensor } => {
                let tensor: Box<dyn std::any::Any> = tensor;
                let tensor = tensor.downcast::<FingerprintTensor>().expect("the tensor that was submitted");
                let found = tensor.verification();
                self.outcome.completed = true;
                self.outcome.digest = tensor.digest();
                if !found.is_complete() {
                    let wrong = "not the sum of one contribution of each rank";
                    self.outcome.wrong = Some(format!(
                        "{rank} is told that collective {op} is complete, and it is {wrong}: wrong are {:?}, and nothing was \
                         written to {:?}",
                        found.faulty, found.missing
                    ));
                } else if op.0 != u64::from(completed) {
                    self.outcome.wrong = Some(format!("{rank} is told of collective {op} before {completed}"));
                }
            }
        }
    }

    fn switch<S: Switch + ?Sized>(&mut self, machine: &mut S, input: &Input<'_>) {
        match input {
            Input::Submit => {}
            Input::Timeout => machine.handle_timeout(self.now),
            Input::Packet(flight) => {
                let ingress = self.site.port_to(self.node, flight.from);
                let mut bytes = flight.bytes.clone();
                let len = bytes.len();
                let mut packet = PacketMut { bytes: &mut bytes, len, wire_len: flight.wire_len, ecn: flight.ecn };
                let verdict = machine.process(self.now, ingress, &mut packet, &NoQueues);
                let (len, wire_len, ecn) = (packet.len, packet.wire_len, packet.ecn);
                bytes.truncate(len);
                self.send_from_switch(Made { to: verdict, bytes, wire_len, ecn });
            }
        }
        while let Some(emission) = machine.poll_transmit(self.now, &mut self.bench.buf) {
            let bytes = self.bench.buf[..emission.len].to_vec();
            let made = Made { to: emission.verdict, bytes, wire_len: emission.wire_len, ecn: emission.ecn };
            self.send_from_switch(made);
        }
    }

    fn send_from_switch(&mut self, made: Made<Verdict>) {
        let Made { to, bytes, wire_len, ecn } = made;
        let out: Vec<PortId> = match to {
            Verdict::Consume | Verdict::Drop(_) => return,
            Verdict::Port(port) => vec![port],
            Verdict::Multicast(set) => set.iter().collect(),
            Verdict::Group(_) => self.site.group(self.node),
            Verdict::Route(node) => {
                let next = self.site.next_hops(self.node, node);
                if !next.is_empty() {
                    self.outcome.sent.push(Flight::new(self.node, next, bytes, wire_len, ecn));
                }
                return;
            }
        };
        // A machine may name the port of an unknown sender, which leads nowhere.
        for next in out.into_iter().filter_map(|port| self.site.behind(self.node, port)) {
            self.outcome.sent.push(Flight::new(self.node, vec![next], bytes.clone(), wire_len, ecn));
        }
    }
}

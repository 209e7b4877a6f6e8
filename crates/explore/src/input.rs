//! The effect of an input on one machine, and the machine's state at its own time.
//!
//! Each machine has a clock of its own, as drivers on different machines have. An input takes a [`TICK`], so that no
//! two inputs of a machine come at the same time; otherwise a clock moves only when a timer expires, to the timer's
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

use crate::bounds::BoundsError;
use crate::fingerprint::Fingerprint;
use crate::machine::Machine;
use crate::step::Flight;
use crate::topology::Topology;

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
    /// Its timer expires.
    Timeout,
}

/// The effect of an input.
#[derive(Default)]
pub struct Outcome {
    /// Packets that were sent.
    pub sent: Vec<Flight>,
    /// The error, if there is one, as a sentence.
    pub wrong: Option<String>,
    /// The rank got a sum.
    pub completed: bool,
    /// A hash of the sum, if sums may lack ranks.
    pub digest: u64,
}

/// A machine in one state.
pub struct MachineState {
    /// The machine.
    pub machine: Machine,
    /// Its time.
    pub clock: Time,
    /// When its timer expires.
    pub due: Option<Time>,
    /// What identifies its state.
    pub fingerprint: Fingerprint,
}

/// The buffers that machines write to, and the common part of their tensors.
pub struct Scratch {
    hosts: HostRecorder,
    buf: Vec<u8>,
    roster: Arc<Roster>,
}

impl Scratch {
    /// Buffers for a job of this many ranks.
    pub fn new(world_size: u16) -> Scratch {
        Scratch { hosts: HostRecorder::default(), buf: vec![0; LONGEST], roster: Roster::new(world_size) }
    }
}

impl MachineState {
    /// A machine that was just made.
    pub fn new(topology: &Topology, machine: Machine) -> Result<MachineState, BoundsError> {
        let fingerprint = machine.fingerprint(Time::ZERO).ok_or(BoundsError::Opaque(topology.bounds.protocol.name))?;
        Ok(MachineState { clock: Time::ZERO, due: machine.due(), fingerprint, machine })
    }

    /// True if its rank may submit another collective.
    pub fn may_submit(&self, topology: &Topology) -> bool {
        matches!(self.machine, Machine::Host { submitted, .. } if submitted < topology.bounds.collectives)
    }

    /// True if its rank has all its sums, and no other rank needs this host.
    pub fn has_ended(&self, topology: &Topology) -> bool {
        match &self.machine {
            Machine::Host { machine, completed, .. } => {
                *completed == topology.bounds.collectives && machine.may_leave()
            }
            Machine::Switch(_) | Machine::Shared(_) => true,
        }
    }

    /// The machine after an input that came after it had waited for `waited`, and the input's other effects.
    pub fn handle(
        &self,
        topology: &Topology,
        node: NodeId,
        waited: Span,
        input: &Input<'_>,
        scratch: &mut Scratch,
    ) -> (MachineState, Outcome) {
        let mut now = self.clock + waited + TICK;
        if let (Input::Timeout, Some(due)) = (input, self.due) {
            now = now.max(due);
        }
        let mut next = self.machine.fork().expect("it was hashed, so it can be copied");
        let mut handler = Handler { topology, node, now, scratch, outcome: Outcome::default() };
        match &mut next {
            Machine::Host { machine, submitted, completed, digests } => {
                handler.host(&mut **machine, (submitted, completed, digests), input);
            }
            Machine::Switch(machine) => handler.switch(&mut **machine, input),
            Machine::Shared(machine) => handler.switch(&mut **machine, input),
        }
        let outcome = handler.outcome;
        let fingerprint = next.fingerprint(now).expect("it was hashed before");
        (MachineState { clock: now, due: next.due(), fingerprint, machine: next }, outcome)
    }
}

/// The handling of one input.
struct Handler<'a> {
    topology: &'a Topology,
    node: NodeId,
    now: Time,
    scratch: &'a mut Scratch,
    outcome: Outcome,
}

impl Handler<'_> {
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
        self.drain(machine, *completed);
        if self.outcome.completed {
            *completed += 1;
            digests.push(self.outcome.digest);
            if *completed == self.topology.bounds.collectives {
                machine.finish(self.now);
                self.drain(machine, *completed);
            }
        }
    }

    fn submit(&mut self, machine: &mut dyn Host, submitted: &mut u8) {
        let rank = self.topology.rank_at(self.node).expect("only ranks submit");
        let (spec, roster) = (self.topology.bounds.spec(), self.scratch.roster.clone());
        let tensor = FingerprintTensor::new(spec, roster, rank.0, u64::from(*submitted));
        let tensor = Box::new(match self.topology.bounds.quorum() {
            Some(least) => tensor.allow_partial(least),
            None => tensor,
        });
        *submitted += 1;
        if let Err(error) = machine.submit(self.now, Collective { tensor, deadline: None }) {
            self.outcome.wrong = Some(format!("rank {rank} cannot submit: {error}"));
        }
    }

    /// The sender of a host's packet, as the host's driver would name it.
    fn sender(&self, flight: &Flight) -> Addr {
        match self.topology.rank_at(flight.from) {
            // Also if the sender acts as a server: a driver that knows senders by their addresses alone cannot tell.
            Some(rank) => Addr::Worker(rank),
            None => Addr::Switch(TreeId(0)),
        }
    }

    /// Collects the packets and events of a host.
    fn drain(&mut self, machine: &mut dyn Host, completed: u8) {
        self.scratch.hosts.drain(machine, self.now);
        let sent = std::mem::take(&mut self.scratch.hosts.sent);
        let events = std::mem::take(&mut self.scratch.hosts.events);
        for made in sent {
            self.send_from_host(made);
        }
        for event in events {
            self.on_event(event, completed);
        }
    }

    fn send_from_host(&mut self, made: Made<Addr>) {
        let every_hop = self.topology.bounds.protocol.placement == Placement::EveryHop;
        let next = match made.to {
            Addr::Switch(_) | Addr::Node(_) => self.topology.switch_of(self.node),
            Addr::Worker(_) | Addr::Server(_) if every_hop => self.topology.switch_of(self.node),
            Addr::Worker(Rank(rank)) | Addr::Server(ServerId(rank)) => NodeId(rank.into()),
        };
        let Made { bytes, wire_len, ecn, .. } = made;
        self.outcome.sent.push(Flight::new(self.node, vec![next], bytes, wire_len, ecn));
    }

    fn on_event(&mut self, event: HostEvent, completed: u8) {
        let rank = self.topology.name(self.node);
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
                        "{rank} has a complete collective {op} that is {wrong}: wrong are {:?}, and nothing was \
                         written to {:?}",
                        found.faulty, found.missing
                    ));
                } else if op.0 != u64::from(completed) {
                    self.outcome.wrong = Some(format!("{rank} completes collective {op} before {completed}"));
                }
            }
        }
    }

    fn switch<S: Switch + ?Sized>(&mut self, machine: &mut S, input: &Input<'_>) {
        match input {
            Input::Submit => {}
            Input::Timeout => machine.handle_timeout(self.now),
            Input::Packet(flight) => {
                let ingress = self.topology.port_to(self.node, flight.from);
                let mut bytes = flight.bytes.clone();
                let len = bytes.len();
                let mut packet = PacketMut { bytes: &mut bytes, len, wire_len: flight.wire_len, ecn: flight.ecn };
                let verdict = machine.process(self.now, ingress, &mut packet, &NoQueues);
                let (len, wire_len, ecn) = (packet.len, packet.wire_len, packet.ecn);
                bytes.truncate(len);
                self.send_from_switch(Made { to: verdict, bytes, wire_len, ecn });
            }
        }
        while let Some(emission) = machine.poll_transmit(self.now, &mut self.scratch.buf) {
            let bytes = self.scratch.buf[..emission.len].to_vec();
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
            Verdict::Group(_) => self.topology.group(self.node),
            Verdict::Route(node) => {
                let next = self.topology.next_hops(self.node, node);
                if !next.is_empty() {
                    self.outcome.sent.push(Flight::new(self.node, next, bytes, wire_len, ecn));
                }
                return;
            }
        };
        // A machine may name the port of an unknown sender, which leads nowhere.
        for next in out.into_iter().filter_map(|port| self.topology.behind(self.node, port)) {
            self.outcome.sent.push(Flight::new(self.node, vec![next], bytes.clone(), wire_len, ecn));
        }
    }
}

//! A state of all machines and packets, and its possible steps.

use std::collections::HashMap;
use std::rc::Rc;

use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::time::{Span, Time};

use crate::bounds::{Bounds, BoundsError};
use crate::fingerprint::{Fingerprint, StateHasher, mixed};
use crate::input::{Input, MachineState, Outcome, Scratch};
use crate::machine::Machine;
use crate::step::{Flight, Step};
use crate::topology::Topology;

/// A node with its machine.
#[derive(Clone)]
struct Node {
    /// `None` for switches that only forward.
    machine: Option<Rc<MachineState>>,
    /// How much time has passed at this node since the machine's last input.
    waited: Span,
}

impl Node {
    /// How long it takes until the node's timer expires.
    fn remaining(&self) -> Option<Span> {
        let machine = self.machine.as_ref()?;
        Some(machine.due?.since(machine.clock + self.waited))
    }
}

/// A state.
#[derive(Clone)]
pub struct State {
    nodes: Vec<Node>,
    flights: Vec<Rc<Flight>>,
    losses: u8,
    duplicates: u8,
    timeouts: u8,
}

/// States of machines by their fingerprints, each kept once.
pub struct MachineCache {
    known: HashMap<Fingerprint, Rc<MachineState>>,
    scratch: Scratch,
    /// True if a machine in a known state is replaced by the first one in that state.
    interned: bool,
}

impl MachineCache {
    /// No states. With `interned` little memory is needed; without it a replay is exact.
    pub fn new(bounds: &Bounds, interned: bool) -> MachineCache {
        MachineCache { known: HashMap::new(), scratch: Scratch::new(bounds.ranks), interned }
    }

    /// Sets whether equal states are stored once from now on; returns the previous setting.
    pub fn intern(&mut self, interned: bool) -> bool {
        std::mem::replace(&mut self.interned, interned)
    }

    /// How many states are known.
    pub fn known(&self) -> usize {
        self.known.len()
    }

    fn keep(&mut self, machine: MachineState) -> Rc<MachineState> {
        match self.interned {
            true => self.known.entry(machine.fingerprint).or_insert_with(|| Rc::new(machine)).clone(),
            false => Rc::new(machine),
        }
    }
}

impl State {
    /// The state before anything has happened.
    pub fn new(topology: &Topology, machines: &mut MachineCache) -> Result<State, BoundsError> {
        let mut nodes = Vec::new();
        for node in 0..topology.nodes() as u32 {
            let machine = match Machine::at(topology, NodeId(node)) {
                Some(machine) => Some(machines.keep(MachineState::new(topology, machine)?)),
                None => None,
            };
            nodes.push(Node { machine, waited: Span::ZERO });
        }
        let Bounds { losses, duplicates, timeouts, .. } = topology.bounds;
        Ok(State { nodes, flights: Vec::new(), losses, duplicates, timeouts })
    }

    /// The fingerprint of the state: machines, packets in any order, the faults that may still happen, and the node
    /// whose timer is due first.
    pub fn fingerprint(&self) -> Fingerprint {
        let mut hasher = StateHasher::default();
        let budgets = [self.losses, self.duplicates, self.timeouts].map(u64::from);
        let machines = self.nodes.iter().filter_map(|node| node.machine.as_ref()).map(|machine| machine.fingerprint);
        let flights = self.flights.iter().map(|flight| mixed(flight.fingerprint)).fold(0, u128::wrapping_add);
        budgets.into_iter().for_each(|budget| hasher.word(budget));
        for fingerprint in machines.chain([flights]) {
            hasher.word(fingerprint as u64);
            hasher.word((fingerprint >> 64) as u64);
        }
        hasher.word(self.first_due().map_or(u64::MAX, |node| node.0.into()));
        hasher.fingerprint(Time::ZERO)
    }

    /// True if every rank has all its sums and may leave.
    pub fn has_ended(&self, topology: &Topology) -> bool {
        self.machines().all(|(_, machine)| machine.has_ended(topology))
    }

    /// The packets in flight, the oldest first.
    pub fn flights(&self) -> &[Rc<Flight>] {
        &self.flights
    }

    fn machines(&self) -> impl Iterator<Item = (NodeId, &Rc<MachineState>)> {
        let nodes = self.nodes.iter().enumerate();
        nodes.filter_map(|(node, Node { machine, .. })| Some((NodeId(node as u32), machine.as_ref()?)))
    }

    /// The node whose timer expires first if nothing else happens.
    fn first_due(&self) -> Option<NodeId> {
        let due = |(node, at): (usize, &Node)| Some((at.remaining()?, NodeId(node as u32)));
        self.nodes.iter().enumerate().filter_map(due).min().map(|(_, node)| node)
    }

    /// True if nothing can happen except that time passes.
    fn is_quiet(&self, topology: &Topology) -> bool {
        self.flights.is_empty() && !self.machines().any(|(_, machine)| machine.may_submit(topology))
    }

    /// True if a timer expires in time: no packet is in flight, and no other timer is due earlier.
    fn is_in_time(&self, topology: &Topology, node: NodeId) -> bool {
        self.is_quiet(topology) && self.first_due() == Some(node)
    }

    /// All possible steps.
    pub fn steps(&self, topology: &Topology) -> Vec<Step> {
        let submits = self.machines().filter(|(_, machine)| machine.may_submit(topology));
        let mut steps: Vec<Step> = submits.map(|(node, _)| Step::Submit(node)).collect();
        for (number, flight) in self.flights.iter().enumerate() {
            if self.flights[..number].iter().any(|before| before.fingerprint == flight.fingerprint) {
                continue;
            }
            let number = number as u16;
            for hop in 0..flight.next.len() as u8 {
                steps.push(Step::Deliver { flight: number, hop });
                if self.duplicates > 0 {
                    steps.push(Step::Repeat { flight: number, hop });
                }
            }
            if self.losses > 0 {
                steps.push(Step::Lose(number));
            }
        }
        let armed = self.machines().filter(|(_, machine)| machine.due.is_some());
        let may = armed.filter(|&(node, _)| self.timeouts > 0 || self.is_in_time(topology, node));
        steps.extend(may.map(|(node, _)| Step::Timeout(node)));
        steps
    }

    /// The next step if there are no more faults: the oldest packet arrives first, and time passes only when all
    /// packets have arrived. `None` if there is no step left.
    pub fn fair_step(&self, topology: &Topology) -> Option<Step> {
        if let Some((node, _)) = self.machines().find(|(_, machine)| machine.may_submit(topology)) {
            return Some(Step::Submit(node));
        }
        match self.flights.is_empty() {
            true => self.first_due().map(Step::Timeout),
            false => Some(Step::Deliver { flight: 0, hop: 0 }),
        }
    }

    /// The state after a step, and the step's effects.
    pub fn after(&self, topology: &Topology, step: Step, machines: &mut MachineCache) -> (State, Outcome) {
        let mut state = self.clone();
        match step {
            Step::Submit(node) => {
                let outcome = state.handle(topology, node, &Input::Submit, machines);
                (state, outcome)
            }
            Step::Deliver { flight, hop } => {
                let flight = state.flights.remove(flight.into());
                let outcome = state.arrive(topology, &flight, hop, machines);
                (state, outcome)
            }
            Step::Repeat { flight, hop } => {
                state.duplicates -= 1;
                let flight = state.flights[usize::from(flight)].clone();
                let outcome = state.arrive(topology, &flight, hop, machines);
                (state, outcome)
            }
            Step::Lose(flight) => {
                state.losses -= 1;
                state.flights.remove(flight.into());
                (state, Outcome::default())
            }
            Step::Timeout(node) => {
                if state.is_in_time(topology, node) {
                    state.wait(node);
                } else {
                    state.timeouts -= 1;
                }
                let outcome = state.handle(topology, node, &Input::Timeout, machines);
                (state, outcome)
            }
        }
    }

    /// Lets time pass at all nodes until a node's timer is due.
    fn wait(&mut self, node: NodeId) {
        let passed = self.nodes[node.index()].remaining().unwrap_or(Span::ZERO);
        self.nodes.iter_mut().for_each(|node| node.waited = node.waited + passed);
    }

    fn arrive(&mut self, topology: &Topology, flight: &Flight, hop: u8, machines: &mut MachineCache) -> Outcome {
        self.handle(topology, flight.next[usize::from(hop)], &Input::Packet(flight), machines)
    }

    /// Checks that the result that a rank has just got equals other ranks' results.
    fn disagreement(&self, topology: &Topology, node: NodeId) -> Option<String> {
        let digests = |node: NodeId| match &self.nodes[node.index()].machine.as_ref()?.machine {
            Machine::Host { digests, .. } => Some(digests),
            Machine::Switch(_) | Machine::Shared(_) => None,
        };
        let own = digests(node)?;
        let last = own.len().checked_sub(1)?;
        let differs = |&other: &NodeId| {
            digests(other).and_then(|digests| digests.get(last)).is_some_and(|digest| *digest != own[last])
        };
        let other = self.machines().map(|(node, _)| node).find(differs)?;
        Some(format!("{} has another result of collective {last} than {}", topology.name(node), topology.name(other)))
    }

    fn handle(&mut self, topology: &Topology, node: NodeId, input: &Input<'_>, machines: &mut MachineCache) -> Outcome {
        let Node { machine, waited } = &mut self.nodes[node.index()];
        // A node without a machine ignores packets.
        let Some(machine) = machine else { return Outcome::default() };
        let (next, mut outcome) = machine.handle(topology, node, *waited, input, &mut machines.scratch);
        (*machine, *waited) = (machines.keep(next), Span::ZERO);
        self.flights.extend(std::mem::take(&mut outcome.sent).into_iter().map(Rc::new));
        if outcome.completed && outcome.wrong.is_none() {
            outcome.wrong = self.disagreement(topology, node);
        }
        outcome
    }
}

//! A state of the whole world, and its possible steps.

use std::collections::HashMap;
use std::rc::Rc;

use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::time::{Span, Time};

use crate::body::Body;
use crate::bounds::{Bounds, BoundsError};
use crate::fingerprint::{Fingerprint, StateHasher, mixed};
use crate::flight::Flight;
use crate::site::Site;
use crate::turn::{Input, Machine, Outcome, Workbench};

/// A possible step. Flights are numbered by their place among those under way, the oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// A rank submits its next collective.
    Submit(NodeId),
    /// A packet arrives at one of the nodes that it may come to.
    Deliver {
        /// The packet.
        flight: u16,
        /// Which node.
        hop: u8,
    },
    /// A packet arrives, and a copy of it stays under way.
    Repeat {
        /// The packet.
        flight: u16,
        /// Which node.
        hop: u8,
    },
    /// A packet is lost.
    Lose(u16),
    /// A node's timer runs out.
    Timeout(NodeId),
}

/// A machine in a world.
#[derive(Clone)]
struct Node {
    /// `None` for switches that only forward.
    machine: Option<Rc<Machine>>,
    /// How much time has passed at this node since the machine's last input.
    waited: Span,
}

impl Node {
    /// How long it takes until the node's timer runs out.
    fn remaining(&self) -> Option<Span> {
        let machine = self.machine.as_ref()?;
        Some(machine.due?.since(machine.clock + self.waited))
    }
}

/// A state.
#[derive(Clone)]
pub struct World {
    nodes: Vec<Node>,
    flights: Vec<Rc<Flight>>,
    losses: u8,
    duplicates: u8,
    timeouts: u8,
}

/// States of machines by their fingerprints, each kept once.
pub struct Machines {
    known: HashMap<Fingerprint, Rc<Machine>>,
    bench: Workbench,
    /// True if a machine in a known state is replaced by the first one in that state.
    shares: bool,
}

impl Machines {
    /// No states. With `shares` little memory is needed; without it a replay is exact.
    pub fn new(bounds: &Bounds, shares: bool) -> Machines {
        Machines { known: HashMap::new(), bench: Workbench::new(bounds.ranks), shares }
    }

    /// Sets whether machines are shared from now on; returns the previous setting.
    pub fn share(&mut self, shares: bool) -> bool {
        std::mem::replace(&mut self.shares, shares)
    }

    /// How many states are known.
    pub fn known(&self) -> usize {
        self.known.len()
    }

    fn keep(&mut self, machine: Machine) -> Rc<Machine> {
        match self.shares {
            true => self.known.entry(machine.fingerprint).or_insert_with(|| Rc::new(machine)).clone(),
            false => Rc::new(machine),
        }
    }
}

impl World {
    /// The world before anything has happened.
    pub fn new(site: &Site, machines: &mut Machines) -> Result<World, BoundsError> {
        let mut nodes = Vec::new();
        for node in 0..site.nodes() as u32 {
            let machine = match site.machine(NodeId(node)) {
                Some(body) => Some(machines.keep(Machine::new(site, body)?)),
                None => None,
            };
            nodes.push(Node { machine, waited: Span::ZERO });
        }
        let Bounds { losses, duplicates, timeouts, .. } = site.bounds;
        Ok(World { nodes, flights: Vec::new(), losses, duplicates, timeouts })
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
    pub fn has_ended(&self, site: &Site) -> bool {
        self.machines().all(|(_, machine)| machine.has_ended(site))
    }

    /// The packets under way, the oldest first.
    pub fn flights(&self) -> &[Rc<Flight>] {
        &self.flights
    }

    fn machines(&self) -> impl Iterator<Item = (NodeId, &Rc<Machine>)> {
        let nodes = self.nodes.iter().enumerate();
        nodes.filter_map(|(node, Node { machine, .. })| Some((NodeId(node as u32), machine.as_ref()?)))
    }

    /// The node whose timer runs out first if nothing else happens.
    fn first_due(&self) -> Option<NodeId> {
        let due = |(node, at): (usize, &Node)| Some((at.remaining()?, NodeId(node as u32)));
        self.nodes.iter().enumerate().filter_map(due).min().map(|(_, node)| node)
    }

    /// True if nothing can happen except that time passes.
    fn is_quiet(&self, site: &Site) -> bool {
        self.flights.is_empty() && !self.machines().any(|(_, machine)| machine.may_submit(site))
    }

    /// True if a timer runs out when it should: no packet is under way, and no other timer is due earlier.
    fn is_in_time(&self, site: &Site, node: NodeId) -> bool {
        self.is_quiet(site) && self.first_due() == Some(node)
    }

    /// All possible steps.
    pub fn steps(&self, site: &Site) -> Vec<Step> {
        let submits = self.machines().filter(|(_, machine)| machine.may_submit(site));
        let mut steps: Vec<Step> = submits.map(|(node, _)| Step::Submit(node)).collect();
        for (place, flight) in self.flights.iter().enumerate() {
            if self.flights[..place].iter().any(|before| before.fingerprint == flight.fingerprint) {
                continue;
            }
            let place = place as u16;
            for hop in 0..flight.next.len() as u8 {
                steps.push(Step::Deliver { flight: place, hop });
                if self.duplicates > 0 {
                    steps.push(Step::Repeat { flight: place, hop });
                }
            }
            if self.losses > 0 {
                steps.push(Step::Lose(place));
            }
        }
        let armed = self.machines().filter(|(_, machine)| machine.due.is_some());
        let may = armed.filter(|&(node, _)| self.timeouts > 0 || self.is_in_time(site, node));
        steps.extend(may.map(|(node, _)| Step::Timeout(node)));
        steps
    }

    /// The next step if there are no more faults: the oldest packet arrives first, and time passes only when all
    /// packets have arrived. `None` if there is no step left.
    pub fn fair_step(&self, site: &Site) -> Option<Step> {
        if let Some((node, _)) = self.machines().find(|(_, machine)| machine.may_submit(site)) {
            return Some(Step::Submit(node));
        }
        match self.flights.is_empty() {
            true => self.first_due().map(Step::Timeout),
            false => Some(Step::Deliver { flight: 0, hop: 0 }),
        }
    }

    /// The world after a step, and the step's effects.
    pub fn after(&self, site: &Site, step: Step, machines: &mut Machines) -> (World, Outcome) {
        let mut world = self.clone();
        match step {
            Step::Submit(node) => {
                let outcome = world.turn(site, node, &Input::Submit, machines);
                (world, outcome)
            }
            Step::Deliver { flight, hop } => {
                let flight = world.flights.remove(flight.into());
                let outcome = world.arrive(site, &flight, hop, machines);
                (world, outcome)
            }
            Step::Repeat { flight, hop } => {
                world.duplicates -= 1;
                let flight = world.flights[usize::from(flight)].clone();
                let outcome = world.arrive(site, &flight, hop, machines);
                (world, outcome)
            }
            Step::Lose(flight) => {
                world.losses -= 1;
                world.flights.remove(flight.into());
                (world, Outcome::default())
            }
            Step::Timeout(node) => {
                if world.is_in_time(site, node) {
                    world.wait(node);
                } else {
                    world.timeouts -= 1;
                }
                let outcome = world.turn(site, node, &Input::Timeout, machines);
                (world, outcome)
            }
        }
    }

    /// Lets time pass at all nodes until a node's timer is due.
    fn wait(&mut self, node: NodeId) {
        let passed = self.nodes[node.index()].remaining().unwrap_or(Span::ZERO);
        self.nodes.iter_mut().for_each(|node| node.waited = node.waited + passed);
    }

    fn arrive(&mut self, site: &Site, flight: &Flight, hop: u8, machines: &mut Machines) -> Outcome {
        self.turn(site, flight.next[usize::from(hop)], &Input::Packet(flight), machines)
    }

    /// Checks that the result that a rank has just got equals other ranks' results.
    fn disagreement(&self, site: &Site, node: NodeId) -> Option<String> {
        let digests = |node: NodeId| match &self.nodes[node.index()].machine.as_ref()?.body {
            Body::Host { digests, .. } => Some(digests),
            Body::Switch(_) | Body::Shared(_) => None,
        };
        let own = digests(node)?;
        let last = own.len().checked_sub(1)?;
        let differs = |&other: &NodeId| {
            digests(other).and_then(|digests| digests.get(last)).is_some_and(|digest| *digest != own[last])
        };
        let other = self.machines().map(|(node, _)| node).find(differs)?;
        Some(format!("{} has another result of collective {last} than {}", site.name(node), site.name(other)))
    }

    fn turn(&mut self, site: &Site, node: NodeId, input: &Input<'_>, machines: &mut Machines) -> Outcome {
        let Node { machine, waited } = &mut self.nodes[node.index()];
        // A node without a machine ignores packets.
        let Some(machine) = machine else { return Outcome::default() };
        let (next, mut outcome) = machine.turn(site, node, *waited, input, &mut machines.bench);
        (*machine, *waited) = (machines.keep(next), Span::ZERO);
        self.flights.extend(std::mem::take(&mut outcome.sent).into_iter().map(Rc::new));
        if outcome.completed && outcome.wrong.is_none() {
            outcome.wrong = self.disagreement(site, node);
        }
        outcome
    }
}

//! A replayed run, each step as a sentence.

use crate::bounds::{Bounds, BoundsError};
use crate::state::{MachineCache, State};
use crate::step::{Flight, Step};
use crate::topology::Topology;

/// The result of running a run again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replay {
    /// Each step as a sentence.
    pub lines: Vec<String>,
    /// What was wrong after its last step.
    pub wrong: Option<String>,
    /// Every rank has its sums at the end.
    pub has_ended: bool,
}

/// Why a run cannot be replayed. The text is a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// The bounds are not valid.
    #[error(transparent)]
    Bounds(#[from] BoundsError),
    /// The step is not possible in the state that the run has reached.
    #[error("step {0} of the run, {1}, is impossible here: were other flags given when the run was found?")]
    Impossible(usize, Step),
}

/// Replays a run, up to its first error.
pub fn replay(bounds: &Bounds, steps: &[Step]) -> Result<Replay, ReplayError> {
    let topology = Topology::new(bounds)?;
    let mut machines = MachineCache::new(bounds, false);
    let mut state = State::new(&topology, &mut machines)?;
    let mut lines = Vec::new();
    for (number, &step) in steps.iter().enumerate() {
        if !state.steps(&topology).contains(&step) {
            return Err(ReplayError::Impossible(number + 1, step));
        }
        let what = sentence(&topology, &state, step);
        let earlier = state.flights().len() - usize::from(matches!(step, Step::Deliver { .. } | Step::Lose(_)));
        let (after, outcome) = state.after(&topology, step, &mut machines);
        let sent: Vec<String> = after.flights()[earlier..].iter().map(|flight| made(&topology, flight)).collect();
        let sends = if sent.is_empty() { String::new() } else { format!("; sends {}", sent.join(", ")) };
        let done = if outcome.completed { "; has its sum" } else { "" };
        lines.push(format!("{what}{sends}{done}"));
        state = after;
        if outcome.wrong.is_some() {
            return Ok(Replay { lines, wrong: outcome.wrong, has_ended: false });
        }
    }
    Ok(Replay { lines, wrong: None, has_ended: state.has_ended(&topology) })
}

fn sentence(topology: &Topology, state: &State, step: Step) -> String {
    let flight = |flight: u16| &state.flights()[usize::from(flight)];
    let arrives = |number, hop: u8| {
        let flight = flight(number);
        let (to, what) = (topology.name(flight.next[usize::from(hop)]), name(topology, flight));
        format!("{to} gets {what} from {}", topology.name(flight.from))
    };
    match step {
        Step::Submit(node) => format!("{} submits its next collective", topology.name(node)),
        Step::Deliver { flight, hop } => arrives(flight, hop),
        Step::Repeat { flight, hop } => format!("{}, and a copy stays on its way", arrives(flight, hop)),
        Step::Lose(number) => format!("lost: {}", made(topology, flight(number))),
        Step::Timeout(node) => format!("the timer of {} expires", topology.name(node)),
    }
}

/// A packet and its receivers: "UPDATE of slot 1 to switch 0".
fn made(topology: &Topology, flight: &Flight) -> String {
    let to: Vec<String> = flight.next.iter().map(|&node| topology.name(node)).collect();
    format!("{} to {}", name(topology, flight), to.join(" or "))
}

/// A packet: "UPDATE of slot 1".
fn name(topology: &Topology, flight: &Flight) -> String {
    let description = (topology.bounds.protocol.describe)(&flight.bytes);
    let kind = if description.kind.is_empty() { "a packet" } else { description.kind };
    description.slot.map_or_else(|| kind.to_owned(), |slot| format!("{kind} of slot {slot}"))
}

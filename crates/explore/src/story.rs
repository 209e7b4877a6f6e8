//! A run in words, step by step, and in a form that can be run again.

use std::fmt;
use std::str::FromStr;

use tributary_proto::contract::ids::NodeId;

use crate::bounds::{Bounds, BoundsError};
use crate::flight::Flight;
use crate::site::Site;
use crate::world::{Machines, Step, World};

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
    /// There is no such world.
    #[error(transparent)]
    Bounds(#[from] BoundsError),
    /// The world cannot take this step at this place.
    #[error("step {0} of the run, {1}, is impossible in this world: were other flags given when the run was found?")]
    Impossible(usize, Step),
}

/// Replays a run of a world, up to its first error.
pub fn replay(bounds: &Bounds, steps: &[Step]) -> Result<Replay, ReplayError> {
    let site = Site::new(bounds)?;
    let mut machines = Machines::new(bounds, false);
    let mut world = World::new(&site, &mut machines)?;
    let mut lines = Vec::new();
    for (number, &step) in steps.iter().enumerate() {
        if !world.steps(&site).contains(&step) {
            return Err(ReplayError::Impossible(number + 1, step));
        }
        let what = sentence(&site, &world, step);
        let held = world.flights().len() - usize::from(matches!(step, Step::Deliver { .. } | Step::Lose(_)));
        let (after, outcome) = world.after(&site, step, &mut machines);
        let sent: Vec<String> = after.flights()[held..].iter().map(|flight| made(&site, flight)).collect();
        let sends = if sent.is_empty() { String::new() } else { format!("; sends {}", sent.join(", ")) };
        let done = if outcome.completed { "; has its sum" } else { "" };
        lines.push(format!("{what}{sends}{done}"));
        world = after;
        if outcome.wrong.is_some() {
            return Ok(Replay { lines, wrong: outcome.wrong, has_ended: false });
        }
    }
    Ok(Replay { lines, wrong: None, has_ended: world.has_ended(&site) })
}

fn sentence(site: &Site, world: &World, step: Step) -> String {
    let flight = |flight: u16| &world.flights()[usize::from(flight)];
    let arrives = |place, hop: u8| {
        let flight = flight(place);
        let (to, what) = (site.name(flight.next[usize::from(hop)]), name(site, flight));
        format!("{to} gets {what} from {}", site.name(flight.from))
    };
    match step {
        Step::Submit(node) => format!("{} submits its next collective", site.name(node)),
        Step::Deliver { flight, hop } => arrives(flight, hop),
        Step::Repeat { flight, hop } => format!("{}, and a copy stays on its way", arrives(flight, hop)),
        Step::Lose(place) => format!("lost: {}", made(site, flight(place))),
        Step::Timeout(node) => format!("the timer of {} runs out", site.name(node)),
    }
}

/// A packet and its receivers: "UPDATE of slot 1 to switch 0".
fn made(site: &Site, flight: &Flight) -> String {
    let to: Vec<String> = flight.next.iter().map(|&node| site.name(node)).collect();
    format!("{} to {}", name(site, flight), to.join(" or "))
}

/// A packet: "UPDATE of slot 1".
fn name(site: &Site, flight: &Flight) -> String {
    let description = (site.bounds.protocol.describe)(&flight.bytes);
    let kind = if description.kind.is_empty() { "a packet" } else { description.kind };
    description.slot.map_or_else(|| kind.to_owned(), |slot| format!("{kind} of slot {slot}"))
}

/// Writes the form that [`Step::from_str`] reads.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Submit(node) => write!(f, "s{node}"),
            Step::Deliver { flight, hop: 0 } => write!(f, "d{flight}"),
            Step::Deliver { flight, hop } => write!(f, "d{flight}/{hop}"),
            Step::Repeat { flight, hop: 0 } => write!(f, "r{flight}"),
            Step::Repeat { flight, hop } => write!(f, "r{flight}/{hop}"),
            Step::Lose(flight) => write!(f, "l{flight}"),
            Step::Timeout(node) => write!(f, "t{node}"),
        }
    }
}

impl FromStr for Step {
    type Err = String;
    fn from_str(text: &str) -> Result<Step, String> {
        let wrong = || format!("\"{text}\" is no step: write s0, d0, d0/1, r0, l0 or t0");
        let (kind, rest) = text.split_at_checked(1).ok_or_else(wrong)?;
        let (number, hop) = rest.split_once('/').unwrap_or((rest, "0"));
        let number: u16 = number.parse().map_err(|_| wrong())?;
        let hop = hop.parse().map_err(|_| wrong())?;
        match kind {
            "s" => Ok(Step::Submit(NodeId(number.into()))),
            "d" => Ok(Step::Deliver { flight: number, hop }),
            "r" => Ok(Step::Repeat { flight: number, hop }),
            "l" => Ok(Step::Lose(number)),
            "t" => Ok(Step::Timeout(NodeId(number.into()))),
            _ => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_read_as_it_was_written() {
        for text in ["s0", "d3", "d3/1", "r2", "r2/1", "l1", "t4"] {
            assert_eq!(text.parse::<Step>().unwrap().to_string(), text);
        }
        for text in ["", "x1", "d", "d1/", "é1"] {
            assert!(text.parse::<Step>().unwrap_err().contains("is no step"), "{text}");
        }
    }
}

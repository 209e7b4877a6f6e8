//! Plans the faults that a file asks for.

use tributary_proto::contract::time::Time;

use crate::config::{ConfigError, FaultSection, LinkSet, Links, invalid};
use crate::engine::{Action, Simulation};
use crate::net::ImpairmentSpec;
use crate::topology::Graph;
use crate::topology::LinkId;

/// Plans the faults of one section.
pub(super) fn plan(simulation: &mut Simulation, section: &FaultSection) -> Result<(), ConfigError> {
    let (at, until) = (Time::ZERO + section.at.0, section.until.map(|until| Time::ZERO + until.0));
    if until.is_some_and(|until| until <= at) {
        return Err(invalid("until is not after at"));
    }
    let mut changes: Vec<(Time, Action)> = Vec::new();
    if let Some(name) = section.dead {
        let node = name.node(simulation.graph())?;
        changes.push((at, Action::Kill(node)));
        changes.extend(until.map(|until| (until, Action::Revive(node))));
    }
    if section.rate.is_some() && simulation.fabric.is_lossless() {
        return Err(invalid("rate is for links that may lose packets: PAUSE counts what waits at one rate"));
    }
    if section.rate.is_some() && simulation.fabric.cuts_through() {
        return Err(invalid("rate: with cut_through a packet could leave a switch faster than it comes in"));
    }
    if let Some(links) = &section.links {
        link_changes(simulation.graph(), section, links, at, until, &mut changes)?;
    } else if section.dead.is_none() {
        return Err(invalid("it names neither links nor something dead"));
    }
    for (time, action) in changes {
        simulation.plan(time, action);
    }
    Ok(())
}

fn link_changes(
    graph: &Graph,
    section: &FaultSection,
    links: &Links,
    at: Time,
    until: Option<Time>,
    changes: &mut Vec<(Time, Action)>,
) -> Result<(), ConfigError> {
    let spec = ImpairmentSpec {
        loss: section.loss.0,
        corruption: section.corruption.0,
        duplication: section.duplication.0,
        reordering: section.reordering.0,
        longest_delay: section.delay.0,
    };
    let cables = cables(graph, links)?;
    if spec != (ImpairmentSpec { longest_delay: spec.longest_delay, ..ImpairmentSpec::default() }) {
        for link in cables.iter().flat_map(|&cable| [cable, cable.reverse()]) {
            changes.push((at, Action::Impair(link, Some(spec))));
            changes.extend(until.map(|until| (until, Action::Impair(link, None))));
        }
    }
    if let Some(rate) = section.rate {
        for link in cables.iter().flat_map(|&cable| [cable, cable.reverse()]) {
            changes.push((at, Action::Rate(link, rate.0)));
            changes.extend(until.map(|until| (until, Action::Rate(link, graph.spec(link).rate))));
        }
    }
    let Some(period) = section.flap else {
        if section.down {
            changes.extend(cables.iter().map(|&cable| (at, Action::Cable(cable, true))));
            let back = until.into_iter().flat_map(|until| cables.iter().map(move |&cable| (until, cable)));
            changes.extend(back.map(|(until, cable)| (until, Action::Cable(cable, false))));
        }
        return Ok(());
    };
    let Some(until) = until else { return Err(invalid("links that flap need an until")) };
    if until.since(at).0 / period.0.0.max(1) > MAX_FLAPS {
        return Err(invalid(format!("links that flap every {period} flap more than {MAX_FLAPS} times")));
    }
    let mut time = at;
    while time < until {
        changes.extend(cables.iter().map(|&cable| (time, Action::Cable(cable, true))));
        let back = (time + period.0).min(until);
        changes.extend(cables.iter().map(|&cable| (back, Action::Cable(cable, false))));
        time = back + period.0;
    }
    Ok(())
}

const MAX_FLAPS: u64 = 10_000;

/// One direction of each cable that the section names.
pub(super) fn cables(graph: &Graph, links: &Links) -> Result<Vec<LinkId>, ConfigError> {
    let ends_at_host = |index: &usize| graph.edges()[*index].a.0.min(graph.edges()[*index].b.0) < graph.hosts();
    let all = 0..graph.edges().len();
    let chosen: Vec<usize> = match links {
        Links::Set(LinkSet::All) => all.collect(),
        Links::Set(LinkSet::Hosts) => all.filter(ends_at_host).collect(),
        Links::Set(LinkSet::Core) => all.filter(|index| !ends_at_host(index)).collect(),
        Links::Between(pairs) => {
            let mut chosen = Vec::new();
            for [a, b] in pairs {
                let (from, to) = (a.node(graph)?, b.node(graph)?);
                let joins = |index: &usize| {
                    let edge = &graph.edges()[*index];
                    (edge.a, edge.b) == (from, to) || (edge.b, edge.a) == (from, to)
                };
                let before = chosen.len();
                chosen.extend(all.clone().filter(joins));
                if chosen.len() == before {
                    let (a, b) = (String::from(*a), String::from(*b));
                    return Err(invalid(format!("no link joins {a} and {b}")));
                }
            }
            chosen
        }
    };
    Ok(chosen.into_iter().map(|index| LinkId(2 * index as u32)).collect())
}

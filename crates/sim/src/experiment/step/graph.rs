//! A graph that a file describes node by node.

use std::collections::BTreeMap;

use super::shapes::{ALL, Draft, DraftWork, Groups};
use crate::config::{NodeSection, StepCollective, StepSection};

/// The nodes of a graph, and its groups.
pub(super) fn draft(section: &StepSection, ranks: u16) -> Result<(Vec<Draft>, Groups), String> {
    if section.nodes.is_empty() {
        return Err("a graph needs [[step.node]]".into());
    }
    let groups = groups(section, ranks)?;
    let mut numbers = BTreeMap::new();
    for (number, node) in section.nodes.iter().enumerate() {
        if numbers.insert(node.name.as_str(), number).is_some() {
            return Err(format!("two nodes are called \"{}\"", node.name));
        }
    }
    let mut nodes = Vec::new();
    for node in &section.nodes {
        let after = node.after.iter().map(|name| {
            let number = numbers.get(name.as_str()).copied();
            number.ok_or_else(|| format!("node \"{}\" is after \"{name}\", and no node is called that", node.name))
        });
        let work = work(node, &groups, ranks).map_err(|why| format!("node \"{}\": {why}", node.name))?;
        nodes.push(Draft {
            name: node.name.clone(),
            work,
            after: after.collect::<Result<_, _>>()?,
            ranks: node.ranks.clone(),
        });
    }
    Ok((nodes, groups))
}

fn groups(section: &StepSection, ranks: u16) -> Result<Groups, String> {
    let mut groups = Groups::of_all(ranks);
    for (name, lists) in &section.groups {
        if name == ALL {
            return Err(format!("groups: \"{name}\" is the group of all ranks"));
        }
        let mut seen = vec![false; usize::from(ranks)];
        for &rank in lists.iter().flatten() {
            match seen.get_mut(usize::from(rank)) {
                None => return Err(format!("groups: {name} has rank {rank}; there are {ranks}, from 0")),
                Some(true) => return Err(format!("groups: {name} has rank {rank} twice")),
                Some(seen) => *seen = true,
            }
        }
        if lists.iter().any(Vec::is_empty) || lists.is_empty() {
            return Err(format!("groups: {name} has a group without ranks"));
        }
        groups.add(name, lists.clone());
    }
    Ok(groups)
}

fn work(node: &NodeSection, groups: &Groups, ranks: u16) -> Result<DraftWork, String> {
    let collective = match (node.compute, node.collective) {
        (Some(time), None) => return compute(node, time.0, ranks),
        (None, Some(collective)) => collective,
        _ => return Err("it has either compute or a collective".into()),
    };
    let bytes = node.bytes.map(|bytes| bytes.0);
    let bytes = match (collective, bytes) {
        (StepCollective::Barrier, None) => 0,
        (StepCollective::Barrier, Some(_)) => return Err("a barrier has no bytes".into()),
        (_, None | Some(0)) => return Err(format!("{} needs bytes", collective.name())),
        (_, Some(bytes)) => bytes,
    };
    if node.ranks.is_some() {
        return Err("ranks are for compute; a collective has a group".into());
    }
    if collective == StepCollective::Send {
        return send(node, bytes, ranks);
    }
    if node.pairs.is_some() {
        return Err("pairs are for a send".into());
    }
    let group = node.group.clone().unwrap_or_else(|| ALL.to_string());
    let Some(lists) = groups.0.get(&group) else {
        let known: Vec<&str> = groups.0.keys().map(String::as_str).collect();
        return Err(format!("there is no group \"{group}\": there are {}", known.join(", ")));
    };
    let root = node.root.unwrap_or(0);
    let has_root = matches!(collective, StepCollective::Reduce | StepCollective::Broadcast);
    if node.root.is_some() && !has_root {
        return Err(format!("{} has no root", collective.name()));
    }
    if let Some(list) = lists.iter().find(|list| usize::from(root) >= list.len()) {
        return Err(format!("root = {root}: a group has {} ranks", list.len()));
    }
    let shares =
        matches!(collective, StepCollective::ReduceScatter | StepCollective::AllGather | StepCollective::AllToAll);
    if shares && let Some(list) = lists.iter().find(|list| !bytes.is_multiple_of(4 * list.len() as u64)) {
        return Err(format!("{bytes} B are not a whole number of 4 B for each of {} ranks", list.len()));
    }
    Ok(DraftWork::Collective { kind: collective, group, bytes, root })
}

fn compute(node: &NodeSection, time: tributary_proto::contract::time::Span, ranks: u16) -> Result<DraftWork, String> {
    let others = [
        ("bytes", node.bytes.is_some()),
        ("group", node.group.is_some()),
        ("root", node.root.is_some()),
        ("pairs", node.pairs.is_some()),
    ];
    if let Some((key, _)) = others.into_iter().find(|(_, given)| *given) {
        return Err(format!("{key} is for a collective"));
    }
    match node.ranks.iter().flatten().find(|&&rank| rank >= ranks) {
        Some(rank) => Err(format!("there is no rank {rank}: there are {ranks}, from 0")),
        None => Ok(DraftWork::Compute(time)),
    }
}

fn send(node: &NodeSection, bytes: u64, ranks: u16) -> Result<DraftWork, String> {
    if node.group.is_some() || node.root.is_some() {
        return Err("a send has pairs of ranks, and neither group nor root".into());
    }
    let pairs = node.pairs.clone().unwrap_or_default();
    if pairs.is_empty() {
        return Err("a send needs pairs, as in [[0, 1]]".into());
    }
    for end in 0..2 {
        let mut seen = vec![false; usize::from(ranks)];
        for pair in &pairs {
            match seen.get_mut(usize::from(pair[end])) {
                None => return Err(format!("there is no rank {}: there are {ranks}, from 0", pair[end])),
                Some(true) => return Err(format!("rank {} is twice on one side of the pairs", pair[end])),
                Some(seen) => *seen = true,
            }
        }
    }
    match pairs.iter().find(|[from, to]| from == to) {
        Some([rank, _]) => Err(format!("rank {rank} sends to itself")),
        None => Ok(DraftWork::Send { pairs, bytes }),
    }
}

//! Installs a training step: its groups become jobs, whose operations are the step's collectives, or flows between
//! ranks where no job moves data.

use std::collections::BTreeMap;
use std::sync::Arc;

use tributary_control::config::texts;
use tributary_numeric::ReduceOp;
use tributary_proto::contract::ids::{NodeId, Rank};
use tributary_proto::contract::options::{Defaults, Options};
use tributary_proto::contract::protocol::{Placement, Protocol};
use tributary_proto::contract::tensor::Spec;
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::protocols;

use super::shapes::{Draft, DraftWork, Groups};
use super::{graph, shapes};
use crate::config::{Config, ConfigError, Placement as Placed, StepCollective, StepKind, StepSection, invalid};
use crate::engine::{
    EndpointId, Exchange, JobPlan, RankStream, Round, Simulation, StepGraph, StepNode, StepWork, Transfer, Way,
};
use crate::experiment::hosts::{Allocation, Servers, servers};
use crate::experiment::plan::job_plan;

/// The collectives of a group that begin in order, by the way that they go.
#[derive(Clone, Debug, PartialEq)]
struct Stream {
    name: String,
    /// The ranks of each group; of a send, all ranks.
    groups: Vec<Vec<u16>>,
    by: Carrier,
    nodes: Vec<u32>,
}

impl Stream {
    fn ranks(&self) -> Vec<Vec<usize>> {
        self.groups.iter().map(|group| group.iter().map(|&rank| usize::from(rank)).collect()).collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Carrier {
    /// A job that sums, or one beside it that only moves data, as PyTorch's backend has both.
    Job { protocol: &'static Protocol, moves: bool },
    /// Flows from rank to rank, as Gloo's.
    Flows,
}

/// Installs a section.
pub(in crate::experiment) fn install(
    simulation: &mut Simulation,
    config: &Config,
    index: usize,
    hosts: &mut Allocation,
) -> Result<(), ConfigError> {
    let section = &config.steps[index];
    let name = section.name.clone().unwrap_or_else(|| format!("step {index}"));
    let error = |sentence: String| invalid(format!("{name}: {sentence}"));
    let members = hosts.take(&name, &section.hosts, Placed::Packed)?;
    let ranks = u16::try_from(members.len()).map_err(|_| error(format!("it has {} ranks", members.len())))?;
    let (drafts, groups) = draft(section, ranks).map_err(error)?;
    let mut notes = Vec::new();
    let (nodes, streams) = streams(section, &drafts, &groups, ranks, &mut notes).map_err(error)?;
    check_order(&nodes).map_err(error)?;
    let mut graph = StepGraph {
        name: name.clone(),
        members,
        iterations: section.iterations,
        start: Time::ZERO,
        nodes,
        streams: streams.iter().map(|stream| stream.name.clone()).collect(),
        groups: streams.iter().map(Stream::ranks).collect(),
        jobs: Vec::new(),
        notes,
    };
    let mut ends = vec![Vec::new(); usize::from(ranks)];
    for stream in &streams {
        let mut of_ranks = vec![None; usize::from(ranks)];
        let lane = match stream.by {
            Carrier::Flows => simulation.next_lane().ok_or_else(|| error(TOO_MANY_LANES.into()))?,
            Carrier::Job { .. } => 0,
        };
        for (number, group) in stream.groups.iter().enumerate().filter(|(_, group)| group.len() > 1) {
            match stream.by {
                Carrier::Flows => add_flows(stream, group, lane, &drafts, &graph.members, &mut of_ranks),
                Carrier::Job { protocol, moves } => {
                    let job = GroupJob { config, index, name: &name, stream, number, group, protocol, moves };
                    job.install(simulation, hosts, &drafts, &mut graph, &mut of_ranks)?;
                }
            }
        }
        ends.iter_mut().zip(of_ranks).for_each(|(rank, stream)| rank.push(stream));
    }
    simulation.install_step(graph, ends);
    Ok(())
}

const TOO_MANY_LANES: &str = "more than 255 groups of the file's steps send from rank to rank";

/// The nodes of a section, and its groups.
fn draft(section: &StepSection, ranks: u16) -> Result<(Vec<Draft>, Groups), String> {
    if section.iterations == 0 {
        return Err("iterations = 0 leaves nothing to do".into());
    }
    let of_graph = !section.nodes.is_empty() || !section.groups.is_empty();
    match section.kind {
        StepKind::Graph if !section.layers.is_empty() => {
            Err("a graph has [[step.node]]; [[step.layer]] is for the other kinds".into())
        }
        StepKind::Graph => graph::draft(section, ranks),
        _ if of_graph => Err("[[step.node]] and groups are for kind = \"graph\"".into()),
        _ => shapes::draft(section, ranks),
    }
}

/// The graph's nodes, and the streams on which its collectives go.
fn streams(
    section: &StepSection,
    drafts: &[Draft],
    groups: &Groups,
    ranks: u16,
    notes: &mut Vec<String>,
) -> Result<(Vec<StepNode>, Vec<Stream>), String> {
    let mut streams: Vec<Stream> = Vec::new();
    let mut nodes = Vec::new();
    for (number, draft) in drafts.iter().enumerate() {
        let mut on = |name: String, groups: Vec<Vec<u16>>, by: Carrier| {
            let known = streams.iter().position(|stream| (&stream.name, stream.by) == (&name, by));
            let index = known.unwrap_or(streams.len());
            if known.is_none() {
                streams.push(Stream { name, groups, by, nodes: Vec::new() });
            }
            streams[index].nodes.push(number as u32);
            index as u16
        };
        let work = match &draft.work {
            DraftWork::Compute(time) => StepWork::Compute(*time),
            DraftWork::Send { pairs, bytes } => {
                let everyone = vec![(0..ranks).collect()];
                StepWork::Collective { stream: on(format!("send {pairs:?}"), everyone, Carrier::Flows), bytes: *bytes }
            }
            DraftWork::Collective { kind, group, bytes, .. } => {
                let lists = &groups.0[group];
                let by = carrier(section, draft, lists, notes)?;
                let name = match by {
                    Carrier::Flows => format!("{group}, host path"),
                    Carrier::Job { moves: true, .. } => format!("{group}, moves"),
                    Carrier::Job { .. } => group.clone(),
                };
                debug_assert!(*kind != StepCollective::Send);
                StepWork::Collective { stream: on(name, lists.clone(), by), bytes: *bytes }
            }
        };
        let after = draft.after.iter().map(|&before| before as u32).collect();
        let mut of_ranks = Vec::new();
        if let Some(list) = &draft.ranks {
            of_ranks = vec![false; usize::from(ranks)];
            list.iter().for_each(|&rank| of_ranks[usize::from(rank)] = true);
        }
        nodes.push(StepNode { name: draft.name.clone(), work, after, ranks: of_ranks });
    }
    Ok((nodes, streams))
}

/// What carries a collective: the step's protocol if it can, else the host path, as under PyTorch's backend.
fn carrier(
    section: &StepSection,
    draft: &Draft,
    groups: &[Vec<u16>],
    notes: &mut Vec<String>,
) -> Result<Carrier, String> {
    let DraftWork::Collective { kind, .. } = draft.work else { return Ok(Carrier::Flows) };
    if section.host_path {
        return Ok(Carrier::Flows);
    }
    let largest = groups.iter().map(Vec::len).max().unwrap_or(1);
    let protocol = section.protocol;
    let of_one_rank = matches!(kind, StepCollective::AllGather | StepCollective::Broadcast);
    let mut note = |why: String| {
        let sentence = format!("{} goes over the host path: {why}", kind.name());
        if !notes.contains(&sentence) {
            notes.push(sentence);
        }
    };
    match kind {
        StepCollective::AllToAll => return Ok(Carrier::Flows),
        StepCollective::AllGather if !protocol.rooted_is_unicast => {
            note(format!("{protocol} has no broadcasts that spare the other ranks"));
            return Ok(Carrier::Flows);
        }
        _ => {}
    }
    let given = protocol.options.read_with(&texts(&section.options), Defaults::Simulated);
    let given = given.map_err(|error| error.to_string())?;
    let refusal = |protocol: &'static Protocol, options: &Options| {
        let operations = operations(section, protocol, draft, largest).ok()?;
        operations.iter().find_map(|spec| (protocol.check)(spec, options).err())
    };
    operations(section, protocol, draft, largest)?;
    let moves = of_one_rank && protocol.rooted_is_unicast;
    let Some(refused) = refusal(protocol, &given) else { return Ok(Carrier::Job { protocol, moves }) };
    note(refused.to_string());
    if of_one_rank {
        return Ok(Carrier::Flows);
    }
    let of_hosts = |protocol: &&'static Protocol| protocol.placement == Placement::Hosts && protocol.server.is_none();
    let on_hosts = protocols::ALL
        .iter()
        .copied()
        .filter(of_hosts)
        .find(|&protocol| refusal(protocol, &protocol.options.defaults()).is_none());
    let protocol = on_hosts.ok_or_else(|| refused.to_string())?;
    Ok(Carrier::Job { protocol, moves: false })
}

/// The operations of a job of `ranks` ranks that make a collective.
fn operations(section: &StepSection, protocol: &Protocol, draft: &Draft, ranks: usize) -> Result<Vec<Spec>, String> {
    let DraftWork::Collective { kind, bytes, root, .. } = &draft.work else { return Ok(Vec::new()) };
    let (dtype, op) = (section.dtype, ReduceOp::Sum);
    let elements = |bytes: u64| {
        let elements = bytes.div_ceil(dtype.size() as u64);
        u32::try_from(elements).map_err(|_| format!("{} has more than 2^32 - 1 elements", draft.name))
    };
    let (root, each) = (Rank(*root), 0..ranks as u16);
    Ok(match kind {
        StepCollective::Barrier => vec![Spec::allreduce(0, dtype, op)],
        StepCollective::AllReduce => vec![Spec::allreduce(elements(*bytes)?, dtype, op)],
        StepCollective::Reduce => vec![Spec::reduce(elements(*bytes)?, dtype, op, root)],
        StepCollective::Broadcast => vec![Spec::broadcast(elements(*bytes)?, root)],
        StepCollective::ReduceScatter if protocol.rooted_is_unicast => {
            let share = elements(bytes / ranks as u64)?;
            each.map(|rank| Spec::reduce(share, dtype, op, Rank(rank))).collect()
        }
        StepCollective::ReduceScatter => vec![Spec::allreduce(elements(*bytes)?, dtype, op)],
        StepCollective::AllGather => {
            let words = (bytes / ranks as u64).div_ceil(4) as u32;
            each.map(|rank| Spec::broadcast(words, Rank(rank))).collect()
        }
        StepCollective::AllToAll | StepCollective::Send => Vec::new(),
    })
}

/// The job of a group.
struct GroupJob<'a> {
    config: &'a Config,
    index: usize,
    name: &'a str,
    stream: &'a Stream,
    number: usize,
    group: &'a [u16],
    protocol: &'static Protocol,
    moves: bool,
}

impl GroupJob<'_> {
    fn install(
        &self,
        simulation: &mut Simulation,
        hosts: &mut Allocation,
        drafts: &[Draft],
        graph: &mut StepGraph,
        ends: &mut [Option<RankStream>],
    ) -> Result<(), ConfigError> {
        let section = &self.config.steps[self.index];
        let (mut all, mut node_of) = (Vec::new(), Vec::new());
        for &node in &self.stream.nodes {
            let made = operations(section, self.protocol, &drafts[node as usize], self.group.len());
            let made = made.map_err(|why| invalid(format!("{}: {why}", self.name)))?;
            node_of.extend(made.iter().map(|_| node));
            all.extend(made);
        }
        let size = |spec: &Spec| u64::from(spec.elements) * spec.dtype.size() as u64;
        let largest = all.iter().map(size).max().unwrap_or(0);
        let which = if self.stream.groups.len() > 1 { format!(" {}", self.number) } else { String::new() };
        let name = format!("{}, {}{which}", self.name, self.stream.name);
        let members = self.group.iter().map(|&rank| graph.members[usize::from(rank)].0).collect();
        let tensor = largest.next_multiple_of(section.dtype.size() as u64);
        let job = section.job(self.protocol, name, members, tensor);
        let number = self.config.jobs.len() + graph.jobs.len() + (self.index << 16);
        let plan = job_plan(self.config, number, &job, hosts, simulation)?;
        let iterations = (all.len() as u64 * u64::from(section.iterations)).try_into();
        let iterations = iterations.map_err(|_| invalid(format!("{}: it has too many collectives", self.name)))?;
        let all_bytes = all.iter().map(size).sum::<u64>();
        let timeout = section.timeout.map(|timeout| timeout.0);
        let timeout = timeout.or_else(|| Some(self.timeout(&plan, drafts, all_bytes.div_ceil(largest.max(1)))));
        let plan = JobPlan { operations: all.into(), iterations, timeout, ..plan };
        let installed = match servers(&plan, &job, hosts)? {
            None => simulation.install(plan),
            Some(Servers { hosts, slots }) => simulation.install_served(JobPlan { slots, ..plan }, &hosts),
        };
        let index = installed.map_err(|error| invalid(error.to_string()))?;
        graph.jobs.push(index);
        let (nodes, node_of): (Arc<[u32]>, Arc<[u32]>) = (self.stream.nodes.as_slice().into(), node_of.into());
        debug_assert!(!self.moves || self.protocol.rooted_is_unicast);
        for (number, endpoint) in simulation.traffic.endpoints.iter().enumerate() {
            if endpoint.job == index
                && let Some(&rank) = self.group.get(endpoint.rank.index())
            {
                let way = Way::Job { endpoint: EndpointId(number as u32), node_of: node_of.clone() };
                ends[usize::from(rank)] = Some(RankStream::new(nodes.clone(), way));
            }
        }
        Ok(())
    }

    /// A collective waits for those before it and for what other ranks compute.
    fn timeout(&self, plan: &JobPlan, drafts: &[Draft], collectives: u64) -> Span {
        let computed: u64 = drafts
            .iter()
            .map(|draft| if let DraftWork::Compute(time) = draft.work { time.0 } else { 0 })
            .fold(0, u64::saturating_add);
        let one = plan.timeout.map_or(0, |timeout| timeout.0);
        Span(one.saturating_mul(collectives.max(1)).saturating_add(computed).min(u64::MAX / 4))
    }
}

/// The ranks' ends of a stream whose data goes from rank to rank.
fn add_flows(
    stream: &Stream,
    group: &[u16],
    lane: u8,
    drafts: &[Draft],
    members: &[NodeId],
    ends: &mut [Option<RankStream>],
) {
    let host = |rank: u16| members[usize::from(rank)];
    let peers: Arc<[NodeId]> = group.iter().map(|&rank| host(rank)).collect();
    for (position, &rank) in group.iter().enumerate() {
        let transfer = |&node: &u32| match &drafts[node as usize].work {
            DraftWork::Send { pairs, bytes } => {
                let to = pairs.iter().find(|pair| pair[0] == rank).map(|pair| (host(pair[1]), *bytes));
                let from = pairs.iter().find(|pair| pair[1] == rank).map(|pair| host(pair[0]));
                Transfer::One(Round { send: to, receive: from })
            }
            DraftWork::Collective { kind: StepCollective::Broadcast, root, bytes, .. } => {
                Transfer::FromRoot(usize::from(*root), *bytes)
            }
            // A flow has a byte at least, and nobody gets less than the sum.
            DraftWork::Collective { kind, bytes, .. } => {
                let (share, others) = (bytes.div_ceil(group.len() as u64).max(1), group.len() - 1);
                match kind {
                    StepCollective::AllReduce | StepCollective::Reduce => Transfer::Around(share, 2 * others),
                    StepCollective::ReduceScatter | StepCollective::Barrier => Transfer::Around(share, others),
                    _ => Transfer::EachToEach(share),
                }
            }
            DraftWork::Compute(_) => unreachable!("computations are on no stream"),
        };
        let transfers: Arc<[Transfer]> = stream.nodes.iter().map(transfer).collect();
        let exchange = Exchange::new(lane, peers.clone(), position, transfers);
        ends[usize::from(rank)] = Some(RankStream::new(stream.nodes.as_slice().into(), Way::Flows(exchange)));
    }
}

/// Refuses nodes that wait for each other, also by the order in which a rank computes and a stream begins.
fn check_order(nodes: &[StepNode]) -> Result<(), String> {
    let mut last: BTreeMap<Option<u16>, usize> = BTreeMap::new();
    let mut before: Vec<usize> = nodes.iter().map(|node| node.after.len()).collect();
    let mut followers = vec![Vec::new(); nodes.len()];
    for (number, node) in nodes.iter().enumerate() {
        node.after.iter().for_each(|&earlier| followers[earlier as usize].push(number));
        let line = match node.work {
            StepWork::Compute(_) => None,
            StepWork::Collective { stream, .. } => Some(stream),
        };
        if let Some(earlier) = last.insert(line, number) {
            followers[earlier].push(number);
            before[number] += 1;
        }
    }
    let mut ready: Vec<usize> = (0..nodes.len()).filter(|&node| before[node] == 0).collect();
    while let Some(node) = ready.pop() {
        for &next in &followers[node] {
            before[next] -= 1;
            if before[next] == 0 {
                ready.push(next);
            }
        }
    }
    match before.iter().position(|&left| left > 0) {
        None => Ok(()),
        Some(node) => Err(format!(
            "node \"{}\" waits for itself: what is computed, and the collectives of a group, begin in the file's order",
            nodes[node].name
        )),
    }
}

//! Builds the traffic beside the jobs.

use std::fs;

use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::time::{Span, Time};

use super::hosts::Allocation;
use super::transport::class;
use crate::config::{
    BurstTimes, Bytes, Config, ConfigError, Flows, Hosts, NodeName, OneFlow, Pattern, Sizes, TrafficSection, Transport,
    invalid,
};
use crate::engine::{Background, Simulation};
use crate::rng::{Purpose, Rng};
use crate::transport::Kind;
use crate::workload::{
    Bursts, FlowList, FlowSource, ListedFlow, PoissonGroup, Queries, SizeTable, Stream, UniformGroup, all_to_all,
    permutation, read_flows,
};

/// The senders and the receivers; the same hosts if a section does not name two sets.
struct Peers {
    senders: Vec<NodeId>,
    receivers: Vec<NodeId>,
}

impl Peers {
    fn take(index: usize, section: &TrafficSection, hosts: &mut Allocation) -> Result<Peers, ConfigError> {
        let error = |sentence: &str| invalid(format!("traffic {index}: {sentence}"));
        let mut take = |wanted: &Hosts| hosts.take(&format!("traffic {index}"), wanted, section.placement);
        let peers = match (&section.from, &section.to) {
            (None, None) => {
                let members = take(&section.hosts)?;
                Peers { senders: members.clone(), receivers: members }
            }
            (Some(_), Some(_)) if section.hosts != Hosts::Rest => {
                return Err(error("hosts and from both name the senders: leave hosts out"));
            }
            (Some(from), Some(to)) => Peers { senders: take(from)?, receivers: take(to)? },
            _ => return Err(error("from and to go together")),
        };
        match peers.receivers.len() < 2 && peers.senders.iter().any(|host| peers.receivers.contains(host)) {
            true => Err(error("a single host has no peer to send to")),
            false => Ok(peers),
        }
    }
}

/// Starts the traffic of one section.
pub fn add_traffic(
    simulation: &mut Simulation,
    config: &Config,
    index: usize,
    section: &TrafficSection,
    hosts: &mut Allocation,
) -> Result<(), ConfigError> {
    let error = |sentence: &str| invalid(format!("traffic {index}: {sentence}"));
    check_keys(config, section).and_then(|()| check_shares(section)).map_err(error)?;
    if section.pattern == Pattern::List {
        return listed(simulation, config, index, section).map_err(|why| error(&why));
    }
    let peers = Peers::take(index, section, hosts)?;
    let (members, seed, class) = (&peers.senders, config.seed ^ index as u64, class(config, index));
    let pattern = || u8::try_from(index).map_err(|_| error("at most 256 patterns fit"));
    // A load of 0, such as the first point of a sweep: its hosts are taken, and send nothing.
    let is_silent = section.load.0 == 0.0;
    match (section.pattern, section.transport) {
        (Pattern::Permutation, Some(Transport::Dctcp)) => {
            reliable_permutation(simulation, section, members, seed, class).map_err(|why| error(&why))?;
        }
        (Pattern::Permutation, _) => {
            let (packet, bytes) = plain(section).map_err(|why| error(&why))?;
            simulation.send_permutation(members, seed, bytes, packet);
        }
        (Pattern::Uniform | Pattern::Stream, Some(Transport::Dctcp)) => {
            return Err(error("such a pattern fills the network whatever it loses: it has no transport"));
        }
        (Pattern::Uniform, _) => {
            let (plain, pattern) = (plain(section).map_err(|why| error(&why))?, pattern()?);
            if !is_silent {
                uniform(simulation, config, pattern, section, members, plain);
            }
        }
        (Pattern::Stream, _) => {
            let pattern = pattern()?;
            streams(simulation, config, pattern, section, &peers).map_err(|why| error(&why))?;
        }
        (Pattern::List, _) => unreachable!("it takes no hosts"),
        (Pattern::Poisson | Pattern::Incast | Pattern::AllToAll, Some(Transport::None)) => {
            return Err(error("its flows need transport = \"dctcp\": leave transport out"));
        }
        (Pattern::Incast, _) => {
            let flows = incast(config, index, section, peers);
            flows.and_then(|flows| begin(simulation, config, index, flows)).map_err(|why| error(&why))?;
        }
        (Pattern::AllToAll, _) => {
            let flows = message(section, 1).map(|bytes| all_to_all(members, bytes, Time::ZERO + section.start.0));
            flows.and_then(|flows| begin(simulation, config, index, flows)).map_err(|why| error(&why))?;
        }
        (Pattern::Poisson, _) => {
            let group = poisson(config, section, peers).map_err(|why| error(&why))?;
            let sources = if is_silent { Vec::new() } else { group.sources(config.seed, index as u64) };
            for (host, source) in sources {
                simulation.add_flow_source_of(host, FlowSource::Poisson(source), class);
            }
        }
    }
    Ok(())
}

/// A permutation of flows under DCTCP.
fn reliable_permutation(
    simulation: &mut Simulation,
    section: &TrafficSection,
    members: &[NodeId],
    seed: u64,
    class: u8,
) -> Result<(), String> {
    let bytes = message(section, 1)?;
    if section.start.0 > Span::ZERO {
        return Err("a permutation under DCTCP begins at once: leave start out".into());
    }
    let mut pairs = permutation(members, seed);
    let kind = Kind { awaited: true, class, ..Kind::default() };
    match pairs.all(|(from, to)| simulation.begin_flow(from, to, bytes, kind).is_some()) {
        true => Ok(()),
        false => Err("the message has more than 2^32 - 1 packets".into()),
    }
}

/// Flows that the file lists, or another file.
fn listed(simulation: &mut Simulation, config: &Config, index: usize, section: &TrafficSection) -> Result<(), String> {
    let flows = match &section.flows {
        None => return Err("a list needs flows: a file, or a list of { from, to, bytes, at }".into()),
        Some(Flows::Here(flows)) => flows.iter().map(one_flow).collect::<Result<Vec<_>, _>>()?,
        Some(Flows::File(path)) => {
            let text = fs::read_to_string(path).map_err(|error| error.to_string());
            text.and_then(|text| read_flows(&text, section.class.as_deref()))
                .map_err(|why| format!("flows = {path:?}: {why}"))?
        }
    };
    let hosts = simulation.graph().hosts();
    for ListedFlow { from, to, .. } in &flows {
        let (from, to) = (from.0, to.0);
        if from.max(to) >= hosts {
            return Err(format!("a flow goes from host {from} to host {to}; there are {hosts}, from 0"));
        }
        if from == to {
            return Err(format!("a flow goes from host {from} to itself"));
        }
    }
    begin(simulation, config, index, flows)
}

/// Gives flows to their senders.
fn begin(simulation: &mut Simulation, config: &Config, index: usize, flows: Vec<ListedFlow>) -> Result<(), String> {
    let packet = simulation.packet_bytes(class(config, index));
    if let Some(flow) = flows.iter().find(|flow| flow.bytes.div_ceil(packet.into()) > u64::from(u32::MAX)) {
        return Err(format!("a flow of {} bytes has more than 2^32 - 1 packets", flow.bytes));
    }
    for (host, list) in FlowList::sources(flows) {
        simulation.add_flow_source_of(host, FlowSource::List(list), class(config, index));
    }
    Ok(())
}

/// The answers to an incast's queries.
fn incast(config: &Config, index: usize, section: &TrafficSection, peers: Peers) -> Result<Vec<ListedFlow>, String> {
    let Some(fan_in) = section.fan_in else { return Err("an incast needs fan_in, as in fan_in = 32".into()) };
    if section.every.is_some() != section.until.is_some() || section.every.is_some_and(|every| every.0 == Span::ZERO) {
        return Err("queries that repeat need every, above 0, and until; a single one needs neither".into());
    }
    let Peers { senders, receivers } = peers;
    // Whoever asks may be one of the senders, and does not answer.
    let most = senders.len() - usize::from(receivers.iter().any(|host| senders.contains(host)));
    if fan_in == 0 || fan_in as usize > most {
        return Err(format!("fan_in = {fan_in}, and 1 to {most} senders can answer"));
    }
    let (start, every) = (Time::ZERO + section.start.0, section.every.map(|every| every.0));
    let times = Queries::times(start, every, section.until.map(|until| Time::ZERO + until.0));
    let queries = Queries { senders, receivers, fan_in, bytes: message(section, 1)?, times };
    Ok(queries.flows(config.seed, index as u64))
}

fn one_flow(flow: &OneFlow) -> Result<ListedFlow, String> {
    let host = |name: NodeName| match name {
        NodeName::Host(number) => Ok(NodeId(number)),
        other => Err(format!("flows go between hosts, not from or to {}", String::from(other))),
    };
    let at = Time::ZERO + flow.at.0;
    Ok(ListedFlow { at, from: host(flow.from)?, to: host(flow.to)?, bytes: flow.bytes.0 })
}

/// A stream from each sender to the receiver with the same index.
fn streams(
    simulation: &mut Simulation,
    config: &Config,
    pattern: u8,
    section: &TrafficSection,
    peers: &Peers,
) -> Result<(), String> {
    let Peers { senders, receivers } = peers;
    let packet = packet_of(section)?;
    let Some(rate) = section.rate else { return Err("a stream needs a rate, as in rate = \"1 Gbit/s\"".into()) };
    if section.from.is_none() || senders.len() != receivers.len() || senders.iter().zip(receivers).any(|(a, b)| a == b)
    {
        return Err("a stream needs from and to: lists of equal length, whose entries differ pair by pair".into());
    }
    let (start, until) = (Time::ZERO + section.start.0, section.until.map(|until| Time::ZERO + until.0));
    for (&from, &to) in senders.iter().zip(receivers) {
        let bursts = section.bursts.as_ref().map(|bursts| {
            let number = u64::from(pattern) << 32 | u64::from(from.0);
            let rng = (bursts.times == BurstTimes::Exponential).then(|| Rng::new(config.seed, Purpose::Bursts, number));
            Bursts::new(bursts.on.0, bursts.off.0, start, rng)
        });
        let stream = Stream::new(to, pattern, packet, rate.0.time_of(packet.into()), start, until).in_bursts(bursts);
        simulation.add_background(from, Background::Stream(stream));
    }
    Ok(())
}

/// Refuses keys that the pattern does not use.
fn check_keys(config: &Config, section: &TrafficSection) -> Result<(), &'static str> {
    if section.pattern == Pattern::Permutation && section.load.0 < 1.0 {
        return Err("a permutation is sent as fast as it may be: leave load out");
    }
    if section.from.is_some() && !matches!(section.pattern, Pattern::Poisson | Pattern::Incast | Pattern::Stream) {
        return Err("from and to are for pattern = \"poisson\", \"incast\" and \"stream\"");
    }
    if section.pattern != Pattern::Incast && (section.fan_in.is_some() || section.every.is_some()) {
        return Err("fan_in and every are for pattern = \"incast\"");
    }
    if matches!(section.pattern, Pattern::Incast | Pattern::AllToAll) && section.load.0 < 1.0 {
        return Err("its flows are sent as fast as they may be: leave load out");
    }
    if section.rate.is_some() && !matches!(section.pattern, Pattern::Poisson | Pattern::Stream) {
        return Err("rate is for pattern = \"poisson\" and \"stream\"");
    }
    if section.pattern == Pattern::Stream && (section.load.0 != 1.0 || section.message.is_some()) {
        return Err("a stream has a rate, and neither load nor message");
    }
    if section.pattern != Pattern::Poisson && section.sizes.is_some() {
        return Err("sizes is for pattern = \"poisson\"");
    }
    if section.pattern != Pattern::List && section.flows.is_some() {
        return Err("flows is for pattern = \"list\"");
    }
    let (has_hosts, is_paced) = (section.hosts != Hosts::Rest, section.load.0 != 1.0 || section.message.is_some());
    if section.pattern == Pattern::List && (has_hosts || is_paced || section.transport == Some(Transport::None)) {
        return Err(
            "a list says by itself who sends how much, under DCTCP: leave hosts, load, message and transport out",
        );
    }
    let has_no_transport = match section.pattern {
        Pattern::Uniform | Pattern::Stream => true,
        Pattern::Permutation => section.transport != Some(Transport::Dctcp),
        Pattern::Poisson | Pattern::Incast | Pattern::AllToAll | Pattern::List => false,
    };
    if has_no_transport && section.transport_settings.is_some() {
        return Err("transport_settings is for flows under a transport, which these packets do not have");
    }
    if section.scale == 0 || (section.sizes.is_none() && (section.scale > 1 || section.between.is_some())) {
        return Err("scale, at least 1, and between are for flows that have sizes");
    }
    if matches!(section.pattern, Pattern::Permutation | Pattern::AllToAll) && section.until.is_some() {
        return Err("such a pattern ends by itself: leave until out");
    }
    if section.exchange && (section.pattern != Pattern::Uniform || config.network.lossless.is_none()) {
        return Err("exchange is for pattern = \"uniform\" over lossless links: a lost packet would stop its host");
    }
    if section.until.is_some_and(|until| until.0 <= section.start.0) {
        return Err("until is not after start");
    }
    Ok(())
}

/// Refuses bursts and classes of flows where there are none.
fn check_shares(section: &TrafficSection) -> Result<(), &'static str> {
    if let Some(bursts) = &section.bursts {
        if section.pattern != Pattern::Stream {
            return Err("bursts is for pattern = \"stream\"");
        }
        if bursts.on.0 == Span::ZERO || bursts.off.0 == Span::ZERO {
            return Err("bursts: on and off are above 0");
        }
    }
    if section.class.is_some() && !matches!(section.flows, Some(Flows::File(_))) {
        return Err("class is for flows of a file, which may have a column class");
    }
    Ok(())
}

/// The bytes of a message; an error if there are fewer than `least`.
fn message(section: &TrafficSection, least: u16) -> Result<u64, String> {
    match section.message {
        None => Err("message is missing: how many bytes a host sends to a peer".to_string()),
        Some(Bytes(bytes)) if bytes < u64::from(least) => {
            Err(format!("message = {} is less than one packet of {least} bytes", Bytes(bytes)))
        }
        Some(Bytes(bytes)) => Ok(bytes),
    }
}

/// The bytes of a packet and of a message without a transport.
fn plain(section: &TrafficSection) -> Result<(u16, u64), String> {
    let packet = packet_of(section)?;
    Ok((packet, message(section, packet)?))
}

/// The bytes of a packet on a link.
fn packet_of(section: &TrafficSection) -> Result<u16, String> {
    let packet = u16::try_from(section.packet.0).ok().filter(|&packet| packet >= 84);
    packet.ok_or_else(|| format!("packet = {} is not a packet size: 84 to 65,535 bytes are possible", section.packet))
}

fn uniform(
    simulation: &mut Simulation,
    config: &Config,
    pattern: u8,
    section: &TrafficSection,
    members: &[NodeId],
    (packet, bytes): (u16, u64),
) {
    let rate = config.network.rate.0;
    let pace = if section.load.0 < 1.0 {
        Span((rate.time_of(u64::from(packet)).0 as f64 / section.load.0) as u64)
    } else {
        Span::ZERO
    };
    let packets = bytes.div_ceil(u64::from(packet)).min(u64::from(u32::MAX)) as u32;
    let mut group = UniformGroup::new(members, config.seed, pattern, packets, packet, pace);
    group.exchange = section.exchange;
    for (host, mut source) in group.sources() {
        source.limit(Time::ZERO + section.start.0, section.until.map(|until| Time::ZERO + until.0));
        simulation.add_background(host, Background::Uniform(source));
    }
}

fn size_table(sizes: &Sizes) -> Result<SizeTable, String> {
    let path = match sizes {
        Sizes::Published(sizes) => return Ok(sizes.table()),
        Sizes::File(path) => path,
    };
    let text = fs::read_to_string(path).map_err(|error| {
        let known = "\"web_search\", \"data_mining\", \"hadoop\" or \"cache_follower\"";
        format!("sizes = {path:?} is neither {known} nor a file that can be read: {error}")
    })?;
    SizeTable::read(&text).map_err(|why| format!("sizes = {path:?}: {why}"))
}

fn poisson(config: &Config, section: &TrafficSection, peers: Peers) -> Result<PoissonGroup, String> {
    if section.load.0 >= 1.0 {
        return Err("flows that arrive at random need a load below 100 %, as in load = \"50 %\"".to_string());
    }
    let sizes = match (&section.sizes, section.message) {
        (Some(sizes), None) => size_table(sizes)?.scaled(section.scale),
        (None, Some(_)) => SizeTable::always(message(section, 1)?),
        _ => return Err("flows need either sizes, as in sizes = \"web_search\", or message".to_string()),
    };
    let (start, until) = (Time::ZERO + section.start.0, section.until.map(|until| Time::ZERO + until.0));
    let Peers { senders, receivers } = peers;
    let link_rate = config.network.rate.0.0 as f64;
    let rate = section.rate.map_or(link_rate, |rate| rate.0.0 as f64 / senders.len() as f64);
    let between = section.between.map(|limits| limits.map(|limit| limit.0.div_ceil(section.scale.into())));
    Ok(PoissonGroup { senders, receivers, sizes, between, load: section.load.0, rate, start, until })
}

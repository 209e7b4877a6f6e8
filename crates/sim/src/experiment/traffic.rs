//! Builds the traffic beside the jobs.

use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::time::{Span, Time};

use super::hosts::Allocation;
use crate::config::{Bytes, Config, ConfigError, Pattern, Routing, TrafficSection, Transport, invalid};
use crate::driver::Simulation;
use crate::transport::TransportSettings;
use crate::workload::{PoissonGroup, SizeTable, UniformGroup, permutation};

/// Where packets of a flow take several paths, one that is overtaken by fewer than so many is not lost.
const SPRAYED_REORDERING: u16 = 64;
/// A packet with its headers must fit into 65,535 bytes.
const MOST_PACKET_BYTES: u64 = 60_000;

/// What flows under DCTCP have in common.
pub fn transport(config: &Config) -> Result<TransportSettings, ConfigError> {
    let (section, defaults) = (&config.transport, TransportSettings::default());
    let packet_bytes = section.packet.map_or(u64::from(defaults.packet_bytes), |packet| packet.0);
    if !(1..=MOST_PACKET_BYTES).contains(&packet_bytes) {
        return Err(invalid(format!(
            "transport: packet = {packet_bytes} is no packet: 1 to 60,000 bytes are possible"
        )));
    }
    let timers = section.rto.map_or(defaults.timers, |rto| rto.timers());
    if timers.min_rto > timers.max_rto || timers.min_rto == Span::ZERO || timers.initial_rto == Span::ZERO {
        return Err(invalid("transport: rto.initial and rto.min must be above 0, and rto.min at most rto.max"));
    }
    let initial_window = section.initial_window.unwrap_or(defaults.initial_window);
    if initial_window == 0 || section.reordering == Some(0) {
        return Err(invalid("transport: initial_window and reordering must be at least 1"));
    }
    let reordering = section.reordering.unwrap_or(match config.network.routing {
        Routing::Ecmp | Routing::Flowlet => defaults.reordering,
        Routing::RoundRobin | Routing::Random | Routing::LeastQueued | Routing::DefaultUnlessHalfFull => {
            SPRAYED_REORDERING
        }
    });
    Ok(TransportSettings { packet_bytes: packet_bytes as u16, initial_window, timers, reordering })
}

/// Starts what one section asks for.
pub fn add_traffic(
    simulation: &mut Simulation,
    config: &Config,
    index: usize,
    section: &TrafficSection,
    hosts: &mut Allocation,
) -> Result<(), ConfigError> {
    let wrong = |sentence: &str| invalid(format!("traffic {index}: {sentence}"));
    let members = hosts.take(&format!("traffic {index}"), &section.hosts, section.placement)?;
    if members.len() < 2 {
        return Err(wrong("one host has nobody to send to"));
    }
    check_keys(config, section).map_err(wrong)?;
    let seed = config.seed ^ index as u64;
    // No load is a load, as the first point of a sweep: its hosts are taken, and send nothing.
    let is_silent = section.load.0 == 0.0;
    match (section.pattern, section.transport) {
        (Pattern::Permutation, Some(Transport::Dctcp)) => {
            let bytes = message(section, 1).map_err(|error| wrong(&error))?;
            if section.start.0 > Span::ZERO {
                return Err(wrong("a permutation under DCTCP begins at once: leave start out"));
            }
            let mut pairs = permutation(&members, seed);
            if !pairs.all(|(from, to)| simulation.start_flow(from, to, bytes).is_some()) {
                return Err(wrong("the message has more than 2^32 - 1 packets"));
            }
        }
        (Pattern::Permutation, _) => {
            let (packet, bytes) = plain(section).map_err(|error| wrong(&error))?;
            simulation.send_permutation(&members, seed, bytes, packet);
        }
        (Pattern::Uniform, Some(Transport::Dctcp)) => {
            return Err(wrong("pattern = \"uniform\" fills the network whatever it loses: it has no transport"));
        }
        (Pattern::Uniform, _) => {
            let (packet, bytes) = plain(section).map_err(|error| wrong(&error))?;
            let which = u8::try_from(index).map_err(|_| wrong("at most 256 patterns fit"))?;
            if !is_silent {
                uniform(simulation, config, which, section, &members, packet, bytes);
            }
        }
        (Pattern::Poisson, Some(Transport::None)) => {
            return Err(wrong("flows that arrive at random need transport = \"dctcp\""));
        }
        (Pattern::Poisson, _) => {
            let group = poisson(config, section, members).map_err(|error| wrong(&error))?;
            let sources = if is_silent { Vec::new() } else { group.sources(config.seed, index as u64) };
            for (host, source) in sources {
                simulation.add_flow_source(host, source);
            }
        }
    }
    Ok(())
}

/// Keys that the pattern has no use for are refused.
fn check_keys(config: &Config, section: &TrafficSection) -> Result<(), &'static str> {
    if section.pattern == Pattern::Permutation && section.load.0 < 1.0 {
        return Err("a permutation is sent as fast as it may be: leave load out");
    }
    if section.pattern != Pattern::Poisson && section.sizes.is_some() {
        return Err("sizes is for pattern = \"poisson\"");
    }
    if section.pattern == Pattern::Permutation && section.until.is_some() {
        return Err("a permutation ends by itself: leave until out");
    }
    if section.exchange && (section.pattern != Pattern::Uniform || config.network.lossless.is_none()) {
        return Err("exchange is for pattern = \"uniform\" over lossless links: a lost packet would stop its host");
    }
    if section.until.is_some_and(|until| until.0 <= section.start.0) {
        return Err("until is not after start");
    }
    Ok(())
}

/// The bytes of a message, at least so many.
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
    let packet = u16::try_from(section.packet.0).ok().filter(|&packet| packet >= 84);
    let packet =
        packet.ok_or_else(|| format!("packet = {} is no packet: 84 to 65,535 bytes are possible", section.packet))?;
    Ok((packet, message(section, packet)?))
}

fn uniform(
    simulation: &mut Simulation,
    config: &Config,
    which: u8,
    section: &TrafficSection,
    members: &[NodeId],
    packet: u16,
    bytes: u64,
) {
    let rate = config.network.rate.0;
    let pace = if section.load.0 < 1.0 {
        Span((rate.time_of(u64::from(packet)).0 as f64 / section.load.0) as u64)
    } else {
        Span::ZERO
    };
    let packets = bytes.div_ceil(u64::from(packet)).min(u64::from(u32::MAX)) as u32;
    let mut group = UniformGroup::new(members, config.seed, which, packets, packet, pace);
    group.exchange = section.exchange;
    for (host, mut source) in group.sources() {
        source.limit(Time::ZERO + section.start.0, section.until.map(|until| Time::ZERO + until.0));
        simulation.add_background(host, source);
    }
}

fn poisson(config: &Config, section: &TrafficSection, hosts: Vec<NodeId>) -> Result<PoissonGroup, String> {
    if section.load.0 >= 1.0 {
        return Err("flows that arrive at random need a load below 100 %, as in load = \"50 %\"".to_string());
    }
    let sizes = match (section.sizes, section.message) {
        (Some(sizes), None) => sizes.table(),
        (None, Some(_)) => SizeTable::always(message(section, 1)?),
        _ => return Err("flows need either sizes, as in sizes = \"web_search\", or message".to_string()),
    };
    let (start, until) = (Time::ZERO + section.start.0, section.until.map(|until| Time::ZERO + until.0));
    Ok(PoissonGroup { hosts, sizes, load: section.load.0, rate: config.network.rate.0, start, until })
}

//! The settings of flows: those of `[transport]`, and those of patterns that differ.

use tributary_proto::congestion::{self, Algorithm, Feedback, MAX_HOPS, dctcp};
use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::time::Span;

use crate::config::{Config, ConfigError, TransportSection, invalid};
use crate::net::Framing;
use crate::routing::{Balancing, Table};
use crate::topology::Graph;
use crate::transport::{Recovery, Spray, TransportSettings, payload_with_records};

/// The reordering threshold of flows whose packets take several paths.
const SPRAYED_REORDERING: u16 = 64;
/// A packet with its headers must fit into 65,535 bytes.
const MAX_PACKET_BYTES: u64 = 60_000;

/// The settings of all classes of flows, in the order of [`class`].
pub fn transports(config: &Config, graph: &Graph) -> Result<Vec<TransportSettings>, ConfigError> {
    let patterns = config.traffic.iter().enumerate().filter_map(|(index, section)| {
        let section = section.transport_settings.as_ref()?;
        Some((format!("traffic {index}: transport_settings"), section.or(&config.transport)))
    });
    let sections: Vec<_> = [("transport".to_string(), config.transport.clone())].into_iter().chain(patterns).collect();
    // A flow's class is one byte, and so is their number.
    if sections.len() > usize::from(u8::MAX) {
        let (own, most) = (sections.len() - 1, u8::MAX - 1);
        return Err(invalid(format!(
            "traffic: {own} patterns have transport_settings of their own, and at most {most} may: write what they have in \
             common in [transport]"
        )));
    }
    sections.into_iter().map(|(name, section)| transport(config, graph, &name, &section)).collect()
}

/// The class of a pattern's flows: 0 is `[transport]`, and each pattern with settings of its own has one more.
pub fn class(config: &Config, index: usize) -> u8 {
    let has_own = |index: usize| config.traffic[index].transport_settings.is_some();
    let before = (0..index).filter(|&index| has_own(index)).count();
    if has_own(index) { u8::try_from(before + 1).expect("their number was checked by `transports`") } else { 0 }
}

fn transport(
    config: &Config,
    graph: &Graph,
    name: &str,
    section: &TransportSection,
) -> Result<TransportSettings, ConfigError> {
    let (defaults, framing) = (TransportSettings::default(), config.network.framing()?);
    let error = |sentence: String| invalid(format!("{name}: {sentence}"));
    let packet_bytes = section.packet.map_or(u64::from(defaults.packet_bytes), |packet| packet.0);
    if !(1..=MAX_PACKET_BYTES).contains(&packet_bytes) {
        return Err(error(format!("packet = {packet_bytes} is not a packet size: 1 to 60,000 bytes are possible")));
    }
    let timers = section.rto.map_or(defaults.timers, |rto| rto.timers());
    if timers.min_rto > timers.max_rto || timers.min_rto == Span::ZERO || timers.initial_rto == Span::ZERO {
        return Err(error("rto.initial and rto.min must be above 0, and rto.min at most rto.max".into()));
    }
    let initial_window = section.initial_window.unwrap_or(defaults.initial_window);
    if initial_window == 0 || section.reordering == Some(0) {
        return Err(error("initial_window and reordering must be at least 1".into()));
    }
    let congestion_control = algorithm(section, &defaults).map_err(error)?;
    let spray = section.spray.unwrap_or_default();
    let [_, balancing] = config.network.balancing();
    check_spray(balancing, spray).map_err(error)?;
    let is_sprayed = balancing.goes_by_packet() || spray.takes_several_paths();
    let recovery = section.recovery.unwrap_or_default();
    check(graph, congestion_control, recovery, is_sprayed).map_err(error)?;
    let mut base_rtt = section.base_rtt.map_or(defaults.base_rtt, |rtt| rtt.0);
    if congestion_control.feedback == Feedback::Telemetry {
        let mut path = LongestPath::of(graph, framing, packet_bytes);
        if balancing == Balancing::Valiant {
            path = LongestPath { switches: 2 * path.switches - 1, round_trip: path.round_trip + path.round_trip };
        }
        if path.switches > MAX_HOPS {
            let (switches, name) = (path.switches, congestion_control.name);
            return Err(error(format!("{name} reads what up to {MAX_HOPS} switches write, and a path has {switches}")));
        }
        base_rtt = section.base_rtt.map_or(path.round_trip, |rtt| rtt.0);
        if base_rtt == Span::ZERO {
            return Err(error("base_rtt must be above 0".into()));
        }
    }
    Ok(TransportSettings {
        packet_bytes: packet_bytes as u16,
        initial_window,
        congestion_control,
        target_delay: section.target_delay.map_or(defaults.target_delay, |delay| delay.0),
        timers,
        reordering: section.reordering.unwrap_or(if is_sprayed { SPRAYED_REORDERING } else { defaults.reordering }),
        recovery,
        spray,
        line_rate: config.network.rate.0.0,
        base_rtt,
        framing,
        priority: section.priority.unwrap_or(0),
    })
}

fn algorithm(section: &TransportSection, defaults: &TransportSettings) -> Result<&'static Algorithm, String> {
    let Some(name) = &section.congestion_control else { return Ok(defaults.congestion_control) };
    Algorithm::of_flows(name).ok_or_else(|| {
        let mut known: Vec<&str> = congestion::NAMES.to_vec();
        known.extend(congestion::OF_RATES.iter().map(|algorithm| algorithm.name));
        known.sort_unstable();
        format!("there is no congestion_control \"{name}\"; there are {}", known.join(", "))
    })
}

/// Refuses entropies where switches do not hash them.
fn check_spray(balancing: Balancing, spray: Spray) -> Result<(), String> {
    if spray.takes_several_paths() && balancing != Balancing::Ecmp {
        return Err(
            "spray chooses among the paths of routing = \"ecmp\", by what its switches hash; with another routing, \
                    leave spray out"
                .into(),
        );
    }
    Ok(())
}

/// Refuses a controller without what it needs to see, and a recovery that takes other paths for losses.
fn check(graph: &Graph, algorithm: &Algorithm, recovery: Recovery, is_sprayed: bool) -> Result<(), String> {
    let name = algorithm.name;
    let is_of_rates = congestion::OF_RATES.contains(algorithm);
    // Window controllers also slow down at losses, so that a file without marks is only warned of.
    if is_of_rates && algorithm.feedback == Feedback::Marks && !has_marks(graph) {
        return Err(format!(
            "{name} slows down at marks alone, and no queue marks packets: set mark_above in [network], as in \"100 kB\""
        ));
    }
    if recovery == Recovery::GoBackN && is_sprayed {
        return Err("recovery = \"go_back_n\" takes every packet that comes late for a loss: it needs a routing that \
                    keeps the path of a flow, \"ecmp\" or \"flowlet\", and no spray"
            .into());
    }
    Ok(())
}

/// True if some queue marks packets.
pub(super) fn has_marks(graph: &Graph) -> bool {
    graph.edges().iter().any(|edge| edge.a_to_b.mark_bytes.or(edge.b_to_a.mark_bytes).is_some())
}

/// True if flows of the file run under DCTCP.
pub(super) fn uses_dctcp(config: &Config, index: usize) -> bool {
    let own = config.traffic[index].transport_settings.as_ref().and_then(|own| own.congestion_control.as_deref());
    own.or(config.transport.congestion_control.as_deref()).is_none_or(|name| name == dctcp::ALGORITHM.name)
}

/// The longest of the shortest paths from host 0 to another host.
struct LongestPath {
    round_trip: Span,
    switches: usize,
}

impl LongestPath {
    /// For packets with this much data, which are acknowledged by the shortest packets.
    fn of(graph: &Graph, framing: Framing, packet_bytes: u64) -> LongestPath {
        let (table, (first_port, ports)) = (Table::new(graph, |_| true), graph.ports());
        let on_link = u64::from(framing.bytes_on_link(payload_with_records(packet_bytes as usize)));
        let answer = u64::from(framing.bytes_on_link(payload_with_records(0)));
        let mut longest = LongestPath { round_trip: Span::ZERO, switches: 0 };
        for to in (1..graph.hosts()).map(NodeId) {
            let Some(&port) = table.first_hops(NodeId(0), to).0.first() else { continue };
            let (mut node, mut port, mut round_trip, mut switches) = (NodeId(0), port, Span::ZERO, 0);
            loop {
                let link = ports[first_port[node.index()] as usize + usize::from(port)];
                let (there, back, next) = (graph.spec(link), graph.spec(link.reverse()), graph.ends(link).1);
                round_trip = round_trip + there.delay + there.rate.time_of(on_link) + graph.latency(next);
                round_trip = round_trip + back.delay + back.rate.time_of(answer) + graph.latency(node);
                let Some(switch) = graph.switch_index(next) else { break };
                switches += 1;
                let Some(&out) = table.next_hops(switch, to).0.first() else { break };
                (node, port) = (next, out);
            }
            longest.round_trip = longest.round_trip.max(round_trip);
            longest.switches = longest.switches.max(switches);
        }
        longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_patterns_with_settings_of_their_own_than_there_are_classes_are_refused() {
        let pattern = "[[traffic]]\npattern = 'permutation'\ntransport = 'dctcp'\nmessage = '1 kB'\n";
        let own = format!("{pattern}transport_settings = {{ initial_window = 3 }}\n");
        let transports_of = |own_patterns: usize| {
            let text = "end = '1 ms'\n[network]\nstar = { hosts = 2 }\n".to_string();
            let config = Config::parse(&(text + pattern + &own.repeat(own_patterns))).unwrap();
            let settings = transports(&config, &config.network.build().unwrap())?;
            Ok::<_, ConfigError>((settings.len(), class(&config, 0), class(&config, own_patterns)))
        };
        assert_eq!(transports_of(254).unwrap(), (255, 0, 254));
        let refused = transports_of(255).unwrap_err().to_string();
        assert!(
            refused.contains("255 patterns have transport_settings of their own, and at most 254 may"),
            "{refused}"
        );
    }

    #[test]
    fn each_pattern_has_the_round_trip_of_its_own_packets() {
        let base_rtt_of_last = |patterns: &str| {
            let text = format!(
                "end = '1 ms'\n[network]\nstar = {{ hosts = 2 }}\nrouting = 'ecmp'\n\
                 [transport]\ncongestion_control = 'hpcc'\n{patterns}"
            );
            let config = Config::parse(&text).unwrap();
            let settings = transports(&config, &config.network.build().unwrap()).unwrap();
            settings.last().unwrap().base_rtt
        };
        let pattern = |packet: &str| {
            format!(
                "[[traffic]]\npattern = 'permutation'\ntransport = 'dctcp'\nmessage = '1 MB'\n\
                 transport_settings = {{ packet = '{packet}' }}\n"
            )
        };
        let (small, large) = (base_rtt_of_last(&pattern("500 B")), base_rtt_of_last(&pattern("4 kB")));
        assert!(small < large);
        assert_eq!(base_rtt_of_last(&(pattern("4 kB") + &pattern("500 B"))), small);
        assert_eq!(base_rtt_of_last(&(pattern("500 B") + &pattern("4 kB"))), large);
    }
}

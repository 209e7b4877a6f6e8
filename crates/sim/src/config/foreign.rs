//! Readers of other programs' topologies: htsim's fat trees (`.topo`), the topologies of HPCC's fork of ns-3, the network
//! files of ASTRA-sim's analytical model, and GraphML. Each becomes the `[network]` of an experiment.

mod graphml;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use tributary_control::quantity::Rate;
use tributary_proto::contract::time::Span;

use self::graphml::{graphml, is_graphml};
use super::{DataRate, Duration};

/// A network that was read.
#[derive(Debug, Default, PartialEq)]
struct Read {
    hosts: u32,
    switches: u32,
    /// Hosts come first in the numbering of nodes, switches follow.
    links: Vec<ReadLink>,
    switch_latency: Span,
    /// What the file means and a graph cannot say, in a comment.
    note: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct ReadLink {
    ends: [u32; 2],
    rate: Rate,
    delay: Span,
    loss: f64,
}

/// The `[network]` of a topology, with its losses as faults; the format is found by the text. An error is a sentence.
pub fn network_of(text: &str) -> Result<String, String> {
    let has = |word: &str| lines(text).any(|line| line.split([' ', ':']).next() == Some(word));
    let read = if is_graphml(text) {
        graphml(text)?
    } else if has("tiers") && has("nodes") {
        htsim(text)?
    } else if has("npus_count") && has("topology") {
        astra(text)?
    } else if lines(text).next().is_some_and(|line| numbers(&line).is_some_and(|numbers| numbers.len() == 3)) {
        hpcc(text)?
    } else {
        return Err(
            "this is neither htsim's .topo, nor a topology of HPCC's ns-3, nor a network of ASTRA-sim, nor GraphML"
                .into(),
        );
    };
    Ok(toml_of(&read))
}

fn toml_of(read: &Read) -> String {
    let name = |node: u32| match node.checked_sub(read.hosts) {
        None => format!("\"host {node}\""),
        Some(switch) => format!("\"switch {switch}\""),
    };
    let mut text = String::new();
    if !read.note.is_empty() {
        let _ = writeln!(text, "# {}", read.note);
    }
    let (latency, hosts, switches) = (Duration(read.switch_latency), read.hosts, read.switches);
    let _ = write!(
        text,
        "[network]\nswitch_latency = \"{latency}\"\n\n[network.graph]\nhosts = {hosts}\nswitches = {switches}\nlink = [\n"
    );
    for ReadLink { ends: [a, b], rate, delay, .. } in &read.links {
        let (a, b, rate, delay) = (name(*a), name(*b), DataRate(*rate), Duration(*delay));
        let _ = writeln!(text, "    {{ between = [{a}, {b}], rate = \"{rate}\", delay = \"{delay}\" }},");
    }
    text.push_str("]\n");
    for ReadLink { ends: [a, b], loss, .. } in read.links.iter().filter(|link| link.loss > 0.0) {
        let _ = write!(text, "\n[[fault]]\nlinks = [[{}, {}]]\nloss = {loss}\n", name(*a), name(*b));
    }
    text
}

/// Lines with something on them, in small letters, without comments.
fn lines(text: &str) -> impl Iterator<Item = String> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim().to_lowercase());
    lines.filter(|line| !line.is_empty())
}

fn numbers(line: &str) -> Option<Vec<u32>> {
    line.split_whitespace().map(|word| word.parse().ok()).collect()
}

/// A rate in units of this many bits per second.
fn rate(number: f64, unit: f64) -> Result<Rate, String> {
    let bits = (number * unit).round();
    if (1e4..=1e14).contains(&bits) {
        Ok(Rate(bits as u64))
    } else {
        Err(format!("{bits} bit/s is not a rate of a link"))
    }
}

fn nanos(number: f64) -> Span {
    Span((number * 1e3).round() as u64)
}

/// HPCC's: `nodes switches links`, the numbers of the switches, and for each link `a b rate delay error_rate`.
fn hpcc(text: &str) -> Result<Read, String> {
    let mut rest = lines(text);
    let header = rest.next().as_deref().and_then(numbers).unwrap_or_default();
    let [nodes, switches, links] = header[..] else { return Err("line 1 has nodes, switches and links".into()) };
    let mut ids = Vec::new();
    while (ids.len() as u32) < switches {
        let line = rest.next().as_deref().and_then(numbers).ok_or("the numbers of the switches are missing")?;
        ids.extend(line);
    }
    let hosts = nodes.checked_sub(switches).filter(|_| nodes <= MAX_NODES);
    let hosts = hosts.ok_or("line 1 has more switches than nodes, or more than a million nodes")?;
    ids.sort_unstable();
    // Hosts and switches in the order of their numbers.
    let of_hosts = (0..nodes).filter(|node| ids.binary_search(node).is_err());
    let order: BTreeMap<u32, u32> = of_hosts.chain(ids.iter().copied()).zip(0..).collect();
    let mut read = Read { hosts, switches, ..Read::default() };
    for line in rest.take(links as usize) {
        let error = || format!("\"{line}\" is not a link: a b rate delay error_rate");
        let words: Vec<&str> = line.split_whitespace().collect();
        let [a, b, rate, delay, loss] = words[..] else { return Err(error()) };
        let node = |word: &str| word.parse().ok().and_then(|node: u32| order.get(&node).copied()).ok_or_else(error);
        let (rate, delay) = (with_unit(rate, &RATES), with_unit(delay, &TIMES));
        read.links.push(ReadLink {
            ends: [node(a)?, node(b)?],
            rate: self::rate(rate.ok_or_else(error)?, 1.0)?,
            delay: nanos(delay.ok_or_else(error)?),
            loss: loss.parse().map_err(|_| error())?,
        });
    }
    match read.links.len() == links as usize {
        true => Ok(read),
        false => Err(format!("line 1 says {links} links, and {} follow", read.links.len())),
    }
}

const RATES: [(&str, f64); 5] = [("tbps", 1e12), ("gbps", 1e9), ("mbps", 1e6), ("kbps", 1e3), ("bps", 1.0)];
/// In nanoseconds.
const TIMES: [(&str, f64); 4] = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];

fn with_unit(word: &str, units: &[(&str, f64)]) -> Option<f64> {
    let (unit, factor) = units.iter().find(|(unit, _)| word.ends_with(unit))?;
    Some(word.strip_suffix(unit)?.parse::<f64>().ok()? * factor)
}

/// More nodes than this are probably a mistake.
const MAX_NODES: u32 = 1 << 20;

/// One tier of htsim's file.
type Tier = BTreeMap<String, f64>;

/// htsim's: `Nodes`, `Tiers` 2 or 3, `Podsize`, and for each tier the links below its switches and the ports of each.
fn htsim(text: &str) -> Result<Read, String> {
    let (mut top, mut tiers): (Tier, Vec<Tier>) = (Tier::new(), Vec::new());
    for line in lines(text) {
        let error = || format!("\"{line}\" is not a key and a number");
        let (key, value) = line.split_once(char::is_whitespace).ok_or_else(error)?;
        let value: f64 = value.trim().parse().map_err(|_| error())?;
        if key == "tier" {
            tiers.push(Tier::new());
        } else {
            tiers.last_mut().unwrap_or(&mut top).insert(key.to_string(), value);
        }
    }
    let of = |tier: &Tier, key: &str| tier.get(key).copied();
    let whole = |tier: &Tier, key: &str| of(tier, key).map(|value| value as u32).ok_or(format!("{key} is missing"));
    let (hosts, count) = (whole(&top, "nodes")?, whole(&top, "tiers")?);
    if !(2..=3).contains(&count) || tiers.len() != count as usize {
        return Err(format!("tiers = {count}, and {} tables follow: 2 or 3 are possible", tiers.len()));
    }
    let pod = if count == 3 { whole(&top, "podsize")? } else { hosts };
    let [down, up] = [whole(&tiers[0], "radix_down")?, whole(&tiers[0], "radix_up")?];
    let bundle = |tier: &Tier| of(tier, "bundle").map_or(1, |bundle| (bundle as u32).max(1));
    if hosts > MAX_NODES || down == 0 || pod == 0 || !hosts.is_multiple_of(pod) || !pod.is_multiple_of(down) {
        return Err(format!("{hosts} nodes do not divide into pods of {pod} and racks of {down}"));
    }
    let (racks, middle) = (pod / down, up / bundle(&tiers[1]));
    let pods = hosts / pod;
    let mut read = Read { hosts, switches: pods * (racks + middle), ..Read::default() };
    read.switch_latency = nanos(of(&tiers[0], "switch_latency_ns").unwrap_or(0.0));
    let mut connect = |tier: &Tier, a: u32, b: u32, times: u32| -> Result<(), String> {
        let speed = of(tier, "downlink_speed_gbps").ok_or("downlink_speed_gbps is missing")?;
        let delay = nanos(of(tier, "downlink_latency_ns").unwrap_or(0.0));
        let link = ReadLink { ends: [a, b], rate: rate(speed, 1e9)?, delay, loss: 0.0 };
        read.links.extend((0..times).map(|_| link));
        Ok(())
    };
    let (rack, aggregation) =
        (|pod: u32, n: u32| hosts + pod * racks + n, |pod: u32, n: u32| hosts + pods * racks + pod * middle + n);
    for host in 0..hosts {
        connect(&tiers[0], host, rack(host / pod, host % pod / down), 1)?;
    }
    for (pod, n, to) in (0..pods).flat_map(|pod| (0..racks).flat_map(move |n| (0..middle).map(move |to| (pod, n, to))))
    {
        connect(&tiers[1], rack(pod, n), aggregation(pod, to), bundle(&tiers[1]))?;
    }
    if count == 3 {
        let each = whole(&tiers[1], "radix_up")? / bundle(&tiers[2]);
        let first = hosts + pods * (racks + middle);
        for (pod, n, to) in
            (0..pods).flat_map(|pod| (0..middle).flat_map(move |n| (0..each).map(move |to| (pod, n, to))))
        {
            connect(&tiers[2], aggregation(pod, n), first + n * each + to, bundle(&tiers[2]))?;
        }
        read.switches += middle * each;
    }
    Ok(read)
}

/// ASTRA-sim's: a building block, a number of processors, a bandwidth and a latency for each dimension.
fn astra(text: &str) -> Result<Read, String> {
    let list = |key: &str| -> Result<Vec<String>, String> {
        let line = lines(text).find(|line| line.split(':').next() == Some(key));
        let line = line.ok_or(format!("{key} is missing"))?;
        let inside = line.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
        let (inside, _) = inside.ok_or(format!("{key} is not a list in brackets"))?;
        Ok(inside.split(',').map(|item| item.trim().trim_matches(['"', '\'']).to_string()).collect())
    };
    let real = |key: &str| -> Result<Vec<f64>, String> {
        list(key)?
            .iter()
            .map(|item| item.parse().map_err(|_| format!("{key} has \"{item}\", which is not a number")))
            .collect()
    };
    let (blocks, counts, bandwidths, latencies) =
        (list("topology")?, real("npus_count")?, real("bandwidth")?, real("latency")?);
    if [counts.len(), bandwidths.len(), latencies.len()].iter().any(|&len| len != blocks.len()) {
        return Err("topology, npus_count, bandwidth and latency have an entry for each dimension".into());
    }
    let counts: Vec<u32> = counts.iter().map(|&count| count as u32).collect();
    let hosts = counts
        .iter()
        .try_fold(1u32, |hosts, &count| hosts.checked_mul(count))
        .filter(|hosts| (1..=MAX_NODES).contains(hosts));
    let hosts = hosts.ok_or("the dimensions have no processors, or more than a million")?;
    // Hosts forward nothing, so that each gets a router, which has the links of the dimensions.
    let note = "Each processor is a host with a router, to which the links of all dimensions go.";
    let mut read = Read { hosts, switches: hosts, note, ..Read::default() };
    // A GB is 2^30 bytes there.
    let rates: Vec<Rate> =
        bandwidths.iter().map(|&gb| rate(gb, 8.0 * f64::from(1u32 << 30))).collect::<Result<_, _>>()?;
    let mut stride = 1;
    for (((block, &count), &rate), &latency) in blocks.iter().zip(&counts).zip(&rates).zip(&latencies) {
        let delay = nanos(latency);
        for first in (0..hosts).filter(|host| host / stride % count == 0) {
            let members: Vec<u32> = (0..count).map(|n| first + n * stride).collect();
            connect_block(&mut read, block, &members, rate, delay)?;
        }
        stride *= count;
    }
    let total = Rate(rates.iter().map(|rate| 2 * rate.0).sum());
    read.links.extend((0..hosts).map(|host| ReadLink {
        ends: [host, hosts + host],
        rate: total,
        delay: Span::ZERO,
        loss: 0.0,
    }));
    Ok(read)
}

/// Connects the routers of these processors as a building block has them.
fn connect_block(read: &mut Read, block: &str, members: &[u32], rate: Rate, delay: Span) -> Result<(), String> {
    let (hosts, switch, count) = (read.hosts, read.switches, members.len());
    let mut connect = |a: u32, b: u32| read.links.push(ReadLink { ends: [hosts + a, b], rate, delay, loss: 0.0 });
    match block {
        "ring" => {
            // Two have one link, and not one each way round.
            let last = if count > 2 { count } else { count - 1 };
            (0..last).for_each(|n| connect(members[n], hosts + members[(n + 1) % count]));
        }
        "fullyconnected" => {
            for (n, &a) in members.iter().enumerate() {
                members[n + 1..].iter().for_each(|b| connect(a, hosts + b));
            }
        }
        "switch" => {
            members.iter().for_each(|a| connect(*a, hosts + switch));
            read.switches += 1;
        }
        other => return Err(format!("the building block \"{other}\" is none of Ring, FullyConnected and Switch")),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::topology::Graph;

    fn graph(text: &str) -> Graph {
        Config::parse(&network_of(text).unwrap()).unwrap().network.build().unwrap()
    }

    #[test]
    fn htsims_fat_tree_of_three_tiers_has_its_switches_and_rates() {
        let text = "Nodes 16\nTiers 3\nPodsize 4\nTier 0\nDownlink_speed_Gbps 100\nRadix_Up 2\nRadix_Down 2\n\
                    Downlink_Latency_ns 1000\nSwitch_Latency_ns 300\nTier 1\nDownlink_speed_Gbps 200 # up\nRadix_Up 2\n\
                    Radix_Down 2\nDownlink_Latency_ns 500\nTier 2\nDownlink_speed_Gbps 400\nRadix_Down 4\n";
        let graph = graph(text);
        // A fat tree of 4-port switches: 8 racks, 8 aggregations, 4 cores; 16 cables at each tier.
        assert_eq!((graph.hosts(), graph.switches(), graph.edges().len()), (16, 20, 48));
        let with = |gbit: u64| graph.edges().iter().filter(|edge| edge.a_to_b.rate.0 == gbit * 1_000_000_000).count();
        assert_eq!([with(100), with(200), with(400)], [16, 16, 16]);
        assert_eq!(graph.latency(graph.switch(0)), Span::from_nanos(300));
        assert_eq!(graph.top_switches().len(), 4);
    }

    #[test]
    fn hpccs_numbers_become_hosts_and_switches_and_error_rates_become_faults() {
        let text = "4 2 3\n1 3\n0 1 100Gbps 0.001ms 0\n2 3 25Gbps 1000ns 0.01\n1 3 400Gbps 2us 0\n";
        let toml = network_of(text).unwrap();
        let config = Config::parse(&toml).unwrap();
        let graph = config.network.build().unwrap();
        assert_eq!((graph.hosts(), graph.switches(), graph.edges().len()), (2, 2, 3));
        assert!(
            toml.contains("between = [\"host 1\", \"switch 1\"], rate = \"25 Gbit/s\", delay = \"1 us\""),
            "{toml}"
        );
        assert_eq!(config.faults.len(), 1, "{toml}");
        let error = network_of(&text.replace("4 2 3", "4 2 4")).unwrap_err();
        assert_eq!(error, "line 1 says 4 links, and 3 follow");
    }

    #[test]
    fn astra_sims_dimensions_multiply() {
        let text = "topology: [ Ring, Switch ] # dims\nnpus_count: [ 4, 2 ]\nbandwidth: [ 50.0, 25.0 ] # GB/s\n\
                    latency: [ 500.0, 2000.0 ]\n";
        let graph = graph(text);
        // Two rings of four routers, and four switches that join a router of each.
        assert_eq!((graph.hosts(), graph.switches(), graph.edges().len()), (8, 12, 8 + 8 + 8));
        let error = network_of(&text.replace("Ring", "Torus2D")).unwrap_err();
        assert!(error.contains("\"torus2d\" is none of Ring, FullyConnected and Switch"), "{error}");
        assert!(network_of("hello").unwrap_err().starts_with("this is neither htsim's .topo"));
    }
}

//! The network of a plan: a star that flags describe, a file's, or that of a running switch.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use toml::{Table, Value};
use tributary_control::fabric::{Balancing, FabricFile, FabricLayout};
use tributary_control::quantity::Rate;
use tributary_net::client;
use tributary_net::status::{JobStatus, SwitchStatus};
use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::time::Span;
use tributary_sim::Graph;
use tributary_sim::config::{Bytes, Config, DataRate, Duration, network_of};

use crate::failure::Failure;
use crate::flags::resolve;

/// The network of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Links {
    /// How the table calls it.
    pub name: String,
    /// What nobody said about it, in sentences.
    pub assumed: Vec<String>,
    /// Its hosts.
    pub hosts: u32,
    /// Its slowest link.
    pub slowest: DataRate,
    /// From host to host and back over the longest path without queues.
    pub round_trip: Duration,
    /// The [network] of experiments.
    pub network: Table,
    /// Their faults: links that lose packets.
    pub faults: Option<Value>,
    /// What the switch has for jobs, where that is known.
    pub switch_memory: Option<u64>,
}

const RATE: DataRate = DataRate(Rate(10_000_000_000));
const DELAY: Duration = Duration(Span::from_micros(1));

impl Links {
    /// Hosts round one switch.
    pub fn star(hosts: u32, rate: Option<DataRate>, delay: Option<Duration>) -> Links {
        let (rate, delay) = (rate.unwrap_or(RATE), delay.unwrap_or(DELAY));
        let star = table([("hosts", hosts.into())]);
        let name = format!("{hosts} hosts at one switch, links of {rate}");
        Links::alike(name, hosts, rate, delay, ("star", star))
    }

    /// A network of equal links.
    fn alike(name: String, hosts: u32, rate: DataRate, delay: Duration, (shape, of): (&str, Table)) -> Links {
        // DCTCP's paper: 65 packets at 10 Gbit/s; the host path of steps takes DCTCP.
        let marks = ((100_000.0 * rate.gbps() / 10.0) as i64).clamp(30_000, 500_000);
        let network = table([
            (shape, of.into()),
            ("rate", rate.to_string().into()),
            ("delay", delay.to_string().into()),
            ("mark_above", marks.into()),
        ]);
        Links {
            name,
            assumed: Vec::new(),
            hosts,
            slowest: rate,
            round_trip: Duration(delay.0.times(4)),
            network,
            faults: None,
            switch_memory: None,
        }
    }

    /// The network of a file: an experiment's, a fabric's, or another simulator's topology. Flags say what a fabric's file
    /// leaves open.
    pub fn of_file(file: &Path, rate: Option<DataRate>, delay: Option<Duration>) -> Result<Links, Failure> {
        let shown = file.display();
        let wrong = |why: String| Failure::new(format!("{shown}: {why}"));
        let text = fs::read_to_string(file).map_err(|error| Failure::new(format!("cannot read {shown}: {error}")))?;
        let is_toml = file.extension().is_some_and(|extension| extension == "toml");
        let toml = if is_toml { text.clone() } else { network_of(&text).map_err(wrong)? };
        let mut whole: Table = toml::from_str(&toml).map_err(|error| wrong(error.message().to_string()))?;
        let is_fabric = whole.contains_key("leaf_spine") || whole.contains_key("graph");
        let (network, assumed) = match whole.remove("network") {
            Some(Value::Table(network)) => {
                if rate.is_some() || delay.is_some() {
                    return Err(Failure::usage(format!("--rate and --delay: {shown} says them for each link")));
                }
                (network, Vec::new())
            }
            _ if is_fabric => {
                let fabric = FabricFile::parse(&text).map_err(|error| wrong(error.to_string()))?;
                of_fabric(&fabric, rate, delay).map_err(wrong)?
            }
            _ => return Err(wrong("it has no [network]; `tributary plan` takes an experiment's file".into())),
        };
        let only = table([("network", network.clone().into())]);
        let config = Config::parse(&only.to_string()).map_err(|error| wrong(error.to_string()))?;
        let graph = config.network.build().map_err(|error| wrong(error.to_string()))?;
        let hosts = graph.hosts();
        let rates = graph.edges().iter().flat_map(|edge| [edge.a_to_b.rate, edge.b_to_a.rate]);
        let slowest = DataRate(rates.min().unwrap_or(config.network.rate.0));
        if hosts < 2 {
            return Err(wrong(format!("it has {hosts} hosts; a plan needs two")));
        }
        Ok(Links {
            name: format!("{hosts} hosts of {shown}"),
            assumed,
            hosts,
            slowest,
            round_trip: round_trip(&graph),
            network,
            faults: whole.remove("fault"),
            switch_memory: None,
        })
    }

    /// The network of a running switch, by its status. Flags say what it does not know, and of how many hosts to think.
    pub fn of_switch(
        switch: &str,
        hosts: Option<u16>,
        rate: Option<DataRate>,
        delay: Option<Duration>,
    ) -> Result<Links, Failure> {
        of_status(switch, &client::status(resolve(switch)?)?, hosts, rate, delay)
    }
}

/// The network of a switch with this status.
fn of_status(
    switch: &str,
    status: &SwitchStatus,
    hosts: Option<u16>,
    rate: Option<DataRate>,
    delay: Option<Duration>,
) -> Result<Links, Failure> {
    if status.switch.fabric.is_some() {
        return Err(Failure::new(format!(
            "{switch} is a switch of a fabric, whose file says more than a switch: --network FABRIC.toml"
        )));
    }
    let own = status.switch.link_bits_per_s.map(|bits| DataRate(Rate(bits)));
    let taken = rate.or(own).unwrap_or(RATE);
    let mut links = match hosts {
        Some(hosts) => Links::star(hosts.into(), Some(taken), delay),
        None => of_hosts(switch, status, taken, delay.unwrap_or(DELAY))?,
    };
    links.switch_memory = Some(status.switch.memory_bytes);
    if rate.is_none() {
        links.assumed.push(match own {
            Some(own) => {
                format!("{switch} has a link of {own}: hosts' links were taken as equally fast, without --rate")
            }
            None => format!("{switch} does not know the rates of its links: --rate was taken as {RATE}"),
        });
    }
    if delay.is_none() {
        links.assumed.push(format!("{switch} does not know the delays of its links: --delay was taken as {DELAY}"));
    }
    Ok(links)
}

/// Up over all levels and down again, and back, if each link is as long as the longest.
fn round_trip(graph: &Graph) -> Duration {
    let switches = (0..graph.switches()).map(|switch| graph.switch(switch));
    let levels = switches.clone().map(|switch| graph.level(switch)).max().unwrap_or(1);
    let latency = switches.map(|switch| graph.latency(switch)).max().unwrap_or_default();
    let longest = graph.edges().iter().map(|edge| edge.a_to_b.delay).max().unwrap_or_default();
    Duration((longest + latency).times(4 * u64::from(levels)))
}

/// As many hosts as the switch's jobs have now: those at the switch itself, and those of child switches in racks.
fn of_hosts(switch: &str, status: &SwitchStatus, rate: DataRate, delay: Duration) -> Result<Links, Failure> {
    let present = |state: &str| state == "present";
    let members = |job: &JobStatus| {
        let here = job.members.iter().filter(|member| present(&member.state));
        here.map(|member| member.addr.ip()).collect::<Vec<_>>()
    };
    let ranks: usize = status.jobs.iter().map(|job| members(job).len()).sum();
    let own = status.jobs.iter().flat_map(members).collect::<BTreeSet<_>>().len() as u32;
    let children = status.jobs.iter().flat_map(|job| &job.switches).filter(|child| present(&child.state));
    let mut racks = BTreeMap::new();
    for child in children {
        let hosts: &mut u32 = racks.entry(child.addr).or_default();
        *hosts = child.ranks.len().max(*hosts as usize) as u32;
    }
    let hosts = own + racks.values().sum::<u32>();
    if hosts < 2 {
        return Err(Failure::usage(format!(
            "{switch} knows {hosts} hosts, since it knows only those of its running jobs: --hosts N says how many there are"
        )));
    }
    let mut links = match racks.is_empty() {
        true => Links::star(hosts, Some(rate), Some(delay)),
        false => {
            // A rank below a child switch counts as a host: its address is not known here.
            let below = racks.values().enumerate().flat_map(|(rack, &hosts)| vec![rack as u32 + 1; hosts as usize]);
            let of_hosts = vec![0; own as usize].into_iter().chain(below).enumerate();
            let mut cables: Vec<Value> = of_hosts.map(|(host, at)| cable(format!("host {host}"), at).into()).collect();
            cables.extend((1..=racks.len()).map(|rack| Value::from(cable(format!("switch {rack}"), 0))));
            let graph = table([
                ("hosts", hosts.into()),
                ("switches", (racks.len() as u32 + 1).into()),
                ("link", cables.into()),
            ]);
            let name = format!("{hosts} hosts at {switch} and {} switches below it, links of {rate}", racks.len());
            Links::alike(name, hosts, rate, delay, ("graph", graph))
        }
    };
    if ranks > own as usize {
        links.assumed.push(format!("{switch} has {ranks} ranks on {own} hosts: the plan has one on each"));
    }
    Ok(links)
}

/// A cable of a graph.
fn cable(from: String, switch: u32) -> Table {
    table([("between", vec![from, format!("switch {switch}")].into())])
}

/// The network of a fabric, and what was assumed.
fn of_fabric(
    fabric: &FabricLayout,
    rate: Option<DataRate>,
    delay: Option<Duration>,
) -> Result<(Table, Vec<String>), String> {
    let hosts = fabric.cabling.hosts;
    let name = |NodeId(node): NodeId| match node.checked_sub(hosts) {
        None => format!("host {node}"),
        Some(switch) => format!("switch {switch}"),
    };
    let mut links = Vec::new();
    let mut without_rate = 0;
    for (&(a, b), cable) in fabric.cabling.cables.iter().zip(&fabric.cables) {
        let own = cable.bits_per_s.map(|bits| DataRate(Rate(bits)));
        without_rate += u32::from(own.is_none());
        let ends: Vec<String> = vec![name(a), name(b)];
        let rate = own.or(rate).unwrap_or(RATE);
        links.push(Value::Table(table([
            ("between", ends.into()),
            ("rate", rate.to_string().into()),
            ("queue", Bytes(cable.queue_bytes).to_string().into()),
        ])));
    }
    if rate.is_some() && without_rate == 0 {
        return Err("it says the rate of each link, which --rate cannot change".into());
    }
    let switches = fabric.cabling.switches;
    let mut network = table([
        ("graph", table([("hosts", hosts.into()), ("switches", switches.into()), ("link", links.into())]).into()),
        ("delay", delay.unwrap_or(DELAY).to_string().into()),
        ("routing", routing(fabric.balancing).into()),
    ]);
    if let Some(marks) = fabric.marks {
        network.extend(table([
            ("mark_above", (marks.mark_above as i64).into()),
            ("mark_all_above", (marks.mark_all_above as i64).into()),
        ]));
    }
    if let Some(lossless) = fabric.lossless {
        let keys = [("xoff", lossless.pause_above), ("xon", lossless.go_on_at)];
        let keys = table(keys.map(|(key, bytes)| (key, Value::from(bytes as i64))));
        network.insert("lossless".into(), keys.into());
    }
    let mut assumed = Vec::new();
    if without_rate > 0 && rate.is_none() {
        assumed
            .push(format!("The file limits the rate of {without_rate} links by nothing: --rate was taken as {RATE}"));
    }
    if delay.is_none() {
        assumed.push(format!("The file has no delays of links: --delay was taken as {DELAY}"));
    }
    Ok((network, assumed))
}

/// The simulator's name of a rule.
fn routing(balancing: Balancing) -> &'static str {
    match balancing {
        Balancing::DefaultUnlessHalfFull => "default_unless_half_full",
        Balancing::LeastQueued => "least_queued",
        Balancing::Ecmp => "ecmp",
    }
}

fn table<const N: usize>(entries: [(&str, Value); N]) -> Table {
    entries.into_iter().map(|(key, value)| (key.to_string(), value)).collect()
}

#[cfg(test)]
mod tests {
    use tributary_net::status::{ChildSwitchStatus, JobStatus, MemberStatus};

    use super::*;
    use crate::commands::status::testing;

    /// A status with one job, with as many members at each address, and a child switch with ranks.
    fn status(members: &[&str], below: &[u16]) -> SwitchStatus {
        let member = |(rank, addr): (usize, &&str)| MemberStatus {
            rank: rank as u16,
            addr: format!("{addr}:{}", 9000 + rank).parse().unwrap(),
            state: if *addr == "10.0.0.9" { "left" } else { "present" }.to_owned(),
            last_seen_s_ago: Some(0.1),
        };
        let child = |(at, &ranks): (usize, &u16)| ChildSwitchStatus {
            addr: Some(format!("10.0.1.{at}:17777").parse().unwrap()),
            ranks: (0..ranks).collect(),
            state: "present".to_owned(),
            last_seen_s_ago: Some(0.1),
        };
        let members = members.iter().enumerate().map(member).collect();
        let switches = below.iter().enumerate().map(child).collect();
        testing::status(vec![JobStatus { members, switches, ..testing::job("train", 9) }])
    }

    fn live(members: &[&str], below: &[u16]) -> Result<Links, String> {
        of_hosts("sw", &status(members, below), RATE, DELAY).map_err(|failure| failure.sentence().to_string())
    }

    #[test]
    fn hosts_are_the_addresses_of_ranks_that_are_present() {
        let links = live(&["10.0.0.2", "10.0.0.3", "10.0.0.2", "10.0.0.9"], &[]).unwrap();
        assert_eq!((links.hosts, links.network["star"]["hosts"].as_integer()), (2, Some(2)));
        assert_eq!(links.assumed, ["sw has 3 ranks on 2 hosts: the plan has one on each"]);
        let sentence = live(&["10.0.0.2", "10.0.0.9"], &[]).unwrap_err();
        assert!(sentence.contains("sw knows 1 hosts") && sentence.contains("--hosts N"), "{sentence}");
    }

    #[test]
    fn the_rate_of_the_switchs_own_link_is_that_of_all_unless_a_flag_says_another() {
        let mut status = status(&["10.0.0.2", "10.0.0.3"], &[]);
        status.switch.link_bits_per_s = Some(25_000_000_000);
        let of = |rate| of_status("sw", &status, None, rate, Some(DELAY)).unwrap();
        let links = of(None);
        assert_eq!((links.slowest.0.0, links.switch_memory), (25_000_000_000, Some(1)));
        assert_eq!(
            links.assumed,
            ["sw has a link of 25 Gbit/s: hosts' links were taken as equally fast, without --rate"]
        );
        let links = of(Some(RATE));
        assert_eq!((links.slowest, links.assumed.len()), (RATE, 0));
    }

    #[test]
    fn child_switches_become_racks() {
        let links = live(&["10.0.0.2"], &[3, 2]).unwrap();
        let config = Config::parse(&table([("network", links.network.into())]).to_string()).unwrap();
        let graph = config.network.build().unwrap();
        assert_eq!((links.hosts, graph.hosts(), graph.switches(), graph.edges().len()), (6, 6, 3, 8));
        assert_eq!(links.assumed, [""; 0]);
    }

    #[test]
    fn a_fabrics_file_says_all_but_delays() {
        let text = "secret = 'sixteen characters'\nrate = '1 Gbit/s'\nqueue = '2 MiB'\nmark_above = '9 kB'\nlossless = true\n\
                    [leaf_spine]\nleaves = 2\nspines = 2\nhosts_per_leaf = 3\n\
                    [[link]]\nbetween = ['leaf0', 'spine1']\nrate = '500 Mbit/s'\n";
        let fabric = FabricFile::parse(text).unwrap();
        let (network, assumed) = of_fabric(&fabric, None, None).unwrap();
        assert_eq!(assumed, ["The file has no delays of links: --delay was taken as 1 us"]);
        let config = Config::parse(&table([("network", network.into())]).to_string()).unwrap();
        let graph = config.network.build().unwrap();
        let rates: Vec<u64> = graph.edges().iter().map(|edge| edge.a_to_b.rate.0).collect();
        assert_eq!((graph.hosts(), graph.switches(), rates.len()), (6, 4, 10));
        assert_eq!(rates.iter().filter(|&&rate| rate == 500_000_000).count(), 1, "{rates:?}");
        assert!(config.network.lossless.is_some() && config.network.mark_above == Some(Bytes(9_000)));
        let refused = of_fabric(&fabric, Some(RATE), None).unwrap_err();
        assert!(refused.contains("--rate"), "{refused}");
        let open =
            FabricFile::parse(&text.replace("rate = '1 Gbit/s'\n", "").replace("lossless = true\n", "")).unwrap();
        let (_, assumed) = of_fabric(&open, None, None).unwrap();
        assert!(assumed[0].contains("the rate of 9 links"), "{assumed:?}");
    }
}

//! GraphML, which graph tools and collections of networks write (NetworkX, igraph, yEd, the Internet Topology Zoo), as the
//! `[network]` of an experiment.
//!
//! A node's data says in `type` whether it is a host or a switch. In a file of routers alone, where no node says so, each
//! node is a switch with a host.

use std::collections::BTreeMap;

use roxmltree::{Document, Node};
use tributary_control::quantity::Rate;
use tributary_proto::contract::time::Span;

use super::{MAX_NODES, Read, ReadLink, rate};
use crate::config::network::defaults;
use crate::config::{DataRate, Duration, Share};

/// Names of data, in small letters.
const KINDS: [&str; 3] = ["type", "kind", "role"];
const RATES: [&str; 3] = ["rate", "bandwidth", "capacity"];
/// Bits in a second as a plain number, as the Internet Topology Zoo has them.
const RAW_RATE: &str = "linkspeedraw";
const DELAYS: [&str; 2] = ["delay", "latency"];
const LOSS: &str = "loss";

/// True if a text is XML, of which GraphML is the only kind here.
pub(super) fn is_graphml(text: &str) -> bool {
    text.trim_start_matches('\u{feff}').trim_start().starts_with('<')
}

/// What a key of the file stands for.
struct Key<'a> {
    name: String,
    /// "node", "edge" or "all".
    of: &'a str,
    default: Option<&'a str>,
}

/// The data of a node or an edge by the names of its keys.
type Data<'a> = BTreeMap<String, &'a str>;

/// Reads the one graph of a text.
pub(super) fn graphml(text: &str) -> Result<Read, String> {
    let document = Document::parse(text).map_err(|error| format!("this is not GraphML: {error}"))?;
    let elements = |name: &'static str| document.descendants().filter(move |node| node.tag_name().name() == name);
    let graphs = elements("graph").count();
    if graphs != 1 || elements("hyperedge").next().is_some() {
        return Err(format!(
            "the file has {graphs} graphs, or edges of several nodes; one graph with cables is possible"
        ));
    }
    if elements("graph").any(|graph| graph.attribute("edgedefault") == Some("directed")) {
        return Err("the graph is directed, and cables go both ways: write edgedefault=\"undirected\"".into());
    }
    let keys: BTreeMap<&str, Key> = elements("key").filter_map(read_key).collect();
    let nodes: Vec<(&str, Data)> =
        elements("node").map(|node| (node.attribute("id").unwrap_or_default(), data(node, &keys))).collect();
    if nodes.len() > MAX_NODES as usize {
        return Err("the graph has more than a million nodes".into());
    }
    let mut read = Read::default();
    let numbers = number(&nodes, &mut read)?;
    for edge in elements("edge") {
        let end = |side: &str| {
            let id = edge.attribute(side).unwrap_or_default();
            numbers.get(id).copied().ok_or_else(|| format!("an edge has the {side} \"{id}\", which is not a node"))
        };
        let ends = [end("source")?, end("target")?];
        let link = read_link(ends, &data(edge, &keys)).map_err(|why| {
            let [source, target] = ["source", "target"].map(|side| edge.attribute(side).unwrap_or_default());
            format!("the edge from \"{source}\" to \"{target}\": {why}")
        })?;
        read.links.push(link);
    }
    if is_of_routers(&nodes) {
        add_hosts(&mut read);
    }
    Ok(read)
}

fn read_key<'a>(key: Node<'a, 'a>) -> Option<(&'a str, Key<'a>)> {
    let id = key.attribute("id")?;
    let name = key.attribute("attr.name").unwrap_or(id).to_lowercase();
    let default = key.children().find(|child| child.tag_name().name() == "default").and_then(|child| child.text());
    Some((id, Key { name, of: key.attribute("for").unwrap_or("all"), default }))
}

fn data<'a>(element: Node<'a, 'a>, keys: &BTreeMap<&str, Key<'a>>) -> Data<'a> {
    let of = element.tag_name().name();
    let defaults = keys.values().filter(|key| key.of == of || key.of == "all");
    let mut data: Data = defaults.filter_map(|key| Some((key.name.clone(), key.default?))).collect();
    for child in element.children().filter(|child| child.tag_name().name() == "data") {
        if let (Some(id), Some(value)) = (child.attribute("key"), child.text()) {
            data.insert(keys.get(id).map_or_else(|| id.to_lowercase(), |key| key.name.clone()), value.trim());
        }
    }
    data
}

/// The first of some names that the data has, and its value.
fn first<'a>(data: &Data<'a>, names: &[&'static str]) -> Option<(&'static str, &'a str)> {
    names.iter().find_map(|name| Some((*name, *data.get(*name)?)))
}

/// Whether a node says that it is a host; `None` if it says neither.
fn is_host(data: &Data) -> Option<bool> {
    match &first(data, &KINDS)?.1.to_lowercase()[..] {
        "host" | "server" => Some(true),
        "switch" | "router" => Some(false),
        _ => None,
    }
}

fn is_of_routers(nodes: &[(&str, Data)]) -> bool {
    nodes.iter().all(|(_, data)| is_host(data).is_none())
}

/// The numbers of the nodes by their ids: hosts first, then switches, each in the file's order.
fn number<'a>(nodes: &[(&'a str, Data)], read: &mut Read) -> Result<BTreeMap<&'a str, u32>, String> {
    let only_routers = is_of_routers(nodes);
    if only_routers {
        read.note = "No node of the file has type = host or switch, so that each is a switch with a host of its own.";
        read.hosts = nodes.len() as u32;
    }
    let kind = |data: &Data| if only_routers { Some(false) } else { is_host(data) };
    if let Some((id, _)) = nodes.iter().find(|(_, data)| kind(data).is_none()) {
        return Err(format!("the node \"{id}\" says in none of {} whether it is a host or a switch", KINDS.join(", ")));
    }
    read.hosts += nodes.iter().filter(|(_, data)| kind(data) == Some(true)).count() as u32;
    let (mut host, mut switch) = (0, read.hosts);
    let mut numbers = BTreeMap::new();
    for (id, data) in nodes {
        let next = if kind(data) == Some(true) { &mut host } else { &mut switch };
        if numbers.insert(*id, *next).is_some() {
            return Err(format!("two nodes have the id \"{id}\""));
        }
        *next += 1;
    }
    read.switches = switch - read.hosts;
    Ok(numbers)
}

fn read_link(ends: [u32; 2], data: &Data) -> Result<ReadLink, String> {
    let rate = match (first(data, &RATES), data.get(RAW_RATE)) {
        (Some((name, value)), _) => value.parse::<DataRate>().map_err(|why| format!("{name}: {why}"))?.0,
        (None, Some(raw)) => rate(raw.parse().map_err(|_| format!("{RAW_RATE}: \"{raw}\" is not a number"))?, 1.0)?,
        (None, None) => defaults::rate().0,
    };
    let delay = match first(data, &DELAYS) {
        Some((name, value)) => value.parse::<Duration>().map_err(|why| format!("{name}: {why}"))?.0,
        None => defaults::delay().0,
    };
    let loss = data.get(LOSS).map(|value| value.parse::<Share>().map_err(|why| format!("{LOSS}: {why}")));
    Ok(ReadLink { ends, rate, delay, loss: loss.transpose()?.map_or(0.0, |share| share.0) })
}

/// A host for each switch, with a link that is as fast as all of the switch's together.
fn add_hosts(read: &mut Read) {
    let mut rates = vec![0; read.switches as usize];
    for link in &read.links {
        link.ends.iter().for_each(|end| rates[(end - read.hosts) as usize] += link.rate.0);
    }
    for (host, rate) in (0..).zip(rates) {
        let rate = Rate(rate.clamp(Rate::MIN.0, Rate::MAX.0));
        read.links.push(ReadLink { ends: [host, read.hosts + host], rate, delay: Span::ZERO, loss: 0.0 });
    }
}

#[cfg(test)]
mod tests {
    use crate::config::{Config, network_of};

    /// As NetworkX writes it.
    const TREE: &str = r#"<?xml version='1.0' encoding='utf-8'?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">
  <key id="d2" for="edge" attr.name="delay" attr.type="string"><default>500 ns</default></key>
  <key id="d1" for="edge" attr.name="rate" attr.type="string"/>
  <key id="d0" for="node" attr.name="type" attr.type="string"/>
  <graph edgedefault="undirected">
    <node id="s"><data key="d0">switch</data></node>
    <node id="a"><data key="d0">host</data></node>
    <node id="b &lt;1&gt;"><data key="d0">host</data></node>
    <edge source="a" target="s"><data key="d1">25 Gbit/s</data></edge>
    <edge source="s" target="b &lt;1&gt;"><data key="d2">2 us</data></edge>
  </graph>
</graphml>"#;

    #[test]
    fn nodes_say_what_they_are_and_edges_how_fast_and_long() {
        let toml = network_of(TREE).unwrap();
        let graph = Config::parse(&toml).unwrap().network.build().unwrap();
        assert_eq!((graph.hosts(), graph.switches(), graph.edges().len()), (2, 1, 2));
        let lines: Vec<&str> = toml.lines().filter(|line| line.contains("between")).map(str::trim).collect();
        let expected = [
            r#"{ between = ["host 0", "switch 0"], rate = "25 Gbit/s", delay = "500 ns" },"#,
            r#"{ between = ["switch 0", "host 1"], rate = "100 Gbit/s", delay = "2 us" },"#,
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn in_a_file_of_routers_each_has_a_host() {
        // As the Internet Topology Zoo has them.
        let zoo = r#"<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
          <key attr.name="LinkSpeedRaw" attr.type="double" for="edge" id="d33"/>
          <key attr.name="type" attr.type="string" for="node" id="d30"/>
          <graph edgedefault="undirected">
            <node id="0"><data key="d30">Green Node</data></node><node id="1"/><node id="2"/>
            <edge source="0" target="1"><data key="d33">10000000000.0</data></edge>
            <edge source="1" target="2"><data key="d33">45000000.0</data></edge>
          </graph></graphml>"#;
        let toml = network_of(zoo).unwrap();
        let graph = Config::parse(&toml).unwrap().network.build().unwrap();
        assert_eq!((graph.hosts(), graph.switches(), graph.edges().len()), (3, 3, 5));
        assert!(toml.contains("between = [\"host 1\", \"switch 1\"], rate = \"10.045 Gbit/s\""), "{toml}");
        assert!(toml.starts_with("# No node of the file has type"), "{toml}");
    }

    #[test]
    fn what_is_not_a_network_is_refused_with_a_sentence() {
        let error = |from: &str, to: &str| network_of(&TREE.replacen(from, to, 1)).unwrap_err();
        assert!(error("</graphml>", "").starts_with("this is not GraphML: "));
        assert!(error("<?xml version='1.0' encoding='utf-8'?>", "<!DOCTYPE x [<!ENTITY a 'b'>]>").contains("DTD"));
        assert!(error("undirected", "directed").starts_with("the graph is directed"));
        let missing = error("source=\"a\"", "source=\"c\"");
        assert_eq!(missing, "an edge has the source \"c\", which is not a node");
        let unit = error("25 Gbit/s", "25");
        assert!(unit.starts_with("the edge from \"a\" to \"s\": rate: \"25\" is not a quantity"), "{unit}");
        let kind = error(">switch<", ">leaf<");
        assert_eq!(kind, "the node \"s\" says in none of type, kind, role whether it is a host or a switch");
        assert_eq!(error("id=\"a\"", "id=\"s\""), "two nodes have the id \"s\"");
    }
}

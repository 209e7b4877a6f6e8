//! Files that are right, and files that are wrong.

use tributary_proto::contract::options::{Kind, OptionSpec};
use tributary_proto::switch_options::Given;

use super::*;

const SECRET: &str = "secret = \"0123456789abcdef\"\n";
const SMALL: &str = "[leaf_spine]\nleaves = 2\nspines = 2\nhosts_per_leaf = 2\n";

fn parse(text: &str) -> Result<FabricLayout, String> {
    FabricFile::parse(&format!("{SECRET}{text}")).map_err(|error| error.to_string())
}

#[test]
fn a_leaf_spine_has_names_numbers_addresses_and_roots() {
    let fabric = parse(SMALL).unwrap();
    let names: Vec<&str> = fabric.nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names, ["host0", "host1", "host2", "host3", "leaf0", "leaf1", "spine0", "spine1"]);
    assert_eq!(fabric.roots(), [NodeId(6), NodeId(7)]);
    assert_eq!(fabric.seat, NodeId(7));
    assert_eq!(fabric.leaf_of(NodeId(2)), NodeId(5));
    assert_eq!(fabric.udp(NodeId(4)).to_string(), "10.77.128.1:17777");
    assert_eq!(fabric.nodes[6].control.unwrap().to_string(), "10.77.192.3:17777");
    assert_eq!(fabric.node_at("::ffff:10.77.0.2".parse().unwrap()), Some(NodeId(1)));
    assert_eq!(fabric.cables[0], Cable { bits_per_s: None, queue_bytes: 256 << 10 });
}

#[test]
fn a_graph_names_its_own_nodes_and_one_link_may_differ() {
    let text = "rate = \"100 Mbit/s\"\n[graph]\nhosts = [\"a\", \"b\"]\nswitches = [\"x\", \"y\"]\n\
                links = [[\"a\", \"x\"], [\"b\", \"y\"], [\"x\", \"y\"]]\n\
                [[link]]\nbetween = [\"y\", \"x\"]\nrate = \"40 Mbit/s\"\nqueue = \"16 KiB\"\n\
                [addresses]\nx = \"192.168.0.1\"\n";
    let fabric = parse(text).unwrap();
    assert_eq!(fabric.cables[2], Cable { bits_per_s: Some(40_000_000), queue_bytes: 16 << 10 });
    assert_eq!(fabric.cables[0].bits_per_s, Some(100_000_000));
    assert_eq!(fabric.nodes[2].control.unwrap().to_string(), "192.168.0.1:17777");
}

#[test]
fn what_switches_hold_for_jobs_is_read_by_protocol_and_checked() {
    for shared in tributary_proto::protocols::ALL.iter().filter_map(|protocol| protocol.shared.as_ref()) {
        let (protocol, defaults) = (shared.options.protocol, shared.options.defaults());
        assert_eq!(parse(SMALL).unwrap().switch_options.of(shared), defaults);
        let count = |spec: &&OptionSpec| matches!(spec.kind, Kind::Count { least, most } if (least..most).contains(&2));
        let spec = shared.options.specs.iter().find(count).expect("it counts something");
        let file = |value: &str| format!("{SMALL}[switches.{protocol}]\n{} = {value}\n", spec.name);
        assert_eq!(parse(&file("2")).unwrap().switch_options.of(shared).count(spec.name), 2);
        let error = parse(&file("\"two\"")).unwrap_err();
        assert!(
            error.starts_with(&format!("switches: {protocol}'s option {} is two: it may be", spec.name)),
            "{error}"
        );
        // A flag replaces what the file says.
        let flag = Given::from([(protocol.to_owned(), [(spec.name.to_owned(), "3".to_owned())].into())]);
        let fabric = FabricFile::parse_with(&format!("{SECRET}{}", file("2")), &flag).unwrap();
        assert_eq!(fabric.switch_options.of(shared).count(spec.name), 3);
    }
}

#[test]
fn a_wrong_file_is_one_sentence_that_names_the_place() {
    let graph = |links: &str| format!("[graph]\nhosts = [\"a\", \"b\"]\nswitches = [\"x\", \"y\"]\nlinks = [{links}]");
    let cases = [
        (String::new(), "the fabric's shape is one of"),
        ("colour = 1".to_string(), "line 2: unknown field `colour`"),
        (format!("seat = \"host0\"\n{SMALL}"), "'host0' is a host"),
        (format!("seat = \"leaf9\"\n{SMALL}"), "no node 'leaf9'"),
        (format!("rate = \"0 bit/s\"\n{SMALL}"), "\"0 bit/s\" is not the rate of a link"),
        (format!("{SMALL}[switches.pigeon]\nwings = 2"), "switches have no options for \"pigeon\", but for"),
        (format!("queue = \"1 KiB\"\n{SMALL}"), "queue = 1 KiB: it may be 4 KiB to 1 GiB"),
        (format!("{SMALL}[addresses]\nleaf0 = \"10.77.0.1\"\n"), "both have the address"),
        (format!("{SMALL}[addresses]\nleaf7 = \"10.77.0.1\"\n"), "no node 'leaf7'"),
        (format!("{SMALL}[control]\nhost0 = \"10.77.0.1:1\"\n"), "is a host, and only switches"),
        (format!("{SMALL}[[link]]\nbetween = [\"leaf0\", \"leaf1\"]"), "nothing joins 'leaf0' and 'leaf1'"),
        (graph("[\"a\", \"b\"]"), "joins the hosts 'a' and 'b'"),
        (graph("[\"a\", \"x\"]"), "host 'b' has 0 links"),
        (graph("[\"a\", \"x\"], [\"b\", \"y\"]"), "no way leads from 'a' to 'b'"),
        (graph("[\"a\", \"x\"], [\"b\", \"y\"], [\"x\", \"y\"], [\"y\", \"x\"]"), "two links join"),
    ];
    for (text, sentence) in cases {
        let error = parse(&text).unwrap_err();
        assert!(error.contains(sentence) && !error.contains('\n'), "{text}: {error}");
    }
    let short = FabricFile::parse("secret = \"short\"").unwrap_err().to_string();
    assert!(short.contains("at least 16 characters"), "{short}");
}

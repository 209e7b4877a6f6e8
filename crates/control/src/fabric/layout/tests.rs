//! Files that are right, and files that are wrong.

use tributary_proto::contract::options::{Kind, OptionSpec};
use tributary_proto::protocols;
use tributary_proto::switch_options::Given;

use super::*;

const SECRET: &str = "secret = \"0123456789abcdef\"\n";
const ONE_LEAF: &str = "[leaf_spine]\nleaves = 1\nspines = 2\nhosts_per_leaf = 2\n";
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
    assert_eq!(fabric.controller, NodeId(7));
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
fn a_wrong_file_is_one_sentence_that_names_the_mistake() {
    let graph = |links: &str| format!("[graph]\nhosts = [\"a\", \"b\"]\nswitches = [\"x\", \"y\"]\nlinks = [{links}]");
    let cases = [
        (String::new(), "the fabric's shape is one of"),
        ("colour = 1".to_string(), "line 2: unknown field `colour`"),
        (format!("controller = \"host0\"\n{SMALL}"), "'host0' is a host"),
        (format!("controller = \"leaf9\"\n{SMALL}"), "no node 'leaf9'"),
        (format!("rate = \"0 bit/s\"\n{SMALL}"), "\"0 bit/s\" is not the rate of a link"),
        (format!("{SMALL}[switches.pigeon]\nwings = 2"), "switches have no options for \"pigeon\", except for"),
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

fn parse_small(keys: &str) -> Result<FabricLayout, String> {
    parse(&format!("{keys}\n{SMALL}"))
}

fn marks(keys: &str) -> Result<Option<Marks>, String> {
    parse_small(keys).map(|fabric| fabric.marks)
}

#[test]
fn a_lossless_fabric_pauses_at_half_of_its_smallest_queue_unless_it_says_otherwise() {
    assert_eq!(parse_small("rate = \"200 Mbit/s\"").unwrap().lossless, None);
    let usual = parse_small("rate = \"200 Mbit/s\"\nlossless = true").unwrap().lossless.unwrap();
    assert_eq!((usual.pause_above, usual.go_on_at), (128 << 10, (128 << 10) - 3_084));
    let own =
        parse_small("rate = \"200 Mbit/s\"\nlossless = true\npause_above = \"32 KiB\"").unwrap().lossless.unwrap();
    assert_eq!(own.pause_above, 32 << 10);
}

#[test]
fn a_file_whose_queues_would_drop_all_the_same_is_refused_with_a_sentence() {
    for (text, expected) in [
        ("lossless = true", "every link needs a rate"),
        ("pause_above = \"64 KiB\"", "is for fabrics with lossless = true"),
        ("lossless = true\nrate = \"200 Mbit/s\"\npause_above = \"3 KiB\"", "less than two packets"),
        ("lossless = true\nrate = \"1 Gbit/s\"", "give queue = \"1230 KiB\" or more"),
        ("lossless = true\nrate = \"200 Mbit/s\"\npause_above = \"200 KiB\"", "give queue = \"327 KiB\" or more"),
    ] {
        let error = parse_small(text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
    assert!(parse_small("lossless = true\nrate = \"1 Gbit/s\"\nqueue = \"1230 KiB\"").is_ok());
}

#[test]
fn a_fabric_marks_nothing_by_default_and_beyond_one_length_unless_the_file_has_two() {
    assert_eq!(marks(""), Ok(None));
    assert_eq!(marks("mark_above = \"64 KiB\""), Ok(Some(Marks { mark_above: 64 << 10, mark_all_above: 64 << 10 })));
    let both = marks("mark_above = \"64 KiB\"\nmark_all_above = \"512 KiB\"");
    assert_eq!(both, Ok(Some(Marks { mark_above: 64 << 10, mark_all_above: 512 << 10 })));
}

#[test]
fn lengths_that_make_no_sense_are_refused_in_a_sentence() {
    let error = |text| marks(text).unwrap_err();
    assert!(error("mark_all_above = \"64 KiB\"").contains("is for fabrics with mark_above"));
    let sentence = error("mark_above = \"64 KiB\"\nmark_all_above = \"63 KiB\"");
    assert!(sentence.contains("mark_all_above = 63 KiB: it is at least mark_above, which is 64 KiB"), "{sentence}");
}

#[test]
fn a_file_that_chooses_more_for_jobs_to_share_than_there_is_memory_is_refused_with_a_sentence() {
    for protocol in protocols::ALL {
        let Some(shared) = &protocol.shared else { continue };
        let chosen = format!("[switches.{}]\n{} = 65536\n", protocol.name, shared.options.specs[0].name);
        let parse = |keys: &str| parse(&format!("{keys}{ONE_LEAF}{chosen}"));
        let error = parse("memory = \"64 MiB\"\n").unwrap_err();
        assert!(error.contains(&format!("the jobs of {protocol} would share")), "{error}");
        let limits = parse("").unwrap().limits();
        assert!(limits.shared.bytes(protocol) > 64 << 20 && limits.planned_trees == Some(2));
    }
}

#[test]
fn a_switch_has_the_memory_that_the_file_gives_it_or_else_that_of_all() {
    let parse = |more: &str| parse(&format!("memory = \"2 MiB\"\nmemory_at = {{ {more} }}\n{ONE_LEAF}"));
    let fabric = parse("spine0 = 0, spine1 = \"9 MiB\"").unwrap();
    let memory = fabric.switches().map(|switch| (fabric.name(switch), fabric.memory_of(switch) >> 20));
    assert!(memory.eq([("leaf0", 2), ("spine0", 0), ("spine1", 9)]));
    for (at, error) in [("pigeon", "there is no node 'pigeon'"), ("host0", "'host0' is a host, and not a switch")] {
        let refused = parse(&format!("{at} = \"1 MiB\"")).unwrap_err();
        assert!(refused.contains(&format!("memory_at: {error}")), "{refused}");
    }
}

#[test]
fn the_file_names_the_hosts_where_servers_may_be() {
    let parse = |keys: &str| parse(&format!("{keys}\n{ONE_LEAF}"));
    assert!(parse("").unwrap().servers.is_empty());
    let fabric = parse("servers = [\"host1\"]").unwrap();
    assert_eq!(fabric.servers, [fabric.node_named("host1").unwrap()]);
    for (keys, error) in [
        ("servers = [\"pigeon\"]", "servers: there is no node 'pigeon'"),
        ("servers = [\"leaf0\"]", "servers: 'leaf0' is a switch, and servers are on hosts"),
        ("servers = [\"host1\"]\nrate = \"100 Mbit/s\"\nlossless = true", "leave out servers or lossless"),
    ] {
        let refused = parse(keys).unwrap_err();
        assert!(refused.contains(error), "{refused}");
    }
}

#[test]
fn a_switch_serves_what_the_file_says_of_it_or_else_of_all() {
    let parse = |more: &str| parse(&format!("{ONE_LEAF}{more}"));
    assert!(parse("").unwrap().operators.is_empty());
    let fabric = parse("[operators]\nallow = \"any\"\nat = { spine0 = \"none\" }\n").unwrap();
    let served = fabric.switches().map(|node| (fabric.name(node), fabric.operators[&node].as_str()));
    assert!(served.eq([("leaf0", "any"), ("spine0", "none"), ("spine1", "any")]));
    for (at, error) in [("pigeon", "there is no node 'pigeon'"), ("host0", "'host0' is a host, and no switch")] {
        let refused = parse(&format!("[operators]\nallow = \"any\"\nat = {{ {at} = \"none\" }}\n")).unwrap_err();
        assert!(refused.contains(&format!("[operators] at: {error}")), "{refused}");
    }
}

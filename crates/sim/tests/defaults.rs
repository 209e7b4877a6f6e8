//! Defaults are fair between protocols: with nothing but a protocol's name, a job on an idle network has what its packets
//! leave of the link.

use tributary_numeric::{DType, ReduceOp};
use tributary_proto::contract::options::Defaults;
use tributary_proto::contract::protocol::{Placement, Protocol};
use tributary_proto::contract::tensor::Spec;
use tributary_proto::contract::time::Span;
use tributary_proto::protocols;
use tributary_sim::config::Config;
use tributary_sim::report::Report;
use tributary_sim::run;

const HOSTS: u64 = 8;
/// The share of what is possible that a job with defaults has at least.
const SHARE: f64 = 0.9;

fn report(text: &str) -> Report {
    let report = run(&Config::parse(text).unwrap()).unwrap();
    assert_eq!(report.failure(), None, "{report}");
    report
}

fn star(protocol: &Protocol, more: &str) -> Report {
    let name = protocol.name;
    report(&format!(
        "network = {{ star = {{ hosts = {HOSTS} }} }}\n[[job]]\nprotocol = \"{name}\"\nhosts = \"all\"\ntensor = \"16 MiB\"\n{more}"
    ))
}

/// Protocols that reduce dense floats.
fn dense() -> impl Iterator<Item = &'static Protocol> {
    let sum = Spec::allreduce(1, DType::F32, ReduceOp::Sum);
    protocols::ALL.iter().copied().filter(move |protocol| (protocol.check)(&sum, &protocol.options.defaults()).is_ok())
}

/// A protocol that needs nothing of switches.
fn of_hosts() -> &'static str {
    let needs_nothing = |protocol: &&&Protocol| protocol.hosts_forward_results;
    protocols::ALL.iter().find(needs_nothing).unwrap().name
}

/// How often a host sends each element: once to a switch; to other hosts, and to servers beside the ranks, twice the share of
/// the others.
fn times_sent(protocol: &Protocol) -> f64 {
    match protocol.placement {
        Placement::Trees | Placement::EveryHop => 1.0,
        Placement::Hosts => 2.0 * (HOSTS - 1) as f64 / HOSTS as f64,
    }
}

#[test]
fn with_defaults_every_protocol_fills_an_idle_star() {
    let mut slow = Vec::new();
    for protocol in dense() {
        let report = star(protocol, "");
        let payload = 1024.0 / (1024 + protocol.header_len + 66) as f64;
        let possible = 100.0 * payload / times_sent(protocol);
        let goodput = report.jobs[0].goodput_gbps.unwrap();
        println!("{}: {goodput:.1} of {possible:.1} Gbit/s, {} slots", protocol.name, report.jobs[0].slots);
        if goodput < SHARE * possible {
            slow.push(format!("{}: {goodput:.1} of {possible:.1} Gbit/s", protocol.name));
        }
    }
    assert!(slow.is_empty(), "{slow:?}");
}

#[test]
fn packets_that_are_sent_again_for_their_scale_are_counted() {
    let guesses = |protocol: &&Protocol| protocol.options.specs.iter().any(|spec| spec.name == "served_by");
    for protocol in dense().filter(guesses) {
        let [steady, random] = ["", "magnitudes = \"random\"\n"].map(|more| star(protocol, more));
        assert_eq!(random.jobs[0].retransmissions, random.jobs[0].reissued, "{random}");
        assert_eq!(steady.jobs[0].retransmissions, steady.jobs[0].reissued, "{steady}");
        // A rank sends the blocks that the others serve: nearly all of them twice, or only those of its first window.
        let gradients = (HOSTS - 1) * (16 << 20) / 1024;
        assert!(random.jobs[0].reissued > gradients * 3 / 4, "{random}");
        assert!(steady.jobs[0].reissued < gradients / 50, "{steady}");
        let said = format!("({} of blocks that all ranks sent again)", random.jobs[0].reissued);
        assert!(random.to_string().contains(&said), "{random}");
    }
}

const TWO_PATHS: &str =
    "[network]\nleaf_spine = { leaves = 2, spines = 2, hosts_per_leaf = 2 }\nmark_above = \"100 kB\"\n";

/// Protocols whose switches wait for packets of a block.
fn waiting() -> impl Iterator<Item = &'static str> {
    let waits = |protocol: &&&Protocol| {
        protocol.shared.as_ref().is_some_and(|shared| {
            let options = shared.options.read_with(&Default::default(), Defaults::Simulated).unwrap();
            (shared.longest_wait)(&options) > Span::ZERO
        })
    };
    protocols::ALL.iter().filter(waits).map(|protocol| protocol.name)
}

#[test]
fn a_protocol_whose_packets_must_meet_warns_of_paths_on_which_they_do_not() {
    for protocol in waiting() {
        let job = format!("[[job]]\nprotocol = \"{protocol}\"\nhosts = \"all\"\ntensor = \"4 kB\"\n");
        let warnings = |network: &str| report(&format!("{network}{job}")).warnings;
        let found = warnings(TWO_PATHS);
        assert!(
            found.len() == 1 && found[0].starts_with("job 0: under routing = \"ecmp\" the ranks' packets"),
            "{found:?}"
        );
        assert!(found[0].contains("routing = \"default_unless_half_full\""), "{found:?}");
        assert!(warnings(&format!("{TWO_PATHS}routing = \"default_unless_half_full\"\n")).is_empty());
        assert!(warnings("network = { star = { hosts = 4 } }\n").is_empty(), "a star has one path");
    }
    assert!(waiting().next().is_some());
    let protocol = of_hosts();
    let other = format!("{TWO_PATHS}[[job]]\nprotocol = \"{protocol}\"\nhosts = \"all\"\ntensor = \"4 kB\"\n");
    assert!(report(&other).warnings.is_empty());
}

#[test]
fn dctcp_without_marks_warns() {
    let flows = "[[traffic]]\npattern = \"permutation\"\nhosts = \"all\"\ntransport = \"dctcp\"\nmessage = \"4 kB\"\n";
    let unmarked = TWO_PATHS.replace("mark_above = \"100 kB\"\n", "");
    let found = report(&format!("{unmarked}{flows}"));
    assert!(found.warnings[0].contains("set mark_above in [network]"), "{found}");
    assert!(found.to_string().contains("\nWARNING     flows run under DCTCP"), "{found}");
    assert!(report(&format!("{TWO_PATHS}{flows}")).warnings.is_empty());
    let swift = "[transport]\ncongestion_control = \"swift\"\n";
    assert!(report(&format!("{unmarked}{flows}{swift}")).warnings.is_empty());
}

/// All of the background's packets are for one host, so that with ECMP each sender keeps to one spine; the job's go by
/// another rule.
#[test]
fn the_background_may_be_routed_by_another_rule_than_jobs() {
    let paths = |routing: &str, background: &str| {
        let text = format!(
            "{TWO_PATHS}routing = \"{routing}\"\n{background}[[job]]\nprotocol = \"{}\"\nhosts = [0, 2]\ntensor = \"1 MiB\"\n\
             [[traffic]]\npattern = \"stream\"\nfrom = [1]\nto = [3]\nrate = \"10 Gbit/s\"\nuntil = \"50 us\"\n",
            of_hosts()
        );
        report(&text).trace_hash
    };
    let both = |routing: &str| format!("background_routing = \"{routing}\"\n");
    assert_eq!(paths("random", ""), paths("random", &both("random")));
    let (mixed, other) = (paths("random", &both("ecmp")), paths("ecmp", &both("random")));
    assert!(mixed != paths("random", "") && mixed != paths("ecmp", "") && other != mixed);
}

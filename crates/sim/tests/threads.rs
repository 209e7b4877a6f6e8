//! One run on several threads: the same trace, the same report.

use std::ops::ControlFlow;

use tributary_sim::config::Config;
use tributary_sim::report::Report;
use tributary_sim::run_on_threads;

const CLOS: &str = "end = '1 s'\nnetwork = { clos = { ports = 4 }, delay = '500 ns', queue = '60 kB', mark_above = '20 kB', \
                    routing = 'random' }\n";
/// A protocol whose sums switches make.
const AT_SWITCHES: &str = "switchml";
const LEAF_SPINE: &str = "end = '1 s'\nnetwork = { leaf_spine = { leaves = 4, spines = 3, hosts_per_leaf = 4 }, \
                          delay = '300 ns', switch_latency = '200 ns', routing = 'default_unless_half_full'";

fn on_threads(file: &str, threads: u16) -> Report {
    let config = Config::parse(file).unwrap();
    run_on_threads(&config, threads, &mut |_| ControlFlow::Continue(())).unwrap()
}

/// All that a report says but how fast it was, as text.
fn without_speed(report: &Report) -> String {
    let mut value = serde_json::to_value(report).unwrap();
    value.as_object_mut().unwrap().remove("speed");
    value.to_string()
}

fn is_the_same_on_threads(file: &str) -> Report {
    let one = on_threads(file, 1);
    for threads in [2, 4] {
        let several = on_threads(file, threads);
        assert_eq!(several.trace_hash, one.trace_hash, "{threads} threads: {file}");
        assert_eq!(without_speed(&several), without_speed(&one), "{threads} threads: {file}");
        assert_eq!(several.speed.events, one.speed.events, "{threads} threads: {file}");
    }
    one
}

fn job(protocol: &str, more: &str) -> String {
    format!("[[job]]\nprotocol = '{protocol}'\nhosts = 'all'\ntensor = '64 KiB'\n{more}\n")
}

#[test]
fn messages_over_random_paths() {
    let report = is_the_same_on_threads(&format!("{CLOS}[[traffic]]\npattern = 'permutation'\nmessage = '100 kB'"));
    assert!(report.finished);
}

#[test]
fn collectives_of_every_protocol_under_background_traffic() {
    let traffic = "[[traffic]]\npattern = 'uniform'\nhosts = 'all'\nmessage = '20 kB'\nload = '40 %'\n";
    for (protocol, more) in [(AT_SWITCHES, "trees = 4\nslots = 64\niterations = 2"), ("ring", ""), ("canary", "")] {
        let report = is_the_same_on_threads(&format!("{CLOS}{}{traffic}", job(protocol, more)));
        assert!(report.failure().is_none(), "{protocol}: {:?}", report.failure());
    }
}

#[test]
fn flows_under_dctcp_that_arrive_at_random() {
    let flows = "[[traffic]]\npattern = 'poisson'\nhosts = 'all'\nsizes = 'hadoop'\nload = '20 %'\nuntil = '300 us'";
    is_the_same_on_threads(&format!("{CLOS}{flows}"));
}

#[test]
fn links_that_pause_senders_in_other_partitions() {
    let lossless = ", queue = '64 KiB', lossless = { xoff = '8 KiB' } }\n";
    let traffic = "[[traffic]]\npattern = 'uniform'\nhosts = 'all'\nmessage = '20 kB'\nexchange = true\n";
    let report = is_the_same_on_threads(&format!("{LEAF_SPINE}{lossless}{}{traffic}", job(AT_SWITCHES, "trees = 2")));
    assert!(report.links.iter().any(|row| row.pauses > 0));
}

/// Packets are lost, doubled and delayed, a cable flaps, a switch dies and comes back, and a host dies for good.
#[test]
fn faults_of_all_kinds() {
    let faults = "
        fault = [
            { links = 'all', loss = '1 %', duplication = '1 %', reordering = '5 %', delay = '3 us', until = '400 us' },
            { links = [['switch 1', 'switch 5']], flap = '7 us', at = '10.3 us', until = '100 us' },
            { dead = 'switch 4', at = '20.1 us', until = '60 us' },
            { dead = 'host 7', at = '80 us' }]\n";
    for lossless in ["", ", queue = '64 KiB', lossless = { xoff = '8 KiB' }"] {
        let job = job(AT_SWITCHES, "trees = 2\ntimeout = '20 ms'");
        is_the_same_on_threads(&format!("{faults}{LEAF_SPINE}{lossless} }}\n{job}"));
    }
}

#[test]
fn a_run_that_is_stopped_says_when() {
    let file = format!("{CLOS}[[traffic]]\npattern = 'permutation'\nmessage = '20 MB'");
    let config = Config::parse(&file).unwrap();
    let error = run_on_threads(&config, 2, &mut |_| ControlFlow::Break(())).unwrap_err();
    assert!(error.to_string().contains("the run was stopped after"), "{error}");
}

/// Only the switches of the first thread were looked at.
#[test]
fn the_fullest_switch_may_be_any_threads() {
    let report = is_the_same_on_threads(&format!(
        "{LEAF_SPINE}, queue = '60 kB' }}\n[[job]]\nprotocol = '{AT_SWITCHES}'\nhosts = '50 %'\ntensor = '256 KiB'\n"
    ));
    assert!(report.switch_memory_bytes > 0);
}

#[test]
fn classes_of_packets_while_a_rate_changes() {
    for service in ["'strict'", "{ weights = [2, 1] }"] {
        let report = is_the_same_on_threads(&format!(
            "{LEAF_SPINE}, queue = '60 kB', service = {service} }}\n[[job]]\nprotocol = '{AT_SWITCHES}'\nhosts = '50 %'\n\
             tensor = '256 KiB'\npriority = 1\n[[traffic]]\npattern = 'uniform'\nmessage = '64 KiB'\n[[fault]]\n\
             links = [['leaf 0', 'spine 0']]\nat = '10 us'\nuntil = '40 us'\nrate = '10 Gbit/s'\n"
        ));
        assert!(report.finished);
    }
}

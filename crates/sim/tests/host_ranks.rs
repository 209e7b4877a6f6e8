//! Hosts with several ranks: what their links carry, what their memory costs, and which jobs cannot have them.

use std::ops::ControlFlow;

use std::collections::BTreeMap;

use tributary_proto::contract::protocol::{Placement, Protocol};
use tributary_proto::protocols;
use tributary_sim::config::Config;
use tributary_sim::experiment::run_on_threads;
use tributary_sim::report::{JobReport, Report};
use tributary_sim::run;
use tributary_sim::swarm::scenario;

const MEMORY: &str = "[hosts]\nmemory = '80 Gbit/s'\n";
const TENSOR: u64 = 5 << 20;
/// Bytes of a fragment.
const FRAGMENT: u64 = 2 << 20;

fn file(hosts: u32, per_host: u16, protocol: &str, more: &str) -> String {
    format!(
        "[network]\nstar = {{ hosts = {hosts} }}\nrate = '10 Gbit/s'\nqueue = '16 MiB'\n{MEMORY}[[job]]\n\
         protocol = '{protocol}'\nhosts = 'all'\nplacement = 'packed'\ntensor = {TENSOR}\n\
         ranks_per_host = {per_host}\n{more}"
    )
}

fn report(file: &str) -> Report {
    let report = run(&Config::parse(file).unwrap()).unwrap();
    assert_eq!(report.failure(), None, "{file}");
    report
}

fn job(file: &str) -> JobReport {
    report(file).jobs.swap_remove(0)
}

/// Seconds that bytes need in the memory.
fn in_memory(bytes: u64) -> f64 {
    bytes as f64 * 8.0 / 80e9
}

#[test]
fn a_hosts_link_carries_a_tensor_once_whatever_the_number_of_its_ranks() {
    for protocol in protocols::ALL {
        for (hosts, per_host) in [(2, 2), (2, 4), (4, 2)] {
            let [alone, several] = [1, per_host].map(|ranks| job(&file(hosts, ranks, protocol.name, "iterations = 2")));
            let what = format!("{protocol}, {hosts} x {per_host}");
            assert_eq!((several.ranks, several.completed), ((hosts * u32::from(per_host)) as usize, 2), "{what}");
            assert_eq!(several.hosts.len(), several.ranks, "{what}");
            let more = several.packets_sent as f64 / alone.packets_sent as f64;
            assert!((0.98..=1.02).contains(&more), "{what}: {more} times as many packets");
        }
    }
}

fn usual() -> &'static Protocol {
    named(|protocol| protocol.placement == Placement::Trees)
}

/// A protocol that has a property.
fn named(has: impl Fn(&Protocol) -> bool) -> &'static Protocol {
    protocols::ALL.iter().copied().find(|protocol| has(protocol)).unwrap()
}

#[test]
fn fragments_cross_the_memory_while_others_are_in_the_network() {
    let seconds = |per_host| job(&file(4, per_host, usual().name, "")).seconds.unwrap();
    let (alone, pair) = (seconds(1), seconds(2));
    // The first fragment must be in memory before the link is busy, and the last one crosses it afterwards.
    let last = TENSOR % FRAGMENT;
    let expected = alone + in_memory(2 * FRAGMENT) + in_memory(2 * last);
    assert!((0.99..1.01).contains(&(pair / expected)), "{pair} s, not {expected}");
    // Of 16 ranks the memory is the limit: the first fragment goes through all, and then each comes back behind it.
    let crowd = seconds(16);
    let first = in_memory(16 * FRAGMENT) + alone * FRAGMENT as f64 / TENSOR as f64;
    let expected = first + in_memory(16 * TENSOR);
    assert!((0.99..1.01).contains(&(crowd / expected)), "{crowd} s, not {expected}");
}

#[test]
fn what_one_rank_brings_or_gets_crosses_its_hosts_memory_alone() {
    let seconds = |more: &str| job(&file(2, 8, usual().name, more)).seconds.unwrap();
    let (all, one) = (seconds("collective = 'allreduce'"), seconds("collective = 'reduce'\nroot = 15"));
    let saved = in_memory(7 * (TENSOR % FRAGMENT));
    assert!(all - one > 0.9 * saved, "{all} s and {one} s");
    for (protocol, kind) in
        protocols::ALL.iter().flat_map(|protocol| ["broadcast", "reduce"].map(|kind| (protocol, kind)))
    {
        let more = format!("collective = '{kind}'\nroot = 9");
        assert!(job(&file(2, 8, protocol.name, &more)).complete, "{kind} under {protocol}");
    }
    let barrier = file(2, 8, usual().name, "collective = 'barrier'").replace(&TENSOR.to_string(), "0");
    assert!(job(&barrier).complete);
}

#[test]
fn jobs_share_the_memory_of_their_hosts() {
    let two = |memory: &str| {
        let job = format!("protocol = '{}'\nhosts = 'all'\ntensor = '2 MiB'\nranks_per_host = 16\n", usual());
        let network = "[network]\nstar = { hosts = 2 }\nrate = '100 Gbit/s'\nqueue = '16 MiB'\n";
        let both = report(&format!("{network}[hosts]\nmemory = '{memory}'\n[[job]]\n{job}[[job]]\n{job}"));
        both.jobs.iter().map(|job| job.seconds.unwrap()).fold(0.0, f64::max)
    };
    let way = 2.0 * 16.0 * f64::from(2 << 20) * 8.0 / 10e9;
    let slow = two("10 Gbit/s");
    assert!(slow > 1.49 * way && two("100 Gbit/s") < 0.2 * slow, "{slow} s, and a job alone {way} s");
}

#[test]
fn a_host_waits_for_the_latest_of_its_ranks() {
    let seconds = |more: &str| job(&file(4, 2, usual().name, more)).seconds.unwrap();
    let late = seconds("stragglers = { ranks = [7], late = '10 ms' }") - seconds("");
    assert!((9.9e-3..10.1e-3).contains(&late), "{late} s");
}

#[test]
fn the_swarm_draws_hosts_with_several_ranks() {
    let jobs: Vec<_> = (0..60).flat_map(|seed| scenario(seed).config.jobs).collect();
    for per_host in [1, 2, 3, 8] {
        assert!(jobs.iter().any(|job| job.ranks_per_host == per_host), "no job with {per_host} ranks on each host");
    }
}

#[test]
fn threads_change_nothing() {
    let network = "[network]\nleaf_spine = { leaves = 3, spines = 2, hosts_per_leaf = 2 }\n";
    let job = "hosts = 'all'\ntensor = '5 MiB'\niterations = 2\nranks_per_host = 4\n";
    let text = format!("{network}{MEMORY}[[job]]\nprotocol = '{}'\n{job}", usual());
    let config = Config::parse(&text).unwrap();
    let of = |threads| run_on_threads(&config, threads, &mut |_| ControlFlow::Continue(())).unwrap();
    let (one, three) = (of(1), of(3));
    assert_eq!(one.failure(), None);
    assert_eq!((one.trace_hash, &one.jobs), (three.trace_hash, &three.jobs));
}

#[test]
fn a_job_that_cannot_sum_in_memory_is_refused_with_a_sentence() {
    let refusal = |file: &str| run(&Config::parse(file).unwrap()).unwrap_err().to_string();
    let sparse = named(|protocol| protocol.options.of_sparse(&BTreeMap::new(), None).is_some());
    let custom = named(|protocol| protocol.options.custom_ops.is_some());
    let ranks = [("reproducible".to_string(), "ranks".to_string())].into();
    let ordered = named(|protocol| protocol.options.read(&ranks).is_ok());
    let partial = named(|protocol| protocol.options.quorum.is_some());
    for (protocol, more, sentence) in [
        (sparse, "density = '1 %'", "a job of sparse tensors is not summed in hosts' memory"),
        (custom, "operator = 'maxloc'", "a job with an operator of its own is not summed in hosts' memory"),
        (ordered, "options = { reproducible = 'ranks' }", "the job's options promise the order of all ranks"),
        (partial, "op = 'avg'\noptions = { partial = '1/2' }", "results that may lack ranks are not summed"),
        (usual(), "root = 4\ncollective = 'reduce'", "root = 4 is not one of its 4 ranks"),
        (usual(), "stragglers = { ranks = [4], late = '1 us' }", "stragglers name rank 4: it has 4 ranks"),
    ] {
        let said = refusal(&file(2, 2, protocol.name, more));
        assert!(said.starts_with("job 0: ") && said.contains(sentence), "{said}");
    }
    let said = refusal(&file(2, 2, usual().name, "").replace(MEMORY, ""));
    assert!(said.contains("ranks_per_host = 2: [hosts] says nothing of their memory"), "{said}");
    for ranks in [0, 65] {
        let said = refusal(&file(2, ranks, usual().name, ""));
        assert!(said.contains("a host has 1 to 64 ranks of a job"), "{said}");
    }
}

//! Sparse tensors in the simulator: proven sums under two levels of switches, with losses, on several threads; and the fewer bytes
//! that they take.

use std::ops::ControlFlow;

use tributary_proto::protocols;
use tributary_sim::config::Config;
use tributary_sim::report::Report;
use tributary_sim::run_on_threads;

/// Sixteen hosts that sum two tensors of 400 kB; `more` are keys of the job's table, and whatever follows it.
fn run(protocol: &str, more: &str, threads: u16) -> Report {
    let text = format!(
        "end = '10 s'
        network = {{ leaf_spine = {{ leaves = 4, spines = 2, hosts_per_leaf = 4 }}, rate = '1 Gbit/s', queue = '1 MiB' }}
        [[job]]
        protocol = '{protocol}'
        hosts = 'all'
        tensor = '400 kB'
        iterations = 2
        {more}"
    );
    let report = run_on_threads(&Config::parse(&text).unwrap(), threads, &mut |_| ControlFlow::Continue(())).unwrap();
    let job = &report.jobs[0];
    assert!(job.complete && job.errors.is_empty(), "{protocol}, {more}: {:?}", job.errors);
    report
}

/// The protocols whose jobs may be of sparse tensors.
fn able() -> Vec<&'static str> {
    let able = protocols::ALL.iter().filter(|protocol| protocol.options.sparse.is_some());
    able.map(|protocol| protocol.name).collect()
}

#[test]
fn sums_are_proven_at_every_density_and_under_loss() {
    assert!(!able().is_empty());
    let faults = "[[fault]]\nlinks = 'all'\nloss = '1 %'\nduplication = '1 %'\nreordering = '1 %'\ndelay = '5 us'";
    for protocol in able() {
        for density in ["1e-6", "0.01", "'30 %'", "1"] {
            run(protocol, &format!("density = {density}"), 1);
            run(protocol, &format!("density = {density}\ntype = 'i8'\nop = 'max'\n{faults}"), 1);
        }
    }
}

/// Of sixteen hosts' indices the result has 15 %, as pairs of six bytes.
#[test]
fn one_percent_takes_a_third_of_the_time_of_a_dense_tensor_at_most() {
    for protocol in able() {
        let seconds = |more: &str| run(protocol, more, 1).jobs[0].mean_seconds.unwrap();
        let (dense, sparse) = (seconds(""), seconds("density = 0.01"));
        assert!(sparse < dense / 3.0, "{protocol}: {sparse} s, dense {dense} s");
    }
}

/// What links alone allow: 25 MB over links of 1 Gbit/s with the timers of real hosts, where hosts' processors cost nothing.
#[test]
fn on_links_of_1_gbit_per_second_one_percent_is_five_times_as_fast_as_dense_and_switches_are_ahead_of_hosts() {
    let in_network = |name: &&str| protocols::named(name).unwrap().sums_in_network();
    let (switches, hosts_alone): (Vec<&str>, Vec<&str>) = able().into_iter().partition(in_network);
    assert!(!switches.is_empty() && !hosts_alone.is_empty());
    for hosts in [4, 8] {
        let seconds = |protocol: &str, more: &str| {
            let text = format!(
                "end = '10 s'
                network = {{ star = {{ hosts = {hosts} }}, rate = '1 Gbit/s', delay = '5 us', queue = '4 MiB' }}
                [[job]]
                protocol = '{protocol}'
                hosts = 'all'
                tensor = '25 MB'
                elements_per_packet = 350
                rto = {{ initial = '20 ms', min = '1 ms', max = '200 ms' }}
                {more}"
            );
            let config = Config::parse(&text).unwrap();
            run_on_threads(&config, 1, &mut |_| ControlFlow::Continue(())).unwrap().jobs[0].mean_seconds.unwrap()
        };
        let sparse = "density = 0.01";
        let of_hosts = hosts_alone.iter().map(|protocol| seconds(protocol, sparse)).fold(f64::INFINITY, f64::min);
        for protocol in &switches {
            let (dense, sparse_seconds) = (seconds(protocol, ""), seconds(protocol, sparse));
            assert!(sparse_seconds < dense / 5.0, "{protocol}, {hosts} hosts: {sparse_seconds} s, dense {dense} s");
            assert!(
                sparse_seconds < of_hosts,
                "{protocol}, {hosts} hosts: {sparse_seconds} s, hosts alone {of_hosts} s"
            );
        }
    }
}

/// Where a block's sum is many packets, as many blocks as a dense tensor has under way overflow the queues: 4.4 ms with 32 slots, and 0.16 with 4.
#[test]
fn blocks_under_way_are_no_more_than_queues_hold_of_their_sums() {
    for protocol in able() {
        let text = format!(
            "end = '10 s'
            network = {{ leaf_spine = {{ leaves = 8, spines = 8, hosts_per_leaf = 8 }}, rate = '100 Gbit/s', delay = '500 ns', queue = '1 MiB',
                         routing = 'least_queued' }}
            [[job]]
            protocol = '{protocol}'
            hosts = 'all'
            tensor = '6 MiB'
            placement = 'packed'
            density = 0.001953125"
        );
        let report = run_on_threads(&Config::parse(&text).unwrap(), 1, &mut |_| ControlFlow::Continue(())).unwrap();
        let job = &report.jobs[0];
        assert!(job.complete && job.mean_seconds.unwrap() < 0.001, "{protocol}: {:?} s", job.mean_seconds);
    }
}

#[test]
fn a_run_is_the_same_on_any_number_of_threads() {
    for protocol in able() {
        let hash = |threads| run(protocol, "density = 0.05", threads).trace_hash;
        assert!(hash(2) == hash(1) && hash(4) == hash(1));
    }
}

/// The new program of a switch that came back sent other elements under the numbers of packets that its parent had of the
/// former one: a result had some elements twice and lacked others.
#[test]
fn a_switch_that_comes_back_never_makes_a_result_wrong() {
    let outcome = |seed: u64, protocol: &str| {
        let text = format!(
            "end = '10 s'
            seed = {seed}
            network = {{ dumbbell = {{ left = 3, right = 2 }}, rate = '1 Gbit/s', queue = '30 kB', routing = 'ecmp' }}
            [[job]]
            protocol = '{protocol}'
            hosts = 'all'
            tensor = '10 kB'
            type = 'u8'
            op = 'bor'
            density = 1.0
            elements_per_packet = 2048
            slots = 27
            trees = 3
            timeout = '200 ms'
            [[fault]]
            at = '200 us'
            until = '1200 us'
            dead = 'switch 0'"
        );
        let config = Config::parse(&text).unwrap();
        let report = run_on_threads(&config, 1, &mut |_| ControlFlow::Continue(())).unwrap();
        format!("{:?}", report.jobs[0].errors)
    };
    for protocol in able().into_iter().filter(|name| protocols::named(name).unwrap().sums_in_network()) {
        let outcomes: Vec<String> = (0..20).map(|seed| outcome(seed, protocol)).collect();
        assert!(outcomes.iter().all(|errors| !errors.contains("wrong sum")), "{outcomes:#?}");
        assert!(outcomes.iter().any(|errors| errors.contains("has not answered")), "{outcomes:#?}");
    }
}

#[test]
fn what_cannot_be_is_a_sentence() {
    let refused = |protocol: &str, more: &str| {
        let text = format!(
            "end = '1 s'\nnetwork = {{ star = {{ hosts = 2 }} }}\n[[job]]\nprotocol = '{protocol}'\ntensor = '4 kB'\n{more}"
        );
        let config = Config::parse(&text).unwrap();
        tributary_sim::experiment::run(&config).unwrap_err().to_string()
    };
    let other = protocols::ALL.iter().find(|protocol| protocol.options.sparse.is_none()).unwrap().name;
    assert!(refused(other, "density = 0.1").contains(&format!("{other} sums no sparse tensors")));
    for protocol in able() {
        assert!(refused(protocol, "density = 0").contains("is not a share of the elements"));
        assert!(refused(protocol, "density = 0.1\ncollective = 'broadcast'").contains("of a sparse tensor"));
    }
}

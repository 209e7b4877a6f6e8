//! Training steps as graphs: what ranks compute and exchange, in which order, and what of it is exposed.

use std::ops::ControlFlow;

use tributary_numeric::{DType, ReduceOp};
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::contract::tensor::Spec;
use tributary_proto::protocols;
use tributary_sim::config::Config;
use tributary_sim::report::Report;
use tributary_sim::{run, run_on_threads};

const STAR: &str = "network = { star = { hosts = 4 }, rate = '10 Gbit/s', mark_above = '100 kB' }\n";
const RACKS: &str = "end = '2 s'\nnetwork = { leaf_spine = { leaves = 2, spines = 2, hosts_per_leaf = 4 }, rate = \
                     '10 Gbit/s', delay = '500 ns', mark_above = '100 kB' }\n";

fn report(text: &str) -> Report {
    let report = run(&Config::parse(text).unwrap()).unwrap();
    assert_eq!(report.failure(), None, "{report}");
    report
}

fn refusal(text: &str) -> String {
    let config = match Config::parse(text) {
        Ok(config) => config,
        Err(error) => return error.to_string(),
    };
    run(&config).err().map(|error| error.to_string()).unwrap_or_default()
}

/// Protocols that reduce dense floats.
fn dense() -> impl Iterator<Item = &'static Protocol> {
    let sum = Spec::allreduce(1, DType::F32, ReduceOp::Sum);
    protocols::ALL.iter().copied().filter(move |protocol| (protocol.check)(&sum, &protocol.options.defaults()).is_ok())
}

/// A protocol whose switches sum, and whose broadcasts go through them.
fn in_network() -> &'static str {
    dense().find(|protocol| protocol.rooted_is_unicast).unwrap().name
}

/// A protocol that needs nothing of switches.
fn of_hosts() -> &'static str {
    dense().find(|protocol| protocol.hosts_forward_results).unwrap().name
}

fn ddp(protocol: &str, more: &str) -> String {
    format!("[[step]]\nkind = 'ddp'\nprotocol = '{protocol}'\nhosts = 'all'\n{more}\n")
}

#[test]
fn a_step_of_one_layer_is_its_computation_and_the_time_of_its_sum_alone() {
    for protocol in dense() {
        let layer = "[[step.layer]]\nparameters = 100_000\nforward = '1 ms'\nbackward = '2 ms'";
        let step = report(&format!("{STAR}{}", ddp(protocol.name, layer)));
        let job = format!("[[job]]\nprotocol = '{protocol}'\nhosts = 'all'\nplacement = 'packed'\ntensor = '400 kB'");
        let steps = &step.steps[0];
        let sum = steps.communicated_seconds.unwrap();
        assert!((steps.computed_seconds - 3e-3).abs() < 1e-12);
        assert!((steps.exposed_seconds.unwrap() - sum).abs() < 1e-12, "{protocol}: {step}");
        // Ranks are on other hosts, and ranks of a step begin together as those of a job do.
        let alone = report(&format!("{STAR}{job}")).jobs[0].seconds.unwrap();
        assert!((steps.seconds.unwrap() - 3e-3 - alone).abs() < 0.02 * alone, "{protocol}: {alone} s, {step}");
    }
}

#[test]
fn buckets_are_reduced_while_the_layers_before_compute_and_that_hides_them() {
    let layers = "[[step.layer]]\ncount = 8\nparameters = 100_000\nbackward = '400 us'";
    let [with, without] = [true, false].map(|overlap| {
        let more = format!("iterations = 3\nbucket = '300 kB'\nfirst_bucket = '1 kB'\noverlap = {overlap}\n{layers}");
        report(&format!("{STAR}{}", ddp(in_network(), &more))).steps[0].clone()
    });
    assert_eq!((with.completed, with.bytes), (3, 3.2e6));
    let exposed = [&with, &without].map(|step| step.exposed_seconds.unwrap());
    assert!(exposed[0] * 5.0 < exposed[1], "only the last of eight buckets is exposed: {exposed:?}");
    assert!(with.seconds.unwrap() >= with.computed_seconds);
    // Eight buckets, whose sums are under way for as long as one sum of all.
    assert!((without.communicated_seconds.unwrap() - without.exposed_seconds.unwrap()).abs() < 1e-12);
}

#[test]
fn gradients_of_several_passes_are_reduced_once() {
    let layers = "[[step.layer]]\nparameters = 100_000\nforward = '1 ms'\nbackward = '2 ms'";
    let [one, four] = [1, 4].map(|accumulate| {
        let step = ddp(of_hosts(), &format!("accumulate = {accumulate}\n{layers}"));
        report(&format!("{STAR}{step}")).steps[0].clone()
    });
    assert_eq!(one.bytes, four.bytes);
    assert!((four.computed_seconds - 4.0 * one.computed_seconds).abs() < 1e-12);
    assert!((four.exposed_seconds.unwrap() - one.exposed_seconds.unwrap()).abs() < 1e-12);
}

/// What a report says besides its speed.
fn without_speed(report: &Report) -> String {
    let mut value = serde_json::to_value(report).unwrap();
    value.as_object_mut().unwrap().remove("speed");
    format!("{value}{:?}", report.span_rows)
}

#[test]
fn every_kind_ends_under_every_protocol_the_same_on_any_number_of_threads() {
    let layers = "[[step.layer]]\ncount = 3\nparameters = 8_000\nbackward = '30 us'";
    for protocol in dense() {
        for more in ["kind = 'ddp'\nbucket = '40 kB'", "kind = 'fsdp'", "kind = 'hsdp'\nshard = 4"] {
            let file = format!("{RACKS}[[step]]\nprotocol = '{protocol}'\niterations = 2\n{more}\n{layers}");
            let config = Config::parse(&file).unwrap();
            let of = |threads| run_on_threads(&config, threads, &mut |_| ControlFlow::Continue(())).unwrap();
            let one = of(1);
            assert_eq!(one.failure(), None, "{protocol}, {more}: {one}");
            assert_eq!(one.steps[0].completed, 2, "{protocol}, {more}");
            assert!(one.steps[0].communicated_seconds.unwrap() > 0.0);
            let two = of(2);
            assert_eq!(without_speed(&two), without_speed(&one), "{protocol}, {more}");
            assert_eq!(two.speed.events, one.speed.events, "{protocol}, {more}");
        }
    }
}

#[test]
fn gathers_are_broadcasts_of_a_second_job_where_the_protocol_has_them_and_flows_elsewhere() {
    let layers = "[[step.layer]]\ncount = 2\nparameters = 40_000\nbackward = '100 us'";
    let of = |protocol| report(&format!("{STAR}[[step]]\nkind = 'fsdp'\nprotocol = '{protocol}'\n{layers}"));
    let [network, hosts] = [in_network(), of_hosts()].map(of);
    assert_eq!((network.steps[0].jobs.len(), network.transport), (2, None));
    assert_eq!(network.steps[0].notes, [""; 0]);
    let hosts_flows = hosts.transport.unwrap();
    // Three gathers (the last layer's parameters stay for its backward pass), each with a flow for each pair of four ranks.
    assert_eq!((hosts_flows.started, hosts_flows.finished), (3 * 4 * 3, 3 * 4 * 3));
    assert!(hosts.steps[0].notes[0].contains("all_gather goes over the host path"), "{:?}", hosts.steps[0].notes);
    assert_eq!(network.steps[0].bytes, hosts.steps[0].bytes);
}

const PIPELINE: &str = "
[[step]]
kind = 'graph'
protocol = 'PROTOCOL'
hosts = [0, 1, 2, 3]
iterations = 2
groups = { data = [[0, 1], [2, 3]], tensor = [[0, 2], [1, 3]] }
node = [
    { name = 'first stage', compute = '100 us', ranks = [0, 1] },
    { name = 'activations', collective = 'send', bytes = '20 kB', pairs = [[0, 2], [1, 3]], after = ['first stage'] },
    { name = 'second stage', compute = '50 us', ranks = [2, 3], after = ['activations'] },
    { name = 'experts', collective = 'all_to_all', bytes = '16 kB', group = 'tensor', after = ['second stage'] },
    { name = 'one', collective = 'broadcast', bytes = '8 kB', root = 1, group = 'data', after = ['first stage'] },
    { name = 'two', collective = 'reduce', bytes = '8 kB', group = 'data', after = ['one'] },
    { name = 'three', collective = 'reduce_scatter', bytes = '8 kB', group = 'data', after = ['two'] },
    { name = 'four', collective = 'all_gather', bytes = '8 kB', group = 'data', after = ['three'] },
    { name = 'five', collective = 'all_reduce', bytes = '8 kB', after = ['four', 'experts'] },
    { name = 'six', collective = 'barrier', after = ['five'] },
]";

#[test]
fn a_graph_has_every_collective_and_what_waits_begins_when_the_other_is_complete() {
    for protocol in dense() {
        let report = report(&format!("{STAR}{}", PIPELINE.replace("PROTOCOL", protocol.name)));
        let rows = |name: &str, rank: usize| {
            let row = report.span_rows.iter().find(|row| row.name == name && row.rank == rank && row.iteration == 1);
            row.map(|row| (row.start, row.end))
        };
        assert_eq!(rows("first stage", 2), None, "the first stage is on ranks 0 and 1");
        let [sent, received] = [0, 2].map(|rank| rows("activations", rank).unwrap());
        assert!(sent.0 >= rows("first stage", 0).unwrap().1);
        assert!(rows("second stage", 2).unwrap().0 >= received.1);
        let order = ["one", "two", "three", "four", "five", "six"].map(|name| rows(name, 0).unwrap());
        assert!(order.windows(2).all(|pair| pair[1].0 >= pair[0].1), "{protocol}: {order:?}");
        assert_eq!(report.steps[0].completed, 2);
    }
}

#[test]
fn ranks_that_wait_for_a_late_one_say_so() {
    let node = "groups = { }\nnode = [\n{ name = 'slow', compute = '1 ms', ranks = [2] },\n\
                { name = 'sum', collective = 'all_reduce', bytes = '4 kB', after = ['slow'] }]";
    let report =
        report(&format!("{STAR}[[step]]\nkind = 'graph'\nprotocol = '{}'\nhosts = 'all'\n{node}", in_network()));
    let step = &report.steps[0];
    assert_eq!(step.waited_for, Some(2));
    assert!((step.waited_seconds.unwrap() - 0.75e-3).abs() < 1e-9, "three of four ranks wait a millisecond: {step}");
}

#[test]
fn a_step_whose_host_dies_ends_and_says_which_steps_are_complete() {
    let layers = "timeout = '20 ms'\niterations = 50\n[[step.layer]]\nparameters = 40_000\nbackward = '100 us'";
    for protocol in dense() {
        let fault = "[[fault]]\nat = '2 ms'\ndead = 'host 1'\n";
        let config = Config::parse(&format!("{STAR}{}{fault}", ddp(protocol.name, layers))).unwrap();
        let report = run(&config).unwrap();
        let sentence = report.failure().unwrap_or_default();
        assert!(report.finished, "{protocol}: {sentence}");
        assert!(sentence.contains("step 0"), "{protocol}: {sentence}");
        assert!(report.steps[0].completed < 50);
    }
}

#[test]
fn the_timeline_has_every_computation_and_collective_of_every_rank() {
    let layers = "[[step.layer]]\ncount = 3\nparameters = 40_000\nbackward = '100 us'";
    let report = report(&format!("{STAR}{}", ddp(in_network(), &format!("first_bucket = 1\nbucket = 1\n{layers}"))));
    let folder = std::env::temp_dir().join(format!("tributary-steps-{}", std::process::id()));
    report.write_files(&folder, tributary_sim::Format::Csv).unwrap();
    let text = std::fs::read_to_string(folder.join("timeline.json")).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let trace: serde_json::Value = serde_json::from_str(&text).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let of = |phase: &str| events.iter().filter(|event| event["ph"] == phase).count();
    // Forward, three backward computations and the optimizer, and three buckets, on four ranks.
    assert_eq!(["X", "b", "e"].map(of), [4 * 5, 4 * 3, 4 * 3]);
    assert!(events.iter().filter(|event| event["ph"] != "M").all(|event| event["ts"].is_number()));
    let figure = &report.figures()[0];
    assert_eq!(figure.series.len(), 2, "what rank 0 computes, and its collectives");
    assert!(figure.series.iter().all(|line| line.points.windows(2).all(|pair| pair[0][0] <= pair[1][0])));
}

#[test]
fn impossible_steps_are_refused_with_a_sentence() {
    let graph =
        |nodes: &str| format!("{STAR}[[step]]\nkind = 'graph'\nprotocol = '{}'\nhosts = 'all'\n{nodes}", of_hosts());
    let layer = "[[step.layer]]\nparameters = 4\nbackward = 0";
    for (file, sentence) in [
        (format!("{STAR}{}", ddp(of_hosts(), "")), "step 0: it needs [[step.layer]]"),
        (format!("{STAR}{}", ddp(of_hosts(), &format!("shard = 2\n{layer}"))), "shard is for kind = \"hsdp\""),
        (format!("{STAR}{}", ddp(of_hosts(), &format!("bucket_size = 2\n{layer}"))), "unknown field `bucket_size`"),
        (graph(&format!("shard = 3\n{layer}")).replace("'graph'", "'hsdp'"), "shard = 3 does not divide"),
        (graph(""), "a graph needs [[step.node]]"),
        (graph("node = [{ name = 'a', compute = 0 }, { name = 'a', compute = 0 }]"), "two nodes are called \"a\""),
        (graph("node = [{ name = 'a', compute = 0, after = ['b'] }]"), "and no node is called that"),
        (graph("node = [{ name = 'a', compute = 0, ranks = [9] }]"), "there is no rank 9: there are 4, from 0"),
        (graph("node = [{ name = 'a', collective = 'gossip' }]"), "unknown variant `gossip`"),
        (graph("node = [{ name = 'a', collective = 'all_reduce' }]"), "all_reduce needs bytes"),
        (
            graph("node = [{ name = 'a', collective = 'all_reduce', bytes = 4, group = 'b' }]"),
            "there is no group \"b\"",
        ),
        (graph("node = [{ name = 'a', collective = 'all_to_all', bytes = 6 }]"), "6 B are not a whole number of 4 B"),
        (graph("groups = { g = [[0, 0]] }\nnode = [{ name = 'a', compute = 0 }]"), "g has rank 0 twice"),
        (
            graph("node = [{ name = 'a', compute = 0, after = ['b'] }, { name = 'b', compute = 0, after = ['a'] }]"),
            "waits for itself",
        ),
        (
            graph("node = [{ name = 'a', compute = 0, after = ['b'] }, { name = 'b', compute = 0 }]"),
            "node \"a\" waits for itself: what is computed",
        ),
    ] {
        let refused = refusal(&file);
        assert!(refused.contains(sentence), "{refused} is not {sentence}: {file}");
        assert!(!refused.contains('\n'), "{refused}");
    }
}

/// Four ranks with one collective of 4 MB over the host path, at 10 Gbit/s: the step's seconds.
fn over_the_host_path(collective: &str) -> f64 {
    let node = format!("[[step.node]]\nname = 'it'\ncollective = '{collective}'\nbytes = '4 MB'\n");
    let step = format!("[[step]]\nkind = 'graph'\nprotocol = '{}'\nhosts = 'all'\nhost_path = true\n", in_network());
    let report = report(&format!("{STAR}{step}{node}"));
    assert!(report.jobs.is_empty(), "no protocol sums: {report}");
    report.steps[0].seconds.unwrap()
}

#[test]
fn sums_over_the_host_path_take_their_rounds() {
    // A megabyte takes 0.8 ms in a round; headers, acknowledgements and each round's first packets come on top.
    for (collective, rounds) in [("all_reduce", 6.0), ("reduce_scatter", 3.0), ("all_gather", 3.0)] {
        let (seconds, least) = (over_the_host_path(collective), rounds * 0.8e-3);
        assert!((least..1.2 * least).contains(&seconds), "{collective}: {seconds} s of {least}");
    }
}

#[test]
fn packets_that_cost_processors_more_than_links_take_as_long_as_the_processors_need() {
    let layer = "[[step.layer]]\nparameters = 100_000\nforward = '1 us'\nbackward = '2 us'";
    let of = |hosts: &str, threads: u16| {
        let text = format!("{STAR}{hosts}\n{}", ddp(in_network(), layer));
        let report =
            run_on_threads(&Config::parse(&text).unwrap(), threads, &mut |_| ControlFlow::Continue(())).unwrap();
        assert_eq!(report.failure(), None, "{report}");
        report.steps[0].seconds.unwrap()
    };
    // Each host sends and receives 391 packets of 1,024 bytes and headers; what comes last costs nobody time.
    let packets = 2.0 * 391.0;
    let free = of("", 1);
    for (costs, each) in [("per_packet = '10 us'", 10e-6), ("per_byte = '10 ns'", 10e-9 * 1_024.0)] {
        let slow = of(&format!("hosts = {{ {costs} }}"), 1);
        assert!((0.99..1.3).contains(&(slow / (packets * each))), "{costs}: {slow} s instead of {free}");
        assert_eq!(slow.to_bits(), of(&format!("hosts = {{ {costs} }}"), 3).to_bits(), "{costs}");
    }
    let cheap = of("hosts = { per_packet = '10 ns' }", 1);
    assert!((cheap / free - 1.0).abs() < 0.02, "links are the limit: {cheap} s and {free}");
}

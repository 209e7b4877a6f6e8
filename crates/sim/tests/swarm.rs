//! A few hundred scenarios from seeds; tests/checkers.rs shows that the checkers find what is wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use tributary_numeric::{DType, ReduceOp};
use tributary_operators::shipped;
use tributary_proto::contract::options::{Kind, TO_THE_LETTER};
use tributary_proto::contract::tensor::Spec;
use tributary_proto::protocols;
use tributary_sim::config::{Config, OperatorSource, Routing};
use tributary_sim::swarm::{Ending, ORDERED, Scenario, run_scenario, run_seed, run_seeds, scenario};

#[test]
fn nothing_wrong_comes_out_and_everything_ends() {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut failed = Vec::new();
    run_seeds(0..300, threads, &mut |outcome| {
        let replay = format!("tributary sim swarm --seeds {}..{}", outcome.seed, outcome.seed + 1);
        if !outcome.failures.is_empty() {
            failed.push(format!("{:#?}\nreplay: {replay}", outcome.failures));
        }
        ControlFlow::Continue(())
    });
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// Torus, mesh, HyperX, dragonfly and rails, with detours and without: those of the 400 seeds after the ones above.
#[test]
fn scenarios_on_shapes_whose_switches_all_have_hosts_end() {
    let kind = |config: &Config| {
        let network = &config.network;
        let shape = match () {
            () if network.torus.is_some() => "torus",
            () if network.hyperx.is_some() => "hyperx",
            () if network.dragonfly.is_some() => "dragonfly",
            () => network.rails.as_ref().map(|_| "rails")?,
        };
        Some((shape, network.routing == Routing::Valiant))
    };
    let drawn: Vec<(u64, _)> = (300..700).filter_map(|seed| Some((seed, kind(&scenario(seed).config)?))).collect();
    let kinds: BTreeSet<_> = drawn.iter().map(|(_, kind)| kind).collect();
    assert_eq!(kinds.len(), 7, "three shapes with detours and without, and rails: {kinds:?}");
    for (seed, _) in drawn {
        assert_eq!(run_seed(seed).failures, [""; 0], "seed {seed}");
    }
}

/// PAUSE, and trees with roots at both ends of a cable: sums and results that cross it waited for each other's buffers.
#[test]
fn lossless_scenarios_with_trees_rooted_at_both_ends_of_a_cable_end() {
    for seed in [74, 1553, 2059] {
        assert_eq!(run_seed(seed).failures, [""; 0], "seed {seed}");
    }
}

/// Best-effort aggregation over queues of one gradient: queries were sent before retransmissions, and filled the queue; a
/// burst was retransmitted at once; one block at a time was queried, after longer and longer waits; and ranks that queried at
/// the same time were answered at the same time. In 3060 windows stay at one packet (`increase=0`), so no later result shows that
/// one was lost: each block waits for silences, and the job takes 233 s.
#[test]
fn scenarios_whose_queues_hold_one_gradient_end() {
    for seed in [190, 404, 1006, 1496, 3060, 4023, 4682, 7036, 8497] {
        assert_eq!(run_seed(seed).failures, [""; 0], "seed {seed}");
    }
}

/// Queries between switches carried a shard each: a burst of them filled a queue that holds one shard, and that was lost.
#[test]
fn a_sparse_scenario_whose_queues_hold_one_shard_ends() {
    assert_eq!(run_seed(7427).failures, [""; 0]);
}

/// A query waited to be sent until its collective was over, when its block was unknown.
#[test]
fn a_query_that_is_too_late_is_not_sent() {
    assert_eq!(run_seed(7525).failures, [""; 0]);
}

/// Where ports served classes, a shared buffer compared all of a port's packets with what one class may have.
#[test]
fn shared_buffers_and_classes_go_together() {
    for seed in [4629, 6109, 7775, 9400] {
        assert_eq!(run_seed(seed).failures, [""; 0], "seed {seed}");
    }
}

/// Seeds that are kept for what they once found draw their networks as they did then.
#[test]
fn seeds_of_old_faults_keep_their_networks() {
    let kept = [74, 1553, 2059, 190, 404, 1006, 1496, 3060, 4023, 4682, 7036, 8497, 7427, 7525];
    for (seed, network) in kept.map(|seed| (seed, scenario(seed).config.network)) {
        let is_new = network.torus.is_some() || network.hyperx.is_some() || network.dragonfly.is_some();
        assert!(!is_new && network.rails.is_none(), "{seed}");
    }
}

#[test]
fn a_seed_gives_the_same_trace_again() {
    for seed in [3, 14, 15] {
        assert_eq!(run_seed(seed), run_seed(seed));
    }
}

#[test]
fn a_scenario_that_does_not_end_fails() {
    let broken = "
        end = '1 s'
        [network]
        star = { hosts = 3 }
        [[job]]
        protocol = 'switchml'
        tensor = '4 kB'
        timeout = '10 s'
        [[fault]]
        links = [['host 1', 'switch 0']]
        down = true
    ";
    let scenario = Scenario { config: Config::parse(broken).unwrap(), ending: Ending::AllHeals };
    let failures = run_scenario(1, &scenario).failures;
    assert!(failures[0].contains("3 ranks or flows did not end by"), "{failures:?}");
    assert!(failures.contains(&"job 0 is not complete".to_string()), "{failures:?}");
}

/// Types, operators, sparse tensors, designs and whatever else protocols let people choose: a swarm that never drew one would not test it.
#[test]
fn every_type_operator_and_choice_of_every_protocol_is_drawn() {
    let mut drawn = BTreeSet::new();
    for job in (0..10_000).flat_map(|seed| scenario(seed).config.jobs) {
        let kind = if job.density.is_some() { "sparse" } else { "dense" };
        let mut add = |what: String| drawn.insert(format!("{}: {what}", job.protocol));
        add(format!("{kind} {}", job.dtype));
        add(format!("{kind} {}", job.op));
        if let Some(OperatorSource::Text(operator)) = &job.operator {
            add(format!("operator {operator} of {:?}", job.data));
        }
        for (name, value) in &job.options {
            add(format!("{name}={}", value.0));
        }
    }
    let mut wanted = BTreeSet::new();
    for protocol in protocols::ALL {
        let options = protocol.options.defaults();
        let sparse =
            protocol.options.of_sparse(&BTreeMap::new(), None).map(|given| protocol.options.read(&given).unwrap());
        for (dtype, op) in DType::ALL.into_iter().flat_map(|dtype| ReduceOp::ALL.map(|op| (dtype, op))) {
            let spec = Spec::allreduce(1, dtype, op);
            let dense = (protocol.check)(&spec, &options).is_ok().then_some("dense");
            let thin =
                sparse.as_ref().filter(|options| protocol.check_sparse(&spec, options).is_ok()).map(|_| "sparse");
            for kind in dense.into_iter().chain(thin) {
                wanted.extend([format!("{protocol}: {kind} {dtype}"), format!("{protocol}: {kind} {op}")]);
            }
        }
        if protocol.options.custom_ops.is_some() {
            let operators = shipped::ALL.map(|shipped| shipped.name).into_iter().chain([ORDERED]);
            wanted.extend(operators.map(|operator| format!("{protocol}: operator {operator} of Real")));
        }
        for spec in protocol.options.specs {
            if let Kind::Choice(words) = spec.kind {
                // A paper's own rule need not end where ours must.
                let ours = words.iter().filter(|&&word| word != TO_THE_LETTER);
                wanted.extend(ours.map(|word| format!("{protocol}: {}={word}", spec.name)));
            }
        }
    }
    let missing: Vec<&String> = wanted.difference(&drawn).collect();
    assert!(missing.is_empty(), "{missing:#?} of {}", wanted.len());
}

//! A few hundred worlds from seeds; tests/checkers.rs shows that the checkers find what is wrong.

use std::ops::ControlFlow;

use tributary_sim::config::Config;
use tributary_sim::swarm::{Ending, World, run_seed, run_seeds, run_world};

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

/// PAUSE, and trees with roots at both ends of a cable: sums and results that cross it waited for each other's room.
#[test]
fn lossless_worlds_with_trees_that_turn_at_both_ends_of_a_cable_end() {
    for seed in [74, 1553, 2059] {
        assert_eq!(run_seed(seed).failures, [""; 0], "seed {seed}");
    }
}

/// Best-effort aggregation over queues of one gradient: questions came before what was sent again, and took its room; a
/// burst was sent again at once; one block at a time was asked about, after longer and longer waits; and ranks that asked at one
/// moment were answered at one moment.
#[test]
fn worlds_whose_queues_have_room_for_one_gradient_end() {
    for seed in [190, 404, 1006, 1496, 4023, 4682, 7036, 8497] {
        assert_eq!(run_seed(seed).failures, [""; 0], "seed {seed}");
    }
}

#[test]
fn a_seed_gives_the_same_trace_again() {
    for seed in [3, 14, 15] {
        assert_eq!(run_seed(seed), run_seed(seed));
    }
}

#[test]
fn a_world_that_does_not_come_to_an_end_fails() {
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
    let world = World { config: Config::parse(broken).unwrap(), ending: Ending::AllHeals };
    let failures = run_world(1, &world).failures;
    assert!(failures[0].contains("3 ranks or flows did not end by"), "{failures:?}");
    assert!(failures.contains(&"job 0 is not complete".to_string()), "{failures:?}");
}

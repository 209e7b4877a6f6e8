//! Every protocol in scenarios that take a second or two: nothing wrong in any state, and an end from each.

use std::ops::ControlFlow;

use tributary_explore::{Bounds, Exploration, explore, replay};
use tributary_numeric::DType;
use tributary_proto::contract::options::Kind;
use tributary_proto::contract::protocol::{Placement, Protocol};
use tributary_proto::protocols;

/// Of larger scenarios this many states are visited, the nearest ones.
const NEAREST: u64 = 20_000;

/// Explores a scenario, and panics with the run that must not be.
fn nothing_is_wrong(bounds: &Bounds) -> Exploration {
    let exploration = explore(bounds, &mut |_| ControlFlow::Continue(())).expect("there is such a scenario");
    let protocol = bounds.protocol;
    if let Some(counterexample) = &exploration.counterexample {
        let run = replay(bounds, &counterexample.steps);
        let lines = run.map_or_else(|error| error.to_string(), |run| run.lines.join("\n"));
        panic!("{protocol}: {:?}\n{lines}\n{bounds:?}", counterexample.found);
    }
    let found = &exploration.progress;
    let all = if exploration.is_complete { "all" } else { "the nearest" };
    println!("{protocol}: {all} {} states, {} steps, {} deep", found.states, found.steps, found.depth);
    exploration
}

/// Each protocol's scenario of two ranks, as a test changes it.
fn scenarios(change: impl Fn(&mut Bounds)) -> impl Iterator<Item = Bounds> {
    protocols::ALL.iter().map(move |protocol| {
        let mut bounds = Bounds::small(protocol);
        bounds.most_states = NEAREST;
        change(&mut bounds);
        if bounds.check().is_err() {
            // Each server has a slot.
            bounds.slots = bounds.ranks;
        }
        bounds
    })
}

#[test]
fn after_a_loss_and_an_early_timer_anywhere_every_rank_has_the_sum_of_a_block() {
    let all = 1 << 20;
    for bounds in scenarios(|bounds| (bounds.slots, bounds.blocks, bounds.most_states) = (1, 1, all)) {
        let exploration = nothing_is_wrong(&bounds);
        assert!(exploration.is_complete, "{}: {:?}", bounds.protocol, exploration.progress);
        assert!(exploration.progress.states > 100 && exploration.progress.ends > 0, "{:?}", exploration.progress);
    }
}

#[test]
fn blocks_that_follow_each_other_in_a_slot_are_not_mixed_up_by_a_late_copy() {
    let late = |bounds: &mut Bounds| {
        (bounds.slots, bounds.blocks) = (1, 3);
        (bounds.losses, bounds.duplicates, bounds.timeouts) = (0, 1, 1);
    };
    scenarios(late).for_each(|bounds| drop(nothing_is_wrong(&bounds)));
}

#[test]
fn slots_go_their_own_ways_and_a_loss_in_one_is_mended_there() {
    let lost = |bounds: &mut Bounds| (bounds.blocks, bounds.losses, bounds.timeouts) = (3, 1, 0);
    scenarios(lost).for_each(|bounds| drop(nothing_is_wrong(&bounds)));
}

#[test]
fn three_ranks_sum_over_switches_in_levels_or_among_themselves() {
    let racks = |bounds: &mut Bounds| {
        (bounds.ranks, bounds.slots, bounds.blocks) = (3, 1, 1);
        (bounds.spines, bounds.losses, bounds.timeouts) = (1, 1, 0);
        bounds.leaves = if bounds.protocol.placement == Placement::Hosts { 0 } else { 2 };
    };
    scenarios(racks).for_each(|bounds| drop(nothing_is_wrong(&bounds)));
}

/// The protocol's scenario of this many ranks whose results need not wait for one of them, if it has such jobs.
fn partial(protocol: &'static Protocol, ranks: u16) -> Option<Bounds> {
    let words = protocol.options.specs.iter().filter_map(|spec| match spec.kind {
        Kind::Choice(words) => Some(words.iter().map(|word| [(spec.name.to_owned(), (*word).to_owned())].into())),
        _ => None,
    });
    // A word may need another option's word beside it.
    let options = words.flatten().filter_map(|given| protocol.options.read(&given).ok());
    let options = options.into_iter().find(|options| protocol.options.quorum(options, ranks) == Some(ranks - 1))?;
    Some(Bounds { options, ranks, dtype: DType::F32, ..Bounds::small(protocol) })
}

#[test]
fn results_that_lack_ranks_are_the_same_on_all_whatever_is_lost_and_whoever_is_late() {
    let mut explored = 0;
    for bounds in protocols::ALL.iter().filter_map(|protocol| partial(protocol, 2)) {
        for (losses, duplicates, timeouts) in [(1, 0, 1), (2, 0, 0), (0, 1, 1)] {
            let most_states = 2 * NEAREST;
            let bounds = Bounds { blocks: 1, losses, duplicates, timeouts, most_states, ..bounds.clone() };
            let exploration = nothing_is_wrong(&bounds);
            assert!(exploration.progress.ends > 0, "no run of {bounds:?} came to its end");
            explored += 1;
        }
    }
    assert!(explored > 0, "no protocol has results that may lack ranks");
}

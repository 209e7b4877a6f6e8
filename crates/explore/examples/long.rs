//! Longer scenarios of every protocol, one after the other: `make explore`. The scenarios that have more states than
//! [`MOST_STATES`] are explored as far as that, and said to be.

use std::ops::ControlFlow;
use std::process::ExitCode;
use std::time::Instant;

use tributary_explore::{Bounds, explore, replay};
use tributary_proto::contract::protocol::Placement;
use tributary_proto::protocols;

/// A million take some 0.2 GB.
const MOST_STATES: u64 = 3_000_000;

/// Ranks, slots, blocks; losses, duplicates, early timers; leaves, spines.
type Scenario = ([u16; 3], [u8; 3], [u16; 2]);

const SCENARIOS: [Scenario; 5] = [
    ([2, 2, 3], [1, 1, 1], [0, 1]),
    ([2, 2, 4], [2, 0, 0], [0, 1]),
    ([2, 2, 3], [0, 2, 0], [0, 1]),
    ([3, 3, 3], [1, 0, 0], [0, 1]),
    ([3, 1, 1], [1, 1, 0], [2, 2]),
];

fn bounds(protocol: &'static tributary_proto::contract::protocol::Protocol, scenario: &Scenario) -> Bounds {
    let ([ranks, slots, blocks], [losses, duplicates, timeouts], [leaves, spines]) = *scenario;
    let counts =
        Bounds { ranks, slots, blocks: blocks.into(), losses, duplicates, timeouts, ..Bounds::small(protocol) };
    Bounds { leaves, spines, most_states: MOST_STATES, ..counts }
}

fn main() -> ExitCode {
    let mut wrong = 0;
    for protocol in protocols::ALL {
        for scenario in SCENARIOS {
            let in_racks = scenario.2[0] > 0;
            if !(in_racks && protocol.placement == Placement::Hosts) {
                wrong += u32::from(!holds(&bounds(protocol, &scenario)));
            }
        }
    }
    println!("{wrong} scenarios have a run that must not be");
    if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Explores a scenario and prints what it found; false if a run of it must not be.
fn holds(bounds: &Bounds) -> bool {
    let begun = Instant::now();
    let name = bounds.protocol.name;
    let exploration = match explore(bounds, &mut |_| ControlFlow::Continue(())) {
        Ok(exploration) => exploration,
        Err(error) => {
            println!("{name}: left out, {error}");
            return true;
        }
    };
    let (found, all) = (exploration.progress, if exploration.is_complete { "all" } else { "the nearest" });
    println!(
        "{name}: {} ranks, {} slots, {} blocks, {} lost, {} copied, {} early, {} leaves: {all} {} states, {} deep, {:.1} s",
        bounds.ranks,
        bounds.slots,
        bounds.blocks,
        bounds.losses,
        bounds.duplicates,
        bounds.timeouts,
        bounds.leaves,
        found.states,
        found.depth,
        begun.elapsed().as_secs_f64()
    );
    let Some(counterexample) = exploration.counterexample else { return true };
    println!("{name}: {:?}", counterexample.found);
    match replay(bounds, &counterexample.steps) {
        Ok(run) => run.lines.iter().for_each(|line| println!("  {line}")),
        Err(error) => println!("  {error}"),
    }
    false
}

//! The collective that ranks are in, and who is not: as a switch tells it, and the switch above.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{PATIENCE, connect_options};
use tributary_net::client;
use tributary_net::group::Group;
use tributary_net::status::operation::OperationStatus;
use tributary_net::switch_daemon::{RunningSwitch, SwitchOptions};
use tributary_numeric::ReduceOp;
use tributary_proto::contract::protocol::{Placement, Protocol};
use tributary_proto::protocols;

fn start(parent: Option<&RunningSwitch>) -> RunningSwitch {
    let any = SwitchOptions::new("127.0.0.1:0".parse().unwrap());
    RunningSwitch::start(&SwitchOptions { parent: parent.map(RunningSwitch::listen_addr), ..any }).unwrap()
}

/// Looks at the only job of a switch until it is as wanted. What all switches of the job say is printed if it does not come.
fn until(
    switch: &RunningSwitch,
    all: &[&RunningSwitch],
    what: &str,
    wanted: impl Fn(u64, Option<&OperationStatus>) -> bool,
) {
    let start = Instant::now();
    let status_of = |switch: &RunningSwitch| client::status(switch.listen_addr()).unwrap();
    loop {
        let status = status_of(switch);
        if let [job] = &status.jobs[..]
            && wanted(job.collectives, job.operation.as_ref())
        {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "{what} does not come to {}: {:#?}", switch.listen_addr(), {
            all.iter().map(|switch| (switch.listen_addr(), status_of(switch))).collect::<BTreeMap<_, _>>()
        });
        thread::sleep(Duration::from_millis(20));
    }
}

/// Three ranks, of which the last names a switch of its own where there are two: that one is late to two collectives.
fn late_twice(
    protocol: &'static Protocol,
    first: &RunningSwitch,
    second: &RunningSwitch,
    looked_at: &[(&RunningSwitch, &[u16])],
) {
    let switches = [first, first, second];
    let all: Vec<&RunningSwitch> = looked_at.iter().map(|(switch, _)| *switch).chain([first, second]).collect();
    let connect = |rank: u16| {
        let switch = switches[usize::from(rank)].listen_addr();
        Group::connect(&connect_options(switch, protocol, "late", rank, 3)).unwrap()
    };
    let groups: Vec<Group> = thread::scope(|scope| {
        let joining: Vec<_> = (0..3).map(|rank| scope.spawn(move || connect(rank))).collect();
        joining.into_iter().map(|group| group.join().unwrap()).collect()
    });
    let (punctual, late) = groups.split_at(2);
    thread::scope(|scope| {
        let sum = |group: &Group, len: usize| {
            group.allreduce_in_place(&mut vec![1.0f32; len], ReduceOp::Sum, PATIENCE).unwrap();
        };
        let both: Vec<_> = punctual.iter().map(|group| scope.spawn(move || (sum(group, 100), sum(group, 7)))).collect();
        let expect = |number: u64, elements: u32| {
            for (switch, seen) in looked_at {
                until(switch, &all, "the operation", |_, operation| {
                    operation.is_some_and(|operation| {
                        let begun = [0, 1].into_iter().filter(|rank| seen.contains(rank)).collect::<Vec<u16>>();
                        let not_begun = [2].into_iter().filter(|rank| seen.contains(rank)).collect::<Vec<u16>>();
                        (operation.number, operation.elements) == (number, elements)
                            && (&operation.begun, &operation.not_begun) == (&begun, &not_begun)
                    })
                });
            }
        };
        expect(1, 100);
        sum(&late[0], 100);
        expect(2, 7);
        sum(&late[0], 7);
        for rank in both {
            rank.join().unwrap();
        }
        for (switch, _) in looked_at {
            until(switch, &all, "the end", |collectives, operation| collectives == 2 && operation.is_none());
        }
    });
}

/// Protocols side by side, as most of the time is waiting.
fn each(protocols: impl Iterator<Item = &'static Protocol>, test: impl Fn(&'static Protocol) + Sync) {
    thread::scope(|scope| {
        protocols.for_each(|protocol| {
            drop(scope.spawn({
                let test = &test;
                move || test(protocol)
            }))
        })
    });
}

#[test]
fn a_switch_reports_which_collective_ranks_are_in_and_who_is_not() {
    each(protocols::ALL.iter().copied(), |protocol| {
        let switch = start(None);
        late_twice(protocol, &switch, &switch, &[(&switch, &[0, 1, 2])]);
    });
}

#[test]
fn the_parent_switch_knows_of_all_ranks_and_a_child_switch_of_its_own() {
    let in_levels = protocols::ALL.iter().copied().filter(|protocol| protocol.placement == Placement::Trees);
    each(in_levels, |protocol| {
        let top = start(None);
        let (left, right) = (start(Some(&top)), start(Some(&top)));
        late_twice(protocol, &left, &right, &[(&top, &[0, 1, 2]), (&left, &[0, 1])]);
    });
}

//! What the machines of every protocol are given by the real driver, turn by turn, and fresh machines in virtual time that are
//! given the same: they must make the same packets, with the same bytes, in the same order, and set the same timers.
//!
//! A record keeps the driver's batches, because a driver drains a machine's own packets after a batch and not after each packet,
//! and the times, because windows and timers follow them. Real sockets on the loopback interface.

mod replay;
mod tape;

use std::time::Duration;

use crate::support::{LocalSwitch, on_every_rank};
use tape::{HostInput, HostTape, Recording, SwitchInput, SwitchTape};
use tributary_numeric::ReduceOp;
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::protocols;

/// Nobody waits for this in a test that passes.
const PATIENCE: Duration = Duration::from_secs(60);
const WORLD_SIZE: u16 = 3;
const ELEMENTS: usize = 60_011;

/// The protocols whose jobs need no servers on hosts of their own.
fn all() -> impl Iterator<Item = &'static Protocol> {
    protocols::ALL.iter().copied().filter(|protocol| protocol.server.is_none())
}

fn integers(rank: u16) -> Vec<i32> {
    (0..ELEMENTS as i32).map(|i| i.wrapping_mul(0x0037_79b1) ^ (i32::from(rank) << 20)).collect()
}

fn floats(rank: u16) -> Vec<f32> {
    (0..ELEMENTS).map(|i| ((usize::from(rank) * 7_919 + i * 104_729) % 20_011) as f32 / 7.0 - 1_000.0).collect()
}

/// Two collectives over the real driver, with machines that record what happens to them.
fn record(protocol: &'static Protocol, lose: Option<u64>) -> (Vec<HostTape>, Vec<SwitchTape>) {
    let recording = Recording::of(protocol, lose);
    let switch = LocalSwitch::start(1);
    let adjust =
        |options: &mut tributary_net::group::ConnectOptions| crate::support::speak(options, recording.protocol());
    on_every_rank(&switch, "recorded", WORLD_SIZE, adjust, |group, rank| {
        let mut data = integers(rank);
        group.allreduce_in_place(&mut data, ReduceOp::Sum, PATIENCE).unwrap();
        let sum = |i: usize| (0..WORLD_SIZE).map(|rank| integers(rank)[i]).fold(0, i32::wrapping_add);
        assert!([0, 1, ELEMENTS / 2, ELEMENTS - 1].into_iter().all(|i| data[i] == sum(i)), "{protocol}");
        group.allreduce_in_place(&mut floats(rank), ReduceOp::Sum, PATIENCE).unwrap();
        group.close();
    });
    drop(switch);
    recording.end()
}

/// Records, plays the record again, and returns the most packets of a batch, and how often a timer was due.
fn check(protocol: &'static Protocol, lose: Option<u64>) -> (usize, usize) {
    let (hosts, switches) = record(protocol, lose);
    assert_eq!(hosts.len(), usize::from(WORLD_SIZE));
    let has_machine = protocol.switch.is_some() || protocol.shared.is_some();
    assert_eq!(switches.len(), usize::from(has_machine), "{protocol}");
    let (mut longest, mut timeouts) = (0, 0);
    for tape in &switches {
        replay::switch(protocol, tape);
        for turn in &tape.turns {
            match &turn.input {
                SwitchInput::Burst(packets) => longest = longest.max(packets.len()),
                SwitchInput::Timeout => timeouts += 1,
                SwitchInput::Added(_) | SwitchInput::Removed(_) | SwitchInput::Nothing => {}
            }
        }
    }
    for tape in &hosts {
        replay::host(protocol, tape);
        let inputs = tape.turns.iter().flat_map(|turn| &turn.inputs);
        timeouts += inputs.filter(|input| matches!(input.what, HostInput::Timeout)).count();
    }
    (longest, timeouts)
}

#[test]
fn machines_that_are_given_what_real_ones_were_given_make_the_same_packets_at_the_same_times() {
    for protocol in all() {
        let (longest, _) = check(protocol, None);
        let has_machine = protocol.switch.is_some() || protocol.shared.is_some();
        assert!(!has_machine || longest > 1, "{protocol}: no batch had two packets, so the record shows little");
    }
}

/// The driver's machines do not get one packet in 23: they ask, send again and time out.
#[test]
fn machines_from_which_packets_are_lost_do_too() {
    let mut timeouts = 0;
    for protocol in all() {
        timeouts += check(protocol, Some(23)).1;
    }
    assert!(timeouts > 0, "nothing was late");
}

/// A replay can fail: without the batch that completed a sum, a record is another record.
#[test]
fn a_record_that_lacks_a_batch_is_found_out() {
    for protocol in all() {
        let (mut hosts, _) = record(protocol, None);
        let last = hosts[0].turns.iter_mut().rev().find(|turn| !turn.outcomes.is_empty());
        for input in &mut last.expect("a rank has a result").inputs {
            input.what = HostInput::Nothing;
        }
        assert!(replay::difference(protocol, &hosts[0]).is_some(), "{protocol}");
    }
}

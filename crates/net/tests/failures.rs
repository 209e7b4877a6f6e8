//! Failures are reported, and disturb nobody else: missing ranks, silent switches, unauthorised clients.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{LocalSwitch, PATIENCE, in_flight, on_every_rank};
use tributary_net::group::{ConnectError, Group, GroupError};
use tributary_net::rendezvous::{
    Departed, Gone, JoinAnswer, JoinError, JoinRequest, Rendezvous, Standing, Watched, Watching,
};
use tributary_net::shard::Shard;
use tributary_numeric::ReduceOp;
use tributary_proto::contract::drop_reason::DropReason;
use tributary_proto::contract::host::CollectiveError;
use tributary_proto::contract::ids::{JobId, JobKey, Rank};
use tributary_proto::contract::wire::{COMMON_LEN, Common, kind};
use tributary_proto::protocols;

/// Long enough for a switch to say who is missing.
const SHORT: Duration = Duration::from_millis(700);

fn failed(result: Result<(), GroupError>) -> (String, CollectiveError) {
    match result.expect_err("the collective cannot succeed") {
        ref error @ GroupError::Failed { ref cause, .. } => (error.to_string(), cause.clone()),
        other => panic!("{other}"),
    }
}

#[test]
fn a_rank_that_stops_is_named_to_the_others_and_the_group_is_broken_after_that() {
    let switch = LocalSwitch::start(2);
    let all_failed = Barrier::new(3);
    on_every_rank(
        &switch,
        "stops",
        3,
        |_| {},
        |group, rank| {
            let mut data = vec![1i32; 50_000];
            group.allreduce_in_place(&mut data, ReduceOp::Sum, PATIENCE).unwrap();
            if rank != 2 {
                let (text, cause) = failed(group.allreduce_in_place(&mut data, ReduceOp::Sum, SHORT));
                let CollectiveError::Missing { missing, .. } = cause else { panic!("{cause}") };
                assert_eq!(missing, [Rank(2)]);
                assert!(text.contains("job \"stops\""), "{text}");
                assert!(text.ends_with(": sum of 50000 i32 elements: rank 2 did not contribute in time"), "{text}");
                assert!(text.contains(&group.info().switch), "{text}");

                let again = group.allreduce_in_place(&mut data, ReduceOp::Sum, PATIENCE);
                assert!(matches!(again, Err(GroupError::Broken { .. })), "{again:?}");
            }
            all_failed.wait();
        },
    );
}

/// Nobody waits for this in a test that passes.
const AGES: Duration = Duration::from_secs(3_600);

#[test]
fn a_rank_that_the_switch_calls_lost_or_that_left_ends_what_waits_for_it_long_before_its_timeout() {
    for (completed, expected) in [(None, "rank 2 is gone"), (Some(1), "rank 2 has left the job")] {
        for protocol in [protocols::named("switchml").unwrap(), protocols::named("ring").unwrap()] {
            let switch = LocalSwitch::start(2);
            let all_failed = Barrier::new(3);
            on_every_rank(
                &switch,
                "without",
                3,
                |options| crate::support::speak(options, protocol),
                |group, rank| {
                    let mut data = vec![1i32; 50_000];
                    group.allreduce_in_place(&mut data, ReduceOp::Sum, PATIENCE).unwrap();
                    if rank == 2 {
                        switch.announce(&[Gone { rank: 2, completed }]);
                    } else {
                        for _ in 0..2 {
                            let failed = group.allreduce_in_place(&mut data, ReduceOp::Sum, AGES).unwrap_err();
                            assert!(matches!(failed, GroupError::PeerLost { .. }), "{failed}");
                            assert!(failed.to_string().contains(expected), "{failed}");
                        }
                    }
                    all_failed.wait();
                },
            );
        }
    }
}

/// What the collective lacks can only be a result that was lost, which comes when a rank asks again; here it is rank 2's
/// contribution that comes late.
#[test]
fn a_collective_that_a_rank_had_completed_when_it_left_is_waited_for() {
    let switch = LocalSwitch::start(1);
    on_every_rank(
        &switch,
        "late",
        3,
        |_| {},
        |group, rank| {
            if rank == 2 {
                switch.announce(&[Gone { rank: 2, completed: Some(1) }]);
                // A collective that it had not completed would be given up after one second.
                thread::sleep(Duration::from_millis(2_500));
            }
            group.allreduce_in_place(&mut [1i32; 100], ReduceOp::Sum, PATIENCE).unwrap();
        },
    );
}

/// Hosts with ranks 0 to 3, 4 to 8 and 9: people know their ranks, and not the numbers of hosts.
#[test]
fn a_member_that_is_a_host_is_named_by_the_first_of_its_ranks() {
    for leaves in [false, true] {
        let switch = LocalSwitch::start(2);
        let all_failed = Barrier::new(3);
        on_every_rank(
            &switch,
            "hosts",
            3,
            |_| {},
            |group, host| {
                group.name_hosts(vec![0, 4, 9]);
                let mut data = vec![1i32; 50_000];
                group.allreduce_in_place(&mut data, ReduceOp::Sum, PATIENCE).unwrap();
                match (host, leaves) {
                    (2, true) => switch.announce(&[Gone { rank: 2, completed: None }]),
                    (2, false) => {}
                    (_, true) => {
                        let error = group.allreduce_in_place(&mut data, ReduceOp::Sum, AGES).unwrap_err();
                        assert!(matches!(&error, GroupError::PeerLost { failure, .. } if failure.ranks() == [Rank(9)]));
                        assert!(error.to_string().contains(&format!("host {host} of 3: rank 9 is gone")), "{error}");
                    }
                    (_, false) => {
                        let (text, cause) = failed(group.allreduce_in_place(&mut data, ReduceOp::Sum, SHORT));
                        assert!(matches!(cause, CollectiveError::Missing { missing, .. } if missing == [Rank(9)]));
                        let who = format!("host {host} of 3: sum of 50000 i32 elements: rank 9 did not contribute");
                        assert!(text.contains(&who), "{text}");
                    }
                }
                all_failed.wait();
            },
        );
    }
}

#[test]
fn a_rank_that_is_called_lost_and_goes_on_disturbs_nobody() {
    let switch = LocalSwitch::start(1);
    on_every_rank(
        &switch,
        "lively",
        2,
        |_| {},
        |group, rank| {
            if rank == 0 {
                switch.announce(&[Gone { rank: 1, completed: None }]);
            }
            let until = Instant::now() + Duration::from_millis(1_500);
            // Rank 0 alone looks at the clock: all stop after the same collective.
            let mut go_on = [1i32];
            while go_on[0] > 0 {
                go_on[0] = i32::from(rank == 0 && Instant::now() < until);
                group.allreduce_in_place(&mut go_on, ReduceOp::Sum, PATIENCE).unwrap();
            }
        },
    );
}

#[test]
fn a_switch_that_forgets_the_job_ends_what_waits_for_it_long_before_its_timeout() {
    let switch = LocalSwitch::start(1);
    let met = Barrier::new(2);
    on_every_rank(
        &switch,
        "forgotten",
        2,
        |_| {},
        |group, rank| {
            met.wait();
            if rank == 0 {
                switch.forget("forgotten");
            }
            met.wait();
            let failed = group.allreduce_in_place(&mut [1i32; 100], ReduceOp::Sum, AGES).unwrap_err();
            assert!(matches!(failed, GroupError::PeerLost { .. }), "{failed}");
            assert!(failed.to_string().contains("no longer knows job \"forgotten\""), "{failed}");
        },
    );
}

#[test]
fn a_switch_that_stops_or_forgets_the_job_is_named() {
    for (forgets, expected) in [(true, "no longer knows job \"gone\""), (false, "has not answered")] {
        let switch = LocalSwitch::start(1);
        let met = Barrier::new(2);
        on_every_rank(
            &switch,
            "gone",
            2,
            |_| {},
            |group, rank| {
                let mut data = [1i32; 100];
                group.allreduce_in_place(&mut data, ReduceOp::Sum, PATIENCE).unwrap();
                met.wait();
                if rank == 0 && forgets {
                    switch.forget("gone");
                } else if rank == 0 {
                    switch.shards[0].remove(JobId(1)).wait().unwrap();
                }
                met.wait();
                let (text, cause) = failed(group.allreduce_in_place(&mut data, ReduceOp::Sum, SHORT));
                assert!(matches!(cause, CollectiveError::SwitchSilent { .. }), "{cause}");
                assert!(text.contains(expected), "{text}");
            },
        );
    }
}

#[test]
fn ranks_that_disagree_on_size_fail_on_every_rank() {
    let switch = LocalSwitch::start(1);
    on_every_rank(
        &switch,
        "differ",
        3,
        |_| {},
        |group, rank| {
            let mut data = vec![0i32; 1000 + usize::from(rank == 1)];
            let (text, cause) = failed(group.allreduce_in_place(&mut data, ReduceOp::Sum, PATIENCE));
            assert!(matches!(cause, CollectiveError::Mismatch { .. }), "{cause}");
            assert!(text.contains("sum of 1001 i32 elements") && text.contains("sum of 1000 i32 elements"), "{text}");
        },
    );
}

#[test]
fn closing_a_group_ends_what_is_under_way_and_a_wait_that_is_too_short_says_so() {
    let switch = LocalSwitch::start(1);
    let closed = Barrier::new(2);
    on_every_rank(
        &switch,
        "close",
        2,
        |_| {},
        |group, rank| {
            if rank == 0 {
                let mut data = vec![1i32; 5000];
                let pending = in_flight::begin_in_place(&group, &mut data);
                let early = pending.wait(Some(Duration::from_millis(1)));
                assert!(matches!(early, Err(GroupError::StillRunning { .. })), "{early:?}");
                assert!(!pending.is_done());
                group.close();
                assert!(pending.is_done());
                assert_eq!(failed(pending.wait(None)).1, CollectiveError::Aborted);
            }
            closed.wait();
        },
    );
}

/// What is thrown at the switch, each this many times.
const COPIES: u64 = 300;
/// The kernel may drop a packet before the switch's socket, and then nobody counts it: it is thrown again after this.
const LOST_AFTER: Duration = Duration::from_secs(5);

#[test]
fn rejected_packets_are_counted_by_reason_and_change_no_result() {
    let switch = LocalSwitch::start(1);
    let started = Barrier::new(3);
    thread::scope(|scope| {
        scope.spawn(|| {
            started.wait();
            throw_garbage(&switch);
        });
        on_every_rank(
            &switch,
            "busy",
            2,
            |_| {},
            |group, rank| {
                started.wait();
                for _ in 0..50 {
                    let mut data = vec![i32::from(rank) + 1; 100_000];
                    group.allreduce_in_place(&mut data, ReduceOp::Sum, PATIENCE).unwrap();
                    assert!(data.iter().all(|&sum| sum == 3));
                }
            },
        );
    });
    let report = switch.shards[0].report().wait().unwrap();
    let job = &report.jobs[0].report;
    for reason in [DropReason::Truncated, DropReason::BadMagic, DropReason::BadVersion, DropReason::UnknownJob] {
        assert_eq!(report.rejected_packets.get(reason), COPIES, "{}", reason.name());
    }
    assert_eq!(job.drops.get(DropReason::WrongKey), COPIES);
    assert_eq!(job.drops.get(DropReason::NotAMember), COPIES);
}

/// One packet of each kind that an unauthorised client may send, again and again, each after the one before was counted;
/// the key is the one that the test's rendezvous gives to job 1.
fn throw_garbage(switch: &LocalSwitch) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let header = |job, key| {
        let mut bytes = vec![0; COMMON_LEN + 64];
        let common =
            Common { protocol: protocols::named("switchml").unwrap().code, kind: kind::FIRST_OF_PROTOCOL, job, key };
        common.emit(&mut bytes);
        bytes
    };
    let (ours, key) = (JobId(1), JobKey(0x5eed ^ 1));
    let mut old = header(ours, key);
    old[2] = 99;
    let kinds = [
        (DropReason::Truncated, vec![0x54; 5]),
        (DropReason::BadMagic, (0..200u8).collect()),
        (DropReason::BadVersion, old),
        (DropReason::UnknownJob, header(JobId(77), key)),
        (DropReason::WrongKey, header(ours, JobKey(1))),
        (DropReason::NotAMember, header(ours, key)),
    ];
    let shard = &switch.shards[0];
    let is_counted = |reason, copies| {
        let report = shard.report().wait().unwrap();
        report.rejected_packets.get(reason) + report.jobs[0].report.drops.get(reason) >= copies
    };
    for copies in 1..=COPIES {
        for (reason, bytes) in &kinds {
            let mut thrown: Option<Instant> = None;
            while !is_counted(*reason, copies) {
                if thrown.is_none_or(|at| at.elapsed() > LOST_AFTER) {
                    assert_eq!(socket.send_to(bytes, shard.udp_addr()).unwrap(), bytes.len());
                    thrown = Some(Instant::now());
                }
            }
        }
    }
}

/// Gives a wrong key to those who join through it.
struct WrongKey(Arc<LocalSwitch>);

impl Rendezvous for WrongKey {
    fn join(&self, request: &JoinRequest) -> Result<JoinAnswer, JoinError> {
        self.0.join(request).map(|answer| JoinAnswer { key: JobKey(13), ..answer })
    }
    fn leave(&self, _job: JobId, _key: JobKey, _rank: u16, _completed: Option<u64>) {}
    fn standing(&self, _job: JobId, _key: JobKey) -> Standing {
        Standing::Unknown
    }
    fn watch<'a>(&'a self, _job: JobId, _key: JobKey, _rank: u16, _known: &'a Departed) -> Watching<'a> {
        Box::pin(std::future::ready(Watched::Unwatched))
    }
}

#[test]
fn a_worker_with_a_wrong_key_reports_that_its_packets_are_not_answered() {
    let switch = LocalSwitch::start(1);
    let result = Group::connect_through(&switch.options("key", 0, 1), Arc::new(WrongKey(Arc::clone(&switch))));
    let Err(error @ ConnectError::UdpSilent { .. }) = result else { panic!("connected") };
    assert!(error.to_string().contains("job \"key\""), "{error}");
    let job = &switch.shards[0].report().wait().unwrap().jobs[0].report;
    assert!(job.drops.get(DropReason::WrongKey) > 0);
    assert_eq!(job.last_seen, [None]);
}

#[test]
fn options_that_cannot_be_are_refused_before_anything_is_sent() {
    let switch = LocalSwitch::start(1);
    let attempt = |rank, world_size| {
        let options = switch.options("wrong", rank, world_size);
        let rendezvous: Arc<dyn Rendezvous> = switch.clone();
        Group::connect_through(&options, rendezvous).err().expect("refused").to_string()
    };
    assert_eq!(attempt(4, 4), "rank 4 is outside a world size of 4; ranks go from 0 to 3");
    assert_eq!(attempt(0, 0), "a world size of 0 is not possible; it is 1 to 16384");
}

//! Several applications at one switch (§3.4): what they share, what each is charged, and what is left of them.

use tributary_proto::canary::wire::Kind;
use tributary_proto::contract::drop_reason::DropReason;
use tributary_proto::contract::ids::{JobId, PortId};
use tributary_proto::contract::metric::named;
use tributary_proto::contract::packet::{Ecn, PacketMut};
use tributary_proto::contract::switch::{NoQueues, SharedSwitch, Verdict};
use tributary_proto::contract::time::Time;
use tributary_proto::contract::values::Values;

use crate::setup::{TIMEOUT, plan, switch_config, switch_with};
use crate::switch::{Bench, bench, contribution, packet, values};

#[test]
fn applications_share_the_array_and_take_everything_with_them() {
    let mut bench = bench();
    for job in [1, 2] {
        for id in 0..10 {
            bench.process(0, packet(job, Kind::Reduce, &contribution(id), &[job.into(), 0]));
        }
    }
    let in_use = |bench: &Bench, job| bench.pipeline.report(JobId(job)).unwrap().machine.unwrap().slots;
    assert_eq!((bench.in_use(), in_use(&bench, 1), in_use(&bench, 2)), (20, 10, 10));
    assert!(bench.pipeline.remove(JobId(1)));
    assert_eq!((bench.in_use(), in_use(&bench, 2)), (10, 10));
    let sent = bench.pass(TIMEOUT);
    assert!(sent.len() == 10 && sent.iter().all(|(_, bytes)| values(bytes) == [2, 0]));
    let verdict = bench.reduce(0, &contribution(3), &[1, 0]).0;
    assert_eq!(verdict, Verdict::Drop(DropReason::UnknownJob));
    assert!(bench.pipeline.remove(JobId(2)));
    assert_eq!((bench.in_use(), bench.pipeline.poll_timeout()), (0, None));
}

#[test]
fn in_partitions_of_their_own_applications_never_collide() {
    let config = switch_with(&[("descriptors", "12"), ("partitions", "3")]);
    let mut bench = Bench::new(config);
    for job in 1..=3 {
        for id in 100..104 {
            bench.process(0, packet(job, Kind::Reduce, &contribution(id), &[1, 1]));
        }
    }
    assert_eq!((bench.in_use(), bench.count("collisions")), (12, 0));
}

#[test]
fn a_window_of_one_application_never_collides_with_itself() {
    let mut bench = Bench::new(switch_with(&[("descriptors", "64")]));
    (1000..1064).for_each(|id| drop(bench.reduce(0, &contribution(id), &[1, 1])));
    assert_eq!(bench.in_use(), 64);
    assert_eq!(bench.count("collisions"), 0);
}

#[test]
fn packets_of_a_job_that_was_not_added_or_is_over_take_no_descriptor_by_themselves() {
    let shared = tributary_proto::canary::PROTOCOL.shared.as_ref().expect("Canary's jobs share");
    let mut machine = (shared.machine)(Values::Elements, &switch_config());
    let send = |machine: &mut dyn SharedSwitch| {
        let mut bytes = packet(1, Kind::Reduce, &contribution(7), &[1, 2]);
        machine.process(Time::ZERO, PortId(0), &mut PacketMut::new(&mut bytes, Ecn::NotCapable), &NoQueues)
    };
    assert_eq!(send(&mut *machine), Verdict::Drop(DropReason::UnknownJob));
    machine.add_job(&plan(JobId(1)));
    assert_eq!(send(&mut *machine), Verdict::Consume);
    assert_eq!(machine.report_job(JobId(1)).slots, 1);
    machine.remove_job(JobId(1));
    assert_eq!(send(&mut *machine), Verdict::Drop(DropReason::UnknownJob));
    assert_eq!(machine.report_shared().slots_in_use, 0);
}

#[test]
fn what_befalls_each_job_is_counted_separately_and_together() {
    let mut bench = Bench::new(switch_with(&[("descriptors", "1")]));
    bench.process(0, packet(1, Kind::Reduce, &contribution(7), &[1, 2]));
    bench.process(0, packet(2, Kind::Reduce, &contribution(7), &[1, 2]));
    bench.process(0, packet(2, Kind::Reduce, &contribution(8), &[1, 2]));
    let of = |job| bench.pipeline.report(JobId(job)).unwrap().machine.unwrap().metrics;
    assert_eq!([1, 2].map(|job| named(&of(job), "collisions")), [Some(0.0), Some(2.0)]);
    assert_eq!(bench.count("collisions"), 2);
}

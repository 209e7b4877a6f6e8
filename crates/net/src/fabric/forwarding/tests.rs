//! What leaves a switch of a fabric in one run, and what it keeps of jobs that are gone.

use tributary_proto::contract::ids::JobKey;
use tributary_proto::contract::switch::SharedReport;
use tributary_proto::protocols;

use super::super::testing::{self, LEAF};
use super::*;
use crate::os::Clock;
use crate::shard::testing::{received, socket, transmit_all};

const JOBS: [JobId; 2] = [JobId(1), JobId(2)];
const LEN: usize = 1_000;

/// A leaf whose ports have no rate, the sockets of a member of each job on each of its hosts, and the leaf's own
/// socket.
fn leaf() -> (Site<FabricForwarding>, Vec<UdpPort>, UdpPort) {
    let udp = socket();
    let mut site = FabricForwarding::site(testing::leaf_spine(""), LEAF, &udp, watch::channel(Broken::new()).0);
    let members: Vec<UdpPort> = (0..4).map(|_| socket()).collect();
    for (job, members) in JOBS.into_iter().zip(members.chunks(2)) {
        let addrs: Vec<_> = (0..).map(NodeId).zip(members.iter().map(|member| member.local_addr())).collect();
        let header = Common { protocol: 1, kind: 0, job, key: JobKey(7) };
        site.forwarding.crossbar.add_job(header, &addrs, &udp);
    }
    (site, members, udp)
}

#[test]
fn what_a_machine_makes_for_two_hosts_leaves_in_one_run_for_each() {
    let (mut site, mut members, mut udp) = leaf();
    let verdicts = (0..40).map(|number| Verdict::Port(PortId(number % 2))).collect();
    assert_eq!(transmit_all(&mut site, &mut udp, &[(JOBS[0], LEN, verdicts)]), (40, 2));
    assert!(received(&mut members[0]).into_iter().eq((0..40).step_by(2)));
    assert!(received(&mut members[1]).into_iter().eq((1..40).step_by(2)));
}

#[test]
fn what_two_jobs_make_for_their_members_on_one_host_leaves_in_one_run_for_each() {
    let (mut site, mut members, mut udp) = leaf();
    let verdicts = || vec![Verdict::Port(PortId(1)); 20];
    assert_eq!(transmit_all(&mut site, &mut udp, &JOBS.map(|job| (job, LEN, verdicts()))), (40, 2));
    assert!([1, 3].into_iter().all(|member: usize| received(&mut members[member]).into_iter().eq(0..20)));
}

#[test]
fn an_idle_machine_is_removed_unless_the_controller_keeps_it() {
    let (mut site, _members, udp) = leaf();
    let mut core = Core { clock: Clock::start(), udp, pipeline: Pipeline::default() };
    let all: Vec<&Protocol> = protocols::ALL.iter().copied().filter(|protocol| protocol.shared.is_some()).collect();
    for (id, protocol) in (1..).zip(&all) {
        site.install(testing::job(&testing::leaf_spine(""), protocol, id, &[0, 1], 0), &mut core).unwrap();
        assert!(site.forwarding.idle(&all[1..], &core.pipeline).is_empty(), "a job uses each of them");
    }
    assert!((1..).zip(&all).all(|(id, _)| site.remove(JobId(id), &mut core)));
    let before = site.report(&core).shared;
    let idle = site.forwarding.idle(&all[1..], &core.pipeline);
    assert_eq!(idle, [all[0].code]);
    assert!(site.unshare(all[0].code, &mut core));
    assert!(core.pipeline.all_shared().map(|(code, ..)| code).eq(all[1..].iter().map(|protocol| protocol.code)));
    // Its counters are reported as before.
    let names = |report: &[(u8, SharedReport, usize)]| {
        report.iter().map(|(code, own, _)| (*code, own.metrics.iter().map(|own| own.name).collect())).collect()
    };
    let (before, after): (Vec<(u8, Vec<&str>)>, _) = (names(&before), names(&site.report(&core).shared));
    assert_eq!(before, after);
}

//! Jobs with parameter servers: the same sums, made by hosts.

use tributary_numeric::{DType, ReduceOp};
use tributary_proto::config::TimerConfig;
use tributary_proto::ids::NodeId;
use tributary_proto::registry::Protocol;
use tributary_proto::tensor::Spec;
use tributary_proto::time::{Span, Time};
use tributary_sim::driver::{InstallError, JobPlan, Settings, Simulation};
use tributary_sim::faults::{LinkTrouble, TroubleSpec};
use tributary_sim::net::{LinkId, LinkSpec, Rate};
use tributary_sim::topology::star;

const WORKERS: u32 = 4;

fn plan(dtype: DType, iterations: u32) -> JobPlan {
    JobPlan {
        name: "job".into(),
        protocol: Protocol::SwitchMl,
        members: (0..WORKERS).map(NodeId).collect(),
        spec: Spec::allreduce(100_000, dtype, ReduceOp::Sum),
        iterations,
        start: Time::ZERO,
        compute: Span::ZERO,
        elements_per_packet: 256,
        slots: 128,
        roots: vec![0],
        timers: TimerConfig::default(),
        timeout: None,
    }
}

fn network(hosts: u32) -> Simulation {
    let link =
        LinkSpec { rate: Rate(100_000_000_000), delay: Span::from_micros(1), queue_bytes: 16 << 20, mark_bytes: None };
    Simulation::new(star(hosts, link, Span::ZERO), Settings::default())
}

/// Runs a job with so many dedicated servers, colocated ones if none; gives its seconds.
fn run(dedicated: u32, plan: JobPlan, trouble: TroubleSpec) -> f64 {
    let mut sim = network(WORKERS + dedicated);
    for link in 0..2 * (WORKERS + dedicated) {
        sim.fabric.set_trouble(LinkId(link), Some(LinkTrouble::new(trouble, 7, link)));
    }
    let servers: Vec<NodeId> = (WORKERS..WORKERS + dedicated).map(NodeId).collect();
    let job = sim.install_served(plan, &servers).unwrap();
    assert!(sim.run_until_finished(Time(10_000_000_000_000)), "the job ends");
    let job = sim.traffic.jobs.get(job);
    assert_eq!(job.complaints, []);
    assert!(job.is_complete());
    job.iterations.last().unwrap().end.unwrap().as_secs_f64()
}

#[test]
fn every_contribution_is_summed_once_wherever_the_servers_are() {
    for dedicated in [0, 1, 2, 4] {
        for dtype in [DType::I32, DType::F32] {
            run(dedicated, plan(dtype, 3), TroubleSpec::default());
        }
    }
}

#[test]
fn losses_duplicates_and_overtaking_change_no_sum() {
    let trouble = TroubleSpec {
        loss: 0.02,
        duplication: 0.02,
        reordering: 0.02,
        longest_delay: Span::from_micros(100),
        ..TroubleSpec::default()
    };
    for dedicated in [0, 4] {
        run(dedicated, plan(DType::F32, 2), trouble);
    }
}

#[test]
fn colocated_servers_take_their_part_of_the_workers_links() {
    let long = || JobPlan { spec: Spec { elements: 2_000_000, ..plan(DType::I32, 1).spec }, ..plan(DType::I32, 1) };
    let ratio = run(4, long(), TroubleSpec::default()) / run(0, long(), TroubleSpec::default());
    // n / (2 (n - 1)): each worker sends to three servers and, as a server, to three workers.
    let expected = 4.0 / 6.0;
    assert!((ratio / expected - 1.0).abs() < 0.1, "{ratio} and not {expected}");
}

#[test]
fn slots_that_do_not_divide_among_the_servers_are_refused() {
    let plan = JobPlan { slots: 126, ..plan(DType::I32, 1) };
    let error = network(WORKERS).install_served(plan, &[]).unwrap_err();
    assert_eq!(error, InstallError::Slots { name: "job".into(), slots: 126, trees: 4 });
}

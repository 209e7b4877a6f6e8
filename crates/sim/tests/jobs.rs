//! Protocols' machines on simulated networks.

use tributary_proto::contract::config::TimerConfig;
use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::contract::tensor::Spec;
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::protocols;
use tributary_sim::Balancing;
use tributary_sim::config::Config;
use tributary_sim::engine::{JobPlan, Settings, Simulation};
use tributary_sim::experiment::build;
use tributary_sim::topology::{Clos, Graph, LinkSpec, Rate, dumbbell, leaf_spine, star};

use tributary_numeric::{DType, ReduceOp};

const END: Time = Time(u64::MAX);

fn spec(gbit: u64) -> LinkSpec {
    LinkSpec { rate: Rate(gbit * 1_000_000_000), delay: Span::from_micros(1), queue_bytes: 16 << 20, mark_bytes: None }
}

fn plan(protocol: &'static Protocol, members: impl Iterator<Item = u32>, elements: u32) -> JobPlan {
    JobPlan {
        sparse: None,
        custom_op: None,
        magnitudes: tributary_sim::engine::Magnitudes::Random,
        name: "job".into(),
        protocol,
        options: protocol.options.defaults(),
        members: members.map(NodeId).collect(),
        spec: Spec::allreduce(elements, DType::I32, ReduceOp::Sum),
        operations: Default::default(),
        iterations: 1,
        start: Time::ZERO,
        compute: Span::ZERO,
        elements_per_packet: 256,
        slots: 512,
        roots: vec![0],
        timers: TimerConfig::default(),
        timeout: None,
    }
}

fn run(graph: Graph, plan: JobPlan) -> Simulation {
    let settings = Settings { balancing: [Balancing::Ecmp; 2], ..Settings::default() };
    let mut sim = Simulation::new(graph, settings);
    let job = sim.install(plan).unwrap();
    assert!(!sim.run(END), "nothing is left to happen");
    let job = sim.traffic.jobs.get(job);
    assert_eq!(job.errors, []);
    assert!(job.is_complete());
    assert_eq!(sim.fabric.payloads.in_use(), 0, "no payload is left behind");
    sim
}

fn seconds(sim: &Simulation) -> f64 {
    sim.traffic.jobs.all()[0].iterations[0].end.unwrap().as_secs_f64()
}

#[test]
fn one_switch_takes_the_tensor_at_line_rate_plus_one_round_trip() {
    let elements = 1 << 20;
    let sim = run(star(8, spec(100), Span::ZERO), plan(protocols::named("switchml").unwrap(), 0..8, elements));
    // 4,096 packets of 32 + 1,024 + 66 bytes, one more behind the switch, and two microseconds each way.
    let packet = 1122.0 * 8.0 / 100e9;
    let expected = 4096.0 * packet + packet + 2e-6;
    assert!((seconds(&sim) / expected - 1.0).abs() < 0.01, "{} and not {expected}", seconds(&sim));
}

#[test]
fn trees_of_any_depth_and_number_sum_every_contribution_once() {
    let two = leaf_spine(4, 4, 4, spec(100), spec(100), Span::from_nanos(300));
    for roots in [vec![4], vec![4, 5], vec![4, 5, 6, 7]] {
        run(two.clone(), JobPlan { roots, ..plan(protocols::named("switchml").unwrap(), 0..16, 100_000) });
    }
    let three = Clos::fat_tree(4).graph(spec(10), spec(10), spec(10), Span::from_nanos(300));
    for roots in [vec![16], vec![16, 17, 18, 19], vec![8, 0]] {
        run(
            three.clone(),
            JobPlan { roots, ..plan(protocols::named("switchml").unwrap(), [1, 2, 7, 9, 12, 15].into_iter(), 100_000) },
        );
    }
}

/// On each side of a dumbbell the other switch stands between the hosts, by its lowest rank: in one tree at the left switch, in
/// the other one at the right.
#[test]
fn a_rank_may_have_another_number_in_each_tree() {
    let graph = dumbbell(3, 3, spec(100), spec(100), Span::ZERO);
    let plan = plan(protocols::named("switchml").unwrap(), [0, 3, 1, 4, 2, 5].into_iter(), 100_000);
    let plan = JobPlan { roots: vec![0, 1], ..plan };
    run(graph, plan);
}

#[test]
fn least_loaded_trees_of_two_jobs_have_no_cable_in_common() {
    let file = "
        network = { leaf_spine = { leaves = 2, spines = 4, hosts_per_leaf = 4 } }
        [[job]]
        protocol = 'switchml'
        hosts = [0, 1, 4, 5]
        tensor = '1 MB'
        trees = 2
        root_choice = 'least_loaded'
        [[job]]
        protocol = 'switchml'
        hosts = [2, 3, 6, 7]
        tensor = '1 MB'
        trees = 2
        root_choice = 'least_loaded'";
    for seed in 1..6 {
        let config = Config::parse(&format!("seed = {seed}\n{file}")).unwrap();
        let mut sim = build(&config).unwrap();
        assert!(!sim.run(END));
        let mut roots: Vec<u32> = sim.traffic.jobs.all().iter().flat_map(|job| job.plan.roots.clone()).collect();
        roots.sort_unstable();
        assert_eq!(roots, [2, 3, 4, 5], "each spine is the root of one tree");
        assert!(sim.traffic.jobs.all().iter().all(|job| job.is_complete() && job.errors.is_empty()));
    }
}

#[test]
fn iterations_follow_each_other_with_time_to_compute_between() {
    let compute = Span::from_micros(100);
    let plan = JobPlan { iterations: 5, compute, ..plan(protocols::named("switchml").unwrap(), 0..4, 10_000) };
    let sim = run(star(4, spec(100), Span::ZERO), plan);
    let iterations = &sim.traffic.jobs.all()[0].iterations;
    for pair in iterations.windows(2) {
        assert_eq!(pair[1].start.unwrap(), pair[0].end.unwrap() + compute);
    }
}

#[test]
fn several_jobs_share_hosts_and_switches() {
    let graph = leaf_spine(2, 2, 4, spec(100), spec(100), Span::ZERO);
    let mut sim = Simulation::new(graph, Settings::default());
    for job in 0..3 {
        let plan = plan(protocols::named("switchml").unwrap(), 0..8, 50_000);
        sim.install(JobPlan { name: format!("job {job}"), roots: vec![2 + job % 2], ..plan }).unwrap();
    }
    assert!(!sim.run(END));
    assert!(sim.traffic.jobs.all().iter().all(|job| job.is_complete() && job.errors.is_empty()));
}

/// Eight packets of a burst meet a queue for one. Probes that always began with the same slot kept all others out.
#[test]
fn a_pool_far_too_large_for_the_queues_on_the_way_still_ends() {
    let file = "
        end = '30 s'
        network = { clos = { ports = 4 }, rate = '100 Gbit/s', delay = '10 us', queue = '9 kB', routing = 'least_queued', \
        core = { rate = '1 Gbit/s' } }
        job = [{ protocol = 'switchml', hosts = [9, 6, 12, 7, 8, 11, 3, 10, 2, 14], tensor = '781.25 KiB', type = 'i32', \
        elements_per_packet = 2048, slots = 156, trees = 4, timeout = '30 s' }]
        fault = [{ until = '16 ms', links = 'all', loss = '3 %' }]";
    for seed in 1..4 {
        let config = Config { seed, ..Config::parse(file).unwrap() };
        let report = tributary_sim::run(&config).unwrap();
        assert_eq!(report.failure(), None, "seed {seed}");
    }
}

/// More ranks than have two counters of infinities: floats are summed all the same, by every protocol that needs no
/// servers.
#[test]
fn a_thousand_and_twenty_four_ranks_sum_floats() {
    for protocol in tributary_proto::protocols::ALL.iter().filter(|protocol| protocol.server.is_none()) {
        let file = format!(
            "network = {{ leaf_spine = {{ leaves = 32, spines = 2, hosts_per_leaf = 32 }}, rate = '100 Gbit/s' }}
            job = [{{ protocol = '{}', hosts = 'all', tensor = '1 KiB', type = 'f32', elements_per_packet = 64, slots = 8 }}]",
            protocol.name
        );
        let report = tributary_sim::run(&Config::parse(&file).unwrap()).unwrap();
        assert_eq!(report.failure(), None, "{}", protocol.name);
        assert_eq!(report.jobs[0].ranks, 1024);
    }
}

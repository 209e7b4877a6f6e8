//! Jobs with parameter servers: the same sums, made by hosts.

use tributary_numeric::{DType, ReduceOp};
use tributary_proto::contract::config::TimerConfig;
use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::tensor::Spec;
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::protocols;
use tributary_sim::config::Config;
use tributary_sim::engine::{InstallError, JobPlan, Settings, Simulation};
use tributary_sim::net::{ImpairmentSpec, LinkImpairment};
use tributary_sim::report::Report;
use tributary_sim::topology::star;
use tributary_sim::topology::{LinkId, LinkSpec, Rate};

const WORKERS: u32 = 4;

fn plan(dtype: DType, iterations: u32) -> JobPlan {
    JobPlan {
        name: "job".into(),
        sparse: None,
        custom_op: None,
        magnitudes: tributary_sim::engine::Magnitudes::Random,
        protocol: protocols::named("ps").unwrap(),
        options: protocols::named("ps").unwrap().options.defaults(),
        members: (0..WORKERS).map(NodeId).collect(),
        spec: Spec::allreduce(100_000, dtype, ReduceOp::Sum),
        operations: Default::default(),
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
    network_of(hosts, Settings::default())
}

fn network_of(hosts: u32, settings: Settings) -> Simulation {
    let link =
        LinkSpec { rate: Rate(100_000_000_000), delay: Span::from_micros(1), queue_bytes: 16 << 20, mark_bytes: None };
    Simulation::new(star(hosts, link, Span::ZERO), settings)
}

/// Runs a job with this many dedicated servers, colocated ones if none; gives its seconds.
fn run(dedicated: u32, plan: JobPlan, impairment: ImpairmentSpec) -> f64 {
    let mut sim = network(WORKERS + dedicated);
    for link in 0..2 * (WORKERS + dedicated) {
        sim.fabric.set_impairment(LinkId(link), Some(LinkImpairment::new(impairment, 7, link)));
    }
    let servers: Vec<NodeId> = (WORKERS..WORKERS + dedicated).map(NodeId).collect();
    let job = sim.install_served(plan, &servers).unwrap();
    assert!(sim.run_until_finished(Time(10_000_000_000_000)), "the job ends");
    let job = sim.traffic.jobs.get(job);
    assert_eq!(job.errors, []);
    assert!(job.is_complete());
    job.iterations.last().unwrap().end.unwrap().as_secs_f64()
}

#[test]
fn every_contribution_is_summed_once_wherever_the_servers_are() {
    for dedicated in [0, 1, 2, 4] {
        for dtype in [DType::I32, DType::F32] {
            run(dedicated, plan(dtype, 3), ImpairmentSpec::default());
        }
    }
}

/// All packets stay on the host: what a rank and its own server have for each other must not be left lying.
#[test]
fn a_single_rank_sums_for_itself() {
    let mut sim = network(2);
    let plan = JobPlan { members: vec![NodeId(0)], slots: 4, ..plan(DType::F32, 3) };
    let job = sim.install_served(plan, &[]).unwrap();
    assert!(sim.run_until_finished(Time(1_000_000_000)), "without a timeout");
    assert!(sim.traffic.jobs.get(job).is_complete());
    assert_eq!(sim.fabric.hops(), 0);
}

/// Rank 1 brings the last contribution to rank 0's own server, whose NIC is full: rank 0 finds out that its sum is complete
/// only when it may send again, and no packet comes after that.
#[test]
fn a_rank_reports_a_sum_that_it_completes_while_it_sends() {
    let mut sim = network_of(2, Settings { nic_bytes: 1, ..Settings::default() });
    let spec = Spec { elements: 256, ..plan(DType::I32, 1).spec };
    let plan = JobPlan { members: vec![NodeId(0), NodeId(1)], spec, slots: 2, ..plan(DType::I32, 1) };
    let job = sim.install_served(plan, &[]).unwrap();
    sim.traffic.jobs.get_mut(job).late = vec![Span::ZERO, Span::from_micros(50)];
    sim.send_message(NodeId(0), NodeId(1), 1_000_000, 1500);
    assert!(sim.run_until_finished(Time(1_000_000_000)), "{} are left", sim.open());
    assert!(sim.traffic.jobs.get(job).is_complete());
}

#[test]
fn losses_duplicates_and_overtaking_change_no_sum() {
    let impairment = ImpairmentSpec {
        loss: 0.02,
        duplication: 0.02,
        reordering: 0.02,
        longest_delay: Span::from_micros(100),
        ..ImpairmentSpec::default()
    };
    for dedicated in [0, 4] {
        run(dedicated, plan(DType::F32, 2), impairment);
    }
}

#[test]
fn colocated_servers_take_their_share_of_the_workers_links() {
    let long = || JobPlan { spec: Spec { elements: 2_000_000, ..plan(DType::I32, 1).spec }, ..plan(DType::I32, 1) };
    let ratio = run(4, long(), ImpairmentSpec::default()) / run(0, long(), ImpairmentSpec::default());
    // n / (2 (n - 1)): each worker sends to three servers and, as a server, to three workers.
    let expected = 4.0 / 6.0;
    assert!((ratio / expected - 1.0).abs() < 0.1, "{ratio} and not {expected}");
}

const FILE: &str = "
    [network]
    star = { hosts = 8 }
    [[job]]
    protocol = 'switchml'
    hosts = 4
    tensor = '8 MiB'
    type = 'i32'
";

fn of_file(keys: &str) -> Result<Report, String> {
    tributary_sim::run(&Config::parse(&format!("{FILE}{keys}")).unwrap()).map_err(|error| error.to_string())
}

/// The same with servers instead of the switch.
fn of_served(keys: &str) -> Result<Report, String> {
    let file = format!("{FILE}{keys}").replace("'switchml'", "'ps'");
    tributary_sim::run(&Config::parse(&file).unwrap()).map_err(|error| error.to_string())
}

#[test]
fn a_file_may_have_servers() {
    let seconds = |report: Result<Report, String>| {
        let report = report.unwrap();
        assert_eq!((report.failure(), report.jobs[0].ranks), (None, 4), "{report}");
        (report.jobs[0].servers, report.jobs[0].seconds.unwrap())
    };
    let (none, colocated) = (seconds(of_file("")), seconds(of_served("servers = 'colocated'")));
    assert_eq!(colocated, seconds(of_served("")), "servers are colocated where the file says nothing");
    let (two, four) =
        (seconds(of_served("servers = 2")), seconds(of_served("servers = [4, 5, 6, 7]\nplacement = 'packed'")));
    assert_eq!([none.0, colocated.0, two.0, four.0], [None, Some(4), Some(2), Some(4)]);
    // As many servers as ranks do what a switch does; half as many take twice as long, and colocated ones 2 (n - 1) / n times.
    assert!((four.1 / none.1 - 1.0).abs() < 0.1, "{four:?} and {none:?}");
    assert!((two.1 / none.1 / 2.0 - 1.0).abs() < 0.1, "{two:?} and {none:?}");
    assert!((colocated.1 / none.1 / (6.0 / 4.0) - 1.0).abs() < 0.1, "{colocated:?} and {none:?}");
}

#[test]
fn servers_that_cannot_be_are_refused_with_a_sentence() {
    for (keys, sentence) in [
        ("servers = 5", "job 0's servers wants 5 hosts, and 4 are free"),
        ("servers = 0", "job 0's servers gets no hosts"),
        ("servers = 2\ntrees = 2", "has no trees that a file plans: leave trees out"),
        ("servers = 3\nslots = 16", "slots must be a multiple of the trees"),
        ("servers = [0, 1, 2, 3, 4, 5, 6, 7]", "is both a rank and a server: write \"colocated\""),
    ] {
        let refusal = of_served(keys).unwrap_err();
        assert!(refusal.contains(sentence), "{keys}: {refusal}");
    }
    let ring = Config::parse(&format!("{FILE}servers = 2").replace("switchml", "ring")).unwrap();
    assert!(tributary_sim::run(&ring).unwrap_err().to_string().contains("has no servers"));
}

#[test]
fn stragglers_are_late_each_time() {
    let seconds = |keys: &str| of_file(&format!("iterations = 3\n{keys}")).unwrap().jobs[0].seconds.unwrap();
    let late = seconds("stragglers = { ranks = [2], late = '300 us' }") - seconds("");
    assert!((late / 300e-6 - 1.0).abs() < 0.01, "{late} s");
    for (ranks, sentence) in [("[4]", "stragglers name rank 4: it has 4 ranks"), ("'rest'", "a list of ranks")] {
        let refusal = of_file(&format!("stragglers = {{ ranks = {ranks}, late = '1 us' }}")).unwrap_err();
        assert!(refusal.contains(sentence), "{refusal}");
    }
}

#[test]
fn slots_that_do_not_divide_among_the_servers_are_refused() {
    let plan = JobPlan { slots: 126, ..plan(DType::I32, 1) };
    let error = network(WORKERS).install_served(plan, &[]).unwrap_err();
    assert_eq!(error, InstallError::Slots { name: "job".into(), slots: 126, trees: 4 });
}

//! Hosts with several cables: which NIC a packet takes, and what waits for what.

use std::ops::ControlFlow;

use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::protocol::Placement;
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::protocols;
use tributary_sim::config::{Config, network_of};
use tributary_sim::{Action, Balancing, Graph, LinkSpec, Rate, Report, Settings, Simulation, run, run_on_threads};

const END: Time = Time(u64::MAX);
/// A full packet on a link.
const PACKET: u16 = 1538;
const SPEC: LinkSpec =
    LinkSpec { rate: Rate(10_000_000_000), delay: Span(1_000_000), queue_bytes: 1 << 24, mark_bytes: None };

/// Hosts with cables to these switches of two, which a cable joins.
fn graph(hosts: &[&[u32]]) -> Graph {
    let mut graph = Graph::new(hosts.len() as u32, vec![1, 1], Span::ZERO);
    for (host, switches) in (0..).zip(hosts) {
        switches.iter().for_each(|&switch| graph.connect(NodeId(host), graph.switch(switch), SPEC));
    }
    graph.connect(graph.switch(0), graph.switch(1), SPEC);
    assert_eq!(graph.check(), Ok(()));
    graph
}

fn simulation(hosts: &[&[u32]], balancing: Balancing) -> Simulation {
    Simulation::new(graph(hosts), Settings { balancing: [balancing; 2], ..Settings::default() })
}

/// Packets that a host has sent by each of its NICs.
fn sent(sim: &Simulation, host: u32) -> Vec<u64> {
    let packets = |&link| sim.fabric.counters(link).packets;
    sim.fabric.ports(NodeId(host)).iter().map(packets).collect()
}

/// Sends a message of this many packets from host 0 to host 1.
fn send(sim: &mut Simulation, packets: u64) {
    sim.send_message(NodeId(0), NodeId(1), packets * u64::from(PACKET), PACKET);
}

/// Starts a flow from host 0.
fn start(sim: &mut Simulation, to: u32, bytes: u64) {
    sim.start_flow(NodeId(0), NodeId(to), bytes).expect("its packets can be numbered");
}

#[test]
fn a_message_that_is_sprayed_over_two_cables_takes_half_as_long() {
    let message = |hosts: &[&[u32]]| {
        let mut sim = simulation(hosts, Balancing::RoundRobin);
        send(&mut sim, 1000);
        assert!(sim.run_until_finished(END));
        (sent(&sim, 0), sim.fabric.now.as_secs_f64())
    };
    let (one, slow) = message(&[&[0], &[0]]);
    for cables in [&[0, 0], &[0, 1]] {
        let (two, fast) = message(&[cables, cables]);
        assert_eq!((&one[..], &two[..]), (&[1000][..], &[500, 500][..]));
        assert!((1.95..2.0).contains(&(slow / fast)), "{slow} s and {fast} s");
    }
}

#[test]
fn by_flow_each_flow_keeps_a_nic_and_all_nics_are_used() {
    let flow = |number: u32| {
        let mut sim = simulation(&[&[0, 1], &[0, 1]], Balancing::Ecmp);
        (0..number).for_each(|_| start(&mut sim, 1, 1));
        start(&mut sim, 1, 100_000);
        assert!(sim.run_until_finished(END));
        sent(&sim, 0)
    };
    let used: Vec<Vec<u64>> = (0..10).map(flow).collect();
    assert!(used.iter().any(|sent| sent[0] > 60) && used.iter().any(|sent| sent[1] > 60), "{used:?}");
    assert!(used.iter().all(|sent| sent[0].min(sent[1]) <= 10), "the long flow is whole: {used:?}");
}

#[test]
fn flows_that_wait_for_one_nic_hold_up_no_flow_of_another() {
    let last = |others: u32| {
        let mut sim = simulation(&[&[0, 1], &[0], &[1]], Balancing::Ecmp);
        (0..others).for_each(|_| start(&mut sim, 1, 1_000_000));
        start(&mut sim, 2, 1_000_000);
        assert!(sim.run_until_finished(END));
        assert_eq!(sent(&sim, 0)[0] > 0, others > 0);
        sim.transport(NodeId(2)).unwrap().arrived()[0].at
    };
    assert_eq!(last(3), last(0));
}

#[test]
fn every_nic_has_the_rate_of_its_cable() {
    let mut graph = graph(&[&[0], &[0]]);
    graph.connect(NodeId(0), graph.switch(0), LinkSpec { rate: Rate(1_000_000_000), ..SPEC });
    graph.connect(NodeId(1), graph.switch(0), SPEC);
    let settings = Settings { balancing: [Balancing::Random; 2], ..Settings::default() };
    let mut sim = Simulation::new(graph, settings);
    send(&mut sim, 11_000);
    assert!(sim.run_until_finished(END));
    let sent = sent(&sim, 0);
    assert!(sent[0] > 9 * sent[1] && sent[0] < 11 * sent[1], "{sent:?}");
}

#[test]
fn a_cable_that_is_gone_is_avoided_once_paths_change_and_at_once_where_the_rule_goes_by_packet() {
    for balancing in [Balancing::Ecmp, Balancing::LeastQueued] {
        for cable in 0..2 {
            let mut sim = simulation(&[&[0, 1], &[0, 1]], balancing);
            let lost = sim.fabric.port(NodeId(0), cable);
            sim.plan(Time::ZERO + Span::from_micros(20), Action::Cable(lost, true));
            if balancing == Balancing::Ecmp {
                sim.plan(Time::ZERO + Span::from_micros(500), Action::Reroute);
            }
            (0..4).for_each(|_| start(&mut sim, 1, 1_000_000));
            sim.run(Time::ZERO + Span::from_micros(30));
            // Messages are not sent again, so these begin when the cable is gone.
            (0..4).for_each(|_| send(&mut sim, 10));
            assert!(sim.run_until_finished(END), "{balancing:?} without cable {cable}");
            assert!(sent(&sim, 0)[usize::from(cable)] < 60, "{:?}", sent(&sim, 0));
        }
    }
}

/// A job on all hosts, under a protocol with machines there.
fn job(placement: Placement, more: &str) -> String {
    let protocol = protocols::ALL.iter().find(|protocol| protocol.placement == placement).unwrap().name;
    format!("[[job]]\nprotocol = '{protocol}'\nhosts = 'all'\n{more}\n")
}

fn on_threads(file: &str, threads: u16) -> Report {
    run_on_threads(&Config::parse(file).unwrap(), threads, &mut |_| ControlFlow::Continue(())).unwrap()
}

fn leaf_spine(nics: u32, routing: &str, more: &str) -> String {
    format!(
        "end = '1 s'\nnetwork = {{ leaf_spine = {{ leaves = 4, spines = 2, hosts_per_leaf = 2, nics = {nics} }}, delay = \
         '300 ns', rate = '10 Gbit/s', core = {{ rate = '40 Gbit/s' }}, routing = '{routing}', queue = '200 kB' }}\n{more}"
    )
}

/// The longest collective of each job, under the protocol whose trees are in switches.
fn job_seconds(nics: u32, jobs: usize, trees: u32) -> Vec<f64> {
    let job = job(Placement::Trees, &format!("tensor = '1 MB'\nslots = 64\ntrees = {trees}"));
    let report = on_threads(&leaf_spine(nics, "ecmp", &job.repeat(jobs)), 1);
    assert!(report.failure().is_none(), "{:?}", report.failure());
    report.jobs.iter().map(|job| job.seconds.unwrap()).collect()
}

#[test]
fn two_jobs_have_twice_the_rate_over_two_cables() {
    let alone = job_seconds(1, 1, 1)[0];
    let [shared, split] = [1, 2].map(|nics| job_seconds(nics, 2, 1)[0] / alone);
    assert!((1.9..2.1).contains(&shared), "on one cable: {shared}");
    assert!((0.95..1.1).contains(&split), "on two: {split}");
}

/// A job's packets leave in its order, so that one tree's wait for the other's NIC now and then.
#[test]
fn a_job_has_more_than_the_rate_of_one_cable_if_its_trees_take_two() {
    let [shared, split] = [1, 2].map(|nics| job_seconds(nics, 1, 2)[0]);
    assert!(split < 0.8 * shared, "{split} s and {shared} s");
}

#[test]
fn every_protocol_sums_on_hosts_with_two_cables_alike_on_any_number_of_threads() {
    let traffic = "[[traffic]]\npattern = 'uniform'\nhosts = 'all'\nmessage = '20 kB'\nload = '30 %'\n\
                   [[traffic]]\npattern = 'poisson'\nhosts = 'all'\nsizes = 'hadoop'\nload = '10 %'\nuntil = '100 us'\n";
    for (protocol, routing) in protocols::ALL.iter().zip(["ecmp", "random", "default_unless_half_full"].iter().cycle())
    {
        let protocol = protocol.name;
        let job = format!("[[job]]\nprotocol = '{protocol}'\nhosts = 'all'\ntensor = '64 KiB'\niterations = 2\n");
        let file = leaf_spine(2, routing, &format!("{job}{traffic}"));
        let one = on_threads(&file, 1);
        assert!(one.failure().is_none(), "{protocol}: {:?}", one.failure());
        for threads in [2, 4] {
            let several = on_threads(&file, threads);
            assert_eq!(several.trace_hash, one.trace_hash, "{protocol} on {threads} threads");
        }
    }
}

/// Two planes that no cable joins: hosts reach each other over either, and forward nothing from one to the other.
#[test]
fn planes_that_do_not_meet_are_a_network_if_one_of_them_reaches_all_hosts() {
    let planes = |placement, last: &str| {
        let links: String = ["host 0', 'switch 0", "host 0', 'switch 1", "host 1', 'switch 1", "host 1', 'switch 0"]
            .iter()
            .map(|ends| format!("{{ between = ['{ends}'] }}, "))
            .collect();
        format!(
            "[network.graph]\nhosts = 3\nswitches = 2\nlink = [{links} {{ between = ['host 2', 'switch 1'] }}, {last}]\n{}",
            job(placement, "tensor = '10 kB'")
        )
    };
    let report = |file: &str| run(&Config::parse(file).unwrap());
    let whole = "{ between = ['host 2', 'switch 0'] }";
    assert!(report(&planes(Placement::Hosts, whole)).unwrap().failure().is_none());
    let error = report(&planes(Placement::EveryHop, whole)).unwrap_err().to_string();
    assert!(error.contains("uses the first cable of each host, and no path leads from that of host "), "{error}");
    let host_1_on_both = "['host 1', 'switch 1'] }, { between = ['host 1', 'switch 0'] }";
    let split = planes(Placement::Hosts, "").replace(host_1_on_both, "['host 1', 'switch 0'] }");
    let error = report(&split).unwrap_err().to_string();
    assert!(error.contains("no path leads from switch 0 to host 2"), "{error}");
}

#[test]
fn files_of_other_simulators_may_have_hosts_with_several_cables() {
    let hpcc =
        "4 2 5\n2 3\n0 2 100Gbps 1us 0\n0 3 100Gbps 1us 0\n1 2 100Gbps 1us 0\n1 3 25Gbps 1us 0\n2 3 100Gbps 1us 0\n";
    let node = |id: &str, kind: &str| format!("<node id=\"{id}\"><data key=\"type\">{kind}</data></node>");
    let nodes = ["a", "b"].map(|id| node(id, "host")).concat() + &["c", "d"].map(|id| node(id, "switch")).concat();
    let edges = [("a", "c"), ("a", "d"), ("b", "c"), ("b", "d"), ("c", "d")];
    let edges = edges.map(|(from, to)| format!("<edge source=\"{from}\" target=\"{to}\"/>")).concat();
    let graphml = format!("<graphml><graph edgedefault=\"undirected\">{nodes}{edges}</graph></graphml>");
    for text in [hpcc, &graphml] {
        let job = job(Placement::Trees, "tensor = '10 kB'");
        let config = Config::parse(&format!("{}\n{job}", network_of(text).unwrap())).unwrap();
        let graph = config.network.build().unwrap();
        assert_eq!((graph.hosts(), graph.switches(), graph.edges().len()), (2, 2, 5));
        assert!(run(&config).unwrap().failure().is_none());
    }
}

//! The simulator tells the machine that jobs share in each switch of each job once, with the job's plan.

use std::sync::Mutex;

use tributary_numeric::{DType, ReduceOp};
use tributary_proto::canary::{CanarySwitch, PROTOCOL};
use tributary_proto::contract::config::{Below, SharedJob, TimerConfig};
use tributary_proto::contract::ids::{JobId, NodeId, PortId, Rank};
use tributary_proto::contract::packet::PacketMut;
use tributary_proto::contract::protocol::{Protocol, Shared};
use tributary_proto::contract::switch::{
    Emission, PortView, SharedReport, SharedSwitch, Switch, SwitchReport, Verdict,
};
use tributary_proto::contract::tensor::Spec;
use tributary_proto::contract::time::{Span, Time};
use tributary_sim::engine::{JobPlan, Settings, Simulation};
use tributary_sim::topology::leaf_spine;
use tributary_sim::topology::{LinkSpec, Rate};

/// Canary, with switches that write down which jobs were installed.
static SPY: Protocol = Protocol {
    code: PROTOCOL.code,
    name: PROTOCOL.name,
    about: PROTOCOL.about,
    header_len: PROTOCOL.header_len,
    placement: PROTOCOL.placement,
    hosts_forward_results: PROTOCOL.hosts_forward_results,
    rooted_is_unicast: PROTOCOL.rooted_is_unicast,
    options: PROTOCOL.options,
    numbers: PROTOCOL.numbers,
    check: PROTOCOL.check,
    // What a job is admitted with: a value that differs from the default.
    memory: |shape| 100 * u64::from(shape.children) + u64::from(shape.slots),
    host: PROTOCOL.host,
    shared: Some(Shared {
        machine: |values, config| Box::new(Spy { node: config.node, canary: CanarySwitch::new(values, config) }),
        memory: CanarySwitch::bytes_of,
        options: tributary_proto::canary::SWITCH,
        longest_wait: |_| Span::ZERO,
        capacity: |_| 1,
        server: None,
        fallback_note: |_, _, _| String::new(),
    }),
    describe: PROTOCOL.describe,
    ..Protocol::BASE
};

static INSTALLED: Mutex<Vec<(NodeId, SharedJob)>> = Mutex::new(Vec::new());

struct Spy {
    node: NodeId,
    canary: CanarySwitch,
}

impl Switch for Spy {
    fn process(&mut self, now: Time, from: PortId, packet: &mut PacketMut<'_>, ports: &dyn PortView) -> Verdict {
        self.canary.process(now, from, packet, ports)
    }
    fn handle_timeout(&mut self, now: Time) {
        self.canary.handle_timeout(now);
    }
    fn poll_transmit(&mut self, now: Time, buf: &mut [u8]) -> Option<Emission> {
        self.canary.poll_transmit(now, buf)
    }
    fn poll_timeout(&self) -> Option<Time> {
        self.canary.poll_timeout()
    }
    fn memory_bytes(&self) -> usize {
        self.canary.memory_bytes()
    }
    fn report(&self) -> SwitchReport {
        self.canary.report()
    }
}

impl SharedSwitch for Spy {
    fn add_job(&mut self, plan: &SharedJob) {
        INSTALLED.lock().unwrap().push((self.node, plan.clone()));
        self.canary.add_job(plan);
    }
    fn remove_job(&mut self, job: JobId) {
        self.canary.remove_job(job);
    }
    fn report_job(&self, job: JobId) -> SwitchReport {
        self.canary.report_job(job)
    }
    fn report_shared(&self) -> SharedReport {
        self.canary.report_shared()
    }
}

fn plan(members: [u32; 3], roots: Vec<u32>) -> JobPlan {
    JobPlan {
        custom_op: None,
        magnitudes: tributary_sim::engine::Magnitudes::Random,
        sparse: None,
        name: "job".into(),
        protocol: &SPY,
        options: SPY.options.defaults(),
        members: members.map(NodeId).into(),
        spec: Spec::allreduce(10_000, DType::I32, ReduceOp::Sum),
        operations: Default::default(),
        iterations: 1,
        start: Time::ZERO,
        compute: Span::ZERO,
        elements_per_packet: 256,
        slots: 16,
        roots,
        timers: TimerConfig::default(),
        timeout: None,
    }
}

#[test]
fn every_switch_gets_each_job_once_with_its_members_ports_trees_and_share() {
    let spec =
        LinkSpec { rate: Rate(100_000_000_000), delay: Span::from_micros(1), queue_bytes: 1 << 20, mark_bytes: None };
    // Hosts 0 to 3, two on each of the leaves 4 and 5 (switches 0 and 1); above them the spines 6 and 7.
    let mut sim = Simulation::new(leaf_spine(2, 2, 2, spec, spec, Span::ZERO), Settings::default());
    sim.install(plan([0, 1, 2], Vec::new())).unwrap();
    sim.install(plan([3, 0, 2], vec![3])).unwrap();
    assert!(!sim.run(Time(u64::MAX)), "nothing is left to happen");
    assert!(sim.traffic.jobs.all().iter().all(|job| job.is_complete() && job.errors.is_empty()));

    let installed = INSTALLED.lock().unwrap();
    let jobs_at: Vec<(u32, u16)> = installed.iter().map(|(node, plan)| (node.0, plan.job.job.0)).collect();
    assert_eq!(jobs_at, [(4, 1), (5, 1), (6, 1), (7, 1), (4, 2), (5, 2), (6, 2), (7, 2)]);
    let at =
        |node: u32, job: u16| &installed.iter().find(|(at, plan)| (at.0, plan.job.job.0) == (node, job)).unwrap().1;
    let first = at(4, 1);
    assert_eq!((first.job.world_size, first.job.slots), (3, 16));
    assert_eq!(*first.fabric.hosts, [0, 1, 2].map(NodeId));
    assert_eq!(*first.fabric.switches, [4, 4, 5].map(NodeId));
    assert_eq!(first.ports, [Some(PortId(0)), Some(PortId(1)), None]);
    assert_eq!((first.trees.len(), first.share_bytes), (0, 200 + 16), "two of its hosts are here");
    assert_eq!(at(6, 1).ports, [None; 3]);
    assert_eq!(at(6, 1).share_bytes, 16);
    // The second job has chosen the second spine: its tree passes both leaves, and not the first spine.
    assert_eq!(*at(4, 2).fabric.roots, [NodeId(7)]);
    let [leaf] = &at(5, 2).trees[..] else { panic!("one tree") };
    assert_eq!((leaf.root, leaf.children.len(), leaf.parent.is_some()), (NodeId(7), 2, true));
    let [root] = &at(7, 2).trees[..] else { panic!("one tree") };
    let below: Vec<&[Rank]> = root.below.iter().map(Below::ranks).collect();
    assert_eq!((root.parent, below), (None, vec![&[Rank(0), Rank(2)][..], &[Rank(1)]]));
    assert_eq!(at(6, 2).trees, []);
}

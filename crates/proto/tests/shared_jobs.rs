//! A machine that jobs share is told of each job once when it begins and once when it ends, and sees no other's
//! packets.

use std::sync::{Arc, Mutex};

use tributary_proto::contract::config::{FabricPlan, JobConfig, SharedJob};
use tributary_proto::contract::drop_reason::DropReason;
use tributary_proto::contract::ids::{JobId, JobKey, NodeId, PortId};
use tributary_proto::contract::packet::{Ecn, PacketMut};
use tributary_proto::contract::pipeline::{InstalledJob, Pipeline};
use tributary_proto::contract::switch::{
    Emission, NoQueues, PortView, SharedReport, SharedSwitch, Switch, SwitchReport, Verdict,
};
use tributary_proto::contract::time::Time;
use tributary_proto::contract::wire::{COMMON_LEN, Common};

const PROTOCOL: u8 = 200;
const KIND: u8 = 16;
const KEY: JobKey = JobKey(7);

/// What the machine was told.
#[derive(Clone, Debug, PartialEq)]
enum Call {
    Added(SharedJob),
    Removed(JobId),
    Packet(JobId),
}

/// Writes down what it is told.
struct Scribe(Arc<Mutex<Vec<Call>>>);

impl Scribe {
    fn note(&self, calls: Call) {
        self.0.lock().unwrap().push(calls);
    }
}

impl Switch for Scribe {
    fn process(&mut self, _: Time, _: PortId, packet: &mut PacketMut<'_>, _: &dyn PortView) -> Verdict {
        self.note(Call::Packet(Common::parse(packet.bytes).unwrap().job));
        Verdict::Consume
    }
    fn handle_timeout(&mut self, _: Time) {}
    fn poll_transmit(&mut self, _: Time, _: &mut [u8]) -> Option<Emission> {
        None
    }
    fn poll_timeout(&self) -> Option<Time> {
        None
    }
    fn memory_bytes(&self) -> usize {
        0
    }
    fn report(&self) -> SwitchReport {
        SwitchReport::default()
    }
}

impl SharedSwitch for Scribe {
    fn add_job(&mut self, plan: &SharedJob) {
        self.note(Call::Added(plan.clone()));
    }
    fn remove_job(&mut self, job: JobId) {
        self.note(Call::Removed(job));
    }
    fn report_job(&self, _: JobId) -> SwitchReport {
        SwitchReport::default()
    }
    fn report_shared(&self) -> SharedReport {
        SharedReport::default()
    }
}

fn plan(job: u16) -> SharedJob {
    let job = JobConfig {
        job: JobId(job),
        key: KEY,
        protocol: PROTOCOL,
        world_size: 2,
        slots: 8,
        elements_per_packet: 4,
        trees: 1,
        levels: false,
        options: Default::default(),
    };
    let hosts = [NodeId(0), NodeId(1)].into();
    let fabric = FabricPlan { hosts, switches: [NodeId(2), NodeId(3)].into(), roots: [].into() };
    SharedJob { job, fabric, ports: vec![Some(PortId(0)), None], trees: Vec::new(), share_bytes: 64 }
}

fn send(pipeline: &mut Pipeline, job: u16) -> Verdict {
    let mut bytes = [0; COMMON_LEN];
    Common { protocol: PROTOCOL, kind: KIND, job: JobId(job), key: KEY }.emit(&mut bytes);
    pipeline.process(Time::ZERO, PortId(0), &mut PacketMut::new(&mut bytes, Ecn::NotCapable), &NoQueues)
}

#[test]
fn each_job_is_added_once_when_it_begins_and_removed_once_when_it_ends() {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let take = || std::mem::take(&mut *calls.lock().unwrap());
    let mut pipeline = Pipeline::default();
    pipeline.share(PROTOCOL, Box::new(Scribe(Arc::clone(&calls))));
    pipeline.install_shared(&plan(1), Vec::new());
    pipeline.install_shared(&plan(2), Vec::new());
    assert_eq!(take(), [Call::Added(plan(1)), Call::Added(plan(2))]);
    // What only passes, or has a machine of its own, is not the shared machine's.
    let (members, others) = (Vec::new(), Vec::new());
    pipeline.install(JobId(3), InstalledJob { protocol: PROTOCOL - 1, key: KEY, members, others, machine: None });
    assert_eq!(take(), []);
    assert!(pipeline.remove(JobId(1)) && !pipeline.remove(JobId(1)) && pipeline.remove(JobId(3)));
    assert_eq!(take(), [Call::Removed(JobId(1))]);
    // A new job with an old one's id takes its place.
    pipeline.install_shared(&plan(2), Vec::new());
    assert_eq!(take(), [Call::Removed(JobId(2)), Call::Added(plan(2))]);
}

#[test]
fn packets_of_a_job_before_it_begins_and_after_it_has_ended_are_counted_and_go_no_further() {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let mut pipeline = Pipeline::default();
    pipeline.share(PROTOCOL, Box::new(Scribe(Arc::clone(&calls))));
    assert_eq!(send(&mut pipeline, 1), Verdict::Drop(DropReason::UnknownJob));
    pipeline.install_shared(&plan(1), Vec::new());
    assert_eq!(send(&mut pipeline, 1), Verdict::Consume);
    pipeline.remove(JobId(1));
    assert_eq!(send(&mut pipeline, 1), Verdict::Drop(DropReason::UnknownJob));
    assert_eq!(pipeline.rejected().get(DropReason::UnknownJob), 2);
    assert_eq!(*calls.lock().unwrap(), [Call::Added(plan(1)), Call::Packet(JobId(1)), Call::Removed(JobId(1))]);
}

#[test]
fn where_all_members_are_connected_to_the_switch_nobody_else_is_accepted() {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let mut pipeline = Pipeline::default();
    pipeline.share(PROTOCOL, Box::new(Scribe(Arc::clone(&calls))));
    // In a fabric a job's packets come in on whichever port is best.
    pipeline.install_shared(&plan(1), Vec::new());
    assert_eq!(send(&mut pipeline, 1), Verdict::Consume);
    // In a star port 0 is somebody else's.
    pipeline.install_shared(&plan(2), vec![PortId(3), PortId(4)]);
    assert_eq!(send(&mut pipeline, 2), Verdict::Drop(DropReason::NotAMember));
    assert_eq!(pipeline.report(JobId(2)).unwrap().last_seen, [None, None]);
    pipeline.install_shared(&plan(2), vec![PortId(3), PortId(0)]);
    assert_eq!(send(&mut pipeline, 2), Verdict::Consume);
    assert_eq!(pipeline.report(JobId(2)).unwrap().last_seen, [None, Some(Time::ZERO)]);
}

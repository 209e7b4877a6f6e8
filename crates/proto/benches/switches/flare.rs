//! Flare's switch: of 8 packets of a block it gets 8 contributions, as floats, in each of its designs.

use criterion::Criterion;
use tributary_numeric::ReduceOp;
use tributary_proto::contract::config::{Below, HostConfig, JobConfig, SwitchConfig, TimerConfig, WorkerPlace};
use tributary_proto::contract::host::Collective;
use tributary_proto::contract::ids::{ChildId, GroupId, JobId, JobKey, PortId, Rank, TreeId};
use tributary_proto::contract::pipeline::{InstalledJob, Pipeline};
use tributary_proto::contract::switch::Verdict;
use tributary_proto::contract::time::Time;
use tributary_proto::contract::values::Values;
use tributary_proto::flare::PROTOCOL;
use tributary_proto::flare::wire::Header;
use tributary_proto::tensors::{ElementTensor, InPlaceStorage};

use super::{K, LATE, SLOTS, Subject, WORLD, measure};

pub fn switch(c: &mut Criterion) {
    let last = usize::from(WORLD) - 1;
    let parts = [("whole block", 0..LATE + 1), ("first", 0..1), ("added", 1..last), ("last", last..last + 1)];
    for design in ["single", "multi:4", "tree"] {
        for k in K {
            measure(c, &format!("packet/flare {design}/{k}"), &parts, || subject(k, design));
        }
    }
}

fn job(k: u16, design: &str) -> JobConfig {
    let given = [("design", design), ("window", "pool")].map(|(name, value)| (name.to_owned(), value.to_owned()));
    let given = given.into();
    JobConfig {
        job: JobId(1),
        key: JobKey(2),
        protocol: PROTOCOL.code,
        world: WORLD,
        slots: SLOTS,
        elements_per_packet: k,
        trees: 1,
        levels: false,
        options: PROTOCOL.options.read(&given).expect("an option of the protocol"),
    }
}

fn pipeline(job: &JobConfig) -> Pipeline {
    let members: Vec<PortId> = (0..WORLD).map(PortId).collect();
    let (below, group) = (Below::workers(WORLD), GroupId(0));
    let config =
        SwitchConfig { job: job.clone(), tree: TreeId(0), members: members.clone(), below, group, parent: None };
    let machine = PROTOCOL.switch(Values::Elements, &config);
    let mut pipeline = Pipeline::default();
    let installed = InstalledJob { protocol: PROTOCOL.code, key: job.key, members, others: Vec::new(), machine };
    pipeline.install(job.job, installed);
    pipeline
}

/// One update of floats for each slot.
fn updates(job: &JobConfig) -> Vec<Vec<u8>> {
    let config = HostConfig {
        job: job.clone(),
        rank: Rank(0),
        trees: WorkerPlace::of_rank(Rank(0)),
        serves: None,
        timers: TimerConfig::default(),
        fabric: Default::default(),
    };
    let mut host = PROTOCOL.host(Values::Elements, &config);
    let elements = usize::from(SLOTS) * usize::from(job.elements_per_packet);
    let tensor = ElementTensor::new(InPlaceStorage::new(vec![0.5f32; elements]), ReduceOp::Sum);
    host.submit(Time::ZERO, Collective { tensor: Box::new(tensor), deadline: None }).expect("nothing has failed");
    let mut buf = vec![0; host.max_packet_len()];
    std::iter::from_fn(|| host.poll_transmit(Time::ZERO, &mut buf).map(|sent| buf[..sent.len].to_vec())).collect()
}

fn subject(k: u16, design: &str) -> Subject {
    let job = job(k, design);
    let (pipeline, updates) = (pipeline(&job), updates(&job));
    Subject {
        pipeline,
        packet_len: updates[0].len(),
        packet: Box::new(move |rank, block, bytes| {
            bytes.copy_from_slice(&updates[block % updates.len()]);
            let header = Header::parse(bytes).expect("an update");
            let phase = (block / updates.len()) as u32;
            Header { wid: ChildId(rank as u16), phase, ..header }.emit(bytes);
        }),
        verdict: Box::new(|rank| match rank + 1 == usize::from(WORLD) {
            true => Verdict::Group(GroupId(0)),
            false => Verdict::Consume,
        }),
        block: 0,
        now: Time::ZERO,
        sums: None,
        flushes_to: None,
    }
}

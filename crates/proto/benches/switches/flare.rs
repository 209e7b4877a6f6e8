//! Flare's switch: of 8 packets of a block it gets 8 contributions, as floats, in each of its designs.

use criterion::Criterion;
use tributary_proto::contract::ids::{ChildId, GroupId};
use tributary_proto::contract::switch::Verdict;
use tributary_proto::contract::time::Time;
use tributary_proto::flare::PROTOCOL;
use tributary_proto::flare::wire::Header;

use super::{K, LATE, Subject, WORLD_SIZE, measure, setup};

pub fn switch(c: &mut Criterion) {
    let last = usize::from(WORLD_SIZE) - 1;
    let stages_of = [("whole block", 0..LATE + 1), ("first", 0..1), ("added", 1..last), ("last", last..last + 1)];
    for design in ["single", "multi:4", "tree"] {
        for k in K {
            measure(c, &format!("packet/flare {design}/{k}"), &stages_of, || subject(k, design));
        }
    }
}

fn subject(k: u16, design: &str) -> Subject {
    let job = setup::job(&PROTOCOL, k, &[("design", design), ("congestion_control", "fixed")]);
    let (pipeline, updates) = (setup::pipeline(&PROTOCOL, &job), setup::updates(&PROTOCOL, &job, 0.5f32));
    Subject {
        pipeline,
        packet_len: updates[0].len(),
        packet: Box::new(move |rank, block, bytes| {
            bytes.copy_from_slice(&updates[block % updates.len()]);
            let header = Header::parse(bytes).expect("an update");
            let phase = (block / updates.len()) as u32;
            Header { wid: ChildId(rank as u16), phase, ..header }.emit(bytes);
        }),
        verdict: Box::new(|rank| match rank + 1 == usize::from(WORLD_SIZE) {
            true => Verdict::Group(GroupId(0)),
            false => Verdict::Consume,
        }),
        block: 0,
        now: Time::ZERO,
        sums: None,
        flushes_to: None,
    }
}

//! SwitchML's switch: of 8 packets of a block it gets 8 contributions.

#[path = "../switchml_setup/mod.rs"]
mod switchml_setup;

use criterion::Criterion;
use tributary_proto::contract::ids::GroupId;
use tributary_proto::contract::switch::Verdict;
use tributary_proto::contract::time::Time;

use self::switchml_setup::{integers, job, pipeline, readdress};
use super::{K, LATE, Subject, WORLD, measure};

pub fn switch(c: &mut Criterion) {
    let last = usize::from(WORLD) - 1;
    let parts = [("whole block", 0..LATE + 1), ("first", 0..1), ("added", 1..last), ("last", last..last + 1)];
    for k in K {
        measure(c, &format!("packet/switchml/{k}"), &parts, || subject(k));
    }
}

fn subject(k: u16) -> Subject {
    let job = job(k, "fixed");
    let (pipeline, updates) = (pipeline(&job), integers(&job));
    Subject {
        pipeline,
        packet_len: updates[0].len(),
        packet: Box::new(move |rank, block, bytes| {
            bytes.copy_from_slice(&updates[block % updates.len()]);
            readdress(bytes, rank as u16, (block / updates.len()) as u32);
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

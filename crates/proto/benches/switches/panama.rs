//! PANAMA's switch: of 8 packets of a VID it gets 8 contributions, as floats, all ports in the order of VIDs.

use criterion::Criterion;
use tributary_numeric::{DType, ReduceOp};
use tributary_proto::contract::ids::{ChildId, GroupId};
use tributary_proto::contract::switch::Verdict;
use tributary_proto::contract::tensor::Spec;
use tributary_proto::contract::time::Time;
use tributary_proto::contract::wire::Common;
use tributary_proto::panama::PROTOCOL;
use tributary_proto::panama::wire::{HEADER_LEN, Header, Kind, NO_CAP};

use super::{K, LATE, Subject, WORLD_SIZE, measure, setup};

pub fn switch(c: &mut Criterion) {
    let last = usize::from(WORLD_SIZE) - 1;
    let stages_of = [("whole block", 0..LATE + 1), ("first", 0..1), ("added", 1..last), ("last", last..last + 1)];
    for k in K {
        measure(c, &format!("packet/panama/{k}"), &stages_of, || subject(k));
    }
}

fn subject(k: u16) -> Subject {
    let job = setup::job(&PROTOCOL, k, &[]);
    let spec = Spec::allreduce(k.into(), DType::F32, ReduceOp::Sum);
    let mut update = vec![0; HEADER_LEN];
    Common { kind: Kind::Contribution as u8, ..job.common() }.emit(&mut update);
    (0..k).for_each(|_| update.extend(0.5f32.to_be_bytes()));
    Subject {
        pipeline: setup::pipeline(&PROTOCOL, &job),
        packet_len: update.len(),
        packet: Box::new(move |rank, block, bytes| {
            bytes.copy_from_slice(&update);
            let (vid, wid) = (block as u32, ChildId(rank as u16));
            Header { vid, tid: 0, wnd_cap: NO_CAP, epoch: 0, wid, spec, contributors: 1 }.emit(bytes);
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

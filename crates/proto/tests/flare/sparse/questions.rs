//! What switches ask each other about a block whose sum is late: nothing that the other has comes again with the
//! question.

use tributary_numeric::{DType, ReduceOp};
use tributary_proto::contract::config::{Below, JobConfig, Parent};
use tributary_proto::contract::ids::{ChildId, PortId};
use tributary_proto::contract::packet::{Ecn, PacketMut};
use tributary_proto::contract::switch::{NoQueues, Switch, Verdict};
use tributary_proto::contract::tensor::Spec;
use tributary_proto::contract::time::Time;
use tributary_proto::contract::values::Values;
use tributary_proto::contract::wire::Common;
use tributary_proto::flare::PROTOCOL;
use tributary_proto::flare::sparse::wire::{HEADER_LEN, Header, Kind};

use super::job;
use crate::harness::reduction::switch_config;

const PARENT: Parent = Parent { port: PortId(9), child: ChildId(1) };

fn give(switch: &mut dyn Switch, job: &JobConfig, (kind, port, wid): (Kind, u16, u16), shard: u32, count: u32) {
    let spec = Spec::allreduce(64, DType::F32, ReduceOp::Sum);
    let wid = ChildId(wid);
    let mut bytes = vec![0; HEADER_LEN];
    Common { kind: kind as u8, ..job.common() }.emit(&mut bytes);
    Header { wid, idx: 0, phase: 0, shard, count, asks: false, is_finished: false, spec }.emit(&mut bytes);
    bytes.extend(if kind == Kind::Shard { &[][..] } else { &[0; 8] });
    let verdict = switch.process(Time::ZERO, PortId(port), &mut PacketMut::new(&mut bytes, Ecn::NotCapable), &NoQueues);
    assert_eq!(verdict, Verdict::Consume, "{kind:?}");
}

/// All that the switch has to say: kinds and headers.
fn said(switch: &mut dyn Switch) -> Vec<(Kind, Header)> {
    let mut buf = vec![0; 2_000];
    let mut next = || {
        let emission = switch.poll_transmit(Time::ZERO, &mut buf)?;
        let bytes = &buf[..emission.len];
        Some((Kind::of(bytes).expect("a kind"), Header::parse(bytes).expect("a header")))
    };
    std::iter::from_fn(&mut next).collect()
}

fn kinds(switch: &mut dyn Switch) -> Vec<Kind> {
    said(switch).into_iter().map(|(kind, _)| kind).collect()
}

/// A burst of questions that bring data has filled a short queue, in which nothing that was lost found room any more.
#[test]
fn a_switch_asks_for_a_sum_with_a_shard_only_until_its_parent_knows_the_block() {
    let job = job(4, 4, 64, &[("span", "64")]);
    let config = switch_config(&job, 0, &Below::workers(2), Some(PARENT));
    let mut leaf = PROTOCOL.switch(Values::Elements, &config).unwrap();
    for child in 0..2 {
        give(&mut *leaf, &job, (Kind::Shard, child, child), 0, 1);
    }
    assert_eq!(kinds(&mut *leaf), [Kind::Shard]);
    give(&mut *leaf, &job, (Kind::Want, 0, 0), 0, 0);
    assert_eq!(kinds(&mut *leaf), [Kind::Shard, Kind::Have, Kind::Want], "nobody may know of the block above");
    give(&mut *leaf, &job, (Kind::Taken, PARENT.port.0, PARENT.child.0), 1, 0);
    give(&mut *leaf, &job, (Kind::Want, 1, 1), 0, 0);
    assert_eq!(kinds(&mut *leaf), [Kind::Have, Kind::Want]);
}

/// The last shard of a switch below is there, and those before it are not.
#[test]
fn who_asks_for_a_sum_that_waits_for_its_own_shards_learns_which() {
    let job = job(4, 4, 64, &[("span", "64")]);
    let config = switch_config(&job, 0, &Below::workers(2), None);
    let mut root = PROTOCOL.switch(Values::Elements, &config).unwrap();
    give(&mut *root, &job, (Kind::Shard, 1, 1), 2, 3);
    assert_eq!(kinds(&mut *root), []);
    give(&mut *root, &job, (Kind::Want, 1, 1), 0, 0);
    let [(Kind::Taken, answer)] = said(&mut *root)[..] else { panic!("one answer") };
    assert_eq!((answer.wid, answer.shard, answer.asks), (ChildId(1), 0, true), "all but the third shall come again");
    for shard in 0..2 {
        give(&mut *root, &job, (Kind::Shard, 1, 1), shard, 0);
    }
    give(&mut *root, &job, (Kind::Want, 1, 1), 0, 0);
    assert_eq!(kinds(&mut *root), [], "it waits for somebody else");
}

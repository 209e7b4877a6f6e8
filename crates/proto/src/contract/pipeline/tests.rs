//! Tests of what a pipeline does for every protocol.

use super::*;
use crate::contract::packet::Ecn;
use crate::contract::switch::NoQueues;
use crate::contract::time::Span;
use crate::contract::wire::COMMON_LEN;

#[test]
fn a_member_that_floods_with_pings_is_answered_now_and_then_and_the_others_always() {
    let (id, key) = (JobId(1), JobKey(7));
    let mut pipeline = Pipeline::default();
    let members = vec![PortId(0), PortId(1)];
    pipeline.install(id, InstalledJob { protocol: 1, key, members, others: Vec::new(), machine: None });
    let mut ping = |now, port| {
        let mut bytes = [0; COMMON_LEN];
        Common { protocol: 1, kind: kind::PING, job: id, key }.emit(&mut bytes);
        pipeline.process(now, port, &mut PacketMut::new(&mut bytes, Ecn::NotCapable), &NoQueues)
    };
    let (mut answered, seconds) = (0, 10);
    for micros in 0..seconds * 1_000_000 / 20 {
        let now = Time::ZERO + Span::from_micros(20 * micros);
        answered += u64::from(ping(now, PortId(0)) == Verdict::Port(PortId(0)));
        if micros % 25_000 == 0 {
            assert_eq!(ping(now, PortId(1)), Verdict::Port(PortId(1)));
        }
    }
    assert!((500 * seconds..=500 * seconds + 1_100).contains(&answered), "{answered} of 500,000");
    let report = pipeline.report(id).unwrap();
    assert_eq!(report.drops.get(DropReason::TooOften), 500_000 - answered);
}

//! Stragglers in the paper's own switch (§3.1.1), which collects none of them.

use tributary_proto::contract::switch::Verdict;

use crate::setup::{TIMEOUT, switch_with};
use crate::switch::{Bench, ROOT, contribution, values};

#[test]
fn without_collection_every_straggler_goes_on_by_itself() {
    let mut bench = Bench::new(switch_with(&[("collect_stragglers", "false")]));
    bench.reduce(0, &contribution(7), &[1, 1]);
    bench.pass(TIMEOUT);
    for port in [1, 2] {
        let own = [10 + u32::from(port), 0];
        let (verdict, bytes) = bench.reduce(port, &contribution(7), &own);
        assert_eq!((verdict, values(&bytes)), (Verdict::Route(ROOT), own.to_vec()));
    }
    assert!(bench.pass(TIMEOUT).is_empty(), "nothing is held back");
    assert_eq!(bench.count("stragglers"), 2);
}

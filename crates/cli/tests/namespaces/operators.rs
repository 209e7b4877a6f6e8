//! CustomOps of jobs' own on real packets: exact under loss, and alone in their failure.

use std::fs;

use tributary_proto::protocols;
use tributary_testbed::Faults;

use crate::namespaces::network::{Network, checked, error_of};

/// A protocol that takes operators of jobs' own.
pub fn protocol() -> &'static str {
    protocols::ALL.iter().find(|protocol| protocol.options.custom_ops.is_some()).expect("one takes operators").name
}

/// An operator of words of 32 bits, whose bits meet by "exclusive or" until the left one is 77777; then it does this.
pub fn xor_until_77777(then: &str) -> String {
    format!(
        "(module (memory (export \"memory\") 1)
  (global (export \"tributary_abi\") i32 (i32.const 1)) (global (export \"element_size\") i32 (i32.const 4))
  (func (export \"combine\") (param $acc i32) (param $with i32) (param $n i32)
    (block $end (loop $each (br_if $end (i32.eqz (local.get $n)))
      (if (i32.eq (i32.load (local.get $acc)) (i32.const 77777)) (then {then}))
      (i32.store (local.get $acc) (i32.xor (i32.load (local.get $acc)) (i32.load (local.get $with))))
      (local.set $acc (i32.add (local.get $acc) (i32.const 4)))
      (local.set $with (i32.add (local.get $with) (i32.const 4)))
      (local.set $n (i32.sub (local.get $n) (i32.const 1))) (br $each)))))"
    )
}

/// Version 1 of numpy's format.
pub fn npy(words: &[i32]) -> Vec<u8> {
    let header = format!("{{'descr': '<i4', 'fortran_order': False, 'shape': ({},), }}", words.len());
    let padded = format!("{header:<117}\n");
    let start = [&b"\x93NUMPY\x01\x00"[..], &(padded.len() as u16).to_le_bytes(), padded.as_bytes()].concat();
    start.into_iter().chain(words.iter().flat_map(|word| word.to_le_bytes())).collect()
}

/// Each rank compares its result with what the same module makes of all ranks' elements at home. `matrix-2x2` has ranks in their
/// order, `log-sum-exp` in that of a tree, and `xor` in any: a packet that counted twice would be seen.
#[test]
fn an_operators_results_are_exact_under_loss_duplicates_and_reordering() {
    let faults = Faults { loss_percent: 1.0, duplicate_percent: 1.0, reorder_percent: 1.0 };
    let Some(network) = Network::build_serving_operators(4, faults) else { return };
    let mut sent_again = 0;
    for operator in ["matrix-2x2", "log-sum-exp", "xor", "maxloc"] {
        let words =
            ["--protocol", protocol(), "--op", operator, "--elements", "150001", "--iters", "3", "--timeout", "60s"];
        let reports = network.sum(operator, 4, &words);
        sent_again += reports.iter().map(|report| report["retransmissions"].as_u64().unwrap()).sum::<u64>();
    }
    assert!(sent_again > 0, "nothing was lost");
}

#[test]
fn a_tenant_whose_modules_never_end_costs_other_tenants_no_sum() {
    let Some(network) = Network::build_serving_operators(4, Faults::default()) else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    fs::write(path("endless.wat"), xor_until_77777("(loop $endless (br $endless))")).unwrap();
    fs::write(path("input.npy"), npy(&[77_777; 50_000])).unwrap();
    let good: Vec<_> = (0..2)
        .map(|rank| network.worker("good", rank, 2, &["--elements", "400000", "--iters", "60", "--timeout", "60s"]))
        .collect();
    let (operator, input) = (path("endless.wat"), path("input.npy"));
    for turn in 0..4 {
        let words = ["--protocol", protocol(), "--op", &operator, "--input", &input, "--timeout", "60s"];
        let bad: Vec<_> = (0..2).map(|rank| network.worker(&format!("bad-{turn}"), rank, 2, &words)).collect();
        for worker in bad {
            let error = error_of(worker);
            assert!(error.contains("the operator endless"), "{error}");
            assert!(error.contains("did not end within") && error.contains("the job is over"), "{error}");
        }
    }
    good.into_iter().for_each(|worker| drop(checked(worker)));
    network.until("the end of all jobs", |status| status.jobs.is_empty().then_some(()));
}

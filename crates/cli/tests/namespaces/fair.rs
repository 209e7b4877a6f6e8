//! `tributary lab fair` at small size: a flow under DCTCP, and a job that joins it on one cable.

use std::process::Command;

use serde_json::Value;
use tributary_testbed::requirements;

use crate::namespaces::network::{alone, text};

fn windows(report: &Value, figure: usize) -> Vec<f64> {
    let points = report["figures"][figure]["series"][0]["points"].as_array().unwrap();
    points.iter().map(|point| point[1].as_f64().unwrap()).collect()
}

/// What is fair takes longer than a test may, and a machine with nothing else to do: docs/protocols/panama.md has it.
#[test]
fn a_job_joins_a_flow_and_without_congestion_control_the_flow_has_less() {
    if let Err(reason) = requirements() {
        eprintln!("skipped: {reason}");
        return;
    }
    let _turn = alone();
    let output = Command::new(env!("CARGO_BIN_EXE_tributary"))
        .args(["lab", "fair", "--duration", "3s", "--json"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let share = |line: usize, who: &str| report["lines"][line][who].as_f64().unwrap();
    for line in [0, 1] {
        assert!(share(line, "flow_alone_mbps") > 10.0 && share(line, "job_share") > 0.1, "{}", report["lines"]);
    }
    assert!(share(0, "flow_share") > 2.0 * share(1, "flow_share"), "{}", report["lines"]);
    let (on, off) = (windows(&report, 1), windows(&report, 3));
    assert!(off.iter().all(|&window| window == off[0]), "a constant window: {off:?}");
    assert!(on.iter().any(|&window| window < off[0] / 2.0), "marks have cut none: {on:?}");
}

//! CustomOps of jobs' own on a fabric: every switch of a tree has the module, planned around those that do not serve it, and a
//! module that fails ends its own job everywhere.

use std::fs;
use std::path::Path;
use std::process::Output;

use serde_json::Value;

use crate::namespaces::fabric::fabric_of;
use crate::namespaces::network::text;
use crate::namespaces::operators::{npy, protocol, xor_until_77777};

const EXAMPLE: &str = include_str!("../../../../examples/fabric.toml");

/// Shell functions: `job NAME OPERATOR ...` has two hosts behind each leaf reduce with an operator, each to files of its own.
const WORDS: &str = r#"
    job() { name=$1; op=$2; shift 2; rank=0; for host in 0 1 4 5; do
        eval "place=\$NS_host$host"
        ip netns exec $place "$TRIBUTARY" allreduce --protocol $PROTOCOL --switch 10.77.128.$((host / 4 + 1)) --job $name --op $op \
            --rank $rank --world-size 4 --timeout 60s --json "$@" > "$DIR/$name.$rank.out" 2> "$DIR/$name.$rank.err" &
        workers="$workers $!"; rank=$((rank + 1))
    done; }
    all() { for worker in $workers; do wait $worker; done; workers=; }
    status() { ip netns exec $NS_control "$TRIBUTARY" status --switch 10.77.192.$1 --json > "$DIR/status.$1"; }
"#;

/// The example's fabric with this said of operators, and a script on it.
fn script(dir: &Path, operators: &str, script: &str) -> Option<Output> {
    let file = dir.join("fabric.toml");
    fs::write(&file, format!("{EXAMPLE}\n{operators}")).unwrap();
    let script = format!("DIR='{}'\nPROTOCOL={}\n{WORDS}{script}", dir.display(), protocol());
    fabric_of(file.to_str().unwrap(), &["--run", &script])
}

fn reports(dir: &Path, job: &str) -> Vec<Value> {
    let of = |rank| {
        let error = fs::read_to_string(dir.join(format!("{job}.{rank}.err"))).unwrap();
        let report = fs::read_to_string(dir.join(format!("{job}.{rank}.out"))).unwrap();
        serde_json::from_str(&report).unwrap_or_else(|_| panic!("rank {rank} of {job}: {error}"))
    };
    (0..4).map(of).collect()
}

fn errors_of(dir: &Path, job: &str) -> Vec<String> {
    (0..4).map(|rank| fs::read_to_string(dir.join(format!("{job}.{rank}.err"))).unwrap()).collect()
}

/// Each rank compares its result with what the module makes at home; `matrix-2x2` has ranks in their order.
#[test]
fn a_job_with_a_custom_operator_runs_over_the_switches_that_serve_it_and_around_those_that_do_not() {
    let dir = tempfile::tempdir().unwrap();
    let operators = "[operators]\nallow = \"any\"\nat = { spine0 = \"none\" }\n";
    let words = "job max maxloc --elements 200000; job matrix matrix-2x2 --elements 100001; all
                 job trees xor --elements 100001 --trees 2; all";
    let Some(output) = script(dir.path(), operators, words) else { return };
    assert!(output.status.success(), "{}", text(&output.stderr));
    for job in ["max", "matrix", "trees"] {
        for report in reports(dir.path(), job) {
            assert_eq!(report["checked"], true, "{report}");
        }
    }
    let stderr = text(&output.stderr);
    assert!(stderr.is_empty() || !stderr.contains("panicked"), "{stderr}");
}

#[test]
fn a_leaf_that_serves_no_operators_refuses_the_jobs_of_its_hosts_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let operators = "[operators]\nallow = \"any\"\nat = { leaf1 = \"none\" }\n";
    let Some(_) = script(dir.path(), operators, "job max maxloc --elements 1000; all") else { return };
    for error in errors_of(dir.path(), "max") {
        assert!(error.contains("switch leaf1, which has members, does not take it"), "{error}");
        assert!(error.contains("this switch serves no operators of jobs' own"), "{error}");
    }
    let dir = tempfile::tempdir().unwrap();
    let Some(_) = script(dir.path(), "", "job max maxloc --elements 1000; all") else { return };
    for error in errors_of(dir.path(), "max") {
        assert!(error.contains("[operators] allow"), "{error}");
    }
}

#[test]
fn an_operator_that_fails_anywhere_in_a_fabric_ends_its_own_job_by_name_and_no_other() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("trap.wat"), xor_until_77777("unreachable")).unwrap();
    fs::write(dir.path().join("input.npy"), npy(&[77_777; 5_000])).unwrap();
    let words = "job good xor --elements 400001 --iters 5
                 job bad $DIR/trap.wat --input $DIR/input.npy --iters 1000; all; sleep 2; status 1; status 3";
    let Some(_) = script(dir.path(), "[operators]\nallow = \"any\"\n", words) else { return };
    for error in errors_of(dir.path(), "bad") {
        assert!(error.contains("operator trap") && error.contains("has trapped"), "{error}");
        assert!(error.contains("; the job is over"), "{error}");
    }
    for report in reports(dir.path(), "good") {
        assert_eq!(report["checked"], true, "{report}");
    }
    for switch in [1, 3] {
        let status: Value = fs::read_to_string(dir.path().join(format!("status.{switch}"))).unwrap().parse().unwrap();
        assert_eq!(status["jobs"].as_array().unwrap().len(), 0, "{status}");
    }
}

//! Switches of a fabric that die while hosts sum: what goes on, and what every rank is told. The fabric is that of
//! `fabric.rs`; leaf1 is the only switch of hosts 4 to 7, the spines are on the way of everybody, and spine1 is the controller.

use std::path::Path;
use std::process::{Command, Output};

use tributary_testbed::requirements;

use crate::namespaces::network::{text, turn};

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/fabric.toml");
const PROGRAM: &str = env!("CARGO_BIN_EXE_tributary");
/// A collective's time. Who is not told of a death learns of it then.
const TIMEOUT_S: u64 = 60;
/// Who is told learns of it well before.
pub const FAIL_WITHIN_S: u64 = 20;

/// What a shell script finds: the workers of a job that sums for a while, and the end of a switch. A switch that is
/// started again is not waited for.
const WORDS: &str = r#"
    job() { for rank in 0 1 2 3 4 5 6 7; do
        eval "place=\$NS_host$rank"
        timeout 100 ip netns exec $place "$TRIBUTARY" allreduce --protocol $PROTOCOL --switch 10.77.128.$((rank / 4 + 1)) --job $1 \
            --rank $rank --world-size 8 --dtype i32 --elements $2 --iters $3 --timeout ${TIMEOUT}s --json \
            > "$DIR/$1.$rank.out" 2> "$DIR/$1.$rank.err" &
        workers="$workers $!"
    done; }
    all() { wait $workers; workers=; date +%s > "$DIR/told"; }
    busy() { for try in $(seq 300); do
        ip netns exec $NS_control "$TRIBUTARY" status --switch 10.77.192.1 --json 2> /dev/null > "$DIR/status"
        grep -q '"contributions": *[1-9]' "$DIR/status" && return
        sleep 0.1
    done; echo 'the job never began' >&2; exit 9; }
    end() { eval "place=\$NS_$1"; kill -9 $(ip netns pids $place); date +%s > "$DIR/ended"
        while [ -n "$(ip netns pids $place)" ]; do sleep 0.01; done; }
    # As its operator does: it notifies everybody and ends.
    stop() { eval "place=\$NS_$1"; date +%s > "$DIR/ended"; kill -TERM $(ip netns pids $place)
        while [ -n "$(ip netns pids $place)" ]; do sleep 0.01; done; }
    # As a supervisor does: the sockets of the killed one may still be closing.
    again() { eval "place=\$NS_$1"; for try in $(seq 50); do
        timeout 100 ip netns exec $place "$TRIBUTARY" switch --fabric "$FILE" --node $1 > /dev/null 2>> "$DIR/again.err"
        [ $? -eq 1 ] || break
        sleep 0.02
    done & }
"#;

/// Runs a script on the example fabric; `None`, with the reason on stderr, where none can be built.
fn script(dir: &Path, words: &str) -> Option<Output> {
    script_under("canary", dir, words)
}

/// The same under another protocol.
pub fn script_under(protocol: &str, dir: &Path, script: &str) -> Option<Output> {
    if let Err(reason) = requirements() {
        eprintln!("skipped: {reason}");
        return None;
    }
    let _turn = turn();
    let mut command = Command::new(PROGRAM);
    command.args(["lab", "fabric", EXAMPLE, "--run", &format!("{WORDS}{script}")]).env_remove("TRIBUTARY_SWITCH");
    command.env("TRIBUTARY", PROGRAM).env("FILE", EXAMPLE).env("DIR", dir).env("TIMEOUT", TIMEOUT_S.to_string());
    command.env("PROTOCOL", protocol);
    Some(command.output().unwrap())
}

/// What each of the eight ranks of a job complained of.
pub fn errors_of(dir: &Path, job: &str) -> Vec<String> {
    let read = |rank| std::fs::read_to_string(dir.join(format!("{job}.{rank}.err"))).unwrap().trim().to_string();
    (0..8).map(read).collect()
}

/// A time that the script wrote down.
pub fn seconds(dir: &Path, name: &str) -> u64 {
    std::fs::read_to_string(dir.join(name)).unwrap().trim().parse().unwrap()
}

#[test]
fn every_rank_reports_a_leaf_that_dies_with_the_ranks_behind_it() {
    let dir = tempfile::tempdir().unwrap();
    let output = script(dir.path(), "job long 500000 100000; busy; end leaf1; all");
    let Some(output) = output else { return };
    let errors = errors_of(dir.path(), "long");
    for (rank, error) in errors.iter().enumerate() {
        let wanted = match rank {
            0..4 => "the switch 10.77.128.2:17777 is gone, and ranks 4, 5, 6, 7 with it",
            _ => "the switch 10.77.128.2:17777 does not answer any more",
        };
        assert!(error.contains(wanted) && error.lines().count() == 1, "rank {rank}: {error}");
    }
    let elapsed = seconds(dir.path(), "told") - seconds(dir.path(), "ended");
    assert!(elapsed < FAIL_WITHIN_S, "after {elapsed} s: {}", text(&output.stderr));
}

#[test]
fn a_spine_that_stops_costs_no_element_where_trees_are_found_packet_by_packet() {
    let dir = tempfile::tempdir().unwrap();
    let Some(output) = script(dir.path(), "job long 500000 30; busy; stop spine0; all") else { return };
    let errors = errors_of(dir.path(), "long");
    assert!(errors.iter().all(String::is_empty), "{errors:?} {}", text(&output.stderr));
}

#[test]
fn a_leaf_that_is_started_again_at_once_costs_no_element() {
    let dir = tempfile::tempdir().unwrap();
    let words = "job long 500000 30; busy; end leaf1; again leaf1; all; end leaf1";
    let Some(output) = script(dir.path(), words) else { return };
    let errors = errors_of(dir.path(), "long");
    assert!(errors.iter().all(String::is_empty), "{errors:?} {}", text(&output.stderr));
}

#[test]
fn a_controller_that_is_started_again_costs_no_element_and_the_next_job_is_formed_there() {
    let dir = tempfile::tempdir().unwrap();
    let words = "job long 500000 40; busy; end spine1; sleep 2; again spine1; all; job next 1000 1; all; end spine1";
    let Some(output) = script(dir.path(), words) else { return };
    for job in ["long", "next"] {
        let errors = errors_of(dir.path(), job);
        assert!(errors.iter().all(String::is_empty), "{job}: {errors:?} {}", text(&output.stderr));
    }
}

#[test]
fn without_its_controller_a_fabric_sums_to_the_end_and_refuses_the_next_job_with_one_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let words = "job long 500000 40; busy; end spine1; all; job next 1000 1; all";
    let Some(output) = script(dir.path(), words) else { return };
    let errors_for = |job| errors_of(dir.path(), job);
    assert!(errors_for("long").iter().all(String::is_empty), "{:?} {}", errors_for("long"), text(&output.stderr));
    for error in errors_for("next") {
        let wanted = "switch spine1, where this fabric's jobs are formed, cannot be asked at 10.77.192.4:17777";
        assert!(error.contains(wanted) && error.lines().count() == 1, "{error}");
    }
}

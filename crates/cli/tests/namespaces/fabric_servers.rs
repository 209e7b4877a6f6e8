//! Servers on hosts of their own in a fabric: two leaves, two spines, six ranks, and a server behind each leaf.

use std::fs;
use std::path::Path;
use std::process::Output;

use serde_json::Value;

use crate::namespaces::fabric::fabric_of;
use crate::namespaces::network::text;
use crate::namespaces::sharing::served;

const EXAMPLE: &str = include_str!("../../../../examples/fabric.toml");

/// Shell functions: `job NAME ...` has two hosts behind each leaf sum, each with its output and its error in files of its own;
/// `busy NAME` waits until they do; `status` asks the controller.
const WORDS: &str = r#"
    job() { name=$1; shift; rank=0; for host in 0 1 4 5; do
        eval "place=\$NS_host$host"
        ip netns exec $place "$TRIBUTARY" allreduce --protocol $PROTOCOL --switch 10.77.128.$((host / 4 + 1)) --job $name \
            --rank $rank --world-size 4 --dtype i32 --json "$@" > "$DIR/$name.$rank.out" 2> "$DIR/$name.$rank.err" &
        workers="$workers $!"; rank=$((rank + 1))
    done; }
    all() { for worker in $workers; do wait $worker; done; workers=; }
    status() { ip netns exec $NS_control "$TRIBUTARY" status --switch 10.77.192.4 --json > "$DIR/status"; }
    busy() { for try in $(seq 600); do
        status && grep -q '"contributions": *[1-9]' "$DIR/status" && return
        sleep 0.1
    done; echo 'the job never began' >&2; exit 9; }
"#;

/// The example's fabric with servers, and these words.
fn fabric(dir: &Path, words: &[&str]) -> Option<Output> {
    let file = dir.join("fabric.toml");
    let named = EXAMPLE.replace("rate = \"200 Mbit/s\" ", "servers = [\"host3\", \"host7\"]\nrate = \"200 Mbit/s\" ");
    assert!(named.contains("host7"));
    fs::write(&file, named).unwrap();
    fabric_of(file.to_str().unwrap(), words)
}

#[test]
fn servers_sum_what_does_not_fit_a_fabrics_switches() {
    for protocol in served() {
        let dir = tempfile::tempdir().unwrap();
        for (aggregators, expected) in [(0, 0.0..=0.0), (2, 0.0..=0.999)] {
            let option = format!("{protocol}.aggregators={aggregators}");
            let words = ["--allreduce", "200000", "--dtype", "i32", "--json", "--timeout", "100s", "--protocol"];
            let words = [&words[..], &[protocol.name, "--switch-option", &option]].concat();
            let Some(output) = fabric(dir.path(), &words) else { return };
            assert!(output.status.success(), "{}", text(&output.stderr));
            let report: Value = serde_json::from_slice(&output.stdout).unwrap();
            let ranks = report["ranks"].as_array().unwrap();
            assert_eq!(ranks.len(), 6, "servers bring nothing: {report}");
            for rank in ranks {
                let share = rank["in_network"].as_f64().unwrap();
                assert!(expected.contains(&share), "{protocol}, {aggregators} aggregators: {rank}");
            }
            let shared =
                report["switches"].as_array().unwrap().iter().flat_map(|own| own["shared"].as_array().unwrap());
            assert!(shared.into_iter().all(|shared| shared["slots_in_use"] == 0), "{report}");
        }
    }
}

#[test]
fn a_server_of_a_fabric_that_is_killed_is_named_by_every_rank_and_the_next_job_does_without_it() {
    for protocol in served() {
        let dir = tempfile::tempdir().unwrap();
        let script = format!(
            "DIR='{}'\nPROTOCOL={protocol}\n{WORDS}
            job orphans --elements 400000 --iters 1000000 --timeout 60s; busy
            kill -9 $(ip netns pids $NS_host7); all
            job next --elements 100000 --iters 2 --timeout 60s; all; status",
            dir.path().display()
        );
        let option = format!("{protocol}.aggregators=16");
        let Some(_) = fabric(dir.path(), &["--switch-option", &option, "--run", &script]) else { return };
        let read = |name: String| fs::read_to_string(dir.path().join(name)).unwrap();
        for rank in 0..4 {
            let error = read(format!("orphans.{rank}.err"));
            let named = error.contains("server 1 (10.77.0.8:") && error.contains("is gone: its process ended");
            assert!(named, "{protocol}, rank {rank}: {error}");
            let report: Value = serde_json::from_str(&read(format!("next.{rank}.out"))).unwrap();
            assert_eq!((&report["servers"], &report["checked"]), (&Value::from(1), &Value::from(true)), "{report}");
        }
        let status: Value = serde_json::from_str(&read("status".into())).unwrap();
        let servers = status["switch"]["servers"].as_array().unwrap();
        let present = servers.iter().filter(|server| server["state"] == "present").map(|server| &server["addr"]);
        let present: Vec<&str> = present.map(|addr| addr.as_str().unwrap()).collect();
        assert!(matches!(present[..], [addr] if addr.starts_with("10.77.0.4:")), "{status}");
    }
}

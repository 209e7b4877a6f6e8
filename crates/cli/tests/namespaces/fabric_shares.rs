//! Jobs that divide the memory of a fabric's switches, over two trees of two levels, on real packets.

use std::fs;

use serde_json::Value;
use tributary_proto::protocols;

use crate::namespaces::fabric::fabric_of;
use crate::namespaces::network::text;

const EXAMPLE: &str = include_str!("../../../../examples/fabric.toml");

/// Eight jobs of two hosts behind different leaves, which sum until they are killed. What the controller and a leaf say when all run, and
/// a second later: a line each.
const SCRIPT: &str = r#"
    status() { ip netns exec $NS_control "$TRIBUTARY" status --switch 10.77.192.$1 --json | tr -d '\n'; }
    for job in 0 1 2 3 4 5 6 7; do for rank in 0 1; do
        eval "place=\$NS_host$((4 * rank))"
        timeout 100 ip netns exec $place "$TRIBUTARY" allreduce --protocol $PROTOCOL --switch 10.77.128.$((rank + 1)) \
            --job job$job --rank $rank --world-size 2 --trees 2 --dtype i32 --elements 100000 --iters 100000 --timeout 60s \
            > /dev/null &
        workers="$workers $!"
        # The first host is charged for all jobs.
        for try in $(seq 100); do status 4 | grep -q "\"job$job\"" && break; sleep 0.1; done
    done; done
    for try in $(seq 300); do
        status 4 | grep -o '"state": *"running"' | wc -l > $DIR/running
        [ $(cat $DIR/running) -ge 8 ] && break
        sleep 0.1
    done
    sleep 1; status 4; echo; status 1; echo
    sleep 1; status 4; echo; status 1; echo
    kill $workers
"#;

#[test]
fn eight_jobs_have_equal_shares_that_add_up_to_what_their_client_may_have_and_all_go_on() {
    let Some(protocol) = protocols::ALL.iter().find(|protocol| protocol.resizes) else { return };
    let dir = tempfile::tempdir().unwrap();
    let (file, folder) = (dir.path().join("fabric.toml"), dir.path().display());
    let small = EXAMPLE.replace("queue = \"256 KiB\" ", "memory = \"2 MiB\"\nqueue = \"2048 KiB\" ");
    assert!(small.contains("memory = "));
    fs::write(&file, small).unwrap();
    let script = format!("PROTOCOL={}; DIR={folder}\n{SCRIPT}", protocol.name);
    let Some(output) = fabric_of(file.to_str().unwrap(), &["--run", &script]) else { return };
    let said: Vec<Value> = text(&output.stdout).lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let [controller, leaf, later, leaf_later] = &said[..] else { panic!("{said:?} {}", text(&output.stderr)) };
    let each = |status: &Value, what: &str| -> Vec<u64> {
        status["jobs"].as_array().unwrap().iter().map(|job| job[what].as_u64().unwrap()).collect()
    };
    let slots = each(controller, "slots");
    assert!(slots.len() == 8 && slots.iter().all(|&own| own == slots[0] && own >= 4), "{slots:?}");
    let in_use: u64 = each(controller, "memory_bytes").iter().sum();
    assert!(in_use <= 1 << 20 && in_use > 900 << 10, "{in_use} bytes");
    for job in leaf["jobs"].as_array().unwrap() {
        for tree in job["trees"].as_array().unwrap() {
            let caps =
                tree["switches"].as_array().unwrap().iter().filter_map(|switch| switch["order"]["wnd_cap"].as_u64());
            assert!(caps.clone().count() > 0 && caps.clone().all(|cap| cap == slots[0] / 2), "{tree}");
        }
    }
    for status in [controller, leaf, later, leaf_later] {
        assert!(status["jobs"].as_array().unwrap().iter().all(|job| job["drops"]["overflow"].is_null()), "{status}");
    }
    let moved = each(controller, "blocks").into_iter().zip(each(later, "blocks")).all(|(before, after)| after > before);
    assert!(moved, "{:?} {:?}", each(controller, "blocks"), each(later, "blocks"));
}

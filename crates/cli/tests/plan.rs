//! `tributary plan`: a line for each protocol, a recommendation, and files that give the same times again.

use std::process::{Command, Output};

use serde_json::Value;
use tributary_proto::protocols;

fn tributary(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tributary"));
    command.args(words).env_remove("TRIBUTARY_SWITCH").output().expect("the program runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("the program writes UTF-8")
}

fn plan(words: &[&str]) -> Output {
    let output = tributary(&[&["plan", "--compute", "4 ms", "--layers", "4", "--bucket", "64 KiB"], words].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    output
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

/// A protocol whose switches sum.
fn summing() -> &'static str {
    protocols::ALL.iter().find(|protocol| protocol.sums_in_network()).unwrap().name
}

/// Lines have the order of their steps.
fn steps(plan: &Value) -> Vec<f64> {
    let rows = plan["rows"].as_array().unwrap();
    let steps: Vec<f64> =
        rows.iter().map(|row| row["step_seconds"].as_f64().unwrap_or_else(|| panic!("{row}"))).collect();
    assert!(steps.is_sorted(), "{plan}");
    steps
}

#[test]
fn each_protocol_has_a_line_whose_file_gives_the_same_step_again() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    let scaled = ["--parameters", "400_000", "--hosts", "4", "--scale", "4", "--out", out, "--json"];
    let plan = json(&plan(&scaled));
    let steps = steps(&plan);
    assert!(steps.len() > 5, "{plan}");
    let rows = plan["rows"].as_array().unwrap();
    for (row, step) in rows.iter().zip(&steps) {
        assert!(*step >= 4e-3, "a step has at least what is computed: {row}");
        let exposed = row["exposed_seconds"].as_f64().unwrap();
        assert!(exposed > 0.0 && exposed <= *step, "{row}");
        assert_eq!(row["switch_memory_bytes"] != 0, row["in_network"] == true, "{row}");
    }
    assert!(plan["recommendation"].as_str().unwrap().starts_with("Take "), "{plan}");
    let first = rows[0]["protocol"].as_str().unwrap();
    let again = tributary(&["sim", "run", &format!("{out}/{first}.toml"), "--json"]);
    let report: Value = json(&again);
    let seconds = report["steps"][0]["seconds"].as_f64().unwrap();
    assert!((4.0 * seconds - steps[0]).abs() < 1e-12, "{first}: {seconds} s");
}

#[test]
fn no_protocol_whose_switches_sum_everything_is_far_from_the_best() {
    let words = ["--parameters", "400_000", "--hosts", "8", "--rate", "1 Gbit/s", "--json"];
    let plan = json(&plan(&words));
    let goodput = |row: &Value| row["goodput_gbps"].as_f64().unwrap();
    let rows = plan["rows"].as_array().unwrap();
    let by_hosts = rows.iter().filter(|row| row["in_network"] == false).map(goodput).fold(0.0, f64::max);
    for row in rows.iter().filter(|row| row["in_network"] == true) {
        assert!(goodput(row) > 1.2 * by_hosts, "switches that send what they have too early: {row} of {plan}");
    }
}

#[test]
fn ranks_have_the_slots_that_they_would_propose() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    let plan = json(&plan(&["--parameters", "1_000_000", "--hosts", "8", "--out", out, "--json"]));
    let rows: Vec<&Value> = plan["rows"].as_array().unwrap().iter().filter(|row| row["in_network"] == true).collect();
    let goodput = |row: &Value| row["goodput_gbps"].as_f64().unwrap();
    let best = rows.iter().map(|row| goodput(row)).fold(0.0, f64::max);
    for row in rows {
        assert!(goodput(row) > 0.9 * best, "with slots for one round trip, ranks ahead of others wait: {row}");
        let file = std::fs::read_to_string(folder.path().join(format!("{}.toml", row["protocol"].as_str().unwrap())));
        assert!(file.unwrap().contains("slots = 512"), "750 kB in packets of 1,500 bytes, and a power of two: {row}");
    }
}

#[test]
fn a_plan_that_is_scaled_down_says_so_and_slower_links_make_steps_longer() {
    let of = |rate: &str, scale: &str| {
        let words = ["--parameters", "400_000", "--hosts", "4", "--protocol", summing(), "--rate", rate];
        plan(&[&words[..], &["--scale", scale, "--json"]].concat())
    };
    let [fast, slow] = ["10 Gbit/s", "1 Gbit/s"].map(|rate| steps(&json(&of(rate, "1")))[0]);
    assert!(slow > 2.0 * fast, "1.6 MB at 1 Gbit/s take 13 ms: {fast}, {slow}");
    let shown = |scale: &str| {
        let words = ["--parameters", "400_000", "--hosts", "4", "--protocol", summing(), "--scale", scale];
        text(&plan(&words).stdout)
    };
    assert!(shown("3").contains("SCALED DOWN 3 times"));
    assert!(!shown("1").contains("SCALED"));
}

#[test]
fn hosts_that_sum_over_tcp_have_a_line_without_notes() {
    let words = ["--parameters", "400_000", "--hosts", "4", "--protocol", "gloo", "--protocol", summing(), "--json"];
    let plan = json(&plan(&words));
    let gloo = plan["rows"].as_array().unwrap().iter().find(|row| row["protocol"] == "gloo").unwrap();
    assert_eq!((&gloo["in_network"], &gloo["notes"]), (&false.into(), &serde_json::json!([])));
    let step = gloo["step_seconds"].as_f64().unwrap();
    // A ring moves 2 * 3 / 4 of 1.6 MB over each link of 10 Gbit/s, of which the first layers hide what they can.
    assert!(step > 4e-3 && gloo["exposed_seconds"].as_f64().unwrap() < 4e-3, "{gloo}");
    assert!(gloo["failure"].is_null(), "{gloo}");
}

#[test]
fn calibrated_costs_are_in_the_plan_and_in_its_experiments() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    let words = ["--parameters", "40_000", "--hosts", "2", "--protocol", summing(), "--scale", "1", "--out", out];
    let plan = json(&plan(&[&words[..], &["--calibrate", "--json"]].concat()));
    let of_packet = plan["host_costs"]["packet_seconds"].as_f64().unwrap();
    let of_byte = plan["host_costs"]["byte_seconds"].as_f64().unwrap();
    assert!(of_packet > 0.0 && of_byte >= 0.0, "{plan}");
    let file = std::fs::read_to_string(folder.path().join(format!("{}.toml", summing()))).unwrap();
    assert!(file.contains("[hosts]") && file.contains("per_packet = "), "{file}");
}

#[test]
fn the_network_can_be_a_fabrics_file_or_another_simulators_topology() {
    let folder = tempfile::tempdir().unwrap();
    let topology = folder.path().join("star.txt");
    std::fs::write(&topology, "4 1 3\n3\n0 3 10Gbps 1us 0\n1 3 10Gbps 1us 0\n2 3 10Gbps 1us 0.001\n").unwrap();
    let topology = topology.to_str().unwrap();
    let out = folder.path().to_str().unwrap();
    let words = ["--parameters", "400_000", "--protocol", summing(), "--json", "--network"];
    let lossy = json(&plan(&[&words[..], &[topology, "--out", out]].concat()));
    assert!(steps(&lossy)[0] > 4e-3 && lossy["network"].as_str().unwrap().starts_with("3 hosts of "), "{lossy}");
    let kept = std::fs::read_to_string(folder.path().join(format!("{}.toml", summing()))).unwrap();
    assert!(kept.contains("loss = 0.001"), "what links lose is in the plan: {kept}");
    let fabric = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/fabric.toml");
    let fabric = json(&plan(&[&words[..], &[fabric]].concat()));
    assert!(steps(&fabric)[0] > 4e-3, "{fabric}");
    assert_eq!(fabric["assumed"], serde_json::json!(["The file has no delays of links: --delay was taken as 1 us"]));
}

#[test]
fn a_running_switch_says_what_it_has_and_flags_the_rest() {
    // What jobs share has its full size at the first of them.
    let shares = protocols::ALL.iter().find(|protocol| protocol.shared.is_some()).unwrap().name;
    let mut switch = Command::new(env!("CARGO_BIN_EXE_tributary"))
        .args(["switch", "--listen", "127.0.0.1:0", "--memory", "2 MiB", "--json"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(switch.stdout.take().unwrap()), &mut ready).unwrap();
    let ready: Value = serde_json::from_str(&ready).unwrap();
    let addr = ready["listen"].as_str().unwrap();
    let common = ["--live", addr, "--parameters", "400_000", "--protocol", shares];
    let unknown = tributary(&[&["plan", "--compute", "4 ms"], &common[..]].concat());
    let known = tributary(&[&["plan", "--compute", "4 ms", "--hosts", "4", "--json"], &common[..]].concat());
    switch.kill().unwrap();
    switch.wait().unwrap();
    let stderr = text(&unknown.stderr);
    assert_eq!(unknown.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("knows 0 hosts") && stderr.contains("--hosts N"), "{stderr}");
    assert!(known.status.success(), "{}", text(&known.stderr));
    let known = json(&known);
    assert_eq!(known["network"], "4 hosts at one switch, links of 10 Gbit/s");
    let assumed: Vec<&str> = known["assumed"].as_array().unwrap().iter().map(|said| said.as_str().unwrap()).collect();
    assert!(assumed[0].contains("--rate was taken as 10 Gbit/s"), "{assumed:?}");
    assert!(assumed[1].contains("--delay was taken as 1 us"), "{assumed:?}");
    assert_eq!(known["rows"][0]["notes"], serde_json::json!(["the switch has only 2048 KiB for jobs"]), "{known}");
}

#[test]
fn wrong_plans_end_with_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("empty.toml");
    std::fs::write(&file, "seed = 1\n").unwrap();
    let file = file.to_str().unwrap();
    let plain = folder.path().join("network.toml");
    std::fs::write(&plain, "[network]\nstar = { hosts = 4 }\n").unwrap();
    let plain = plain.to_str().unwrap();
    let hello = folder.path().join("hello.txt");
    std::fs::write(&hello, "hello\n").unwrap();
    let hello = hello.to_str().unwrap();
    let rest = ["plan", "--parameters", "300", "--compute", "1 ms"];
    let cases: [(&[&str], i32, &str); 8] = [
        (&["plan", "--model", "skynet", "--compute", "1 ms"], 2, "write one of alexnet, resnet-50"),
        (&["plan", "--compute", "1 ms"], 2, "--model"),
        (&["plan", "--parameters", "3", "--compute", "1 ms"], 2, "3 parameters are fewer than 50 layers"),
        (&["plan", "--parameters", "300", "--compute", "1 ms", "--network", file], 1, "it has no [network]"),
        (&[&rest[..], &["--rate", "1 Gbit/s", "--network", plain]].concat(), 2, "--rate and --delay: "),
        (&[&rest[..], &["--network", hello]].concat(), 1, "this is neither htsim's .topo"),
        (&[&rest[..], &["--live", "127.0.0.1:1"]].concat(), 1, "127.0.0.1:1"),
        (&[&rest[..], &["--protocol", "nccl"]].concat(), 2, "gloo"),
    ];
    for (words, code, sentence) in cases {
        let output = tributary(words);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{stderr}");
        assert!(stderr.contains(sentence), "{stderr} is not {sentence}");
    }
}

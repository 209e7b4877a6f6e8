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
fn wrong_plans_end_with_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("empty.toml");
    std::fs::write(&file, "seed = 1\n").unwrap();
    let file = file.to_str().unwrap();
    let cases: [(&[&str], i32, &str); 4] = [
        (&["plan", "--model", "skynet", "--compute", "1 ms"], 2, "write one of alexnet, resnet-50"),
        (&["plan", "--compute", "1 ms"], 2, "--model"),
        (&["plan", "--parameters", "3", "--compute", "1 ms"], 2, "3 parameters are fewer than 50 layers"),
        (&["plan", "--parameters", "300", "--compute", "1 ms", "--network", file], 1, "it has no [network]"),
    ];
    for (words, code, sentence) in cases {
        let output = tributary(words);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{stderr}");
        assert!(stderr.contains(sentence), "{stderr} is not {sentence}");
    }
}

//! `tributary lab demo` and `tributary lab bench`, small: that they run, check what they sum, and say what they measured.

use std::process::{Command, Output};

use serde_json::Value;
use tributary_proto::contract::protocol::{Placement, Protocol};
use tributary_proto::protocols;

fn tributary(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tributary")).args(words).output().expect("the program runs")
}

/// The one JSON object of a command that must end well.
fn report(words: &[&str]) -> Value {
    let output = tributary(words);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

/// False, with the reason on stderr, where no network can be built.
fn namespaces() -> bool {
    let possible = tributary_testbed::requirements();
    if let Err(reason) = &possible {
        eprintln!("skipped: {reason}");
    }
    possible.is_ok()
}

/// The protocols that need no more than a switch and workers.
fn contenders() -> Vec<&'static str> {
    let on_one_switch = |protocol: &&&Protocol| protocol.placement != Placement::EveryHop && protocol.server.is_none();
    protocols::ALL.iter().filter(on_one_switch).map(|protocol| protocol.name).collect()
}

fn check_demo(report: &Value) {
    let lines = report["lines"].as_array().expect("lines");
    assert_eq!(lines.iter().map(|line| line["protocol"].as_str().unwrap()).collect::<Vec<_>>(), contenders());
    for line in lines {
        assert_eq!(line["verdict"]["identical"], true);
        assert!(line["goodput_gbps"].as_f64().unwrap() > 0.0);
        let shares = line["verdict"]["extremes"].as_array().unwrap().iter().map(|e| e["share"].as_f64().unwrap());
        assert!(shares.fold(0.0, f64::max) <= 1.0, "{line}");
    }
    assert_eq!(lines[0]["in_network"], 1.0);
    assert_eq!(lines[1]["in_network"], 0.0);
}

#[test]
fn the_demo_on_loopback_says_so() {
    let report = report(&["lab", "demo", "--loopback", "--elements", "30007", "--iters", "2", "--json"]);
    assert!(report["setting"].as_str().unwrap().contains("loopback"));
    check_demo(&report);
}

#[test]
fn the_demo_uses_namespaces_where_it_can() {
    if !namespaces() {
        return;
    }
    let report = report(&["lab", "demo", "--elements", "30007", "--iters", "2", "--json"]);
    assert!(report["setting"].as_str().unwrap().contains("links of 1 Gbit/s"));
    check_demo(&report);
}

#[test]
fn the_quick_bench_measures_every_contender_that_is_there() {
    if !namespaces() {
        return;
    }
    let report = report(&["lab", "bench", "--quick", "--no-gloo", "--json"]);
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.iter().map(|row| row["loss_percent"].as_f64().unwrap()).collect::<Vec<_>>(), [0.0, 1.0]);
    for row in rows {
        let lines = row["lines"].as_array().unwrap();
        assert_eq!(lines.len(), contenders().len());
        assert!(lines.iter().all(|line| line["goodput_gbps"].as_f64().unwrap() > 0.0), "{row}");
        assert!(lines.iter().all(|line| line["small_us"].as_f64().unwrap() > 0.0), "{row}");
    }
    assert!(rows[1]["lines"][0]["times_loss_free"].as_f64().unwrap() > 0.0);
}

#[test]
fn the_quick_bench_compares_types_and_ways_to_sum_them() {
    if !namespaces() {
        return;
    }
    let words = ["lab", "bench", "--quick", "--no-gloo", "--hosts", "2", "--elements", "5000"];
    let report = report(&[&words[..], &["--dtype", "f32,bf16", "--numbers", "float,fixed", "--json"]].concat());
    let lines = report["rows"][0]["lines"].as_array().unwrap();
    let of = |dtype: &str, numbers: &str| {
        let fits = |line: &&Value| {
            line["contender"] == lines[0]["contender"] && line["dtype"] == dtype && line["numbers"] == numbers
        };
        lines.iter().find(fits).unwrap_or_else(|| panic!("no line for {dtype}, {numbers}"))
    };
    for numbers in ["float", "fixed"] {
        let (wide, narrow) = (of("f32", numbers), of("bf16", numbers));
        assert!(narrow["times_f32"].as_f64().unwrap() > 0.0 && wide["times_f32"].is_null());
        let packets = |line: &Value| line["packets_sent"].as_u64().unwrap() - line["retransmissions"].as_u64().unwrap();
        assert!(packets(narrow) < packets(wide), "{narrow} {wide}");
    }
    for dtype in ["f32", "bf16"] {
        assert!(
            of(dtype, "float")["times_fixed"].as_f64().unwrap() > 0.0 && of(dtype, "fixed")["times_fixed"].is_null()
        );
    }
}

#[test]
fn the_quick_bench_of_named_protocols_measures_these_alone_beside_a_parameter_server() {
    if !namespaces() {
        return;
    }
    let served = tributary_proto::protocols::ALL.iter().filter(|protocol| protocol.server_machine().is_some());
    let names: Vec<&str> = served.map(|protocol| protocol.name).collect();
    let words =
        ["lab", "bench", "--quick", "--no-gloo", "--hosts", "2", "--servers", "1", "--elements", "20000", "--json"];
    let report = report(&[&words[..], &["--protocol", &names.join(",")]].concat());
    let lines = report["rows"][0]["lines"].as_array().unwrap();
    assert_eq!(lines.iter().map(|line| line["contender"].as_str().unwrap()).collect::<Vec<_>>(), names);
    assert!(lines.iter().all(|line| line["goodput_gbps"].as_f64().unwrap() > 0.0), "{report}");
    assert_eq!(report["rows"][0]["hosts"], 2);
}

#[test]
fn the_quick_bench_of_sparse_tensors_says_where_lines_cross() {
    if !namespaces() {
        return;
    }
    let words = [
        "lab",
        "bench",
        "--quick",
        "--no-gloo",
        "--hosts",
        "2",
        "--elements",
        "20000",
        "--sparse",
        "0.01,0.9",
        "--json",
    ];
    let report = report(&words);
    let (lines, crossings) = (&report["rows"][0]["lines"], &report["rows"][0]["crossings"]);
    let of_first = lines.as_array().unwrap().iter().filter(|line| line["contender"] == lines[0]["contender"]);
    let densities: Vec<Option<f64>> = of_first.clone().map(|line| line["density"].as_f64()).collect();
    assert_eq!(densities, [None, Some(0.01), Some(0.9)]);
    let packets: Vec<u64> = of_first.map(|line| line["packets_sent"].as_u64().unwrap()).collect();
    assert!(packets[1] < packets[0] && packets[0] < packets[2], "pairs are longer than elements: {packets:?}");
    assert!(lines[0]["times_dense"].is_null() && lines[1]["times_dense"].as_f64().unwrap() > 0.0);
    // Each against its own dense line, and against the sparse lines of those after it.
    let sparse = tributary_proto::protocols::ALL.iter().filter(|protocol| protocol.options.sparse.is_some());
    let names: Vec<&str> = sparse.map(|protocol| protocol.name).collect();
    let of = |index: usize| {
        let later = names[index + 1..].iter().map(|other| format!("sparse {other}"));
        std::iter::once(format!("dense {}", names[index])).chain(later).collect::<Vec<_>>()
    };
    let expected: Vec<String> = (0..names.len()).flat_map(of).collect();
    let against: Vec<&str> = crossings.as_array().unwrap().iter().map(|one| one["against"].as_str().unwrap()).collect();
    assert_eq!(against, expected);
}

#[test]
fn a_bench_without_pytorch_says_how_to_get_it_and_measures_the_rest() {
    if !namespaces() {
        return;
    }
    // An interpreter that has no PyTorch, whatever this machine has.
    let report = report(&["lab", "bench", "--quick", "--python", "/bin/false", "--json"]);
    let notes = report["notes"].as_array().unwrap();
    assert!(notes.len() == 1 && notes[0].as_str().unwrap().starts_with("Gloo was left out."), "{notes:?}");
    assert_eq!(report["rows"][0]["lines"].as_array().unwrap().len(), contenders().len());
}

#[test]
fn two_tenants_take_turns_with_every_way_to_share_a_switch() {
    if !namespaces() {
        return;
    }
    let words = [
        "lab",
        "bench",
        "--tenants",
        "--quick",
        "--elements",
        "20000",
        "--rate",
        "500Mbit/s",
        "--aggregators",
        "64",
        "--json",
    ];
    let report = report(&words);
    assert_eq!(report["memory_blocks"], 64);
    let lines = report["lines"].as_array().unwrap();
    let jobs: Vec<&str> = lines.iter().map(|line| line["job"].as_str().unwrap()).collect();
    assert_eq!(jobs, ["A", "B"].repeat(4), "{report}");
    let of = |line: &Value, name: &str| line[name].as_f64().unwrap();
    for pair in lines.chunks(2) {
        assert_eq!(pair[0]["way"], pair[1]["way"]);
        assert!(pair.iter().all(|line| of(line, "goodput_gbps") > 0.0), "{report}");
        assert!(pair.iter().all(|line| line["blocks_most"].as_f64().is_none_or(|blocks| blocks <= 64.0)), "{report}");
    }
    let own: Vec<f64> = lines[..2].iter().map(|line| of(line, "in_network")).collect();
    assert_eq!(own, [1.0, 1.0], "slots of their own: {report}");
}

#[test]
fn a_star_that_cannot_be_is_refused_with_a_sentence() {
    for (words, sentence) in [
        (&["lab", "bench", "--rate", "fast"][..], "'unshaped'"),
        (&["lab", "bench", "--loss", "80%"], "a share from 0 % to 50 %"),
        (&["lab", "bench", "--hosts", "1"], "1 is not in 2..=64"),
        (&["lab", "bench", "--sparse", "0"], "share of the elements above 0"),
        (&["lab", "bench", "--tenants", "--hosts", "4"], "cannot be used with"),
        (&["lab", "bench", "--tenants", "--servers", "1"], "cannot be used with"),
        (&["lab", "bench", "--protocol", "smoke"], "it is one of"),
        (&["lab", "bench", "--tenants", "--aggregators", "8"], "8 is not in 32..=1048576"),
    ] {
        let output = tributary(words);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && stderr.contains(sentence), "{stderr}");
    }
}

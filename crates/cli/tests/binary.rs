//! The plain binary as a process. All that it shares with the Python package's program is tested there (`tests/`).

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};

fn tributary(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tributary"));
    command.args(words).env_remove("TRIBUTARY_SWITCH").stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("the program writes UTF-8")
}

/// A switch and the address that it says it listens at.
fn switch() -> (Child, String) {
    let mut switch = tributary(&["switch", "--listen", "127.0.0.1:0"]).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(switch.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let address = line.strip_prefix("listening on udp+tcp ").and_then(|rest| rest.split(',').next());
    (switch, address.unwrap_or_else(|| panic!("no address in {line:?}")).to_string())
}

fn stop(switch: Child) -> Output {
    let kill = Command::new("kill").args(["-TERM", &switch.id().to_string()]).status().unwrap();
    assert!(kill.success());
    switch.wait_with_output().unwrap()
}

#[test]
fn a_switch_serves_until_sigterm_and_ends_with_0() {
    let (switch, address) = switch();
    let worker = |rank| {
        let place = ["allreduce", "--switch", &address, "--job", "a", "--rank", rank, "--world", "2"];
        tributary(&[&place[..], &["--elements", "100000", "--json"]].concat()).spawn().unwrap()
    };
    for worker in [worker("0"), worker("1")] {
        let output = worker.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(text(&output.stdout).trim_end().ends_with("\"checked\":true}"), "{}", text(&output.stdout));
    }
    let output = stop(switch);
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
}

#[test]
fn wrong_calls_end_with_2_and_failures_with_1() {
    let cases: [(&[&str], i32, &str); 3] = [
        (&["status"], 2, "--switch <ADDR:PORT>"),
        (&["switch", "--cores", "0"], 2, "0 is not in 1..=256"),
        (&["status", "--switch", "127.0.0.1:9"], 1, "127.0.0.1:9"),
    ];
    for (words, code, part) in cases {
        let output = tributary(words).output().unwrap();
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {stderr}");
        assert!(stderr.starts_with("tributary: error: ") && stderr.contains(part), "{words:?}: {stderr}");
    }
}

//! The plain binary as a process. All that it shares with the Python package's program is tested there (`tests/`).

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use tributary_net::group::{ConnectOptions, Group};
use tributary_numeric::ReduceOp;
use tributary_proto::protocols;

/// No test waits longer than this for what must come.
const PATIENCE: Duration = Duration::from_secs(30);

fn tributary(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tributary"));
    command
        .args(words)
        .env_remove("TRIBUTARY_SWITCH")
        .env("TRIBUTARY_LOG", "warn")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
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
fn the_version_says_which_build_it_is() {
    let output = tributary(&["--version"]).output().unwrap();
    assert_eq!(text(&output.stdout), format!("tributary {}\n", tributary_sim::Program::BUILD));
}

#[test]
fn a_switch_serves_until_sigterm_and_ends_with_0() {
    let (switch, address) = switch();
    let worker = |rank| {
        let rank_flags = ["allreduce", "--switch", &address, "--job", "a", "--rank", rank, "--world-size", "2"];
        tributary(&[&rank_flags[..], &["--elements", "100000", "--json"]].concat()).spawn().unwrap()
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
    for (words, code, sentence) in cases {
        let output = tributary(words).output().unwrap();
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {stderr}");
        assert!(stderr.starts_with("tributary: error: ") && stderr.contains(sentence), "{words:?}: {stderr}");
    }
}

/// Waits until something answers at the address.
fn until_answered(address: &str) {
    let start = Instant::now();
    while std::net::TcpStream::connect(address).is_err() {
        assert!(start.elapsed() < PATIENCE, "{address} does not answer");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_switch_serves_whatever_becomes_of_its_stdout() {
    let signal = |switch: &Child, signal: &str| {
        assert!(Command::new("kill").args([signal, &switch.id().to_string()]).status().unwrap().success());
    };
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let (closed, address) = {
        let (mut switch, address) = switch();
        drop(switch.stdout.take());
        (switch, address)
    };
    let on_full_disk = tributary(&["switch", "--listen", &port]).stdout(full()).spawn().unwrap();
    for (mut switch, address) in [(closed, address), (on_full_disk, port)] {
        until_answered(&address);
        signal(&switch, "-HUP");
        let alone = ["allreduce", "--switch", &address, "--job", "a", "--rank", "0", "--world-size", "1"];
        let worker = tributary(&[&alone[..], &["--elements", "1000"]].concat()).output().unwrap();
        assert!(worker.status.success(), "{}", text(&worker.stderr));
        assert_eq!(switch.try_wait().unwrap(), None, "{address}: it runs on");
        let output = stop(switch);
        assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    }
}

#[test]
fn memory_that_the_system_does_not_give_refuses_a_job_and_ends_nothing() {
    let limited = format!(
        "ulimit -v 1400000; exec '{}' switch --listen 127.0.0.1:0 --memory 8GiB",
        env!("CARGO_BIN_EXE_tributary")
    );
    let mut switch =
        Command::new("sh").args(["-c", &limited]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(switch.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let address =
        line.strip_prefix("listening on udp+tcp ").and_then(|rest| rest.split(',').next()).unwrap().to_owned();
    let connect = |job: String| {
        let mut options = ConnectOptions::new(&address, &job, 0, 1, protocols::ALL[0]);
        options.slots = Some(16_384);
        Group::connect(&options)
    };
    let jobs: Vec<_> = (0..8).map(|job| connect(format!("job-{job}"))).collect();
    assert!(jobs[0].is_ok(), "there is memory for the first: {:?}", jobs[0].as_ref().err().map(ToString::to_string));
    let refused: Vec<String> = jobs.iter().filter_map(|job| Some(job.as_ref().err()?.to_string())).collect();
    assert!(!refused.is_empty() && refused.iter().all(|why| why.contains("no memory")), "{refused:?}");
    drop(jobs);
    assert_eq!(switch.try_wait().unwrap(), None);
    assert_eq!(stop(switch).status.code(), Some(0));
}

#[test]
fn settings_are_checked_without_starting_anything() {
    let folder = std::env::temp_dir().join(format!("tributary-check-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("switch.toml");
    let check = |text: &str| {
        std::fs::write(&file, text).unwrap();
        let output = tributary(&["switch", "--check", file.to_str().unwrap()]).output().unwrap();
        (output.status.code(), text_of(&output))
    };
    let (code, said) = check("listen = \"127.0.0.1:1\"\n");
    assert!(code == Some(0) && said.contains("are right"), "{said}");
    for (wrong, words) in [
        ("cores = 0\n", "cores = 0"),
        ("parent = \"nobody.invalid\"\n", "nobody.invalid"),
        ("memory = \"100000 GiB\"\n", "this machine lets the switch have"),
    ] {
        let (code, said) = check(wrong);
        assert!(code == Some(2) && said.contains(words), "{wrong}: {code:?} {said}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

fn text_of(output: &Output) -> String {
    text(&output.stdout) + &text(&output.stderr)
}

/// Memory of a process that is in RAM, without the pages of its file.
fn resident_kib(process: &Child) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_switch_gives_the_memory_of_a_jobs_slots_back_when_the_job_ends() {
    // 4,096 slots of two versions of 360 elements of four bytes, all of which the tensor uses.
    const SLOTS_KIB: u64 = 4_096 * 2 * 360 * 4 / 1_024;
    let (switch, address) = switch();
    let before = resident_kib(&switch);
    let mut tensor = vec![1; 2 * 4_096 * 360];
    // The first job's slots may lie elsewhere than those of later ones.
    for job in ["first", "second", "third"] {
        let options = ConnectOptions {
            switch: address.clone(),
            job: job.into(),
            rank: 0,
            world_size: 1,
            timeout: PATIENCE,
            protocol: protocols::named("switchml").unwrap(),
            options: protocols::named("switchml").unwrap().options.defaults(),
            elements_per_packet: Some(360),
            slots: Some(4_096),
            trees: None,
            cores: None,
        };
        let group = Group::connect(&options).unwrap();
        group.allreduce_in_place(&mut tensor, ReduceOp::Sum, PATIENCE).unwrap();
        assert!(resident_kib(&switch) >= before + SLOTS_KIB);
        group.close();
    }
    let start = Instant::now();
    while resident_kib(&switch) > before + SLOTS_KIB / 2 {
        assert!(start.elapsed() < PATIENCE, "{before} KiB before, {} after", resident_kib(&switch));
        std::thread::sleep(Duration::from_millis(20));
    }
    stop(switch);
}

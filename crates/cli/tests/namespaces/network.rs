//! A star with a switch in it, and workers as processes.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tributary_net::client;
use tributary_net::status::{JobStatus, SwitchStatus};
use tributary_testbed::{Faults, Namespace, Shaping, Star, StarOptions, requirements};

/// No test waits longer for anything; none depends on how long it takes.
const HANG: Duration = Duration::from_secs(120);
const PORT: u16 = 17777;

/// Two tests at a time: each has a handful of processes, which are busy for a while and wait for longer.
static TURNS: [Mutex<()>; 2] = [Mutex::new(()), Mutex::new(())];
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// Held by a test as long as it runs.
pub struct Turn(#[expect(dead_code, reason = "it is held, not read")] Vec<MutexGuard<'static, ()>>);

/// Waits until at most one other test runs.
pub fn turn() -> Turn {
    let free = TURNS.iter().find_map(|turn| turn.try_lock().ok());
    let next = &TURNS[NEXT.fetch_add(1, Ordering::Relaxed) % TURNS.len()];
    Turn(vec![free.unwrap_or_else(|| next.lock().unwrap_or_else(PoisonError::into_inner))])
}

/// Waits until no other test runs: for tests that compare rates.
pub fn alone() -> Turn {
    Turn(TURNS.iter().map(|turn| turn.lock().unwrap_or_else(PoisonError::into_inner)).collect())
}

pub struct Network {
    pub star: Star,
    switch: Child,
    _turn: Turn,
}

impl Network {
    /// A star of 1 Gbit/s links with a switch; `None`, with the reason on stderr, where none can be built.
    pub fn build(hosts: usize, faults: Faults) -> Option<Network> {
        Network::start(hosts, Shaping::gbps(1.0).unwrap(), faults, &[], turn)
    }

    /// The same, with a switch that takes servers from its hosts.
    pub fn build_serving(hosts: usize, faults: Faults) -> Option<Network> {
        Network::start(hosts, Shaping::gbps(1.0).unwrap(), faults, &["--servers", "10.77.0.0/24"], turn)
    }

    /// The same, and its switch is told more.
    pub fn build_serving_with(hosts: usize, faults: Faults, words: &[&str]) -> Option<Network> {
        let words = [&["--servers", "10.77.0.0/24"], words].concat();
        Network::start(hosts, Shaping::gbps(1.0).unwrap(), faults, &words, turn)
    }

    /// The same, with links of any rate and nothing lost, and no test beside it.
    pub fn build_alone(hosts: usize, shaping: Shaping) -> Option<Network> {
        Network::start(hosts, shaping, Faults::default(), &[], alone)
    }

    /// The same, with a switch that serves operators of jobs' own.
    pub fn build_serving_operators(hosts: usize, faults: Faults) -> Option<Network> {
        Network::start(hosts, Shaping::gbps(1.0).unwrap(), faults, &["--operators", "any"], turn)
    }

    fn start(hosts: usize, shaping: Shaping, faults: Faults, words: &[&str], turn: fn() -> Turn) -> Option<Network> {
        if let Err(reason) = requirements() {
            eprintln!("skipped: {reason}");
            return None;
        }
        let turn = turn();
        let options = StarOptions { faults, ..StarOptions::new(hosts, shaping) };
        let star = Star::build(options).unwrap();
        let switch = start_switch(&star, words);
        Some(Network { star, switch, _turn: turn })
    }

    pub fn switch_addr(&self) -> SocketAddr {
        (self.star.switch_addr(), PORT).into()
    }

    /// Kills the switch as the kernel would.
    pub fn kill_switch(&mut self) {
        self.switch.kill().unwrap();
        self.switch.wait().unwrap();
    }

    /// A new switch at the address of the one before.
    pub fn restart_switch(&mut self) {
        self.switch = start_switch(&self.star, &[]);
    }

    /// A worker on the host of its rank.
    pub fn worker(&self, job: &str, rank: usize, world_size: usize, words: &[&str]) -> Child {
        let mut command = tributary(self.star.host(rank));
        command.args(["allreduce", "--switch", &self.switch_addr().to_string(), "--job", job, "--json"]);
        command.args(["--rank", &rank.to_string(), "--world-size", &world_size.to_string()]).args(words);
        command.spawn().unwrap()
    }

    /// One worker for each of the first `world_size` hosts.
    pub fn workers(&self, job: &str, world_size: usize, words: &[&str]) -> Vec<Child> {
        (0..world_size).map(|rank| self.worker(job, rank, world_size, words)).collect()
    }

    /// A job from beginning to end: every worker must end well, and say that it has checked the sum.
    pub fn sum(&self, job: &str, world_size: usize, words: &[&str]) -> Vec<serde_json::Value> {
        self.workers(job, world_size, words).into_iter().map(checked).collect()
    }

    pub fn status(&self) -> SwitchStatus {
        let addr = self.switch_addr();
        self.star.switch_box().inside(|| client::status(addr).unwrap()).unwrap()
    }

    /// Waits until the switch's state is as wanted.
    pub fn until<T>(&self, what: &str, wanted: impl Fn(&SwitchStatus) -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            let status = self.status();
            if let Some(found) = wanted(&status) {
                return found;
            }
            assert!(start.elapsed() < HANG, "{what} does not come: {status:#?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until a job has completed this many blocks.
    pub fn until_busy(&self, job: &str, blocks: u64) -> JobStatus {
        let wanted = |status: &SwitchStatus| {
            status.jobs.iter().find(|found| found.name == job && found.blocks >= blocks).cloned()
        };
        self.until("a busy job", wanted)
    }

    /// Memory of the switch's process that is in RAM, without the pages of its file, which come and go with what else the
    /// machine needs memory for.
    pub fn switch_rss_kib(&self) -> u64 {
        self.switch_memory_kib("RssAnon:")
    }

    /// A line of `/proc/PID/status` of the switch's process.
    pub fn switch_memory_kib(&self, of: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.switch.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with(of)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // Fails only where a test has killed it already.
        let _ = self.switch.kill();
        let _ = self.switch.wait();
    }
}

fn start_switch(star: &Star, words: &[&str]) -> Child {
    let mut command = tributary(star.switch_box());
    command.args(["switch", "--listen", &format!("{}:{PORT}", star.switch_addr()), "--cores", "2"]).args(words);
    let mut switch = command.stderr(Stdio::inherit()).spawn().unwrap();
    let mut line = String::new();
    // Says that it listens; nothing after that is read, and it says little.
    BufReader::new(switch.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("listening on"), "{line}");
    switch
}

/// The program in a namespace.
pub fn tributary(namespace: &Namespace) -> Command {
    let mut command = namespace.command(env!("CARGO_BIN_EXE_tributary")).unwrap();
    command.env_remove("TRIBUTARY_SWITCH").stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The output of a process that must end by itself.
pub fn ended(mut child: Child) -> Output {
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > HANG {
            child.kill().unwrap();
            panic!("a worker hangs: {}", text(&child.wait_with_output().unwrap().stderr));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

/// The report of a worker that must end well.
pub fn checked(child: Child) -> serde_json::Value {
    let output = ended(child);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: serde_json::Value = serde_json::from_str(text(&output.stdout).lines().last().unwrap()).unwrap();
    assert_eq!(report["checked"], true);
    report
}

/// The one sentence of a worker that must fail.
pub fn error_of(child: Child) -> String {
    let output = ended(child);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.starts_with("tributary: error: ") && stderr.trim_end().lines().count() == 1, "{stderr}");
    stderr
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The job is alive and sums.
pub fn goes_on(network: &Network, job: &str) {
    let before = network.until_busy(job, 1).blocks;
    network.until_busy(job, before + 10_000);
}

/// Workers of a job without an end are still there, and go.
pub fn end(workers: Vec<Child>) {
    for mut worker in workers {
        assert!(worker.try_wait().unwrap().is_none(), "it goes on");
        worker.kill().unwrap();
        worker.wait().unwrap();
    }
}

//! The machine that a bench runs on, and how the program was built: figures mean nothing without them.

use std::fmt;
use std::fs;

use serde::Serialize;

/// The machine of the figures.
#[derive(Debug, Serialize)]
pub struct Machine {
    /// CPUs that this process may use.
    pub cpus: usize,
    /// The CPU's name.
    pub cpu: String,
    /// The kernel's release.
    pub kernel: String,
    /// TCP's congestion control, on which Gloo depends.
    pub tcp_congestion_control: String,
    /// Whether this program was built with optimisations; `make test` builds without.
    pub optimised: bool,
}

impl Machine {
    /// This machine.
    pub fn here() -> Machine {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_string();
        let cpuinfo = read("/proc/cpuinfo");
        let model =
            cpuinfo.lines().find(|line| line.starts_with("model name")).and_then(|line| line.split(": ").nth(1));
        Machine {
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            cpu: model.unwrap_or("unknown").to_string(),
            kernel: read("/proc/sys/kernel/osrelease"),
            optimised: !cfg!(debug_assertions),
            tcp_congestion_control: read("/proc/sys/net/ipv4/tcp_congestion_control"),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Machine { cpus, cpu, kernel, optimised, .. } = self;
        let built =
            if *optimised { "" } else { " (this program was built for tests; `make build` builds a faster one)" };
        write!(f, "{cpus} CPUs ({cpu}), Linux {kernel}{built}")
    }
}

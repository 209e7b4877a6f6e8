//! The machine itself: versions, processor, clock, limits.

use std::fs;

use super::Check;

/// Kernels from here on coalesce received UDP segments (UDP_GRO).
const GRO_KERNEL: (u32, u32) = (5, 0);
/// How many sockets and files a switch with many jobs and a Prometheus scraper needs.
const FILES: u64 = 256;

/// Every check of the machine.
pub fn checks() -> Vec<Check> {
    vec![versions(), kernel(), processor(), clock(), files()]
}

fn versions() -> Check {
    let python = std::env::var("VIRTUAL_ENV").map(|path| format!(", virtual environment {path}")).unwrap_or_default();
    Check::ok("version", format!("tributary {}{python}", env!("CARGO_PKG_VERSION")))
}

fn kernel() -> Check {
    let release = read("/proc/sys/kernel/osrelease");
    let mut numbers = release.split(['.', '-']).map(|number| number.parse::<u32>().ok());
    match (numbers.next().flatten(), numbers.next().flatten()) {
        (Some(major), Some(minor)) if (major, minor) >= GRO_KERNEL => Check::ok("kernel", release),
        (Some(_), Some(_)) => {
            Check::warn("kernel", format!("{release} moves UDP packets one by one"), "use Linux 5.0 or newer")
        }
        _ => Check::warn("kernel", format!("unknown version '{release}'"), "use Linux 5.0 or newer"),
    }
}

fn processor() -> Check {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let found = format!("{cores} cores, {}", features());
    if cores < 2 {
        let remedy = "give the machine two cores or more: a worker's or a switch's I/O thread wants one of its own";
        return Check::warn("processor", found, remedy);
    }
    Check::ok("processor", found)
}

#[cfg(target_arch = "x86_64")]
fn features() -> &'static str {
    if std::arch::is_x86_feature_detected!("avx512f") {
        "AVX-512"
    } else if std::arch::is_x86_feature_detected!("avx2") {
        "AVX2"
    } else {
        "no AVX2: kernels for any processor"
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn features() -> &'static str {
    "kernels for any processor"
}

fn clock() -> Check {
    const PATH: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    let source = read(PATH);
    match source.as_str() {
        // Reading one of these clocks takes about a microsecond, since it leaves the processor; the clock is read for
        // each batch.
        "hpet" | "acpi_pm" | "jiffies" | "pit" => Check::warn(
            "clock",
            format!("{source} is slow to read"),
            format!("echo tsc > {PATH}   (if offered beside it)"),
        ),
        "" => Check::ok("clock", "the system does not tell its clock source"),
        _ => Check::ok("clock", source),
    }
}

fn files() -> Check {
    let limits = read("/proc/self/limits");
    let soft = limits
        .lines()
        .find(|line| line.starts_with("Max open files"))
        .and_then(|line| line.split_whitespace().nth(3))
        .map(|number| number.parse::<u64>().unwrap_or(u64::MAX));
    match soft {
        None => Check::ok("open files", "the system does not tell its limit"),
        Some(limit) if limit < FILES => Check::warn("open files", format!("at most {limit}"), "ulimit -n 1024"),
        Some(u64::MAX) => Check::ok("open files", "no limit"),
        Some(limit) => Check::ok("open files", format!("at most {limit}")),
    }
}

/// The trimmed text of a small file of the system; empty if the file does not exist.
pub fn read(path: &str) -> String {
    fs::read_to_string(path).map(|text| text.trim().to_string()).unwrap_or_default()
}

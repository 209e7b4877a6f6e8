//! CPU time: of one process, and of the kernel's network processing on the whole machine.

use std::fs;

/// The unit of times in /proc, per second; fixed in the kernel's interface on every machine that Rust supports.
const TICKS_PER_SECOND: f64 = 100.0;

/// CPU seconds, user and system, that this process has used, all threads together.
pub fn own_seconds() -> f64 {
    // SAFETY: a rusage contains only numbers, for which all zeros is a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a whole rusage that lives through the call. With this argument it cannot fail.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 * 1e-6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

/// CPU seconds, user and system, that a process has used, in steps of 10 ms; 0 if it is gone.
pub fn seconds_of(pid: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name, in parentheses, may contain blanks, so fields are counted from behind it. utime and stime are fields 14
    // and 15 of all, which are 12 and 13 behind the name.
    let behind = stat.rsplit_once(')').map_or("", |(_, behind)| behind);
    let fields: Vec<f64> = behind.split_whitespace().skip(11).take(2).filter_map(|field| field.parse().ok()).collect();
    fields.iter().sum::<f64>() / TICKS_PER_SECOND
}

/// A reading of the time that all CPUs spent in soft interrupts. The part that a process's own sends cause is in that
/// process's time too, so the two must not be added: this shows how much of the work is the kernel's network.
pub struct Softirq {
    seconds: f64,
}

impl Softirq {
    /// The present reading.
    pub fn read() -> Softirq {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        // cpu user nice system idle iowait irq softirq ...
        let ticks = stat.lines().next().and_then(|line| line.split_whitespace().nth(7)?.parse::<f64>().ok());
        Softirq { seconds: ticks.unwrap_or(0.0) / TICKS_PER_SECOND }
    }

    /// Seconds since this reading.
    pub fn elapsed(&self) -> f64 {
        Softirq::read().seconds - self.seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_works_uses_cpu_time() {
        let before = seconds_of(std::process::id());
        let mut x = 1u64;
        while seconds_of(std::process::id()) <= before {
            x = std::hint::black_box(x.wrapping_mul(3));
        }
        assert_eq!(seconds_of(u32::MAX), 0.0);
    }
}

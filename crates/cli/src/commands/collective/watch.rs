//! `--watch`: reports a worker's progress line by line, for programs that draw it.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use tributary_net::group::Group;

use crate::output;

/// The state at one time.
#[derive(Debug, Serialize, Deserialize)]
pub struct Sample {
    /// Seconds since 1970.
    pub at: f64,
    /// Blocks whose sums have come.
    pub blocks: u64,
    /// How many packets were sent, and how many of them again.
    pub packets_sent: u64,
    pub retransmissions: u64,
    /// The protocol's own window in packets, if it tells one.
    pub window_packets: Option<f64>,
}

/// Seconds since 1970.
pub fn unix_seconds() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// Does the work, and prints a line for each interval meanwhile.
pub fn watched<T>(group: &Group, every: Option<Duration>, work: impl FnOnce() -> T) -> T {
    let Some(every) = every else { return work() };
    std::thread::scope(|scope| {
        let (over, is_over) = channel::<()>();
        scope.spawn(move || {
            while let Err(RecvTimeoutError::Timeout) = is_over.recv_timeout(every) {
                // If the reader has gone, no more lines are needed.
                let said = sample(group).map(|sample| output::json(&sample));
                if !matches!(said, Some(Ok(()))) {
                    return;
                }
            }
        });
        let result = work();
        drop(over);
        result
    })
}

fn sample(group: &Group) -> Option<Sample> {
    let (stats, metrics) = (group.stats().ok()?, group.metrics().ok()?);
    let window = metrics.iter().find(|metric| metric.name == "window_packets");
    Some(Sample {
        at: unix_seconds(),
        blocks: stats.host.blocks_in_network + stats.host.blocks_at_hosts,
        packets_sent: stats.host.packets_sent,
        retransmissions: stats.host.retransmissions,
        window_packets: window.map(|window| window.value.as_f64()),
    })
}

//! `--watch`: how far a worker is while it works, line by line, for programs that draw it.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use tributary_net::group::Group;

use crate::output;

/// One look.
#[derive(Debug, Serialize, Deserialize)]
pub struct Sample {
    /// Seconds since 1970.
    pub at: f64,
    /// Blocks whose sums have come.
    pub blocks: u64,
    /// Packets sent, and those of them that were sent again.
    pub packets_sent: u64,
    pub retransmissions: u64,
    /// The protocol's own window, where it tells one: packets.
    pub window_packets: Option<f64>,
}

/// Seconds since 1970.
pub fn unix_seconds() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// Works, and meanwhile prints a line for each interval.
pub fn watched<T>(group: &Group, every: Option<Duration>, work: impl FnOnce() -> T) -> T {
    let Some(every) = every else { return work() };
    std::thread::scope(|scope| {
        let (over, is_over) = channel::<()>();
        scope.spawn(move || {
            while let Err(RecvTimeoutError::Timeout) = is_over.recv_timeout(every) {
                // Whoever reads no longer needs no more lines.
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

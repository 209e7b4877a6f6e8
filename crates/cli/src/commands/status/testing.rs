//! A made-up status of a switch, for the tests of commands that read one.

use serde_json::json;
use tributary_net::status::{JobStatus, SwitchStatus};

/// A switch at 10.0.0.1:17777 with these jobs.
pub fn status(jobs: Vec<JobStatus>) -> SwitchStatus {
    let switch = json!({
        "version": "0", "uptime_s": 1.0, "listen": "10.0.0.1:17777", "http": null, "parent": null, "memory_bytes": 1,
        "memory_used_bytes": 1, "max_jobs": 1, "shards": [], "rejected_packets": {},
    });
    SwitchStatus { switch: serde_json::from_value(switch).expect("a switch"), jobs }
}

/// A running job that no rank is known of.
pub fn job(name: &str, world_size: u16) -> JobStatus {
    let job = json!({
        "name": name, "id": 1, "state": "running", "protocol": "pigeon", "age_s": 1.0, "world_size": world_size,
        "members": [], "switches": [], "parent": null, "missing": [], "slots": 8, "slots_waiting": 0, "waiting_for": [],
        "elements_per_packet": 64, "memory_bytes": 0, "packets": 0, "packets_per_s": 0.0, "blocks": 0,
        "contributions": 0, "goodput_bytes": 0, "goodput_gbps": 0.5, "ate_per_s": 0.0, "drops": {},
    });
    serde_json::from_value(job).expect("a job")
}

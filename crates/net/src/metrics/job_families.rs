//! What `/metrics/jobs` reports of each job that is there now: as many series as there are jobs, and new ones for each
//! new job.

use super::exposition::Kind::{Counter, Gauge};
use super::exposition::Series;
use super::{Family, MetricsInput, STATES};
use crate::history::JobHistory;
use crate::status::JobStatus;

/// The families of each job. A job is named by its name and its id, because a name may belong to a new job while an old
/// one of that name still ends.
pub(super) const JOBS: &[Family] = &[
    Family::new(
        "job_info",
        Gauge,
        &["name", "id", "state", "protocol"],
        "The job's state and protocol, as labels.",
        |input| {
            let value = |job: &JobStatus| (with(job, &[&job.state, &job.protocol]), 1.0);
            input.status.jobs.iter().map(value).collect()
        },
    ),
    Family::new("job_world_size", Gauge, &["name", "id"], "Ranks of the job when complete.", |input| {
        each(input, |job| job.world_size.into())
    }),
    Family::new("job_members", Gauge, &["name", "id", "state"], "Workers here by state.", |input| {
        states(input, |job| job.members.iter().map(|member| member.state.as_str()).collect())
    }),
    Family::new("job_child_switches", Gauge, &["name", "id", "state"], "Child switches by state.", |input| {
        states(input, |job| job.switches.iter().map(|switch| switch.state.as_str()).collect())
    }),
    Family::new(
        "job_servers",
        Gauge,
        &["name", "id", "state"],
        "Servers of the job by state, where they are processes of their own.",
        |input| states(input, |job| job.servers.iter().map(|server| server.state.as_str()).collect()),
    ),
    Family::new("job_parent_up", Gauge, &["name", "id"], "1 while the parent switch is alive.", |input| {
        let parent = |job: &JobStatus| Some((with(job, &[]), f64::from(job.parent.as_ref()?.state == "present")));
        input.status.jobs.iter().filter_map(parent).collect()
    }),
    Family::new("job_missing", Gauge, &["name", "id"], "Ranks that have not come or fell silent.", |input| {
        each(input, |job| job.missing.len() as f64)
    }),
    Family::new("job_awaited_ranks", Gauge, &["name", "id"], "Ranks that some sum waits for.", |input| {
        each(input, |job| job.waiting_for.len() as f64)
    }),
    Family::new(
        "job_lag_blocks",
        Gauge,
        &["name", "id"],
        "Blocks that the slowest rank is behind the first.",
        |input| each(input, |job| job.lag.map_or(0.0, |lag| lag.blocks.into())),
    ),
    Family::new(
        "job_stalled_seconds",
        Gauge,
        &["name", "id"],
        "Seconds without a completed sum while one waits for a rank; 0 if none waits.",
        |input| past(input, |job| Some(job.still_s.unwrap_or(0.0))),
    ),
    Family::new(
        "job_straggler_share",
        Gauge,
        &["name", "id"],
        "Share of the last minute in which sums waited for the slowest rank and not for all: that minute's seconds lost to it.",
        |input| past(input, |job| Some(job.stragglers.first().map_or(0.0, |slowest| slowest.share))),
    ),
    Family::new(
        "job_straggler_rank",
        Gauge,
        &["name", "id"],
        "The slowest rank of the last minute, as the value; absent while sums wait for all alike.",
        |input| past(input, |job| job.stragglers.first().map(|slowest| slowest.rank.into())),
    ),
    Family::new("job_slots", Gauge, &["name", "id"], "Slots of the job.", |input| each(input, |job| job.slots.into())),
    Family::new("job_slots_waiting", Gauge, &["name", "id"], "Slots with a sum that is not complete.", |input| {
        each(input, |job| job.slots_waiting.into())
    }),
    Family::new("job_memory_bytes", Gauge, &["name", "id"], "Memory that the job holds.", |input| {
        each(input, |job| job.memory_bytes as f64)
    }),
    Family::new("job_packets_total", Counter, &["name", "id"], "Packets of the job's members.", |input| {
        each(input, |job| job.packets as f64)
    }),
    Family::new("job_blocks_total", Counter, &["name", "id"], "Sums completed.", |input| {
        each(input, |job| job.blocks as f64)
    }),
    Family::new("job_contributions_total", Counter, &["name", "id"], "Contributions added.", |input| {
        each(input, |job| job.contributions as f64)
    }),
    Family::new("job_goodput_bytes_total", Counter, &["name", "id"], "Bytes of tensor summed.", |input| {
        each(input, |job| job.goodput_bytes as f64)
    }),
    Family::new(
        "job_drops_total",
        Counter,
        &["name", "id", "reason"],
        "Packets with the job's id that were dropped.",
        |input| {
            let of = |job: &JobStatus| -> Vec<Series> {
                job.drops.iter().map(|(reason, &count)| (with(job, &[reason]), count as f64)).collect()
            };
            input.status.jobs.iter().flat_map(of).collect()
        },
    ),
];

/// The labels of a job's series.
pub(super) fn with(job: &JobStatus, more: &[&str]) -> Vec<String> {
    let id = job.id.map_or(String::new(), |id| id.to_string());
    [job.name.clone(), id].into_iter().chain(more.iter().map(|&value| value.to_owned())).collect()
}

fn each(input: &MetricsInput, value: fn(&JobStatus) -> f64) -> Vec<Series> {
    input.status.jobs.iter().map(|job| (with(job, &[]), value(job))).collect()
}

/// A value of each job's history.
fn past(input: &MetricsInput, value: fn(&JobHistory) -> Option<f64>) -> Vec<Series> {
    let of = |job: &JobStatus| {
        let seen = input.history.jobs.iter().find(|seen| (&seen.name, seen.id) == (&job.name, job.id))?;
        Some((with(job, &[]), value(seen)?))
    };
    input.status.jobs.iter().filter_map(of).collect()
}

fn states(input: &MetricsInput, states: fn(&JobStatus) -> Vec<&str>) -> Vec<Series> {
    let of = |job: &JobStatus| {
        let found = states(job);
        let count = |state: &str| found.iter().filter(|&&other| other == state).count() as f64;
        STATES.map(|state| (with(job, &[state]), count(state)))
    };
    input.status.jobs.iter().flat_map(of).collect()
}

//! Adds up the reports of a fabric's switches on a job into one account at the seat.

use tributary_proto::contract::switch::Lag;
use tributary_proto::contract::time::{Span, Time};

use super::api::{JobSign, ProgressSign};
use crate::progress::Progress;
use crate::shard::ShardJob;

/// Adds what another switch knows of a job to what the seat's own switch knows.
pub fn add(now: Time, jobs: &mut [ShardJob], sign: &JobSign) {
    let Some(job) = jobs.iter_mut().find(|job| job.id.0 == sign.job_id) else { return };
    job.packets_per_s += sign.packets_per_s;
    job.report.packets += sign.packets;
    let machine = job.report.machine.get_or_insert_default();
    // Every switch with members passes every sum on, so the greatest number says how far the job is.
    job.blocks_per_s = job.blocks_per_s.max(sign.blocks_per_s);
    machine.blocks_completed = machine.blocks_completed.max(sign.blocks);
    machine.contributions += sign.contributions;
    machine.slots_waiting += sign.waiting;
    machine.lag = machine.lag.into_iter().chain(sign.lag.map(Lag::from)).max_by_key(|lag| lag.blocks);
    // The job's machines are alike at all switches, so their metrics have the same names.
    for metric in &mut machine.metrics {
        if let Some(other) = sign.metrics.iter().find(|other| other.name == metric.name) {
            metric.value = metric.value.with(other.value.into());
        }
    }
    let at = |seconds_ago| Time(now.0.saturating_sub(Span::from_secs_f64(seconds_ago).0));
    for (seen, ago) in job.report.last_seen.iter_mut().zip(&sign.heard_s_ago) {
        if let Some(ago) = ago {
            *seen = Some(seen.map_or(at(*ago), |seen| seen.max(at(*ago))));
        }
    }
    for ProgressSign { heard_s_ago, body } in &sign.progress {
        // A rank speaks to one switch only. An error means that no rank of this job can have said this, and it is
        // ignored.
        let _ = Progress::parse_body(body).and_then(|progress| job.progress.hear(at(*heard_s_ago), progress));
    }
}

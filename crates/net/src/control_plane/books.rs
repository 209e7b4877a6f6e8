//! The books of a switch: what its jobs have done since the start, including jobs that have ended. The books also write
//! the lines of the log about jobs. Their size does not grow as jobs come and go, because the figures of ended jobs are
//! added up.

use std::collections::BTreeMap;
use std::sync::Arc;

use tributary_control::{Departed, End, JobEvent, Plan};
use tributary_proto::contract::drop_reason::DropCounters;
use tributary_proto::contract::ids::JobId;
use tributary_proto::contract::metric::{self, Metric, MetricValue};
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::protocols;

use super::shards::Sightings;
use crate::shard::ShardJob;

/// If the sums of a job have waited for this time, the log names the job.
const STALL: Span = Span::from_millis(30_000);
/// The most error codes that are counted separately. A limit is needed because the switch above may send any code.
const MOST_CODES: usize = 64;

/// What jobs have done.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    /// Packets of members.
    pub packets: u64,
    /// Sums completed.
    pub blocks: u64,
    /// Contributions that were added to sums.
    pub contributions: u64,
    /// Bytes of tensor summed.
    pub goodput_bytes: u64,
    /// The protocol's own counters and gauges, for all jobs together.
    pub metrics: Vec<Metric>,
}

/// What has happened since the switch was started.
#[derive(Clone, Debug, Default)]
pub(crate) struct Account {
    /// The totals for each protocol, by the protocol's name.
    pub protocols: BTreeMap<&'static str, Totals>,
    /// Packets of jobs that were dropped.
    pub drops: DropCounters,
    /// Jobs that were formed.
    pub formed: u64,
    /// The number of jobs that have ended, for each kind of end.
    pub ended: BTreeMap<End, u64>,
    /// Members that were lost.
    pub lost: u64,
    /// Requests that were answered with an error, by code.
    pub errors: BTreeMap<String, u64>,
    /// For each job there is a time for which incomplete sums have waited while none became complete. This is the
    /// longest one, in seconds.
    pub stalled_s: f64,
    /// Operators of jobs' own that are compiled and in use.
    pub operators: usize,
}

struct Entry {
    plan: Arc<Plan>,
    since: Time,
    end: Option<End>,
    blocks: u64,
    /// When a block was last completed, or when it was last seen that nothing waits.
    moved: Time,
    /// How long sums had waited at the last look.
    stalled: Span,
    told: bool,
}

/// The books of a switch.
#[derive(Default)]
pub(crate) struct Books {
    jobs: BTreeMap<JobId, Entry>,
    /// The figures of jobs that have ended, and those of the switch. Looks at the shards do not change them.
    past: Account,
}

impl Books {
    /// Notes an event of a job, and logs it for operators.
    pub fn note(&mut self, now: Time, tiding: &JobEvent) {
        match tiding {
            JobEvent::Formed(plan) => {
                self.past.formed += 1;
                self.open(now, plan);
                tracing::info!(
                    job = %plan.name, id = plan.config.job.0, world = plan.config.world, protocol = plan.protocol.name,
                    slots = plan.slots, elements_per_packet = plan.config.elements_per_packet,
                    memory_bytes = plan.memory_bytes, "job formed"
                );
            }
            JobEvent::Adopted(plan) => {
                self.open(now, plan);
                tracing::info!(job = %plan.name, id = plan.config.job.0, "a job that runs was taken over");
            }
            JobEvent::Lost { plan, lost } => self.lose(plan, lost),
            JobEvent::Back { plan, ranks } => {
                tracing::info!(job = %plan.name, id = plan.config.job.0, ?ranks, "members are heard again");
            }
            JobEvent::Ended { plan, end } => {
                *self.past.ended.entry(*end).or_default() += 1;
                if let Some(entry) = self.jobs.get_mut(&plan.config.job) {
                    entry.end = Some(*end);
                }
            }
        }
    }

    fn open(&mut self, now: Time, plan: &Arc<Plan>) {
        let plan_of = Arc::clone(plan);
        let entry =
            Entry { plan: plan_of, since: now, end: None, blocks: 0, moved: now, stalled: Span::ZERO, told: false };
        self.jobs.insert(plan.config.job, entry);
    }

    fn lose(&mut self, plan: &Plan, lost: &Departed) {
        self.past.lost += lost.members.len() as u64;
        let (job, id) = (&plan.name, plan.config.job.0);
        for place in &lost.switches {
            tracing::warn!(%job, id, switch = %place.addr, ranks = ?place.ranks, "switch lost");
        }
        for server in &lost.servers {
            tracing::warn!(%job, id, server = server.server, addr = %server.addr, "server lost");
        }
        for gone in &lost.members {
            let addr = plan.workers.get(usize::from(gone.rank)).map(ToString::to_string).unwrap_or_default();
            tracing::warn!(%job, id, rank = gone.rank, addr, "member lost");
        }
    }

    /// Checks whether each job makes progress.
    pub fn look(&mut self, now: Time, sightings: &Sightings) {
        for (&id, entry) in &mut self.jobs {
            let parts = || parts(sightings, id);
            let machines = || parts().filter_map(|part| part.report.machine.as_ref());
            let blocks = machines().map(|machine| machine.blocks_completed).sum();
            let waits = machines().any(|machine| machine.slots_waiting > 0 || machine.lag.is_some());
            if blocks != entry.blocks || !waits {
                (entry.blocks, entry.moved, entry.told) = (blocks, now, false);
            }
            entry.stalled = now.since(entry.moved);
            if entry.stalled >= STALL && !entry.told {
                entry.told = true;
                let children = machines().flat_map(|machine| &machine.missing);
                let below = children.filter_map(|child| entry.plan.children.get(child.index()));
                let ranks: Vec<u16> = below.flat_map(|child| child.below.ranks()).map(|rank| rank.0).collect();
                let seconds = entry.stalled.as_secs_f64().round();
                tracing::warn!(job = %entry.plan.name, id = id.0, seconds, waits_for = ?ranks, "job stands still");
            }
        }
    }

    /// Notes that a job no longer holds memory. `last` is its last sighting.
    pub fn close(&mut self, now: Time, id: JobId, last: &Sightings) {
        let Some(entry) = self.jobs.remove(&id) else { return };
        let before = self.past.protocols.entry(entry.plan.protocol.name).or_default();
        let blocks = before.blocks;
        add(before, &mut self.past.drops, &entry.plan, parts(last, id));
        // The job's gauges end with the job and become zero. Its counters stay in the totals.
        for metric in &mut before.metrics {
            if let MetricValue::Gauge(value) = &mut metric.value {
                *value = 0.0;
            }
        }
        let (blocks, seconds) = (before.blocks - blocks, now.since(entry.since).as_secs_f64());
        let end = entry.end.map_or("unknown", End::name);
        tracing::info!(job = %entry.plan.name, id = id.0, end, seconds, blocks, "job ended");
    }

    /// A request was answered with an error.
    pub fn count_error(&mut self, code: &str) {
        let known = self.past.errors.len() < MOST_CODES || self.past.errors.contains_key(code);
        *self.past.errors.entry(if known { code } else { "other" }.to_owned()).or_default() += 1;
    }

    /// What has happened so far.
    pub fn account(&self, sightings: &Sightings) -> Account {
        let mut account = self.past.clone();
        for protocol in protocols::ALL {
            account.protocols.entry(protocol.name).or_default();
        }
        for (&id, entry) in &self.jobs {
            let totals = account.protocols.entry(entry.plan.protocol.name).or_default();
            add(totals, &mut account.drops, &entry.plan, parts(sightings, id));
            account.stalled_s = account.stalled_s.max(entry.stalled.as_secs_f64());
        }
        account
    }
}

fn parts(sightings: &Sightings, id: JobId) -> impl Iterator<Item = &ShardJob> {
    let reports = sightings.shards.iter().filter_map(|sighting| sighting.report.as_ref());
    reports.flat_map(|report| &report.jobs).filter(move |job| job.id == id)
}

fn add<'a>(totals: &mut Totals, drops: &mut DropCounters, plan: &Plan, parts: impl Iterator<Item = &'a ShardJob>) {
    for part in parts {
        totals.packets += part.report.packets;
        drops.add(&part.report.drops);
        if let Some(machine) = &part.report.machine {
            totals.blocks += machine.blocks_completed;
            totals.contributions += machine.contributions;
            totals.goodput_bytes += machine.blocks_completed * u64::from(plan.config.elements_per_packet) * 4;
            metric::combine(&mut totals.metrics, &machine.metrics);
        }
    }
}

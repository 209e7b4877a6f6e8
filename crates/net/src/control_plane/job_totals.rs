//! What a switch's jobs have done since the start, including jobs that have ended. The lines of the log about jobs are
//! written here too. The size does not grow as jobs come and go, because the figures of ended jobs are added up.

use std::collections::BTreeMap;
use std::sync::Arc;

use tributary_control::{Client, Departed, End, JobEvent, Plan, Ranks};
use tributary_proto::contract::drop_reason::DropCounters;
use tributary_proto::contract::ids::JobId;
use tributary_proto::contract::metric::{self, Metric, MetricValue};
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::protocols;

use super::shards::ShardSamples;
use crate::shard::ShardJob;
use crate::status::{ClientStatus, EndedJob, EndedJobs, JobStatus, Refusals};

/// If the sums of a job have waited for this time, the log names the job.
const STALL: Span = Span::from_millis(30_000);
/// The most error codes that are counted separately. A limit is needed because the parent switch may send any code.
const MAX_CODES: usize = 64;

/// What jobs have done.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProtocolTotals {
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
pub(crate) struct Totals {
    /// The totals for each protocol, by the protocol's name.
    pub protocols: BTreeMap<&'static str, ProtocolTotals>,
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
    /// Joins that were refused, by client.
    pub refusals: Refusals,
    /// Reloads of the files that succeeded, and that failed.
    pub reloads: [u64; 2],
    /// True if the last reload, or the start, has taken over what the files say.
    pub files_hold: bool,
    /// For each job there is a time for which incomplete sums have waited while none became complete. This is the
    /// longest one, in seconds.
    pub stalled_s: f64,
    /// Custom operators of jobs that are compiled and in use.
    pub operators: usize,
}

struct Entry {
    plan: Arc<Plan>,
    since: Time,
    /// How it has ended, and which client was charged for it.
    end: Option<(End, Client)>,
    /// The ranks that were lost.
    lost: Vec<u16>,
    blocks: u64,
    /// When a block was last completed, or when it was last seen that nothing waits.
    moved: Time,
    /// How long sums had waited at the last sample.
    stalled: Span,
    warned: bool,
}

/// The totals of a switch.
pub(crate) struct JobTotals {
    jobs: BTreeMap<JobId, Entry>,
    /// The figures of jobs that have ended, and those of the switch itself.
    past: Totals,
    ended: EndedJobs,
}

impl Default for JobTotals {
    /// Before the first job.
    fn default() -> JobTotals {
        JobTotals {
            jobs: BTreeMap::new(),
            past: Totals { files_hold: true, ..Totals::default() },
            ended: EndedJobs::default(),
        }
    }
}

impl JobTotals {
    /// Notes an event of a job, and logs it for operators.
    pub fn note(&mut self, now: Time, event: &JobEvent) {
        match event {
            JobEvent::Formed(plan) => {
                self.past.formed += 1;
                self.open(now, plan);
                tracing::info!(
                    job = %plan.name, id = plan.config.job.0, world_size = plan.config.world_size, protocol = plan.protocol.name,
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
                tracing::info!(job = %plan.name, id = plan.config.job.0, ?ranks, "members are back");
            }
            JobEvent::Ended { plan, end, client } => {
                *self.past.ended.entry(*end).or_default() += 1;
                if let Some(entry) = self.jobs.get_mut(&plan.config.job) {
                    entry.end = Some((*end, client.clone()));
                }
            }
        }
    }

    fn open(&mut self, now: Time, plan: &Arc<Plan>) {
        let plan_of = Arc::clone(plan);
        let entry = Entry {
            plan: plan_of,
            since: now,
            end: None,
            lost: Vec::new(),
            blocks: 0,
            moved: now,
            stalled: Span::ZERO,
            warned: false,
        };
        self.jobs.insert(plan.config.job, entry);
    }

    fn lose(&mut self, plan: &Plan, lost: &Departed) {
        self.past.lost += lost.members.len() as u64;
        if let Some(entry) = self.jobs.get_mut(&plan.config.job) {
            entry.lost.extend(lost.members.iter().map(|gone| gone.rank));
        }
        let (job, id) = (&plan.name, plan.config.job.0);
        for switch in &lost.switches {
            tracing::warn!(%job, id, switch = %switch.addr, ranks = ?switch.ranks, "switch lost");
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
    pub fn sample(&mut self, now: Time, samples: &ShardSamples) {
        for (&id, entry) in &mut self.jobs {
            let shard_jobs = || in_shards(samples, id);
            let machines = || shard_jobs().filter_map(|job| job.report.machine.as_ref());
            let blocks = machines().map(|machine| machine.blocks_completed).sum();
            let waits = machines().any(|machine| machine.slots_waiting > 0 || machine.lag.is_some());
            if blocks != entry.blocks || !waits {
                (entry.blocks, entry.moved, entry.warned) = (blocks, now, false);
            }
            entry.stalled = now.since(entry.moved);
            if entry.stalled >= STALL && !entry.warned {
                entry.warned = true;
                let children = machines().flat_map(|machine| &machine.missing);
                let below = children.filter_map(|child| entry.plan.children.get(child.index()));
                let ranks: Vec<u16> = below.flat_map(|child| child.below.ranks()).map(|rank| rank.0).collect();
                let seconds = entry.stalled.as_secs_f64().round();
                tracing::warn!(job = %entry.plan.name, id = id.0, seconds, waits_for = ?ranks, "job is stalled");
            }
        }
    }

    /// Notes that a job no longer holds memory. `last` has its last report.
    /// `why` is the sentence with which it has failed, if it has.
    pub fn close(&mut self, now: Time, id: JobId, last: &ShardSamples, why: Option<String>) {
        let Some(entry) = self.jobs.remove(&id) else { return };
        let before = self.past.protocols.entry(entry.plan.protocol.name).or_default();
        let blocks = before.blocks;
        add(before, &mut self.past.drops, &entry.plan, in_shards(last, id));
        // The job's gauges end with the job and become zero. Its counters stay in the totals.
        for metric in &mut before.metrics {
            if let MetricValue::Gauge(value) = &mut metric.value {
                *value = 0.0;
            }
        }
        let (blocks, seconds) = (before.blocks - blocks, now.since(entry.since).as_secs_f64());
        let (end, client) = entry.end.unzip();
        let (end, client) =
            (end.map_or("unknown", End::name), client.map(|client| client.to_string()).unwrap_or_default());
        tracing::info!(job = %entry.plan.name, id = id.0, end, client, seconds, blocks, "job ended");
        let (mut own, mut drops) = (ProtocolTotals::default(), DropCounters::default());
        add(&mut own, &mut drops, &entry.plan, in_shards(last, id));
        let drops = drops.iter().filter(|&(_, count)| count > 0);
        let lost = (!entry.lost.is_empty()).then(|| format!("{} lost", Ranks(&entry.lost)));
        self.ended.push(
            now,
            EndedJob {
                name: entry.plan.name.to_string(),
                id: id.0,
                client,
                protocol: entry.plan.protocol.name.to_owned(),
                world_size: entry.plan.config.world_size,
                end: end.to_owned(),
                why: why.or(lost),
                ended_s_ago: 0.0,
                lasted_s: seconds,
                packets: own.packets,
                blocks,
                goodput_bytes: own.goodput_bytes,
                drops: drops.map(|(reason, count)| (reason.name().to_owned(), count)).collect(),
            },
        );
    }

    /// The jobs that ended in the last hour, the last one first.
    pub fn ended(&mut self, now: Time) -> Vec<EndedJob> {
        self.ended.list(now)
    }

    /// A request was answered with an error.
    pub fn count_error(&mut self, code: &str) {
        let known = self.past.errors.len() < MAX_CODES || self.past.errors.contains_key(code);
        *self.past.errors.entry(if known { code } else { "other" }.to_owned()).or_default() += 1;
    }

    /// A client's join was refused.
    pub fn count_refusal(&mut self, now: Time, client: &Client, code: &str) {
        self.past.refusals.count(now, client, code);
    }

    /// The clients of these jobs, and those that were refused.
    pub fn clients(&self, now: Time, jobs: &[JobStatus]) -> Vec<ClientStatus> {
        self.past.refusals.with_jobs(now, jobs)
    }

    /// The files were read again, or could not be.
    pub fn count_reload(&mut self, succeeded: bool) {
        self.past.reloads[usize::from(!succeeded)] += 1;
        self.past.files_hold = succeeded;
    }

    /// What has happened so far.
    pub fn totals(&self, samples: &ShardSamples) -> Totals {
        let mut all = self.past.clone();
        for protocol in protocols::ALL {
            all.protocols.entry(protocol.name).or_default();
        }
        for (&id, entry) in &self.jobs {
            let totals = all.protocols.entry(entry.plan.protocol.name).or_default();
            add(totals, &mut all.drops, &entry.plan, in_shards(samples, id));
            all.stalled_s = all.stalled_s.max(entry.stalled.as_secs_f64());
        }
        all
    }
}

fn in_shards(samples: &ShardSamples, id: JobId) -> impl Iterator<Item = &ShardJob> {
    let reports = samples.shards.iter().filter_map(|sample| sample.report.as_ref());
    reports.flat_map(|report| &report.jobs).filter(move |job| job.id == id)
}

fn add<'a>(
    totals: &mut ProtocolTotals,
    drops: &mut DropCounters,
    plan: &Plan,
    shard_jobs: impl Iterator<Item = &'a ShardJob>,
) {
    for job in shard_jobs {
        totals.packets += job.report.packets;
        drops.add(&job.report.drops);
        if let Some(machine) = &job.report.machine {
            totals.blocks += machine.blocks_completed;
            totals.contributions += machine.contributions;
            totals.goodput_bytes += machine.blocks_completed * u64::from(plan.config.elements_per_packet) * 4;
            metric::combine(&mut totals.metrics, &machine.metrics);
        }
    }
}

//! Shards as the control plane knows them: their last reports, and the jobs that it installs in them.

use tributary_control::{AdoptedJob, Plan};
use tributary_proto::contract::config::JobConfig;
use tributary_proto::contract::ids::JobId;
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::contract::time::{Span, Time};

use crate::progress::Progress;
use crate::shard::{JobInstall, Shard, ShardError, ShardReport};

/// How many shards of a switch run machines of a job: only the first one if jobs share memory, otherwise all.
pub(crate) fn used_by(protocol: &Protocol) -> usize {
    if protocol.shared.is_some() { 1 } else { usize::MAX }
}

/// The smallest receive buffer of the shards that run machines of a job, and the number of these shards.
pub(super) fn buffers(shards: &[Box<dyn Shard>], protocol: &Protocol) -> (usize, usize) {
    let used = &shards[..used_by(protocol).min(shards.len())];
    (used.iter().map(|shard| shard.receive_buffer()).min().unwrap_or(0), used.len())
}

/// Installs a job in every shard that runs its machines, one shard after the other.
pub(super) async fn install(shards: &[Box<dyn Shard>], plan: &Plan) -> Result<(), ShardError> {
    for (number, shard) in shards.iter().enumerate().take(used_by(plan.protocol)) {
        shard.install(job_in_shard(plan, number)).receive().await??;
    }
    Ok(())
}

/// Gives a job another number of slots, which is the sum over all shards.
pub(super) async fn resize(shards: &[Box<dyn Shard>], id: JobId, slots: u16) {
    let own = slots / shards.len().max(1) as u16;
    let calls: Vec<_> = shards.iter().map(|shard| shard.resize(id, own)).collect();
    for answer in calls {
        if let Err(error) = answer.receive().await {
            tracing::warn!(id = id.0, %error, "job not resized everywhere");
        }
    }
}

/// Takes a job out of every shard, even if an earlier shard has failed.
pub(super) async fn remove(shards: &[Box<dyn Shard>], id: JobId) {
    let calls: Vec<_> = shards.iter().map(|shard| shard.remove(id)).collect();
    let mut failed = None;
    for answer in calls {
        failed = answer.receive().await.err().or(failed);
    }
    match failed {
        None => tracing::info!(id = id.0, "job removed"),
        Some(error) => tracing::warn!(id = id.0, %error, "job not removed everywhere"),
    }
}

/// Frees what the jobs of a protocol share.
pub(super) async fn unshare(shards: &[Box<dyn Shard>], protocol: &'static Protocol) {
    for shard in shards.iter().take(used_by(protocol)) {
        match shard.unshare(protocol).receive().await {
            Ok(_) => tracing::info!(%protocol, "what its jobs shared is freed for other jobs"),
            Err(error) => tracing::warn!(%protocol, %error, "what its jobs shared is still there"),
        }
    }
}

/// A shard's last report, and how fast the shard works.
#[derive(Clone, Debug, Default)]
pub(crate) struct ShardSample {
    /// The newest report; `None` before the first.
    pub report: Option<ShardReport>,
    /// False once the shard no longer answers.
    pub alive: bool,
    pub rx_packets_per_s: f64,
    pub rx_bytes_per_s: f64,
    pub tx_bytes_per_s: f64,
}

/// The reports of all shards at one time.
#[derive(Clone, Debug, Default)]
pub(crate) struct ShardSamples {
    pub at: Option<Time>,
    pub shards: Vec<ShardSample>,
}

impl ShardSamples {
    /// The progress reports of a job's ranks, each with its age at the time of the sample.
    pub fn progress_of(&self, job: Option<JobId>) -> impl Iterator<Item = (Span, Progress)> + Clone {
        let reports = self.shards.iter().filter_map(|shard| shard.report.as_ref());
        reports.flat_map(move |report| report.progress_of(job))
    }
}

impl ShardSample {
    /// A rate over a shorter time than this says little.
    const MIN_INTERVAL_S: f64 = 0.15;

    pub(super) fn update(&mut self, report: ShardReport) {
        self.alive = true;
        if let Some(old) = &self.report {
            let seconds = report.now.since(old.now).as_secs_f64();
            if seconds >= ShardSample::MIN_INTERVAL_S {
                let rate = |new: u64, old: u64| new.saturating_sub(old) as f64 / seconds;
                self.rx_packets_per_s = rate(report.socket.rx_packets, old.socket.rx_packets);
                self.rx_bytes_per_s = rate(report.socket.rx_bytes, old.socket.rx_bytes);
                self.tx_bytes_per_s = rate(report.socket.tx_bytes, old.socket.tx_bytes);
            }
        }
        self.report = Some(report);
    }
}

/// A job that runs in a shard although this control plane has not installed it.
pub(super) fn adopted(job: JobInstall) -> AdoptedJob {
    let JobInstall { name, protocol, config, most_slots, members: workers, servers, .. } = job;
    AdoptedJob { name, protocol, config, most_slots, workers, servers }
}

/// A job as one shard installs it.
fn job_in_shard(plan: &Plan, number: usize) -> JobInstall {
    let uplink = plan.uplink.as_ref();
    JobInstall {
        name: plan.name.clone(),
        protocol: plan.protocol,
        config: JobConfig { slots: plan.slots, ..plan.config.clone() },
        most_slots: plan.config.slots,
        members: plan.children.iter().filter_map(|child| child.addr(number)).collect(),
        core_ports: plan.children.iter().map(|child| child.core_ports.clone()).collect(),
        local_ip: plan.children.iter().map(|child| child.joined_at).collect(),
        below: plan.children.iter().map(|child| child.below.clone()).collect(),
        servers: match plan.protocol.shared.is_some() {
            true => plan.servers.dedicated().to_vec(),
            false => Vec::new(),
        },
        trees: plan.trees,
        parent: uplink.and_then(|uplink| Some((*uplink.shards.get(number)?, uplink.wid))),
    }
}

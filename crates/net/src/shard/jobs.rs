//! The data of a shard's installed jobs besides their machines: rates, and the progress of ranks.

use tributary_proto::contract::drop_reason::DropReason;
use tributary_proto::contract::ids::{JobId, JobKey};
use tributary_proto::contract::pipeline::Pipeline;
use tributary_proto::contract::time::Time;
use tributary_proto::contract::wire::Common;

use super::ShardJob;
use super::rates::Rates;
use crate::progress::{OfRanks, Progress};

/// Installed jobs, by ascending id.
#[derive(Default)]
pub struct Jobs(Vec<Job>);

struct Job {
    id: JobId,
    key: JobKey,
    rates: Rates,
    progress: OfRanks,
}

impl Jobs {
    /// Adds a job that was not installed before.
    pub fn begin(&mut self, id: JobId, key: JobKey, world: u16) {
        let at = self.0.partition_point(|other| other.id < id);
        self.0.insert(at, Job { id, key, rates: Rates::default(), progress: OfRanks::new(world) });
    }

    /// Removes a job.
    pub fn remove(&mut self, id: JobId) {
        self.0.retain(|job| job.id != id);
    }

    /// Notes what a member of a job says of a rank's progress.
    pub fn hear(&mut self, now: Time, common: &Common, progress: Progress) -> Result<(), DropReason> {
        let job = self.0.iter_mut().find(|job| job.id == common.job).ok_or(DropReason::UnknownJob)?;
        if job.key != common.key {
            return Err(DropReason::WrongKey);
        }
        job.progress.hear(now, progress)
    }

    /// Each job as an operator sees it.
    pub fn report(&mut self, now: Time, pipeline: &Pipeline) -> Vec<ShardJob> {
        let of = |Job { id, rates, progress, .. }: &mut Job| {
            let report = pipeline.report(*id)?;
            rates.update(now, &report);
            let (packets_per_s, blocks_per_s) = (rates.packets_per_s, rates.blocks_per_s);
            let (absent, progress) = (Vec::new(), progress.clone());
            Some(ShardJob { id: *id, packets_per_s, blocks_per_s, report, absent, progress })
        };
        self.0.iter_mut().filter_map(of).collect()
    }
}

//! The controller's table of jobs: all jobs, the switches that have had each of them, and the jobs that have failed.

use std::collections::{BTreeMap, BTreeSet};

use tributary_control::fabric::FabricLayout;
use tributary_proto::contract::ids::{JobId, NodeId};
use tributary_proto::contract::protocol::Protocol;

use super::job::{FabricJob, stopping};

/// The controller's message about jobs.
#[derive(Debug, Default)]
pub struct JobSync {
    /// Jobs that stay installed.
    pub keep: Vec<JobId>,
    /// Jobs to install. All others are removed.
    pub install: Vec<FabricJob>,
    /// The slots over all trees that jobs have now, for jobs whose machines can be resized.
    pub shares: Vec<(JobId, u16)>,
    /// Protocols whose jobs share a machine that stays, whether such a job is there or not.
    pub shared: Vec<&'static Protocol>,
    /// Jobs that have failed, and why.
    pub broken: Vec<(JobId, String)>,
}

/// The jobs of the fabric.
#[derive(Default)]
pub struct Jobs {
    /// All jobs.
    pub all: BTreeMap<JobId, FabricJob>,
    /// The switches that have had a job, for each job with trees. If such a switch lacks the job now, it was started
    /// again and has lost the sums.
    pub installed: BTreeSet<(NodeId, JobId)>,
    /// The protocols whose jobs share a machine at each switch that has had such a job, by code.
    pub shared: BTreeMap<u8, &'static Protocol>,
    /// The jobs that have failed, with the reason.
    pub broken: BTreeMap<JobId, String>,
    /// The controller's operator stops it.
    pub stopping: bool,
}

impl Jobs {
    /// Takes a job, in place of any with its id.
    pub fn insert(&mut self, job: FabricJob) {
        let protocol = job.job.protocol;
        if protocol.shared.is_some() {
            self.shared.insert(protocol.code, protocol);
        }
        self.all.insert(job.job.config.job, job);
    }

    /// Removes a job; false if there was no such job.
    pub fn remove(&mut self, id: JobId) -> bool {
        self.installed.retain(|&(_, installed)| installed != id);
        self.broken.remove(&id);
        self.all.remove(&id).is_some()
    }

    /// The message to the controller's own switch, with these jobs to install.
    pub fn sync_message(&self, install: Vec<FabricJob>) -> JobSync {
        let keep = self.all.keys().copied().collect();
        let broken = self.broken.iter().map(|(&id, why)| (id, why.clone())).collect();
        let shared = self.shared.values().copied().collect();
        JobSync { keep, install, shares: self.shares().collect(), shared, broken }
    }

    /// The slots that jobs have now, for jobs whose machines can be resized.
    pub fn shares(&self) -> impl Iterator<Item = (JobId, u16)> {
        let resizable = self.all.iter().filter(|(_, job)| job.job.protocol.resizes);
        resizable.map(|(&id, job)| (id, job.job.config.slots))
    }

    /// Notes that a job's machine at a switch has failed. True if that is new.
    pub fn note_fault(&mut self, fabric: &FabricLayout, node: NodeId, id: JobId, fault: &str) -> bool {
        let why = || format!("{fault}, at {}; the job is over", fabric.name(node));
        let is_news = self.all.contains_key(&id) && !self.broken.contains_key(&id);
        is_news && self.broken.insert(id, why()).is_none()
    }

    /// Notes that a job is over, for this reason. An earlier reason stays.
    pub fn note_failure(&mut self, id: JobId, why: &str) {
        if self.all.contains_key(&id) {
            self.broken.entry(id).or_insert_with(|| why.to_owned());
        }
    }

    /// Notes that an operator stops a switch: jobs whose sums are lost with it have failed, and others go on.
    pub fn note_stop(&mut self, fabric: &FabricLayout, node: NodeId) {
        self.stopping |= node == fabric.controller;
        let lost = self.all.iter().filter(|(_, job)| job.is_lost_with(node)).map(|(&id, _)| id);
        for id in lost.collect::<Vec<_>>() {
            self.note_failure(id, &stopping(fabric, node));
        }
    }

    /// Notes that a switch has lost these jobs, which were installed there. True if that ends one of them.
    pub fn note_loss(&mut self, fabric: &FabricLayout, node: NodeId, lacking: &[u16]) -> bool {
        let mut changed = false;
        for id in lacking.iter().copied().map(JobId) {
            let installed = self.installed.contains(&(node, id));
            let Some(job) = self.all.get(&id).filter(|job| installed && !job.job.protocol.survives_tree_loss) else {
                continue;
            };
            let Some(tree) = job.trees.iter().position(|tree| tree.switch(node).is_some()) else { continue };
            let what = format!("through {}", fabric.name(node));
            let why = job.broken_by(tree, &what, "which was started again without its sums", "connect again");
            changed |= self.broken.insert(id, why).is_none();
        }
        changed
    }
}

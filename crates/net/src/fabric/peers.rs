//! The switches of a fabric as the controller calls them: which jobs each of them has, and how it learns of changes.
//!
//! Every sync gives each switch the jobs that it lacks, so that a switch that restarts gets its jobs again. The jobs of a
//! fabric divide the memory of its switches as jobs come and go. The controller divides it as if all jobs ran over one
//! switch, and each switch resizes the job's trees when it learns of the change. Results carry the smallest capacity on
//! their path, so that switches need not learn of it at the same time.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex as StdMutex};
use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::sync::Mutex;
use tributary_control::fabric::FabricLayout;
use tributary_operators::Library;
use tributary_proto::contract::ids::{JobId, NodeId};
use tributary_proto::contract::protocol::Protocol;

use super::api::{BrokenBody, JobBody, JobReportBody, SECRET_HEADER, SyncBody, SyncReply, json};
use super::handle::FabricHandle;
use super::job::FabricJob;
use super::job_table::Jobs;
use crate::api::{ErrorBody, call};
use crate::shard::Stopped;
use crate::status::FabricSwitchStatus;

pub(super) const SYNC: &str = "/fabric/sync";
/// Where a switch tells the controller that its operator stops it.
pub const STOP: &str = "/fabric/stop";
/// The time in which a switch must answer a sync that installs nothing.
pub(super) const PROMPT: Duration = Duration::from_millis(1_000);
/// The time in which a switch must install a job.
pub(super) const INSTALL: Duration = Duration::from_secs(5);

/// All switches of a fabric, as the controller sees them.
pub(super) struct Switches {
    pub(super) fabric: Arc<FabricLayout>,
    pub(super) own: Arc<FabricHandle>,
    pub(super) others: Vec<(NodeId, SocketAddr)>,
    /// All jobs. The holder of this lock may call the switches, so that they get one call at a time.
    pub(super) jobs: Mutex<Jobs>,
    /// All switches, as they answered last.
    pub(super) overview: StdMutex<Vec<FabricSwitchStatus>>,
    /// CustomOps of jobs that an earlier controller has formed.
    pub(super) library: Arc<Library>,
}

impl Switches {
    /// Sends every switch the list of jobs, and returns the answers. Switches that lack jobs get them at once.
    pub(super) async fn sync(&self, jobs: &mut Jobs, timeout: Duration) -> Vec<(NodeId, Result<SyncReply, String>)> {
        let before = jobs.broken.len();
        let mut answers = vec![(self.fabric.controller, self.sync_own(jobs).await)];
        for (node, control, answer) in self.ask_others(jobs, timeout).await {
            let lacking = answer.as_ref().map(|reply| reply.lacking.clone()).unwrap_or_default();
            if lacking.is_empty() {
                answers.push((node, answer));
                continue;
            }
            jobs.note_loss(&self.fabric, node, &lacking);
            let install = lacking.iter().filter_map(|&id| jobs.all.get(&JobId(id))).map(JobBody::new).collect();
            let body = json(&self.body(jobs, node, install));
            answers.push((node, ask(control, SYNC, &body, &self.fabric.secret, INSTALL).await));
        }
        for (node, answer) in &mut answers {
            let Ok(reply) = answer else { continue };
            let here =
                |(id, job): &(&JobId, &FabricJob)| !reply.lacking.contains(&id.0) && job.is_for(&self.fabric, *node);
            let here: Vec<(NodeId, JobId)> = jobs.all.iter().filter(here).map(|(&id, _)| (*node, id)).collect();
            jobs.installed.extend(here);
            for JobReportBody { job_id, fault, .. } in &reply.jobs {
                if let Some(fault) = fault {
                    jobs.note_fault(&self.fabric, *node, JobId(*job_id), fault);
                }
            }
            if let Some(id) = reply.lacking.iter().copied().find(|&id| jobs.all.contains_key(&JobId(id))) {
                *answer = Err(format!("it was sent job {id} and does not have it"));
            }
        }
        if jobs.broken.len() > before {
            self.notify_broken(jobs, timeout).await;
        }
        answers
    }

    /// Notifies all switches of failed jobs, because ranks behind them wait for this.
    pub(super) async fn notify_broken(&self, jobs: &Jobs, timeout: Duration) {
        self.ask_others(jobs, timeout).await;
        let _ = self.sync_own(jobs).await;
    }

    /// Calls all other switches at once, with no job to install.
    async fn ask_others(&self, jobs: &Jobs, timeout: Duration) -> Vec<(NodeId, SocketAddr, Result<SyncReply, String>)> {
        let mut calls = Vec::new();
        for &(node, control) in &self.others {
            let (fabric, body) = (Arc::clone(&self.fabric), json(&self.body(jobs, node, Vec::new())));
            let call = async move { ask::<SyncReply>(control, SYNC, &body, &fabric.secret, timeout).await };
            calls.push((node, control, tokio::spawn(call)));
        }
        let mut answers = Vec::with_capacity(calls.len());
        for (node, control, call) in calls {
            let answer = call.await.unwrap_or_else(|error| Err(format!("the call ended early ({error})")));
            answers.push((node, control, answer));
        }
        answers
    }

    /// The message to a switch.
    pub(super) fn body(&self, jobs: &Jobs, node: NodeId, install: Vec<JobBody>) -> SyncBody {
        let here = jobs.all.iter().filter(|(_, job)| job.is_for(&self.fabric, node));
        let keep = here.map(|(id, _)| id.0).collect();
        let broken = jobs.broken.iter().map(|(id, why)| BrokenBody { job_id: id.0, why: why.clone() }).collect();
        let shares = jobs.shares().map(|(id, slots)| (id.0, slots)).collect();
        let shared = jobs.shared.values().map(|protocol| protocol.name.to_owned()).collect();
        SyncBody { keep, install, shares, shared, broken, stopping: jobs.stopping }
    }

    async fn sync_own(&self, jobs: &Jobs) -> Result<SyncReply, String> {
        let gone = |error: Stopped| error.to_string();
        let mut lacking = self.own.sync(jobs.sync_message(Vec::new())).receive().await.map_err(gone)?;
        if !lacking.is_empty() {
            let install = lacking.iter().filter_map(|id| jobs.all.get(id)).cloned().collect();
            lacking = self.own.sync(jobs.sync_message(install)).receive().await.map_err(gone)?;
        }
        let lacking = lacking.into_iter().map(|id| id.0).collect();
        Ok(SyncReply { lacking, ..SyncReply::default() })
    }

    /// Gives a job another number of slots at every switch. A switch that does not answer now learns of it with the next
    /// sync. False if there is no such job.
    pub(super) async fn resize(&self, id: JobId, slots: u16) -> bool {
        let mut jobs = self.jobs.lock().await;
        let Some(job) = jobs.all.get_mut(&id) else { return false };
        let config = &mut job.job.config;
        config.slots = slots - slots % config.trees;
        for (node, answer) in self.sync(&mut jobs, PROMPT).await {
            if let Err(why) = answer {
                tracing::debug!(switch = self.fabric.name(node), %why, "it learns of the job's slots with the next sync");
            }
        }
        true
    }

    /// Frees what the jobs of a protocol share, at every switch; false if nothing was shared. A switch that does not answer
    /// now learns of it with the next sync.
    pub(super) async fn unshare(&self, protocol: &'static Protocol) -> bool {
        let mut jobs = self.jobs.lock().await;
        let was = jobs.shared.remove(&protocol.code).is_some();
        for (node, answer) in self.sync(&mut jobs, PROMPT).await {
            if let Err(why) = answer {
                tracing::debug!(switch = self.fabric.name(node), %why, "it frees what jobs shared with the next sync");
            }
        }
        was
    }
}

/// One call to another switch. An error is the end of a sentence.
pub(super) async fn ask<T: DeserializeOwned>(
    control: SocketAddr,
    path: &str,
    body: &[u8],
    secret: &str,
    timeout: Duration,
) -> Result<T, String> {
    let call =
        async { call::post(call::CONNECT, control, path, body, &[(SECRET_HEADER, secret)]).await?.answer().await };
    let answer = match tokio::time::timeout(timeout, call).await {
        Ok(answer) => answer.map_err(|error| format!("{control} cannot be called: {error}"))?,
        Err(_) => return Err(format!("{control} does not answer")),
    };
    // An error of the control API has a sentence, which is quoted.
    let sentence = match serde_json::from_slice::<ErrorBody>(&answer.body) {
        Ok(body) => body.error.into(),
        Err(_) => String::from_utf8_lossy(&answer.body),
    };
    match answer.status {
        200 => serde_json::from_slice(&answer.body)
            .map_err(|error| format!("{control} gives an answer that cannot be read: {error}")),
        _ => Err(format!("{control} says {sentence}")),
    }
}

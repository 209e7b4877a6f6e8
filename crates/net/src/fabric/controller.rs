//! The controller: the switch of a fabric where jobs are formed. To its control plane the whole fabric looks like one shard: a
//! job that is installed there goes to every switch ([`super::peers`]). A controller that restarts asks the other switches
//! for their jobs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex as StdMutex};
use std::time::Duration;

use tokio::sync::Mutex;
use tributary_control::fabric::FabricLayout;
use tributary_control::levels::SwitchRanks;
use tributary_operators::Library;
use tributary_proto::contract::ids::{JobId, NodeId};
use tributary_proto::contract::protocol::Placement;

use super::api::{InstalledReply, JobBody, PortBody, merge_report};
use super::endpoints;
use super::handle::FabricHandle;
use super::job::FabricJob;
use super::job_table::Jobs;
use super::peers::{INSTALL, PROMPT, Switches, ask};
use super::planning;
use super::tree_repair;
use crate::shard::{JobInstall, ShardError, ShardReport};

/// A job with trees waits for hellos over its cables: the interval and the number of checks.
const CABLE_CHECK_EVERY: Duration = Duration::from_millis(50);
const CABLE_CHECKS: usize = 40;
/// All switches of a fabric as one shard of the control plane.
#[derive(Clone)]
pub struct Controller(pub(super) Arc<Switches>);

impl Controller {
    /// The controller of a fabric whose own switch is `own`.
    pub fn new(fabric: Arc<FabricLayout>, own: Arc<FabricHandle>, library: Arc<Library>) -> Controller {
        let others = fabric.switches().filter(|&node| node != fabric.controller);
        let others = others.filter_map(|node| Some((node, fabric.nodes[node.index()].control?))).collect();
        let (jobs, overview) = (Mutex::new(Jobs::default()), StdMutex::default());
        Controller(Arc::new(Switches { fabric, own, others, jobs, overview, library }))
    }

    /// A job as the controller has planned it.
    pub async fn job(&self, id: JobId) -> Option<FabricJob> {
        self.0.jobs.lock().await.all.get(&id).cloned()
    }

    /// Notes that an operator stops a switch, perhaps this one, and tells all switches which jobs have failed by it.
    pub async fn note_stop(&self, node: NodeId) {
        let mut jobs = self.0.jobs.lock().await;
        jobs.note_stop(&self.0.fabric, node);
        self.0.notify_broken(&jobs, PROMPT).await;
    }

    /// Fails these jobs, and tells all switches why.
    pub async fn fail(&self, ids: &[JobId], why: &str) {
        let mut jobs = self.0.jobs.lock().await;
        ids.iter().for_each(|&id| jobs.note_failure(id, why));
        self.0.notify_broken(&jobs, PROMPT).await;
    }
}

impl Switches {
    /// Asks every switch for its jobs, which an earlier controller has formed. Jobs that only silent switches have are lost.
    pub(super) async fn discover(self: Arc<Self>) -> Vec<JobInstall> {
        let mut calls = Vec::new();
        for &(node, control) in &self.others {
            let fabric = Arc::clone(&self.fabric);
            let call =
                async move { ask::<InstalledReply>(control, "/fabric/jobs", b"{}", &fabric.secret, PROMPT).await };
            calls.push((node, tokio::spawn(call)));
        }
        let mut jobs = self.jobs.lock().await;
        for (node, call) in calls {
            let answer = call.await.unwrap_or_else(|error| Err(format!("the call ended early ({error})")));
            match answer {
                Ok(found) => {
                    let read = |job: JobBody| {
                        job.job(&self.library).inspect_err(|error| {
                            tracing::warn!(switch = self.fabric.name(node), ?error, "a job of it cannot be read");
                        })
                    };
                    for job in found.jobs.into_iter().filter_map(|job| read(job).ok()) {
                        let id = job.job.config.job;
                        // Our own switch had the job too, before it was started again.
                        jobs.installed.extend([(node, id), (self.fabric.controller, id)]);
                        if !jobs.all.contains_key(&id) {
                            jobs.insert(job);
                        }
                    }
                }
                Err(why) => tracing::debug!(switch = self.fabric.name(node), %why, "its jobs are not known"),
            }
        }
        let ids: Vec<u16> = jobs.all.keys().map(|id| id.0).collect();
        jobs.note_loss(&self.fabric, self.fabric.controller, &ids);
        jobs.all.keys().for_each(|&id| drop(tokio::spawn(tree_repair::watch(self.clone(), id))));
        jobs.all.values().map(|job| job.job.clone()).collect()
    }

    /// Plans and installs a job. Trees avoid switches that refuse it, if other switches accept it.
    pub(super) async fn install(self: Arc<Self>, job: JobInstall) -> Result<(), ShardError> {
        let located = endpoints::locate(&self.fabric, job)?;
        let has_trees = located.job.protocol.placement == Placement::Trees;
        if has_trees {
            self.await_cables(&located).await?;
        }
        let mut jobs = self.jobs.lock().await;
        let mut without = BTreeMap::new();
        loop {
            let job = if has_trees { self.plan(&located, &without, &jobs).await? } else { located.clone() };
            planning::log(&self.fabric, &job);
            let id = job.job.config.job;
            let Err((node, why)) = self.install_planned(job, &mut jobs).await else {
                tokio::spawn(tree_repair::watch(self.clone(), id));
                return Ok(());
            };
            let name = self.fabric.name(node);
            let is_behind = |hosts: &[NodeId]| hosts.iter().any(|&host| self.fabric.leaf_of(host) == node);
            for (hosts, role) in [(&located.hosts, "members"), (&located.server_hosts, "servers")] {
                if is_behind(hosts) {
                    let sentence = format!("switch {name}, which has {role}, does not take it: {why}");
                    return Err(ShardError::Fabric(sentence));
                }
            }
            without.insert(node, why);
        }
    }

    /// Waits a moment for switches that have just started: a tree uses only cables over which a hello has come.
    async fn await_cables(&self, job: &FabricJob) -> Result<(), ShardError> {
        let request = job.tree_job();
        for _ in 0..CABLE_CHECKS {
            let dead = self.own.report().receive().await?.dead_cables;
            let planner = self.fabric.planner(&dead);
            if dead.is_empty() || planner.is_complete(request, &planner.plan(request, &|_| 0)) {
                break;
            }
            tokio::time::sleep(CABLE_CHECK_EVERY).await;
        }
        Ok(())
    }

    /// The job with its trees, each of which owns an equal part of its slots.
    async fn plan(
        &self,
        located: &FabricJob,
        without: &BTreeMap<NodeId, String>,
        jobs: &Jobs,
    ) -> Result<FabricJob, ShardError> {
        let dead = self.own.report().receive().await?.dead_cables;
        let granted = planning::grant(&self.fabric, located, &dead, without, jobs.all.values());
        granted.map_err(|error| ShardError::Fabric(error.to_string()))
    }

    /// Installs a planned job. Every switch that the job needs must accept it; the others get it once they answer. An error
    /// names the switch that refuses it.
    async fn install_planned(&self, job: FabricJob, jobs: &mut Jobs) -> Result<(), (NodeId, String)> {
        let (id, needs) = (job.job.config.job, job.needs(&self.fabric));
        jobs.insert(job);
        for (node, answer) in self.sync(jobs, INSTALL).await {
            let Err(why) = answer else { continue };
            if needs.contains(&node) {
                jobs.remove(id);
                self.sync(jobs, PROMPT).await;
                return Err((node, why));
            }
            tracing::warn!(switch = self.fabric.name(node), %why, "a switch does without the job until it is there again");
        }
        Ok(())
    }

    pub(super) async fn remove(&self, id: JobId) -> bool {
        let mut jobs = self.jobs.lock().await;
        let was = jobs.remove(id);
        for (node, answer) in self.sync(&mut jobs, PROMPT).await {
            if let Err(why) = answer {
                tracing::debug!(switch = self.fabric.name(node), %why, "it learns of the removal with the next sync");
            }
        }
        was
    }

    /// The controller's own report merged with those of the other switches; `None` if our own switch has stopped.
    pub(super) async fn report(&self) -> Option<ShardReport> {
        let mut jobs = self.jobs.lock().await;
        let answers = self.sync(&mut jobs, PROMPT).await;
        let report = self.own.report().receive().await.ok()?;
        let overview = self.switches(&jobs, &PortBody::all(&report), &answers);
        *self.overview.lock().expect("no call panics while it holds this") = overview;
        let mut report = report.shard;
        let own = report.jobs.iter_mut().filter_map(|job| Some((job.id, job.report.fault.take()?)));
        if own
            .fold(false, |news, (id, fault)| jobs.note_fault(&self.fabric, self.fabric.controller, id, &fault) || news)
        {
            self.notify_broken(&jobs, PROMPT).await;
        }
        for (node, answer) in answers {
            match answer {
                Ok(_) if node == self.fabric.controller => {}
                Ok(reply) => reply.jobs.iter().for_each(|body| merge_report(report.now, &mut report.jobs, body)),
                Err(why) => {
                    tracing::debug!(switch = self.fabric.name(node), %why, "no answer");
                    report.jobs.iter_mut().for_each(|job| job.absent.extend(self.behind(&jobs, job.id, node)));
                }
            }
        }
        Some(report)
    }

    /// The ranks of a job behind a switch, with the switch's address; `None` if there are no such ranks.
    fn behind(&self, jobs: &Jobs, id: JobId, node: NodeId) -> Option<SwitchRanks> {
        let hosts = jobs.all.get(&id)?.hosts.iter().enumerate();
        let ranks: Vec<u16> =
            hosts.filter(|&(_, &host)| self.fabric.leaf_of(host) == node).map(|(rank, _)| rank as u16).collect();
        (!ranks.is_empty()).then(|| SwitchRanks { addr: self.fabric.udp(node), ranks })
    }
}

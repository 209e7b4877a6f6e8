//! The seat. To its control plane the whole fabric looks like one shard: a job that is installed there goes to every
//! switch. Every look gives each switch the jobs that it lacks, so that a switch that restarts gets its jobs again. A
//! seat that restarts asks the other switches for their jobs.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::sync::Mutex;
use tributary_control::JobName;
use tributary_control::fabric::FabricLayout;
use tributary_control::levels::SwitchRanks;
use tributary_operators::Library;
use tributary_proto::contract::ids::{JobId, NodeId};
use tributary_proto::contract::protocol::Placement;

use super::api::{BrokenBody, FoundReply, JobBody, JobSign, SECRET_HEADER, SyncBody, SyncReply, json};
use super::handle::FabricHandle;
use super::job::FabricJob;
use super::ledger::Jobs;
use super::places;
use super::planning;
use super::replant;
use super::signs::add;
use crate::api::{ErrorBody, call};
use crate::shard::{JobInstall, ShardError, ShardReport, Stopped};

pub(super) const SYNC: &str = "/fabric/sync";
/// The time in which a switch must answer a look. A look does not make it wait for anything.
pub(super) const PROMPT: Duration = Duration::from_millis(1_000);
/// The time in which a switch must install a job.
const INSTALL: Duration = Duration::from_secs(5);
/// A job with trees waits until neighbours have spoken over its cables: the interval and the number of checks.
const CABLE_LOOK: Duration = Duration::from_millis(50);
const CABLE_LOOKS: usize = 40;
/// A job of a thousand ranks takes 50 kB, and each of its trees as much again.
pub const MAX_SYNC_BODY: usize = 64 << 20;

/// All switches of a fabric as one shard. Its calls are made within the control plane's tasks.
#[derive(Clone)]
pub struct Seat(pub(super) Arc<Switches>);

/// All switches of a fabric, as the seat sees them.
pub(super) struct Switches {
    pub(super) fabric: Arc<FabricLayout>,
    pub(super) own: Arc<FabricHandle>,
    pub(super) others: Vec<(NodeId, SocketAddr)>,
    /// All jobs. Whoever holds this lock may ask the switches, so the switches get one question at a time.
    pub(super) jobs: Mutex<Jobs>,
    /// Operators of jobs that an earlier seat has formed.
    library: Arc<Library>,
}

impl Seat {
    /// The seat of a fabric whose own switch is `own`.
    pub fn new(fabric: Arc<FabricLayout>, own: Arc<FabricHandle>, library: Arc<Library>) -> Seat {
        let others = fabric.switches().filter(|&node| node != fabric.controller);
        let others = others.filter_map(|node| Some((node, fabric.nodes[node.index()].control?))).collect();
        Seat(Arc::new(Switches { fabric, own, others, jobs: Mutex::new(Jobs::default()), library }))
    }

    /// A job as the seat has planned it.
    pub async fn job(&self, id: JobId) -> Option<FabricJob> {
        self.0.jobs.lock().await.all.get(&id).cloned()
    }
}

impl Switches {
    /// Asks every switch for its jobs: those of the seat that was before us. One that does not answer has to do without
    /// the jobs that no other knows.
    pub(super) async fn find(self: Arc<Self>) -> Vec<(JobName, JobInstall)> {
        let mut asked = Vec::new();
        for &(node, control) in &self.others {
            let fabric = Arc::clone(&self.fabric);
            let call = async move { ask::<FoundReply>(control, "/fabric/jobs", b"{}", &fabric.secret, PROMPT).await };
            asked.push((node, tokio::spawn(call)));
        }
        let mut jobs = self.jobs.lock().await;
        for (node, call) in asked {
            let answer = call.await.unwrap_or_else(|error| Err(format!("the call ended early ({error})")));
            match answer {
                Ok(found) => {
                    let read = |job: JobBody| {
                        job.job(&self.library).inspect_err(|error| {
                            tracing::warn!(switch = self.fabric.name(node), ?error, "a job of it is not known");
                        })
                    };
                    for job in found.jobs.into_iter().filter_map(|job| read(job).ok()) {
                        let id = job.job.config.job;
                        // Our own switch had the job too, before it was started again.
                        jobs.taken.extend([(node, id), (self.fabric.controller, id)]);
                        if !jobs.all.contains_key(&id) {
                            jobs.insert(job);
                        }
                    }
                }
                Err(why) => tracing::debug!(switch = self.fabric.name(node), %why, "its jobs are not known"),
            }
        }
        let ids: Vec<u16> = jobs.all.keys().map(|id| id.0).collect();
        jobs.lost(&self.fabric, self.fabric.controller, &ids);
        jobs.all.keys().for_each(|&id| drop(tokio::spawn(replant::watch(self.clone(), id))));
        jobs.all.values().map(|job| (job.name.clone(), job.job.clone())).collect()
    }

    /// Plans and installs a job: around switches of trees that do not take it in, if others do.
    pub(super) async fn install(self: Arc<Self>, name: JobName, job: JobInstall) -> Result<(), ShardError> {
        let placed = places::find(&self.fabric, name, job)?;
        let has_trees = placed.job.protocol.placement == Placement::Trees;
        if has_trees {
            self.await_cables(&placed).await?;
        }
        let mut jobs = self.jobs.lock().await;
        let mut without = BTreeMap::new();
        loop {
            let job = if has_trees { self.plan(&placed, &without, &jobs).await? } else { placed.clone() };
            planning::log(&self.fabric, &job);
            let id = job.job.config.job;
            let Err((node, why)) = self.install_planned(job, &mut jobs).await else {
                tokio::spawn(replant::watch(self.clone(), id));
                return Ok(());
            };
            let name = self.fabric.name(node);
            let is_behind = |hosts: &[NodeId]| hosts.iter().any(|&host| self.fabric.leaf_of(host) == node);
            for (hosts, whom) in [(&placed.hosts, "members"), (&placed.server_hosts, "servers")] {
                if is_behind(hosts) {
                    let sentence = format!("switch {name}, which has {whom}, does not take it: {why}");
                    return Err(ShardError::Fabric(sentence));
                }
            }
            without.insert(node, why);
        }
    }

    /// Waits a moment for switches that have just started, until neighbours have heard them: a tree uses only cables
    /// over which somebody has spoken.
    async fn await_cables(&self, job: &FabricJob) -> Result<(), ShardError> {
        let request = job.tree_job();
        for _ in 0..CABLE_LOOKS {
            let dead = self.own.report().come().await?.dead_cables;
            let planner = self.fabric.planner(&dead);
            if dead.is_empty() || planner.is_complete(request, &planner.plan(request, &|_| 0)) {
                break;
            }
            tokio::time::sleep(CABLE_LOOK).await;
        }
        Ok(())
    }

    /// The job with its trees, each of which owns an equal part of its slots.
    async fn plan(
        &self,
        placed: &FabricJob,
        without: &BTreeMap<NodeId, String>,
        jobs: &Jobs,
    ) -> Result<FabricJob, ShardError> {
        let dead = self.own.report().come().await?.dead_cables;
        let granted = planning::grant(&self.fabric, placed, &dead, without, jobs.all.values());
        granted.map_err(|error| ShardError::Fabric(error.to_string()))
    }

    /// Installs a planned job. Every switch that the job needs must take it, and the other switches get it when they
    /// are there. An error names the switch that does not take it.
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
                tracing::debug!(switch = self.fabric.name(node), %why, "it will hear of the removal later");
            }
        }
        was
    }

    /// The seat's own report, with what the others have counted and heard; `None` if our own switch has stopped.
    pub(super) async fn report(&self) -> Option<ShardReport> {
        let mut jobs = self.jobs.lock().await;
        let answers = self.sync(&mut jobs, PROMPT).await;
        let mut report = self.own.report().come().await.ok()?.shard;
        let own = report.jobs.iter_mut().filter_map(|job| Some((job.id, job.report.fault.take()?)));
        if own.fold(false, |news, (id, fault)| jobs.failed(&self.fabric, self.fabric.controller, id, &fault) || news) {
            self.tell_broken(&jobs, PROMPT).await;
        }
        for (node, answer) in answers {
            match answer {
                Ok(_) if node == self.fabric.controller => {}
                Ok(reply) => reply.jobs.iter().for_each(|sign| add(report.now, &mut report.jobs, sign)),
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

    /// Tells every switch which jobs there are, and returns the answers. Switches that lack jobs get them at once.
    pub(super) async fn sync(&self, jobs: &mut Jobs, patience: Duration) -> Vec<(NodeId, Result<SyncReply, String>)> {
        let before = jobs.broken.len();
        let mut answers = vec![(self.fabric.controller, self.sync_own(jobs).await)];
        for (node, control, answer) in self.ask_others(jobs, patience).await {
            let lacking = answer.as_ref().map(|reply| reply.lacking.clone()).unwrap_or_default();
            if lacking.is_empty() {
                answers.push((node, answer));
                continue;
            }
            jobs.lost(&self.fabric, node, &lacking);
            let install = lacking.iter().filter_map(|&id| jobs.all.get(&JobId(id))).map(JobBody::new).collect();
            let body = json(&self.body(jobs, node, install));
            answers.push((node, ask(control, SYNC, &body, &self.fabric.secret, INSTALL).await));
        }
        for (node, answer) in &mut answers {
            let Ok(reply) = answer else { continue };
            let here =
                |(id, job): &(&JobId, &FabricJob)| !reply.lacking.contains(&id.0) && job.is_for(&self.fabric, *node);
            let here: Vec<(NodeId, JobId)> = jobs.all.iter().filter(here).map(|(&id, _)| (*node, id)).collect();
            jobs.taken.extend(here);
            for JobSign { job_id, fault, .. } in &reply.jobs {
                if let Some(fault) = fault {
                    jobs.failed(&self.fabric, *node, JobId(*job_id), fault);
                }
            }
            if let Some(id) = reply.lacking.iter().copied().find(|&id| jobs.all.contains_key(&JobId(id))) {
                *answer = Err(format!("it was told of job {id} and does not have it"));
            }
        }
        if jobs.broken.len() > before {
            self.tell_broken(jobs, patience).await;
        }
        answers
    }

    /// Tells all switches which jobs are over, because ranks behind them wait for this news.
    async fn tell_broken(&self, jobs: &Jobs, patience: Duration) {
        self.ask_others(jobs, patience).await;
        let _ = self.sync_own(jobs).await;
    }

    /// Asks all other switches at once. The request has no job to install.
    async fn ask_others(
        &self,
        jobs: &Jobs,
        patience: Duration,
    ) -> Vec<(NodeId, SocketAddr, Result<SyncReply, String>)> {
        let mut asked = Vec::new();
        for &(node, control) in &self.others {
            let (fabric, body) = (Arc::clone(&self.fabric), json(&self.body(jobs, node, Vec::new())));
            let call = async move { ask::<SyncReply>(control, SYNC, &body, &fabric.secret, patience).await };
            asked.push((node, control, tokio::spawn(call)));
        }
        let mut answers = Vec::with_capacity(asked.len());
        for (node, control, call) in asked {
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
        SyncBody { keep, install, shares, shared, broken }
    }

    async fn sync_own(&self, jobs: &Jobs) -> Result<SyncReply, String> {
        let gone = |error: Stopped| error.to_string();
        let mut lacking = self.own.sync(jobs.told(Vec::new())).come().await.map_err(gone)?;
        if !lacking.is_empty() {
            let install = lacking.iter().filter_map(|id| jobs.all.get(id)).cloned().collect();
            lacking = self.own.sync(jobs.told(install)).come().await.map_err(gone)?;
        }
        Ok(SyncReply { lacking: lacking.into_iter().map(|id| id.0).collect(), jobs: Vec::new() })
    }
}

/// One call to another switch. An error is a part of a sentence.
pub(super) async fn ask<T: DeserializeOwned>(
    control: SocketAddr,
    path: &str,
    body: &[u8],
    secret: &str,
    patience: Duration,
) -> Result<T, String> {
    let call = async { call::post(control, path, body, &[(SECRET_HEADER, secret)]).await?.answer().await };
    let answer = match tokio::time::timeout(patience, call).await {
        Ok(answer) => answer.map_err(|error| format!("{control} cannot be asked: {error}"))?,
        Err(_) => return Err(format!("{control} does not answer")),
    };
    // An error of the control API has a sentence, which is quoted.
    let said = match serde_json::from_slice::<ErrorBody>(&answer.body) {
        Ok(body) => body.error.into(),
        Err(_) => String::from_utf8_lossy(&answer.body),
    };
    match answer.status {
        200 => serde_json::from_slice(&answer.body).map_err(|error| format!("{control} answers oddly: {error}")),
        _ => Err(format!("{control} says {said}")),
    }
}

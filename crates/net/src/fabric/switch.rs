//! This switch as one of its fabric: its thread, the controller if jobs are formed here, and what the control API asks of it.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;
use tributary_control::Plan;
use tributary_control::fabric::FabricLayout;
use tributary_control::servers::ServerOffer;
use tributary_operators::Library;
use tributary_proto::contract::ids::{JobId, NodeId, ServerId};

use super::api::{InstalledReply, JobBody, JobReportBody, PortBody, StopBody, SyncReply, json};
use super::controller::Controller;
use super::endpoints;
use super::handle::FabricHandle;
use super::job::stopping;
use super::job_table::JobSync;
use super::peers::{PROMPT, STOP, ask};
use super::shard::Follower;
use crate::api::error::ApiError;
use crate::api::{Done, JoinReply, ServedBody};
use crate::shard::{Shard, Stopped};

/// A running switch of a fabric.
pub struct FabricSwitch {
    /// The fabric.
    pub layout: Arc<FabricLayout>,
    /// The switch's node number.
    pub node: NodeId,
    /// Its thread.
    pub handle: Arc<FabricHandle>,
    /// At the controller: the planner of jobs.
    pub controller: Option<Controller>,
    stops: watch::Sender<bool>,
    controller_stops: AtomicBool,
}

impl FabricSwitch {
    /// Opens the socket and starts the thread. Jobs that this switch forms bring their operators to the library.
    pub fn start(
        layout: Arc<FabricLayout>,
        node: NodeId,
        buffers: [usize; 2],
        library: &Arc<Library>,
    ) -> io::Result<FabricSwitch> {
        let handle = Arc::new(FabricHandle::start(Arc::clone(&layout), node, buffers)?);
        let is_controller = node == layout.controller;
        let controller =
            is_controller.then(|| Controller::new(Arc::clone(&layout), Arc::clone(&handle), Arc::clone(library)));
        let (stops, controller_stops) = (watch::Sender::new(false), AtomicBool::new(false));
        Ok(FabricSwitch { layout, node, handle, controller, stops, controller_stops })
    }

    /// True at the switch where jobs are formed.
    pub fn is_controller(&self) -> bool {
        self.controller.is_some()
    }

    /// The switch in the form in which a control plane knows shards.
    pub fn shard(&self) -> Box<dyn Shard> {
        match &self.controller {
            Some(controller) => Box::new(controller.clone()),
            None => Box::new(Follower(Arc::clone(&self.handle))),
        }
    }

    /// The control API of the switch where jobs are formed.
    pub fn controller_addr(&self) -> SocketAddr {
        let FabricLayout { controller, nodes, .. } = &*self.layout;
        nodes[controller.index()].control.unwrap_or_else(|| self.layout.udp(*controller))
    }

    /// Adds to the answer to a rank what it learns of the fabric, and the slots that the job's trees have. A job that could
    /// not be installed everywhere is gone already, and its members cannot use it.
    pub async fn complete_reply(&self, reply: &mut JoinReply, plan: &Plan, rank: u16) {
        let Some(controller) = &self.controller else { return };
        if let Some(planned) = controller.job(plan.config.job).await {
            reply.slots = planned.job.most_slots;
            reply.fabric = endpoints::member_reply(&self.layout, &planned, rank);
        }
    }

    /// A job for one of its servers; `None` if a member or server is not on a host of the fabric.
    pub fn served(&self, plan: &Plan, server: ServerId) -> Option<ServedBody> {
        let fabric = Some(endpoints::server_reply(&self.layout, plan, server)?);
        Some(ServedBody { fabric, ..ServedBody::new(plan, server) })
    }

    /// Checks that servers may be where this one is.
    pub fn may_serve(&self, offer: &ServerOffer, from: IpAddr) -> Result<(), ApiError> {
        endpoints::may_serve(&self.layout, offer.addr.ip(), from)
    }

    /// Tells the members of jobs that need this switch that it stops: those whose own switch it is, and through the
    /// controller all others.
    pub async fn announce_stop(&self) {
        // An error means that the thread has ended already.
        let _ = self.handle.leave().receive().await;
        self.stops.send_replace(true);
        match &self.controller {
            Some(controller) => controller.note_stop(self.node).await,
            None => {
                let body = json(&StopBody { switch: self.layout.name(self.node).to_owned() });
                let notified = ask::<Done>(self.controller_addr(), STOP, &body, &self.layout.secret, PROMPT).await;
                if let Err(why) = notified {
                    tracing::debug!(%why, "the controller learns of the stop when cables are silent");
                }
            }
        }
    }

    /// Waits until this switch stops, and returns the sentence for ranks.
    pub async fn stopping(&self) -> String {
        let mut stops = self.stops.subscribe();
        // The sender lives as long as this switch.
        let _ = stops.wait_for(|&stops| stops).await;
        stopping(&self.layout, self.node)
    }

    /// The sentence for ranks if the controller's operator stops it, as far as the controller has said.
    pub fn controller_stops(&self) -> Option<String> {
        let stops = self.controller_stops.load(Ordering::Relaxed);
        stops.then(|| stopping(&self.layout, self.layout.controller))
    }

    /// Notes whether the controller's operator stops it.
    pub fn note_controller_stops(&self, stops: bool) {
        self.controller_stops.store(stops, Ordering::Relaxed);
    }

    /// Fails these jobs at all switches of the fabric, for this reason. Only the controller can.
    pub async fn fail(&self, jobs: &[JobId], why: &str) {
        if let Some(controller) = &self.controller {
            controller.fail(jobs, why).await;
        }
    }

    /// Makes the jobs of this switch those of the controller's message.
    pub async fn sync(&self, jobs: JobSync) -> Result<SyncReply, Stopped> {
        let lacking = self.handle.sync(jobs).receive().await?;
        let report = self.handle.report().receive().await?;
        let lacking = lacking.into_iter().map(|id| id.0).collect();
        Ok(SyncReply { lacking, jobs: JobReportBody::all(&report), ports: PortBody::all(&report) })
    }

    /// The jobs that are installed here.
    pub async fn installed(&self) -> Result<InstalledReply, Stopped> {
        let report = self.handle.report().receive().await?;
        Ok(InstalledReply { jobs: report.installed.iter().map(|installed| JobBody::new(&installed.job)).collect() })
    }
}

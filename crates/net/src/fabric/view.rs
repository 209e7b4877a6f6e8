//! A fabric switch as an operator sees it.

use std::pin::Pin;
use std::sync::Arc;

use tributary_control::fabric::FabricLayout;
use tributary_control::trees::{Tree, TreeChild, TreeSwitch};
use tributary_proto::contract::ids::{JobId, NodeId};
use tributary_proto::contract::switch::OrderReport;

use super::api::JobReportBody;
use super::crossbar::PortReport;
use super::handle::FabricHandle;
use super::job::FabricJob;
use super::thread::FabricReport;
use crate::http::view::{FabricSnapshot, FabricView, PlannedJob, by_reason, shared};
use crate::shard::ShardReport;
use crate::status::LagStatus;
use crate::status::operation;
use crate::status::{
    FabricStatus, JobServerStatus, JobStatus, MemberStatus, OperatorStatus, OrderStatus, PortStatus, TreeChildStatus,
    TreeStatus, TreeSwitchStatus,
};

/// Makes the view of one switch.
pub struct SwitchView {
    pub fabric: Arc<FabricLayout>,
    pub node: NodeId,
    pub handle: Arc<FabricHandle>,
}

impl FabricView for SwitchView {
    /// The ports, the memory that jobs share, the jobs that were formed elsewhere, and the trees of all jobs.
    fn snapshot(&self) -> Pin<Box<dyn Future<Output = Option<FabricSnapshot>> + Send + '_>> {
        Box::pin(async {
            let report = self.handle.report().receive().await.ok()?;
            // The controller's own control plane knows its jobs better.
            let is_controller = self.node == self.fabric.controller;
            let jobs = if is_controller { Vec::new() } else { jobs(&report) };
            let memory_used_bytes = (!is_controller).then(|| memory_in_use(&report.shard));
            let planned = report.installed.iter().map(|(job, broken)| {
                let id = job.job.config.job;
                let orders = orders(&report, id);
                let tree =
                    |(number, tree)| self.tree(job, tree, orders.iter().find(|order| order.tree.index() == number));
                let trees = job.trees.iter().enumerate().map(tree).collect();
                PlannedJob { id: id.0, trees, broken: broken.clone() }
            });
            let planned = planned.collect();
            let (status, shared) = (self.status(&report), shared(&report.shard));
            Some(FabricSnapshot { status, shared, jobs, memory_used_bytes, planned })
        })
    }
}

impl SwitchView {
    /// A tree, with what this switch holds of it.
    fn tree(&self, job: &FabricJob, tree: &Tree, order: Option<&OrderReport>) -> TreeStatus {
        let name = |node: NodeId| self.fabric.name(node).to_owned();
        let child = |child: &TreeChild| TreeChildStatus {
            node: name(child.node),
            ranks: child.below.ranks().iter().map(|rank| rank.0).collect(),
        };
        let switch = |switch: &TreeSwitch| {
            let children: Vec<TreeChildStatus> = switch.children.iter().map(child).collect();
            let order = order.filter(|_| switch.node == self.node).map(|order| OrderStatus::new(order, &children));
            TreeSwitchStatus { node: name(switch.node), children, order }
        };
        let switches = tree.switches.iter().map(switch).collect();
        TreeStatus { root: name(tree.root()), switches, around: job.around.clone() }
    }

    fn status(&self, report: &FabricReport) -> FabricStatus {
        let name = |node: NodeId| self.fabric.name(node).to_owned();
        let port = |(number, port): (usize, &PortReport)| PortStatus {
            port: number as u16,
            peer: name(port.peer),
            up: port.up,
            queued_bytes: port.queued_bytes,
            peak_queued_bytes: port.egress.peak_bytes,
            tx_packets: port.egress.packets,
            tx_bytes: port.egress.bytes,
            tx_drops: port.egress.drops,
            tx_marks: port.egress.marks,
            pauses_given: port.ingress.pauses,
            pauses_taken: port.egress.pauses,
            held_bytes: port.ingress.held_bytes,
            peak_held_bytes: port.ingress.peak_bytes,
            rx_packets: port.rx_packets,
            rx_bytes: port.rx_bytes,
        };
        FabricStatus {
            node: name(self.node),
            controller: name(self.fabric.controller),
            ready: report.ready,
            ports: report.ports.iter().enumerate().map(port).collect(),
        }
    }
}

/// The state at this switch of each tree of a job whose packets are summed in their order.
fn orders(report: &FabricReport, job: JobId) -> &[OrderReport] {
    let own = report.shard.jobs.iter().find(|own| own.id == job);
    own.and_then(|own| own.report.machine.as_ref()).map_or(&[], |machine| &machine.orders)
}

/// The job's servers on hosts of this switch that were heard.
fn servers(report: &FabricReport, job: &FabricJob) -> Vec<JobServerStatus> {
    let seen = report.servers_seen.get(&job.job.config.job);
    let is_seen = |number: &u16| seen.is_some_and(|seen| seen.contains(number));
    let here = (0..).zip(&job.job.servers).filter(|(number, _)| is_seen(number));
    here.map(|(server, place)| JobServerStatus { server, addr: place.addr, state: "present".into() }).collect()
}

/// Bytes of all machines: jobs' own, and those that jobs share.
fn memory_in_use(report: &ShardReport) -> u64 {
    let own: usize = report.jobs.iter().map(|job| job.report.memory_bytes).sum();
    let shared: usize = report.shared.iter().map(|(_, _, bytes)| bytes).sum();
    (own + shared) as u64
}

/// The jobs that were formed at the controller, as far as this switch knows them.
fn jobs(report: &FabricReport) -> Vec<JobStatus> {
    let reports = JobReportBody::all(report);
    let of = |(job, _): &(FabricJob, Option<String>)| {
        let config = &job.job.config;
        let id = config.job;
        let sample = reports.iter().find(|sample| sample.job_id == id.0).cloned().unwrap_or_default();
        let own = report.shard.jobs.iter().find(|own| own.id == id);
        let elements = u64::from(config.elements_per_packet);
        let (collectives, operation) = operation::current(report.shard.progress_of(Some(id)));
        let members = job.job.members.iter().zip(&sample.last_seen_s_ago).enumerate();
        let members = members.filter(|(_, (_, heard))| heard.is_some()).map(|(rank, (&addr, &last_seen_s_ago))| {
            MemberStatus { rank: rank as u16, addr, state: "present".into(), last_seen_s_ago }
        });
        JobStatus {
            name: job.name.as_str().to_owned(),
            id: Some(id.0),
            state: "running".into(),
            protocol: job.job.protocol.name.into(),
            operators: OperatorStatus::all(&config.options.operators()),
            age_s: 0.0,
            world_size: config.world_size,
            members: members.collect(),
            switches: Vec::new(),
            servers: servers(report, job),
            parent: None,
            missing: Vec::new(),
            slots: config.slots,
            slots_waiting: sample.waiting,
            waiting_for: Vec::new(),
            lag: own.and_then(|own| own.report.machine.as_ref()?.lag).map(LagStatus::from),
            collectives,
            operation,
            elements_per_packet: config.elements_per_packet,
            memory_bytes: own.map_or(0, |own| own.report.memory_bytes as u64),
            packets: sample.packets,
            packets_per_s: sample.packets_per_s,
            blocks: sample.blocks,
            contributions: sample.contributions,
            metrics: sample.metrics,
            goodput_bytes: sample.blocks * elements * 4,
            goodput_gbps: sample.blocks_per_s * elements as f64 * 32.0 / 1e9,
            ate_per_s: sample.blocks_per_s * elements as f64,
            drops: by_reason(own.iter().map(|own| &own.report.drops)),
            trees: Vec::new(),
            broken: None,
        }
    };
    report.installed.iter().map(of).collect()
}

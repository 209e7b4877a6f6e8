//! What a fabric's switch shows beyond what every switch shows.

use std::cmp::Reverse;

use tributary_control::report::{JobServerView, MemberView};
use tributary_control::routes::Port;
use tributary_control::servers::ServerAddr;
use tributary_control::trees::{Tree, TreeChild, TreeSwitch};
use tributary_control::{JobView, MemberState, Phase};
use tributary_proto::contract::ids::{JobId, NodeId};
use tributary_proto::contract::switch::OrderReport;
use tributary_proto::contract::time::Time;

use super::api::{PortBody, SyncReply};
use super::controller::Controller;
use super::crossbar::PortReport;
use super::forwarding::{FabricReport, InstalledReport};
use super::job::FabricJob;
use super::job_table::Jobs;
use super::peers::Switches;
use super::switch::FabricSwitch;
use crate::shard::ShardReport;
use crate::status::{
    CableStatus, FabricStatus, FabricSwitchStatus, OrderStatus, PortStatus, TreeChildStatus, TreeStatus,
    TreeSwitchStatus,
};

/// A switch of a fabric at one moment.
pub struct FabricSnapshot {
    /// The switch as one of the fabric.
    pub status: FabricStatus,
    /// At every switch but the controller: the jobs here.
    pub formed_elsewhere: Option<FormedElsewhere>,
    /// How each job runs through the fabric, including jobs that were formed here.
    pub planned: Vec<PlannedJob>,
}

/// The jobs at a switch that were formed at the controller, whose control plane knows more of them.
pub struct FormedElsewhere {
    /// The jobs.
    pub jobs: Vec<JobView>,
    /// The report on them.
    pub report: ShardReport,
}

/// A job's static trees.
pub struct PlannedJob {
    /// The job's id.
    pub id: u16,
    /// The trees by number; empty for protocols that find their trees themselves.
    pub trees: Vec<TreeStatus>,
    /// Why the job has failed.
    pub broken: Option<String>,
}

impl FabricSwitch {
    /// The state of the switch now; `None` if its thread has ended. `now` is the control plane's time.
    pub async fn snapshot(&self, now: Time) -> Option<FabricSnapshot> {
        let report = self.handle.report().receive().await.ok()?;
        let planned = report.installed.iter().map(|InstalledReport { job, broken, .. }| {
            let id = job.job.config.job;
            let orders = orders(&report, id);
            let tree = |(number, tree)| self.tree(job, tree, orders.iter().find(|order| order.tree.index() == number));
            let trees = job.trees.iter().enumerate().map(tree).collect();
            PlannedJob { id: id.0, trees, broken: broken.clone() }
        });
        let (planned, status) = (planned.collect(), self.status(&report));
        let formed_elsewhere = self.controller.is_none().then(|| {
            let jobs = report.installed.iter().map(|job| job_view(&report.shard, job, now)).collect();
            FormedElsewhere { jobs, report: report.shard }
        });
        Some(FabricSnapshot { status, formed_elsewhere, planned })
    }

    /// A tree, with what this switch holds of it.
    fn tree(&self, job: &FabricJob, tree: &Tree, order: Option<&OrderReport>) -> TreeStatus {
        let name = |node: NodeId| self.layout.name(node).to_owned();
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
        let name = |node: NodeId| self.layout.name(node).to_owned();
        let level = |node: NodeId| self.layout.nodes[node.index()].level;
        let port = |(number, port): (usize, &PortReport)| PortStatus {
            port: number as u16,
            peer: name(port.peer),
            uplink: level(port.peer) > level(self.node),
            up: port.up,
            queued_bytes: port.queued_bytes,
            peak_queued_bytes: port.egress.peak_bytes,
            tx_packets: port.egress.packets,
            tx_bytes: port.egress.bytes,
            tx_drops: port.egress.drops,
            tx_marks: port.egress.marks,
            pauses_given: port.ingress.pauses,
            pauses_taken: port.egress.pauses,
            buffered_bytes: port.ingress.buffered_bytes,
            peak_buffered_bytes: port.ingress.peak_bytes,
            rx_packets: port.rx_packets,
            rx_bytes: port.rx_bytes,
            tx_gbps: port.rates.tx_gbps,
            rx_gbps: port.rates.rx_gbps,
        };
        FabricStatus {
            node: name(self.node),
            controller: name(self.layout.controller),
            controller_addr: self.controller_addr(),
            ready: report.ready,
            controller_silent_s: report.synced_ago.filter(|_| !self.is_controller()).map(|ago| ago.as_secs_f64()),
            ports: report.ports.iter().enumerate().map(port).collect(),
            switches: self.controller.as_ref().map(Controller::switches).unwrap_or_default(),
        }
    }
}

impl Controller {
    /// All switches of the fabric, as they answered last.
    fn switches(&self) -> Vec<FabricSwitchStatus> {
        self.0.overview.lock().expect("no call panics while it holds this").clone()
    }
}

impl Switches {
    /// All switches of the fabric, as they answer the controller, whose own ports are `own`.
    pub(super) fn switches(
        &self,
        jobs: &Jobs,
        own: &[PortBody],
        answers: &[(NodeId, Result<SyncReply, String>)],
    ) -> Vec<FabricSwitchStatus> {
        let name = |node: NodeId| self.fabric.name(node).to_owned();
        let cables = |node: NodeId, ports: &[PortBody]| {
            let cable = |(port, body): (&Port, &PortBody)| CableStatus {
                peer: name(port.to),
                up: body.up,
                tx_gbps: body.tx_gbps,
                rx_gbps: body.rx_gbps,
                tx_drops: body.tx_drops,
            };
            self.fabric.ports[node.index()].iter().zip(ports).map(cable).collect()
        };
        let status = |(node, answer): &(NodeId, Result<SyncReply, String>)| {
            // Where trees are found packet by packet, every switch that has the job may be on the way.
            let may_sum = |job: &FabricJob| job.trees.is_empty() && job.is_for(&self.fabric, *node);
            let here = jobs.all.iter().filter(|(_, job)| may_sum(job) || job.needs(&self.fabric).contains(node));
            let ports = match answer {
                Ok(_) if *node == self.fabric.controller => own,
                Ok(reply) => &reply.ports,
                Err(_) => &[],
            };
            Some(FabricSwitchStatus {
                node: name(*node),
                level: self.fabric.nodes[node.index()].level,
                control: self.fabric.nodes[node.index()].control?,
                silent: answer.as_ref().err().cloned(),
                jobs: here.map(|(id, _)| id.0).collect(),
                cables: cables(*node, ports),
            })
        };
        let mut answers: Vec<_> = answers.iter().collect();
        answers.sort_by_key(|(node, _)| (Reverse(self.fabric.nodes[node.index()].level), *node));
        answers.into_iter().filter_map(status).collect()
    }
}

/// The state at this switch of each tree of a job whose packets are summed in their order.
fn orders(report: &FabricReport, job: JobId) -> &[OrderReport] {
    let own = report.shard.jobs.iter().find(|own| own.id == job);
    own.and_then(|own| own.report.machine.as_ref()).map_or(&[], |machine| &machine.orders)
}

impl FormedElsewhere {
    /// Bytes of all machines: jobs' own, and those that jobs share.
    pub fn memory_in_use(&self) -> u64 {
        let own: usize = self.report.jobs.iter().map(|job| job.report.memory_bytes).sum();
        let shared: usize = self.report.shared.iter().map(|(_, _, bytes)| bytes).sum();
        (own + shared) as u64
    }
}

/// A job that was formed at the controller, as far as this switch knows it: the members and servers that it has seen.
fn job_view(report: &ShardReport, installed: &InstalledReport, now: Time) -> JobView {
    let InstalledReport { job, since, servers_seen, .. } = installed;
    let config = &job.job.config;
    let own = report.jobs.iter().find(|own| own.id == config.job);
    // The thread has a clock of its own, so only the time since then counts.
    let at = |then: Time| Time(now.0.saturating_sub(report.now.since(then).0));
    let last_seen = own.map_or(&[][..], |own| &own.report.last_seen);
    let members = (0..).zip(&job.job.members).zip(last_seen).filter_map(|((rank, &addr), seen)| {
        Some(MemberView { rank, addr, state: MemberState::Present, last_seen: Some(at((*seen)?)) })
    });
    let servers = (0..).zip(&job.job.servers).filter(|(number, _)| servers_seen.contains(number));
    let servers = servers.map(|(server, at)| JobServerView {
        server: ServerAddr { server, addr: at.addr },
        state: MemberState::Present,
    });
    JobView {
        name: job.job.name.clone(),
        id: Some(config.job),
        client: None,
        phase: Phase::Running,
        protocol: job.job.protocol,
        operators: config.options.operators(),
        world_size: config.world_size,
        slots: config.slots,
        elements_per_packet: config.elements_per_packet,
        memory_bytes: own.map_or(0, |own| own.report.memory_bytes as u64),
        since: at(*since),
        members: members.collect(),
        switches: Vec::new(),
        servers: servers.collect(),
        parent: None,
        ranks_of: (0..config.world_size).map(|rank| vec![rank]).collect(),
        missing: Vec::new(),
        large_sums: None,
    }
}

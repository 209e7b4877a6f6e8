//! The JSON that the controller and the other switches of a fabric exchange, and the headers that prove who the sender is.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use tributary_control::JobName;
use tributary_control::servers::JobServer;
use tributary_control::trees::Tree;
use tributary_operators::Library;
use tributary_proto::contract::config::{Below, JobConfig};
use tributary_proto::contract::ids::{JobId, JobKey, NodeId};
use tributary_proto::contract::switch::Lag;
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::protocols;

use super::crossbar::PortReport;
use super::forwarding::FabricReport;
use super::job::FabricJob;
use super::job_table::JobSync;
use super::tree_body::TreeBody;
use crate::api::error::ApiError;
use crate::api::{from_hex, hex, modules};
use crate::progress::Progress;
use crate::shard::{JobInstall, ShardJob};
use crate::status::LagStatus;
use crate::status::MetricStatus;

/// The header for the fabric's secret. Only switches of the fabric send it.
pub const SECRET_HEADER: &str = "x-tributary-fabric";
/// The header for the host that a request came from, on requests that a switch passes on.
pub const HOST_HEADER: &str = "x-tributary-host";

/// `POST /fabric/sync`: the jobs of the fabric.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SyncBody {
    /// Jobs that stay installed.
    pub keep: Vec<u16>,
    /// Jobs to install. All others are removed.
    pub install: Vec<JobBody>,
    /// The slots over all trees that jobs have now, for jobs whose machines can be resized.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub shares: BTreeMap<u16, u16>,
    /// Protocols whose jobs share a machine that stays, whether such a job is there or not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shared: Vec<String>,
    /// Jobs whose trees are broken, as far as the controller knows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub broken: Vec<BrokenBody>,
    /// True if the controller's operator stops it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stopping: bool,
}

/// `POST /fabric/stop`: a switch's operator stops it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StopBody {
    /// The switch's name.
    pub switch: String,
}

impl SyncBody {
    /// True if some job brings operators, which have to be compiled.
    pub fn has_modules(&self) -> bool {
        self.install.iter().any(|job| !job.modules.is_empty())
    }

    /// The message, with operators that are tested here too.
    pub fn jobs(self, library: &Library) -> Result<JobSync, ApiError> {
        let install = self.install.into_iter().map(|job| job.job(library)).collect::<Result<Vec<_>, _>>()?;
        Ok(JobSync {
            keep: self.keep.into_iter().map(JobId).collect(),
            install,
            shares: self.shares.into_iter().map(|(id, slots)| (JobId(id), slots)).collect(),
            shared: self.shared.iter().filter_map(|name| protocols::named(name)).collect(),
            broken: self.broken.into_iter().map(|broken| (JobId(broken.job_id), broken.why)).collect(),
        })
    }
}

/// A job that has failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BrokenBody {
    /// The job's id.
    pub job_id: u16,
    /// Why, and what to do: one sentence.
    pub why: String,
}

/// A job to install.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobBody {
    /// The job's name.
    pub name: String,
    /// The protocol's name.
    pub protocol: String,
    /// The job's id in packets.
    pub job_id: u16,
    /// The job's key.
    pub key: String,
    /// The job's slots over all trees now.
    pub slots: u16,
    /// The slots over all trees on which the job's members have agreed.
    pub most_slots: u16,
    /// Elements per packet.
    pub elements_per_packet: u16,
    /// The protocol's options.
    pub options: BTreeMap<String, String>,
    /// The modules of the job's own operators.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modules: Vec<String>,
    /// The UDP address of each member, by rank.
    pub members: Vec<SocketAddr>,
    /// The host's number of each member, by rank.
    pub hosts: Vec<u32>,
    /// The servers on hosts of their own, by number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<ServerBody>,
    /// The number of trees that its ranks insist on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trees_wanted: Option<u16>,
    /// The job's static trees; empty for protocols that find their trees themselves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trees: Vec<TreeBody>,
    /// The switches around which these are planned, each with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub around: Vec<String>,
}

/// A server of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerBody {
    /// The address where the server receives packets.
    pub addr: SocketAddr,
    /// The number of its host.
    pub host: u32,
    /// Random, 16 hexadecimal digits: names the server's process.
    pub incarnation: String,
}

impl ServerBody {
    /// The servers of a job. Each has an incarnation, since a fabric has no parent switch.
    fn all(job: &FabricJob) -> Vec<ServerBody> {
        let server = |(server, host): (&JobServer, &NodeId)| {
            Some(ServerBody { addr: server.addr, host: host.0, incarnation: hex(server.incarnation?) })
        };
        job.job.servers.iter().zip(&job.server_hosts).filter_map(server).collect()
    }
}

impl JobBody {
    /// A job as JSON.
    pub fn new(job: &FabricJob) -> JobBody {
        let JobInstall { protocol, config, members, .. } = &job.job;
        JobBody {
            name: job.job.name.as_str().to_owned(),
            protocol: protocol.name.to_owned(),
            job_id: config.job.0,
            key: hex(config.key.0),
            slots: config.slots,
            most_slots: job.job.most_slots,
            elements_per_packet: config.elements_per_packet,
            options: config.options.to_text(),
            modules: modules::of(&config.options),
            members: members.clone(),
            hosts: job.hosts.iter().map(|host| host.0).collect(),
            servers: ServerBody::all(job),
            trees_wanted: job.job.trees,
            trees: job.trees.iter().map(TreeBody::new).collect(),
            around: job.around.clone(),
        }
    }

    /// The job, with operators that are tested here too. An error says why the job cannot be installed.
    pub fn job(self, library: &Library) -> Result<FabricJob, ApiError> {
        let modules = self.modules.clone();
        let inconsistent = || ApiError::bad_request("a job to install is inconsistent".into());
        let mut job = self.decode().ok_or_else(inconsistent)?;
        let config = &mut job.job.config;
        config.options = modules::provide(config.options.clone(), &modules, library)?;
        Ok(job)
    }

    /// The job without its modules; `None` if it is inconsistent.
    fn decode(self) -> Option<FabricJob> {
        let world_size = u16::try_from(self.members.len()).ok()?;
        let protocol = protocols::named(&self.protocol)?;
        let trees = self.trees.into_iter().map(|tree| tree.tree(world_size)).collect::<Option<Vec<_>>>()?;
        let shards = trees.len().max(1) as u16;
        let config = JobConfig {
            job: JobId(self.job_id),
            key: JobKey(from_hex(&self.key)?),
            protocol: protocol.code,
            world_size,
            slots: self.slots,
            elements_per_packet: self.elements_per_packet,
            trees: shards,
            levels: trees.iter().any(Tree::has_levels),
            options: protocol.options.read(&self.options).ok()?,
        };
        let name = JobName::new(&self.name).ok()?;
        let divides = self.slots != 0 && self.slots.is_multiple_of(shards) && self.elements_per_packet != 0;
        let divides = divides && self.most_slots >= self.slots;
        let is_complete = self.hosts.len() == self.members.len() && self.job_id != 0 && divides;
        // A switch of a fabric has only one address.
        let (below, local_ip) = (Below::workers(world_size), Vec::new());
        let (most_slots, members, trees_wanted) = (self.most_slots, self.members, self.trees_wanted);
        let server = |server: &ServerBody| {
            Some(JobServer { addr: server.addr, incarnation: Some(from_hex(&server.incarnation)?) })
        };
        let servers = self.servers.iter().map(server).collect::<Option<Vec<_>>>()?;
        let server_hosts = self.servers.iter().map(|server| NodeId(server.host)).collect();
        let job = JobInstall {
            name,
            protocol,
            config,
            most_slots,
            members,
            core_ports: Vec::new(),
            local_ip,
            below,
            servers,
            trees: trees_wanted,
            parent: None,
        };
        let (hosts, around) = (self.hosts.into_iter().map(NodeId).collect(), self.around);
        is_complete.then_some(FabricJob { job, hosts, server_hosts, trees, around })
    }
}

/// The answer to `POST /fabric/jobs` from a restarted controller: the jobs that are installed at this switch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InstalledReply {
    /// All of these jobs.
    pub jobs: Vec<JobBody>,
}

/// The answer to a sync: the jobs that the switch lacks, and the state of the others.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SyncReply {
    /// Jobs to keep that the switch does not have.
    pub lacking: Vec<u16>,
    /// The jobs that it has.
    pub jobs: Vec<JobReportBody>,
    /// Its ports, by number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<PortBody>,
}

/// What another switch reports about a port to the controller.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortBody {
    /// False if the switch at the other end is silent.
    pub up: bool,
    /// UDP payload that leaves, in Gbit/s, lately.
    pub tx_gbps: f64,
    /// UDP payload that comes in, in Gbit/s, lately.
    pub rx_gbps: f64,
    /// Packets that did not fit the queue.
    pub tx_drops: u64,
}

impl PortBody {
    /// The reports on all ports of this switch.
    pub fn all(report: &FabricReport) -> Vec<PortBody> {
        let body = |port: &PortReport| PortBody {
            up: port.up,
            tx_gbps: port.rates.tx_gbps,
            rx_gbps: port.rates.rx_gbps,
            tx_drops: port.egress.drops,
        };
        report.ports.iter().map(body).collect()
    }
}

/// What another switch reports about a job to the controller.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobReportBody {
    /// The job's id.
    pub job_id: u16,
    /// Packets of the job.
    pub packets: u64,
    /// Packets of the job per second, lately.
    pub packets_per_s: f64,
    /// Sums completed at the switch.
    pub blocks: u64,
    /// Sums completed per second, lately.
    pub blocks_per_s: f64,
    /// Contributions added at the switch.
    pub contributions: u64,
    /// Slots with a sum that is not complete.
    pub waiting: u32,
    /// The protocol's own counters and gauges at the switch.
    pub metrics: Vec<MetricStatus>,
    /// Why the job's machine at the switch has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// Seconds since the switch last received from each member, by rank; none for members elsewhere.
    pub last_seen_s_ago: Vec<Option<f64>>,
    /// The rank at the switch with the most results waiting for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag: Option<LagStatus>,
    /// How far the ranks at the switch are in their collectives.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub progress: Vec<ProgressBody>,
}

/// How far a rank is in its collectives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgressBody {
    /// Age of the report, in seconds.
    pub last_seen_s_ago: f64,
    /// The packet after the common header.
    pub body: Vec<u8>,
}

/// A body as bytes of JSON.
pub fn json(body: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(body).expect("numbers, lists and strings can be written")
}

impl JobReportBody {
    /// The reports on all jobs of this switch.
    pub fn all(report: &FabricReport) -> Vec<JobReportBody> {
        let now = report.shard.now;
        let body = |job: &ShardJob| {
            let machine = job.report.machine.clone().unwrap_or_default();
            let ago = |seen: &Option<_>| seen.map(|seen| now.since(seen).as_secs_f64());
            let progress_of = |(at, progress): &(Time, Progress)| ProgressBody {
                last_seen_s_ago: now.since(*at).as_secs_f64(),
                body: progress.body().to_vec(),
            };
            JobReportBody {
                job_id: job.id.0,
                packets: job.report.packets,
                packets_per_s: job.packets_per_s,
                blocks: machine.blocks_completed,
                blocks_per_s: job.blocks_per_s,
                contributions: machine.contributions,
                waiting: machine.slots_waiting,
                metrics: MetricStatus::all(&machine.metrics),
                fault: job.report.fault.clone(),
                last_seen_s_ago: job.report.last_seen.iter().map(ago).collect(),
                lag: machine.lag.map(LagStatus::from),
                progress: job.progress.iter().map(progress_of).collect(),
            }
        };
        report.shard.jobs.iter().map(body).collect()
    }
}

/// Merges what another switch reports of a job into what the controller's own switch knows.
pub fn merge_report(now: Time, jobs: &mut [ShardJob], body: &JobReportBody) {
    let Some(job) = jobs.iter_mut().find(|job| job.id.0 == body.job_id) else { return };
    job.packets_per_s += body.packets_per_s;
    job.report.packets += body.packets;
    let machine = job.report.machine.get_or_insert_default();
    // Every switch with members forwards every sum, so the greatest number says how far the job is.
    job.blocks_per_s = job.blocks_per_s.max(body.blocks_per_s);
    machine.blocks_completed = machine.blocks_completed.max(body.blocks);
    machine.contributions += body.contributions;
    machine.slots_waiting += body.waiting;
    machine.lag = machine.lag.into_iter().chain(body.lag.map(Lag::from)).max_by_key(|lag| lag.blocks);
    // The job's machines are alike at all switches, so their metrics have the same names.
    for metric in &mut machine.metrics {
        if let Some(other) = body.metrics.iter().find(|other| other.name == metric.name) {
            metric.value = metric.value.with(other.value.into());
        }
    }
    let at = |seconds_ago| Time(now.0.saturating_sub(Span::from_secs_f64(seconds_ago).0));
    for (seen, ago) in job.report.last_seen.iter_mut().zip(&body.last_seen_s_ago) {
        if let Some(ago) = ago {
            *seen = Some(seen.map_or(at(*ago), |seen| seen.max(at(*ago))));
        }
    }
    for ProgressBody { last_seen_s_ago, body } in &body.progress {
        // A rank reports to one switch only. A report that no rank of this job can have sent is ignored.
        let _ = Progress::parse_body(body).and_then(|progress| job.progress.record(at(*last_seen_s_ago), progress));
    }
}

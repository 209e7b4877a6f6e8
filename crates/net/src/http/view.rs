//! Puts the control plane's decisions and the shards' counters together.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tributary_control::JobView;
use tributary_control::report::{JobServerView, MemberView, ServerView};
use tributary_proto::contract::drop_reason::{DropCounters, DropReason};
use tributary_proto::contract::ids::ChildId;
use tributary_proto::contract::metric;
use tributary_proto::contract::switch::{OrderReport, SharedReport, SwitchReport};
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::protocols;

use crate::control_plane::{ControlPlane, ShardSample, ShardSamples};
use crate::fabric::{FabricSnapshot, FabricSwitch, FormedElsewhere, PlannedJob};
use crate::history::{History, Overview, Recorder, SAMPLE_S};
use crate::http::Identity;
use crate::http::events::Events;
use crate::metrics::MetricsInput;
use crate::shard::{ShardJob, ShardReport};
use crate::status::LagStatus;
use crate::status::operation;
use crate::status::{
    ChildSwitchStatus, JobServerStatus, JobStatus, MemberStatus, MetricStatus, OperatorStatus, OrderStatus,
    ParentStatus, ServerStatus, ShardStatus, SharedStatus, SwitchInfo, SwitchStatus, TreeChildStatus, TreeStatus,
    TreeSwitchStatus,
};
use crate::udp::path::link_bits_per_s;

/// Makes the operator's view.
pub struct Viewer {
    plane: Arc<ControlPlane>,
    identity: Identity,
    /// The switch as one of its fabric, if it is in one.
    fabric: Option<Arc<FabricSwitch>>,
    recorder: Mutex<Recorder>,
    events: Events,
    link_rate: LinkRate,
    /// When the switch started, in seconds since 1970.
    started_at_s: f64,
}

impl Viewer {
    pub fn new(plane: Arc<ControlPlane>, identity: Identity, fabric: Option<Arc<FabricSwitch>>) -> Viewer {
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Viewer {
            plane,
            identity,
            fabric,
            recorder: Mutex::default(),
            events: Events::default(),
            link_rate: LinkRate::default(),
            started_at_s: started.as_secs_f64(),
        }
    }

    /// Records what the switch does, for as long as the future is polled.
    pub async fn keep_history(&self) {
        loop {
            tokio::time::sleep(Duration::from_secs_f64(SAMPLE_S)).await;
            let status = self.status().await;
            self.recorder().record(self.plane.now().as_secs_f64(), &status);
            if self.events.are_followed() {
                self.events.send(&self.overview_of(status));
            }
        }
    }

    /// The rate of the link with this address of ours, if its driver reports one.
    pub fn link_bits_per_s(&self, local: IpAddr) -> Option<u64> {
        self.link_rate.get(self.plane.now(), local, link_bits_per_s)
    }

    /// What follows each sample.
    pub fn events(&self) -> &Events {
        &self.events
    }

    /// What operators see, as of a moment ago.
    pub async fn overview(&self) -> Overview {
        let status = self.status().await;
        self.overview_of(status)
    }

    fn overview_of(&self, status: SwitchStatus) -> Overview {
        Overview { status, history: self.history(), ended: self.plane.ended_jobs() }
    }

    /// What the switch did in the last minutes.
    pub fn history(&self) -> History {
        self.recorder().history()
    }

    fn recorder(&self) -> MutexGuard<'_, Recorder> {
        self.recorder.lock().expect("no call panics while it holds this")
    }

    /// The switch and its jobs, as of a moment ago.
    pub async fn status(&self) -> SwitchStatus {
        let samples = self.plane.samples().await;
        let now = self.plane.now();
        let Some(fabric) = &self.fabric else { return self.own_status(now, &samples) };
        let Some(snapshot) = fabric.snapshot(now).await else { return self.own_status(now, &samples) };
        let FabricSnapshot { status: fabric, formed_elsewhere, planned } = snapshot;
        let mut status = match formed_elsewhere {
            None => self.own_status(now, &samples),
            Some(jobs) => self.follower_status(now, samples, jobs),
        };
        status.switch.fabric = Some(fabric);
        for PlannedJob { id, trees, broken } in planned {
            if let Some(job) = status.jobs.iter_mut().find(|job| job.id == Some(id)) {
                (job.trees, job.broken) = (trees, broken);
            }
        }
        status
    }

    /// The status of a switch whose jobs were formed elsewhere, all of it as in one report.
    fn follower_status(&self, now: Time, mut samples: ShardSamples, elsewhere: FormedElsewhere) -> SwitchStatus {
        let memory_used_bytes = elsewhere.memory_in_use();
        if let Some(sample) = samples.shards.first_mut() {
            sample.report = Some(elsewhere.report);
        }
        let mut status = self.own_status(now, &samples);
        status.switch.memory_used_bytes = memory_used_bytes;
        let jobs = elsewhere.jobs.into_iter();
        status.jobs.extend(jobs.map(|view| job_status(now, view, &samples, self.identity.listen)));
        status
    }

    /// The data for monitoring.
    pub async fn metrics_input(&self) -> MetricsInput {
        let totals = self.plane.totals(&self.plane.samples().await);
        let tenants = self.plane.with_control(|control| control.limits().tenants.keys().cloned().collect());
        let (status, history) = (self.status().await, self.history());
        MetricsInput { status, history, totals, tenants, started_at_s: self.started_at_s }
    }

    /// The switch with the jobs that were formed here.
    fn own_status(&self, now: Time, samples: &ShardSamples) -> SwitchStatus {
        let (views, servers, memory_bytes, memory_used_bytes, max_jobs) = self.plane.with_control(|control| {
            let limits = control.limits();
            (control.jobs(), control.server_views(), limits.memory_bytes, control.memory_used(), limits.max_jobs)
        });
        let (cordoned, banned) = self
            .plane
            .with_control(|control| (control.is_cordoned(), control.banned().map(ToString::to_string).collect()));
        let shards = self.plane.shard_addrs().into_iter().zip(&samples.shards).enumerate();
        let jobs: Vec<JobStatus> =
            views.into_iter().map(|view| job_status(now, view, samples, self.identity.listen)).collect();
        SwitchStatus {
            switch: SwitchInfo {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                uptime_s: now.as_secs_f64(),
                listen: self.identity.listen,
                http: self.identity.http,
                link_bits_per_s: None,
                parent: self.plane.parent(),
                parent_failure: self.plane.parent_failure(),
                cordoned,
                earlier_jobs: self.plane.earlier_jobs().iter().map(|job| job.name.to_string()).collect(),
                banned,
                clients: self.plane.clients(&jobs),
                memory_bytes,
                memory_used_bytes,
                max_jobs,
                shards: shards.map(|(shard, (udp, sample))| shard_status(shard as u16, udp, sample)).collect(),
                rejected_packets: rejected_packets(samples),
                servers: servers.into_iter().map(|server| server_status(now, server)).collect(),
                shared: first_shard(samples).map(shared).unwrap_or_default(),
                fabric: None,
            },
            jobs,
        }
    }
}

/// The rate of the link by which somebody asked last. The kernel is asked again after a second: a rate hardly changes.
#[derive(Default)]
struct LinkRate(Mutex<Option<(IpAddr, Time, Option<u64>)>>);

impl LinkRate {
    fn get(&self, now: Time, local: IpAddr, read: impl FnOnce(IpAddr) -> Option<u64>) -> Option<u64> {
        let mut last = self.0.lock().expect("no call panics while it holds this");
        let known = last.filter(|&(of, at, _)| of == local && now.since(at) < Span::from_millis(1_000));
        let (_, _, rate) = *last.insert(known.unwrap_or_else(|| (local, now, read(local))));
        rate
    }
}

/// The first shard's report. All packets of jobs that share memory go to the first shard.
fn first_shard(samples: &ShardSamples) -> Option<&ShardReport> {
    samples.shards.first().and_then(|sample| sample.report.as_ref())
}

/// What jobs share in a shard, by protocol.
fn shared(report: &ShardReport) -> Vec<SharedStatus> {
    let status = |(code, shared, bytes): &(u8, SharedReport, usize)| {
        Some(SharedStatus {
            protocol: protocols::with_code(*code)?.name.to_owned(),
            slots: shared.slots,
            slots_in_use: shared.slots_in_use,
            slots_peak: shared.slots_peak,
            bytes: *bytes as u64,
            metrics: MetricStatus::all(&shared.metrics),
        })
    };
    report.shared.iter().filter_map(status).collect()
}

fn shard_status(shard: u16, udp: std::net::SocketAddr, sample: &ShardSample) -> ShardStatus {
    const BITS_PER_GBIT: f64 = 1e9;
    let socket = sample.report.as_ref().map(|report| report.socket).unwrap_or_default();
    ShardStatus {
        shard,
        udp,
        alive: sample.alive,
        rx_packets: socket.rx_packets,
        rx_bytes: socket.rx_bytes,
        tx_packets: socket.tx_packets,
        tx_bytes: socket.tx_bytes,
        rx_packets_per_s: sample.rx_packets_per_s,
        rx_gbps: sample.rx_bytes_per_s * 8.0 / BITS_PER_GBIT,
        tx_gbps: sample.tx_bytes_per_s * 8.0 / BITS_PER_GBIT,
        rx_overflows: socket.rx_overflows,
        tx_failures: socket.tx_no_buffers + socket.tx_too_long + socket.tx_errors,
        unroutable: sample.report.as_ref().map_or(0, |report| report.unroutable),
        receive_buffer_bytes: socket.receive_buffer as u64,
        segmentation_offload: socket.segmentation_offload,
        receive_coalescing: socket.receive_coalescing,
    }
}

fn rejected_packets(samples: &ShardSamples) -> BTreeMap<String, u64> {
    let reports = samples.shards.iter().filter_map(|sample| sample.report.as_ref());
    by_reason(reports.map(|report| &report.rejected_packets))
}

fn by_reason<'a>(counters: impl Iterator<Item = &'a DropCounters>) -> BTreeMap<String, u64> {
    let mut sum = BTreeMap::new();
    for (reason, count) in counters.flat_map(DropCounters::iter).filter(|&(_, count)| count > 0) {
        *sum.entry(DropReason::name(reason).to_owned()).or_default() += count;
    }
    sum
}

fn job_status(now: Time, view: JobView, samples: &ShardSamples, listen: SocketAddr) -> JobStatus {
    let reports = samples.shards.iter().filter_map(|sample| sample.report.as_ref());
    let jobs: Vec<&ShardJob> = reports.flat_map(|report| &report.jobs).filter(|job| Some(job.id) == view.id).collect();
    let machines = || jobs.iter().filter_map(|job| job.report.machine.as_ref());
    let elements = u64::from(view.elements_per_packet);
    let blocks: u64 = machines().map(|machine| machine.blocks_completed).sum();
    // The sum of no floats would be -0.0, which looks odd in a table.
    let total = |rate: fn(&ShardJob) -> f64| jobs.iter().fold(0.0, |total, job| total + rate(job));
    let ate_per_s = total(|job| job.blocks_per_s) * elements as f64;
    let waiting_for = waiting_for(&view, machines());
    let (collectives, operation) = operation::current(samples.progress_of(view.id));
    let trees = machines().flat_map(|machine| &machine.orders).map(|order| tree_node(&view, order, listen)).collect();
    let ago = |time: Option<Time>| time.map(|time| now.since(time).as_secs_f64());
    let below = view.switches.iter().map(|switch| ChildSwitchStatus {
        addr: switch.addr,
        ranks: switch.ranks.clone(),
        state: switch.state.name().to_owned(),
        last_seen_s_ago: ago(switch.last_seen),
    });
    JobStatus {
        name: view.name.as_str().to_owned(),
        id: view.id.map(|id| id.0),
        client: view.client.map(|client| client.to_string()),
        state: view.phase.name().to_owned(),
        protocol: view.protocol.name.to_owned(),
        operators: OperatorStatus::all(&view.operators),
        age_s: now.since(view.since).as_secs_f64(),
        world_size: view.world_size,
        members: view.members.iter().map(|member| member_status(now, member)).collect(),
        switches: below.collect(),
        servers: view.servers.iter().map(job_server_status).collect(),
        parent: view.parent.map(|parent| ParentStatus {
            state: parent.state.name().to_owned(),
            last_seen_s_ago: ago(parent.last_seen),
        }),
        missing: view.missing,
        slots: view.slots,
        slots_waiting: machines().map(|machine| machine.slots_waiting).sum(),
        waiting_for,
        lag: machines().filter_map(|machine| machine.lag).max_by_key(|lag| lag.blocks).map(LagStatus::from),
        collectives,
        operation,
        large_sums: view.large_sums,
        elements_per_packet: view.elements_per_packet,
        memory_bytes: view.memory_bytes,
        packets: jobs.iter().map(|job| job.report.packets).sum(),
        packets_per_s: total(|job| job.packets_per_s),
        blocks,
        contributions: machines().map(|machine| machine.contributions).sum(),
        metrics: metrics(machines()),
        goodput_bytes: blocks * elements * 4,
        goodput_gbps: ate_per_s * 32.0 / 1e9,
        ate_per_s,
        drops: by_reason(jobs.iter().map(|job| &job.report.drops)),
        trees,
        broken: None,
    }
}

fn job_server_status(server: &JobServerView) -> JobServerStatus {
    JobServerStatus { server: server.server.server, addr: server.server.addr, state: server.state.name().to_owned() }
}

/// The ranks that some incomplete sum waits for, ascending.
fn waiting_for<'a>(view: &JobView, machines: impl Iterator<Item = &'a SwitchReport>) -> Vec<u16> {
    let children: BTreeSet<ChildId> = machines.flat_map(|machine| machine.missing.iter().copied()).collect();
    let ranks_of = |wid: ChildId| view.ranks_of.get(wid.index()).cloned().unwrap_or_default();
    children.into_iter().flat_map(ranks_of).collect::<BTreeSet<u16>>().into_iter().collect()
}

/// This switch as a node of a tree whose packets are summed in their order: its children, and the packets that it holds.
fn tree_node(view: &JobView, order: &OrderReport, listen: SocketAddr) -> TreeStatus {
    let child = |ranks: &Vec<u16>| {
        let worker = view.members.iter().find(|member| *ranks == [member.rank]).map(|member| member.addr);
        let below = || view.switches.iter().find(|switch| switch.ranks == *ranks).and_then(|switch| switch.addr);
        let node = worker.or_else(below).map_or("?".to_owned(), |addr| addr.to_string());
        TreeChildStatus { node, ranks: ranks.clone() }
    };
    let children: Vec<TreeChildStatus> = view.ranks_of.iter().map(child).collect();
    let (root, order) = (listen.to_string(), Some(OrderStatus::new(order, &children)));
    let switches = vec![TreeSwitchStatus { node: root.clone(), children, order }];
    TreeStatus { root, switches, around: Vec::new() }
}

/// The figures of a job's machines in all shards together.
fn metrics<'a>(machines: impl Iterator<Item = &'a SwitchReport>) -> Vec<MetricStatus> {
    let mut sum = Vec::new();
    machines.for_each(|machine| metric::combine(&mut sum, &machine.metrics));
    MetricStatus::all(&sum)
}

fn server_status(now: Time, server: ServerView) -> ServerStatus {
    ServerStatus {
        addr: server.addr,
        state: server.state.name().to_owned(),
        last_seen_s_ago: now.since(server.last_seen).as_secs_f64(),
        jobs: server.jobs.iter().map(|job| job.as_str().to_owned()).collect(),
    }
}

fn member_status(now: Time, member: &MemberView) -> MemberStatus {
    MemberStatus {
        rank: member.rank,
        addr: member.addr,
        state: member.state.name().to_owned(),
        last_seen_s_ago: member.last_seen.map(|time| now.since(time).as_secs_f64()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_of_a_link_is_looked_up_once_a_second_and_for_each_other_address() {
        let (rate, at) = (LinkRate::default(), |ms| Time::ZERO + Span::from_millis(ms));
        let [one, other] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(IpAddr::from);
        assert_eq!(rate.get(at(0), one, |_| Some(1)), Some(1));
        assert_eq!(rate.get(at(999), one, |_| panic!("it is known")), Some(1));
        assert_eq!(rate.get(at(1_000), one, |_| None), None);
        assert_eq!(rate.get(at(1_001), other, |_| Some(2)), Some(2));
        assert_eq!(rate.get(at(1_002), one, |_| Some(3)), Some(3));
    }
}

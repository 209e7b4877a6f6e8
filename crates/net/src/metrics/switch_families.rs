//! What `/metrics` reports of a switch: series whose number does not grow with the jobs that come and go.

use std::sync::Arc;

use tributary_control::{Client, End, Phase};
use tributary_proto::contract::drop_reason::DropReason;

use super::exposition::Kind::{Counter, Gauge};
use super::exposition::Series;
use super::{Family, MetricsInput, STATES, by_state, one};
use crate::control_plane::ProtocolTotals;
use crate::status::{JobStatus, PortStatus, ShardStatus, SharedStatus};

/// Codes of errors that are there from the start, so that the first error is seen as an increase.
const WATCHED_ERRORS: [&str; 13] = [
    "address_unproven",
    "api_version",
    "full",
    "no_token",
    "not_private",
    "over_quota",
    "over_client_limit",
    "rendezvous_timeout",
    "too_many_connections",
    "too_many_jobs",
    "wire_version",
    "wrong_key",
    "wrong_token",
];

/// The families of the switch and of all its jobs together.
pub(super) const SWITCH: &[Family] = &[
    Family::new("build_info", Gauge, &["version"], "The program's version, as a label.", |input| {
        vec![(vec![input.status.switch.version.clone()], 1.0)]
    }),
    Family::new("process_start_time_seconds", Gauge, &[], "When the switch started, in seconds since 1970.", |input| {
        one(input.started_at_s)
    }),
    Family::new("parent_up", Gauge, &[], "1 while the parent switch is healthy; absent without a parent.", |input| {
        let switch = &input.status.switch;
        switch.parent.map_or(Vec::new(), |_| one(u8::from(switch.parent_failure.is_none()).into()))
    }),
    Family::new("reloads_total", Counter, &["outcome"], "Times that the files were read again.", |input| {
        ["taken_over", "failed"]
            .iter()
            .zip(input.totals.reloads)
            .map(|(outcome, count)| (vec![(*outcome).to_owned()], count as f64))
            .collect()
    }),
    Family::new(
        "last_reload_successful",
        Gauge,
        &[],
        "1 if what the files say holds; 0 after a failed reload.",
        |input| one(u8::from(input.totals.files_hold).into()),
    ),
    Family::new("memory_bytes", Gauge, &[], "Memory for all jobs, and for what they share.", |input| {
        one(input.status.switch.memory_bytes as f64)
    }),
    Family::new("memory_used_bytes", Gauge, &[], "Memory that jobs hold, and what they share.", |input| {
        one(input.status.switch.memory_used_bytes as f64)
    }),
    Family::new("operators", Gauge, &[], "Custom operators of jobs that are compiled and in use.", |input| {
        one(input.totals.operators as f64)
    }),
    Family::new("jobs", Gauge, &["state"], "Jobs by state.", |input| {
        let count = |state: &str| input.status.jobs.iter().filter(|job| job.state == state).count() as f64;
        Phase::ALL.iter().map(|phase| (vec![phase.name().to_owned()], count(phase.name()))).collect()
    }),
    Family::new("jobs_limit", Gauge, &[], "Jobs that may be there at a time.", |input| {
        one(input.status.switch.max_jobs.into())
    }),
    Family::new("jobs_formed_total", Counter, &[], "Jobs all of whose ranks have come.", |input| {
        one(input.totals.formed as f64)
    }),
    Family::new("jobs_ended_total", Counter, &["end"], "Jobs that have ended, by how they ended.", |input| {
        let count = |end| input.totals.ended.get(&end).copied().unwrap_or_default() as f64;
        End::ALL.map(|end| (vec![end.name().to_owned()], count(end))).into()
    }),
    Family::new("tenant_jobs", Gauge, &["tenant"], "Jobs of a tenant, those that form included.", |input| {
        by_tenant(input, |_| 1.0)
    }),
    Family::new("tenant_memory_bytes", Gauge, &["tenant"], "Memory that a tenant's jobs hold.", |input| {
        by_tenant(input, |job| job.memory_bytes as f64)
    }),
    Family::new("tenant_refusals_total", Counter, &["tenant"], "Joins of a tenant that were refused.", |input| {
        let count = |tenant: &Arc<str>| input.totals.refusals.of(&Client::Tenant(Arc::clone(tenant))) as f64;
        input.tenants.iter().map(|tenant| (vec![tenant.to_string()], count(tenant))).collect()
    }),
    Family::new("jobs_members", Gauge, &["state"], "Workers of all jobs, by state.", |input| {
        by_state(input, |job| job.members.iter().map(|member| member.state.as_str()).collect())
    }),
    Family::new("jobs_members_lost_total", Counter, &[], "Members that fell silent without leaving.", |input| {
        one(input.totals.lost as f64)
    }),
    Family::new("jobs_missing", Gauge, &[], "Ranks that have not come or fell silent.", |input| {
        sum(input, |job| job.missing.len() as f64)
    }),
    Family::new("jobs_awaited_ranks", Gauge, &[], "Ranks that some sum waits for.", |input| {
        sum(input, |job| job.waiting_for.len() as f64)
    }),
    Family::new(
        "jobs_lag_blocks",
        Gauge,
        &[],
        "Blocks that the slowest rank of any job is behind its first.",
        |input| {
            one(input.status.jobs.iter().filter_map(|job| job.lag).map(|lag| f64::from(lag.blocks)).fold(0.0, f64::max))
        },
    ),
    Family::new(
        "jobs_stalled_seconds",
        Gauge,
        &[],
        "Time for which sums of some job have waited without any becoming complete, where that is longest.",
        |input| one(input.totals.stalled_s),
    ),
    Family::new("jobs_slots", Gauge, &[], "Slots of all jobs.", |input| sum(input, |job| job.slots.into())),
    Family::new("jobs_slots_waiting", Gauge, &[], "Slots with a sum that is not complete.", |input| {
        sum(input, |job| job.slots_waiting.into())
    }),
    Family::new("jobs_child_switches", Gauge, &["state"], "Child switches, once for each job, by state.", |input| {
        by_state(input, |job| job.switches.iter().map(|switch| switch.state.as_str()).collect())
    }),
    Family::new("jobs_cut_off", Gauge, &[], "Jobs that receive nothing from the parent switch.", |input| {
        let is_cut_off = |job: &JobStatus| job.parent.as_ref().is_some_and(|parent| parent.state != "present");
        one(input.status.jobs.iter().filter(|job| is_cut_off(job)).count() as f64)
    }),
    Family::new("jobs_packets_total", Counter, &["protocol"], "Packets of jobs' members.", |input| {
        by_protocol(input, |totals| totals.packets)
    }),
    Family::new("jobs_blocks_total", Counter, &["protocol"], "Sums completed.", |input| {
        by_protocol(input, |totals| totals.blocks)
    }),
    Family::new("jobs_contributions_total", Counter, &["protocol"], "Contributions added.", |input| {
        by_protocol(input, |totals| totals.contributions)
    }),
    Family::new("jobs_goodput_bytes_total", Counter, &["protocol"], "Bytes of tensor summed.", |input| {
        by_protocol(input, |totals| totals.goodput_bytes)
    }),
    Family::new("jobs_drops_total", Counter, &["reason"], "Packets of jobs that were dropped.", |input| {
        let drops = input.totals.drops.iter();
        drops.map(|(reason, count)| (vec![reason.name().to_owned()], count as f64)).collect()
    }),
    Family::new("rejected_packets_total", Counter, &["reason"], "Packets that belonged to no job.", |input| {
        let count = |name: &str| input.status.switch.rejected_packets.get(name).copied().unwrap_or_default() as f64;
        DropReason::ALL.map(|reason| (vec![reason.name().to_owned()], count(reason.name()))).into()
    }),
    Family::new(
        "api_errors_total",
        Counter,
        &["code"],
        "Requests to the control API that were answered with an error: joins that were refused among them.",
        |input| {
            let mut counts = input.totals.errors.clone();
            for code in WATCHED_ERRORS {
                counts.entry(code.to_owned()).or_default();
            }
            counts.into_iter().map(|(code, count)| (vec![code], count as f64)).collect()
        },
    ),
    Family::new("servers", Gauge, &["state"], "Servers that have offered themselves, by state.", |input| {
        let servers = &input.status.switch.servers;
        let count = |state| servers.iter().filter(|server| server.state == state).count() as f64;
        STATES.map(|state| (vec![state.to_owned()], count(state))).into()
    }),
    Family::new("shard_up", Gauge, &["shard"], "1 while the shard's thread runs.", |input| {
        shards(input, |shard| u64::from(shard.alive))
    }),
    Family::new("received_packets_total", Counter, &["shard"], "Packets received.", |input| {
        shards(input, |shard| shard.rx_packets)
    }),
    Family::new("received_bytes_total", Counter, &["shard"], "UDP payload bytes received.", |input| {
        shards(input, |shard| shard.rx_bytes)
    }),
    Family::new("sent_packets_total", Counter, &["shard"], "Packets sent.", |input| {
        shards(input, |shard| shard.tx_packets)
    }),
    Family::new("sent_bytes_total", Counter, &["shard"], "UDP payload bytes sent.", |input| {
        shards(input, |shard| shard.tx_bytes)
    }),
    Family::new("receive_overflows_total", Counter, &["shard"], "Packets lost to a full receive buffer.", |input| {
        shards(input, |shard| shard.rx_overflows)
    }),
    Family::new("send_failures_total", Counter, &["shard"], "Packets that could not be sent.", |input| {
        shards(input, |shard| shard.tx_failures)
    }),
    Family::new("unroutable_total", Counter, &["shard"], "Packets that led to no port.", |input| {
        shards(input, |shard| shard.unroutable)
    }),
    Family::new(
        "port_up",
        Gauge,
        &["port", "peer"],
        "In a fabric: 1 while the switch at the other end sends hellos; hosts count as up.",
        |input| ports(input, |port| u64::from(port.up)),
    ),
    Family::new("port_queued_bytes", Gauge, &["port", "peer"], "Bytes that wait at a port, as on the wire.", |input| {
        ports(input, |port| port.queued_bytes)
    }),
    Family::new("port_sent_packets_total", Counter, &["port", "peer"], "Packets that left a port.", |input| {
        ports(input, |port| port.tx_packets)
    }),
    Family::new("port_sent_bytes_total", Counter, &["port", "peer"], "UDP payload bytes that left a port.", |input| {
        ports(input, |port| port.tx_bytes)
    }),
    Family::new("port_drops_total", Counter, &["port", "peer"], "Packets that did not fit a port's queue.", |input| {
        ports(input, |port| port.tx_drops)
    }),
    Family::new("port_marks_total", Counter, &["port", "peer"], "Packets that were marked at a port (ECN).", |input| {
        ports(input, |port| port.tx_marks)
    }),
    Family::new(
        "port_pauses_given_total",
        Counter,
        &["port", "peer"],
        "In a lossless fabric: how often the other end of a port was paused.",
        |input| ports(input, |port| port.pauses_given),
    ),
    Family::new(
        "port_pauses_taken_total",
        Counter,
        &["port", "peer"],
        "In a lossless fabric: how often a port paused for the other end.",
        |input| ports(input, |port| port.pauses_taken),
    ),
    Family::new(
        "port_buffered_bytes",
        Gauge,
        &["port", "peer"],
        "In a lossless fabric: bytes that came in by a port and wait in the switch.",
        |input| ports(input, |port| port.buffered_bytes),
    ),
    Family::new(
        "port_received_packets_total",
        Counter,
        &["port", "peer"],
        "Packets that came in by a port.",
        |input| ports(input, |port| port.rx_packets),
    ),
    Family::new(
        "port_received_bytes_total",
        Counter,
        &["port", "peer"],
        "UDP payload bytes that came in by a port.",
        |input| ports(input, |port| port.rx_bytes),
    ),
    Family::new("shared_slots", Gauge, &["protocol"], "Slots that a protocol's jobs share.", |input| {
        shared(input, |shared| shared.slots.into())
    }),
    Family::new("shared_slots_in_use", Gauge, &["protocol"], "Shared slots in use.", |input| {
        shared(input, |shared| shared.slots_in_use.into())
    }),
    Family::new("shared_slots_peak", Gauge, &["protocol"], "The most shared slots in use at once.", |input| {
        shared(input, |shared| shared.slots_peak.into())
    }),
    Family::new("shared_memory_bytes", Gauge, &["protocol"], "Bytes of what a protocol's jobs share.", |input| {
        shared(input, |shared| shared.bytes as f64)
    }),
];

fn sum(input: &MetricsInput, value: fn(&JobStatus) -> f64) -> Vec<Series> {
    // The sum of no floats would be -0.0, which looks odd in a text.
    one(input.status.jobs.iter().fold(0.0, |sum, job| sum + value(job)))
}

fn by_protocol(input: &MetricsInput, value: fn(&ProtocolTotals) -> u64) -> Vec<Series> {
    let totals = input.totals.protocols.iter();
    totals.map(|(&protocol, totals)| (vec![protocol.to_owned()], value(totals) as f64)).collect()
}

fn shards(input: &MetricsInput, value: fn(&ShardStatus) -> u64) -> Vec<Series> {
    let shards = input.status.switch.shards.iter();
    shards.map(|shard| (vec![shard.shard.to_string()], value(shard) as f64)).collect()
}

fn ports(input: &MetricsInput, value: fn(&PortStatus) -> u64) -> Vec<Series> {
    let ports = input.status.switch.fabric.iter().flat_map(|fabric| &fabric.ports);
    ports.map(|port| (vec![port.port.to_string(), port.peer.clone()], value(port) as f64)).collect()
}

fn shared(input: &MetricsInput, value: fn(&SharedStatus) -> f64) -> Vec<Series> {
    input.status.switch.shared.iter().map(|shared| (vec![shared.protocol.clone()], value(shared))).collect()
}

/// A figure of each tenant's jobs, added up.
fn by_tenant(input: &MetricsInput, figure: fn(&JobStatus) -> f64) -> Vec<Series> {
    let of = |tenant: &Arc<str>| -> f64 {
        let client = Client::Tenant(Arc::clone(tenant)).to_string();
        let jobs = input.status.jobs.iter().filter(|job| job.client.as_ref() == Some(&client));
        jobs.fold(0.0, |sum, job| sum + figure(job))
    };
    input.tenants.iter().map(|tenant| (vec![tenant.to_string()], of(tenant))).collect()
}

//! The report of a worker: a short table, or one JSON object.

use std::time::Duration;

use serde::Serialize;
use tributary_net::client;
use tributary_net::group::{Group, GroupError, GroupStats};
use tributary_net::status::TreeStatus;
use tributary_numeric::{DType, ReduceOp};

use super::Work;
use super::member::Member;
use crate::flags::resolve;

/// The measures of one worker.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The kind of collective.
    pub collective: &'static str,
    /// The root, if the collective has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root: Option<u16>,
    /// The protocol's name.
    pub protocol: &'static str,
    /// The job's name.
    pub job: String,
    /// The rank of this worker.
    pub rank: u16,
    /// Number of workers.
    pub world_size: u16,
    /// Elements of the tensor.
    pub elements: usize,
    /// Type of its elements.
    pub dtype: &'static str,
    /// The operator's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub op: Option<&'static str>,
    /// Number of collectives.
    pub iters: usize,
    /// Median completion time in seconds.
    pub seconds: f64,
    /// Bits of the tensor divided by the median completion time, in units of 10^9.
    pub goodput_gbps: f64,
    /// Elements of the tensor divided by the median completion time ("aggregated tensor elements per second").
    pub ate_per_s: f64,
    /// Packets that this worker sent, retransmissions included, over all collectives.
    pub packets_sent: u64,
    /// Packets that it sent again.
    pub retransmissions: u64,
    /// Fraction of the blocks that were summed in the network.
    pub in_network: f64,
    /// How many blocks were summed at hosts.
    pub blocks_at_hosts: u64,
    /// Fraction of the ranks whose data is in the results, if averages need not wait for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contributed: Option<f64>,
    /// A hash of the expression by which the last block was summed, if the protocol's expression does not depend on
    /// arrival.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<String>,
    /// On rank 0, the static trees of the job through a fabric.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub trees: Vec<TreeStatus>,
    /// The job's servers that are processes of their own.
    pub servers: usize,
    /// Which part of the blocks the network has summed, and what became of the others.
    #[serde(skip)]
    pub where_summed: String,
    /// Elements of one packet.
    pub elements_per_packet: u16,
    /// The job's slots over all parts of its switch, or trees, when it was joined.
    pub slots: u16,
    /// CPU time of this process, user and system, over all collectives.
    pub cpu_seconds: f64,
    /// True if the result was checked (`--elements`).
    pub checked: bool,
    /// The part about sparse tensors (`--sparse`).
    #[serde(flatten)]
    pub sparse: Option<SparseReport>,
}

/// The additional part of a sparse allreduce's report.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct SparseReport {
    /// The approximate share of the elements that a rank brings.
    pub density: f64,
    /// The seed of the indices.
    pub seed: u64,
    /// Elements that this worker brought.
    pub elements_brought: usize,
    /// Elements of the result: those that any rank brought.
    pub elements_of_result: usize,
    /// Elements that this worker's switch sent, divided by the elements of the results, less 1.
    pub extra_traffic: Option<f64>,
}

impl SparseReport {
    /// The part as text for people.
    pub fn in_words(&self) -> String {
        let SparseReport { density, seed, elements_brought, elements_of_result, extra_traffic } = self;
        let extra = extra_traffic.map_or(String::new(), |extra| format!(", extra traffic {:.2} %", extra * 100.0));
        format!("density {density}, seed {seed}: {elements_brought} brought, {elements_of_result} in the result{extra}")
    }
}

/// The counts and times of the collectives.
pub struct Measured {
    stats: GroupStats,
    /// Median completion time.
    seconds: f64,
    cpu_seconds: f64,
    elements_per_packet: u16,
    slots: u16,
    servers: usize,
    where_summed: String,
    trees: Vec<TreeStatus>,
}

impl Measured {
    /// Asks the worker and, on rank 0, its switch before the worker leaves.
    pub fn of(group: &Group, member: &Member, seconds: f64, cpu_seconds: f64) -> Result<Measured, GroupError> {
        let (elements_per_packet, slots) = (group.info().elements_per_packet, group.info().slots);
        let (servers, stats) = (group.info().servers.len(), group.stats()?);
        let where_summed = stats.where_summed(group.info());
        let trees = if member.rank == 0 { static_trees(member) } else { Vec::new() };
        Ok(Measured { stats, seconds, cpu_seconds, elements_per_packet, slots, servers, where_summed, trees })
    }
}

/// The trees that the job's switch names, if it is in a fabric; empty if it does not answer.
fn static_trees(member: &Member) -> Vec<TreeStatus> {
    let status = resolve(&member.switch).ok().and_then(|switch| client::status(switch).ok());
    let Some(status) = status.filter(|status| status.switch.fabric.is_some()) else { return Vec::new() };
    status.jobs.into_iter().find(|job| job.name == member.job).map(|job| job.trees).unwrap_or_default()
}

impl Report {
    /// A worker's report of a tensor of this many elements, not checked yet.
    pub fn of(member: &Member, work: Work, (elements, dtype): (usize, DType), measured: &Measured) -> Report {
        let Measured { stats, seconds, cpu_seconds, elements_per_packet, slots, servers, where_summed, trees } =
            measured;
        Report {
            collective: work.name(),
            root: work.root(),
            protocol: member.protocol.name,
            job: member.job.clone(),
            rank: member.rank,
            world_size: member.world_size,
            elements,
            dtype: dtype.name(),
            op: work.op().map(ReduceOp::name),
            iters: member.iters as usize,
            seconds: *seconds,
            goodput_gbps: (elements * dtype.size() * 8) as f64 / seconds / 1e9,
            ate_per_s: elements as f64 / seconds,
            packets_sent: stats.host.packets_sent,
            retransmissions: stats.host.retransmissions,
            in_network: stats.in_network(),
            blocks_at_hosts: stats.host.blocks_at_hosts,
            contributed: stats.host.contributed(),
            order: stats.host.order.map(|order| format!("{order:08x}")),
            trees: trees.clone(),
            servers: *servers,
            where_summed: where_summed.clone(),
            elements_per_packet: *elements_per_packet,
            slots: *slots,
            cpu_seconds: *cpu_seconds,
            checked: false,
            sparse: None,
        }
    }

    /// The table for people.
    pub fn table(&self) -> String {
        let job = format!("{} (rank {} of {}, {})", self.job, self.rank, self.world_size, self.protocol);
        let what = match (self.op, self.root) {
            (Some(op), None) => op.to_string(),
            (Some(op), Some(root)) => format!("{op} for rank {root}"),
            (None, root) => format!("from rank {}", root.unwrap_or_default()),
        };
        let tensor = format!("{} {} elements, {what}", self.elements, self.dtype);
        let result = match (self.checked, self.op) {
            (false, _) => "",
            (true, Some(_)) if self.contributed.is_some() => {
                "right on this rank: an average of as many ranks as it needs"
            }
            (true, Some(_)) => "right on this rank: compared with the sum of all ranks' data",
            (true, None) => "right on this rank: compared with the root's data",
        };
        let rows = [
            ("job", job),
            ("tensor", tensor),
            ("sparse", self.sparse.as_ref().map_or(String::new(), SparseReport::in_words)),
            ("time", format!("{} (median of {})", in_words(self.seconds), self.iters)),
            ("goodput", format!("{:.3} Gbit/s", self.goodput_gbps)),
            ("ATE/s", format!("{:.3} million", self.ate_per_s / 1e6)),
            ("packets", format!("{} sent, {} of them again", self.packets_sent, self.retransmissions)),
            ("in network", self.where_summed.clone()),
            ("ranks", self.who_contributed()),
            ("order", self.order.clone().unwrap_or_default()),
            ("trees", self.roots()),
            ("result", result.to_string()),
        ];
        let filled = rows.iter().filter(|(_, value)| !value.is_empty());
        filled.map(|(name, value)| format!("{name:<12}{value}")).collect::<Vec<_>>().join("\n")
    }
}

impl Report {
    /// How many of the ranks are in the results, if some may be left out.
    fn who_contributed(&self) -> String {
        let in_words =
            |share: f64| format!("{:.2} of {} in each average", share * f64::from(self.world_size), self.world_size);
        self.contributed.map_or(String::new(), in_words)
    }

    /// The switches at the roots of the job's static trees.
    fn roots(&self) -> String {
        let roots: Vec<&str> = self.trees.iter().map(|tree| tree.root.as_str()).collect();
        if roots.is_empty() { String::new() } else { format!("{}, with {} on top", roots.len(), roots.join(", ")) }
    }
}

/// The median of some durations, in seconds; of an even number, the mean of the two in the middle.
pub fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    let middle = times.len() / 2;
    if times.len() % 2 == 1 {
        times[middle].as_secs_f64()
    } else {
        (times[middle - 1] + times[middle]).as_secs_f64() / 2.0
    }
}

fn in_words(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{:.1} us", s * 1e6),
        s if s < 1.0 => format!("{:.3} ms", s * 1e3),
        s => format!("{s:.3} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_two() {
        let times = |millis: &[u64]| millis.iter().map(|&ms| Duration::from_millis(ms)).collect::<Vec<_>>();
        assert_eq!(median(times(&[9, 1, 2])), 0.002);
        assert_eq!(median(times(&[100, 1, 2, 4])), 0.003);
    }
}

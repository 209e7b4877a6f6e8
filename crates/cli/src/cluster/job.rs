//! One job on a cluster: a `tributary allreduce` for each rank.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::Deserialize;
use tributary_net::status::TreeStatus;
use tributary_proto::contract::protocol::{Placement, Protocol};
use tributary_proto::protocols;

use super::{Cluster, Process, START_TIMEOUT};
use crate::failure::Failure;

/// The protocols whose jobs need only what a cluster has: one switch and the workers around it.
pub fn protocols() -> impl Iterator<Item = &'static Protocol> {
    let on_one_switch = |protocol: &&Protocol| protocol.placement != Placement::EveryHop && protocol.server.is_none();
    protocols::ALL.iter().copied().filter(on_one_switch)
}

/// The plan of a job.
pub struct JobRun {
    /// The protocol.
    pub protocol: &'static Protocol,
    /// The host of rank 0; the other ranks are on the following hosts.
    pub first_host: usize,
    /// More flags of `tributary allreduce`, such as the element type and the protocol's options.
    pub flags: Vec<String>,
    /// The ranks' arrays.
    pub data: Data,
    /// Where each rank writes its result; empty if results are not written.
    pub outputs: Vec<PathBuf>,
    /// How many collectives run back to back.
    pub iters: u32,
    /// The timeout of each collective.
    pub timeout: Duration,
}

/// The arrays of a job's ranks.
pub enum Data {
    /// The array of each rank.
    Files(Vec<PathBuf>),
    /// Each of these ranks makes up this many elements.
    MadeUp { world_size: u16, elements: usize },
}

impl Data {
    fn world_size(&self) -> usize {
        match self {
            Data::Files(files) => files.len(),
            Data::MadeUp { world_size, .. } => (*world_size).into(),
        }
    }

    /// The flags for a rank's array.
    fn flags(&self, rank: usize) -> [OsString; 2] {
        match self {
            Data::Files(files) => ["--input".into(), files[rank].clone().into()],
            Data::MadeUp { elements, .. } => ["--elements".into(), elements.to_string().into()],
        }
    }
}

/// The report of a worker; the names are those of its JSON.
#[derive(Clone, Debug, Deserialize)]
pub struct WorkerReport {
    /// Median completion time.
    pub seconds: f64,
    /// Elements of the tensor.
    pub elements: usize,
    /// Packets sent over all collectives, retransmissions included.
    pub packets_sent: u64,
    /// Packets sent again.
    pub retransmissions: u64,
    /// Fraction of the blocks that were summed in the network.
    pub in_network: f64,
    /// Elements of one block.
    pub elements_per_packet: u16,
    /// The job's slots.
    pub slots: u16,
    /// CPU time of the worker's process during the collectives.
    pub cpu_seconds: f64,
    /// On rank 0: the static trees through a fabric that the job ran over.
    #[serde(default)]
    pub trees: Vec<TreeStatus>,
}

/// A job whose workers run; dropping it kills them.
pub struct RunningJob {
    name: String,
    workers: Vec<Process>,
    deadline: Instant,
}

impl RunningJob {
    /// Starts a worker for each rank, on the hosts from `run.first_host` on.
    pub fn start(cluster: &Cluster, run: &JobRun) -> Result<RunningJob, Failure> {
        let name = format!("{}-{}", run.protocol.name, cluster.jobs);
        let mut workers = Vec::new();
        for rank in 0..run.data.world_size() {
            let mut command = cluster.hosts.worker_command(&cluster.program, run.first_host + rank)?;
            command
                .args(["allreduce", "--switch", &cluster.switch_addr, "--json", "--protocol", run.protocol.name])
                .args(["--job", &name])
                .args(["--rank", &rank.to_string(), "--world-size", &run.data.world_size().to_string()])
                .args(["--iters", &run.iters.to_string(), "--timeout", &format!("{}s", run.timeout.as_secs_f64())])
                .args(&run.flags)
                .args(run.data.flags(rank));
            if let Some(output) = run.outputs.get(rank) {
                command.arg("--output").arg(output);
            }
            workers.push(Process::spawn(format!("rank {rank} ({})", run.protocol.name), command, &cluster.interrupt)?);
        }
        let deadline = Instant::now() + START_TIMEOUT + run.timeout * run.iters;
        Ok(RunningJob { name, workers, deadline })
    }

    /// The job's name at the switch.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// True once a worker has ended, well or not.
    pub fn is_over(&mut self) -> Result<bool, Failure> {
        for worker in &mut self.workers {
            if worker.has_ended()? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Waits for the job's end; returns the reports in the order of ranks.
    pub fn finish(self) -> Result<Vec<WorkerReport>, Failure> {
        let deadline = self.deadline;
        // If one fails, dropping the remaining workers ends them too.
        self.workers.into_iter().map(|worker| report(worker, deadline)).collect()
    }
}

fn report(worker: Process, deadline: Instant) -> Result<WorkerReport, Failure> {
    let lines = worker.finish(deadline)?;
    let last = lines.last().map(String::as_str).unwrap_or_default();
    serde_json::from_str(last).map_err(|error| Failure::new(format!("a worker ended with '{last}': {error}")))
}

//! The switch's file: every setting that an operator may write, as TOML. `docs/switch.toml` shows all of them.

use std::net::SocketAddr;

use serde::Deserialize;
use tributary_proto::time::Span;

use crate::admission::{Limits, Quota, Timers};

/// Why a switch's file is no good: one sentence that names the place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(String);

/// A switch's file. What it leaves out has the default of the command line.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwitchConfigFile {
    /// UDP address of shard 0 and TCP address of the control API.
    pub listen: Option<SocketAddr>,
    /// A further TCP address for operators.
    pub http: Option<SocketAddr>,
    /// Threads that sum, each with its own part of the slots.
    pub cores: Option<u16>,
    /// Memory for all jobs, in MiB.
    pub memory_mib: Option<u64>,
    /// Jobs at a time.
    pub max_jobs: Option<u16>,
    /// Silence, in seconds, after which a member is lost.
    pub lease_s: Option<f64>,
    /// Seconds from a loss to the removal of its job.
    pub grace_s: Option<f64>,
    /// What jobs of certain names may have; the first that fits counts.
    #[serde(default, rename = "quota")]
    pub quotas: Vec<QuotaFile>,
}

/// A quota in the file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuotaFile {
    /// Pattern of job names; `*` stands for any characters.
    pub jobs: String,
    /// MiB for all of these jobs together.
    pub memory_mib: Option<u64>,
    /// Most slots of each.
    pub max_slots: Option<u16>,
    /// Most ranks of each.
    pub max_world: Option<u16>,
}

impl SwitchConfigFile {
    /// Most threads of one switch.
    pub const MAX_CORES: u16 = 256;

    /// Reads and checks a file's text. The error names line, column and key.
    pub fn parse(text: &str) -> Result<SwitchConfigFile, ConfigError> {
        let file: SwitchConfigFile =
            toml::from_str(text).map_err(|error| ConfigError(error.to_string().trim_end().to_owned()))?;
        file.check()?;
        Ok(file)
    }

    fn check(&self) -> Result<(), ConfigError> {
        let fail = |sentence: String| Err(ConfigError(sentence));
        if let Some(cores) = self.cores.filter(|cores| !(1..=SwitchConfigFile::MAX_CORES).contains(cores)) {
            return fail(format!("cores = {cores}: a switch has 1 to {} threads", SwitchConfigFile::MAX_CORES));
        }
        if self.memory_mib.is_some_and(|mib| mib == 0 || mib > u64::MAX >> 20) {
            return fail("memory_mib: give the switch at least 1 MiB, and no more than there is".into());
        }
        if let Some(jobs) = self.max_jobs.filter(|jobs| !(1..=Limits::MAX_JOBS).contains(jobs)) {
            return fail(format!("max_jobs = {jobs}: it may be 1 to {}", Limits::MAX_JOBS));
        }
        let least = Timers::default().succession().as_secs_f64() * 2.0;
        for (name, seconds, least) in [("lease_s", self.lease_s, least), ("grace_s", self.grace_s, 0.0)] {
            if let Some(seconds) = seconds.filter(|seconds| !(least..=86_400.0).contains(seconds)) {
                return fail(format!("{name} = {seconds}: it may be {least} to 86400 seconds"));
            }
        }
        match self.quotas.iter().find(|quota| quota.jobs.is_empty()) {
            Some(_) => fail("quota: 'jobs' is an empty pattern; '*' stands for all jobs".into()),
            None => Ok(()),
        }
    }

    /// The limits that the file sets, in place of those of `limits`.
    pub fn apply(&self, limits: &mut Limits) {
        if let Some(cores) = self.cores {
            limits.shards = cores;
        }
        if let Some(mib) = self.memory_mib {
            limits.memory_bytes = mib << 20;
        }
        if let Some(max_jobs) = self.max_jobs {
            limits.max_jobs = max_jobs;
        }
        if let Some(lease_s) = self.lease_s {
            limits.timers.lease = Span::from_secs_f64(lease_s);
        }
        if let Some(grace_s) = self.grace_s {
            limits.timers.grace = Span::from_secs_f64(grace_s);
        }
        limits.quotas = self.quotas.iter().map(QuotaFile::quota).collect();
    }
}

impl QuotaFile {
    fn quota(&self) -> Quota {
        Quota {
            jobs: self.jobs.clone(),
            memory_bytes: self.memory_mib.map(|mib| mib.saturating_mul(1 << 20)),
            max_slots: self.max_slots,
            max_world: self.max_world,
        }
    }
}

//! The switch's file: all settings of an operator, as TOML. `docs/switch.toml` shows all of them.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::Deserialize;
use tributary_proto::contract::options::Defaults;
use tributary_proto::contract::time::Span;
use tributary_proto::switch_options::{self, SwitchOptionError, SwitchOptions};

use super::{ConfigError, OptionTable, of_switches};
use crate::admission::{Limits, Quota};
use crate::ip_network::IpNetwork;
use crate::timers::Timers;

/// A switch's file. Settings that it leaves out have the defaults of the command line.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwitchConfigFile {
    /// UDP address of shard 0 and TCP address of the control API.
    pub listen: Option<SocketAddr>,
    /// A further TCP address for operators.
    pub http: Option<SocketAddr>,
    /// The control API of the parent switch, which sums for all racks.
    pub parent: Option<SocketAddr>,
    /// Threads that sum, each with its own slots.
    pub cores: Option<u16>,
    /// Memory for all jobs, in MiB.
    pub memory_mib: Option<u32>,
    /// The most jobs at a time.
    pub max_jobs: Option<u16>,
    /// Where servers may be that sum for everybody's jobs.
    pub servers: Option<Vec<IpNetwork>>,
    /// Silence, in seconds, after which a member is lost.
    pub lease_s: Option<f64>,
    /// Seconds from a loss to the removal of its job.
    pub grace_s: Option<f64>,
    /// Seconds that collectives under way have to end when the switch is asked to stop.
    pub finish_s: Option<f64>,
    /// Limits of jobs by their names; the first quota whose pattern fits counts.
    #[serde(default, rename = "quota")]
    pub quotas: Vec<QuotaFile>,
    /// Which of the jobs' custom operators the switch serves.
    pub operators: Option<OperatorsFile>,
    /// What the switch holds for jobs that share its memory, by protocol: `[switches.NAME]`.
    #[serde(default)]
    pub switches: BTreeMap<String, OptionTable>,
}

/// `[operators]` in the file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperatorsFile {
    /// `any`, `none`, or hashes with commas between them.
    pub allow: String,
}

/// A quota in the file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuotaFile {
    /// Pattern of job names; `*` stands for any characters.
    pub jobs: String,
    /// MiB for all of these jobs together.
    pub memory_mib: Option<u32>,
    /// The most slots of each job.
    pub max_slots: Option<u16>,
    /// The most ranks of each job.
    pub max_world_size: Option<u16>,
}

impl SwitchConfigFile {
    /// The most threads of one switch.
    pub const MAX_CORES: u16 = 256;

    /// Reads and checks a file's text. The error names line, column and key.
    pub fn parse(text: &str) -> Result<SwitchConfigFile, ConfigError> {
        let file: SwitchConfigFile = toml::from_str(text).map_err(|error| ConfigError::at(text, &error))?;
        file.check()?;
        Ok(file)
    }

    fn check(&self) -> Result<(), ConfigError> {
        let fail = |sentence: String| Err(ConfigError::new(sentence));
        if let Some(cores) = self.cores.filter(|cores| !(1..=SwitchConfigFile::MAX_CORES).contains(cores)) {
            return fail(format!("cores = {cores}: a switch has 1 to {} threads", SwitchConfigFile::MAX_CORES));
        }
        if self.memory_mib == Some(0) {
            return fail("memory_mib = 0: no job fits; give the switch at least 1".into());
        }
        if let Some(jobs) = self.max_jobs.filter(|jobs| !(1..=Limits::MAX_JOBS).contains(jobs)) {
            return fail(format!("max_jobs = {jobs}: it may be 1 to {}", Limits::MAX_JOBS));
        }
        let least = Timers::default().takeover_silence().as_secs_f64() * 2.0;
        let all = [("lease_s", self.lease_s, least), ("grace_s", self.grace_s, 0.0), ("finish_s", self.finish_s, 0.0)];
        for (name, seconds, least) in all {
            if let Some(seconds) = seconds.filter(|seconds| !(least..=86_400.0).contains(seconds)) {
                return fail(format!("{name} = {seconds}: it may be {least} to 86400 seconds"));
            }
        }
        if let Err(error) = self.switch_options(&[]) {
            return fail(error.to_string());
        }
        match self.quotas.iter().find(|quota| quota.jobs.is_empty()) {
            Some(_) => fail("quota: 'jobs' is an empty pattern; '*' stands for all jobs".into()),
            None => Ok(()),
        }
    }

    /// The options of the machines that jobs share: those of the file, and those of the flags `PROTOCOL.NAME=VALUE` in
    /// their place. The last flag counts.
    pub fn switch_options(&self, flags: &[String]) -> Result<SwitchOptions, SwitchOptionError> {
        let mut given = of_switches(&self.switches);
        flags.iter().try_for_each(|flag| switch_options::add(&mut given, flag))?;
        SwitchOptions::read(&given, Defaults::Real)
    }

    /// Replaces the settings of `limits` that the file sets.
    pub fn apply(&self, limits: &mut Limits) {
        limits.shards = self.cores.unwrap_or(limits.shards);
        limits.memory_bytes = self.memory_mib.map_or(limits.memory_bytes, |mib| u64::from(mib) << 20);
        limits.max_jobs = self.max_jobs.unwrap_or(limits.max_jobs);
        limits.servers = self.servers.clone().unwrap_or_else(|| std::mem::take(&mut limits.servers));
        limits.timers.lease = self.lease_s.map_or(limits.timers.lease, Span::from_secs_f64);
        limits.timers.grace = self.grace_s.map_or(limits.timers.grace, Span::from_secs_f64);
        limits.timers.finish = self.finish_s.map_or(limits.timers.finish, Span::from_secs_f64);
        if !self.quotas.is_empty() {
            limits.quotas = self.quotas.iter().map(QuotaFile::quota).collect();
        }
    }
}

impl QuotaFile {
    fn quota(&self) -> Quota {
        Quota {
            jobs: self.jobs.clone(),
            memory_bytes: self.memory_mib.map(|mib| u64::from(mib) << 20),
            max_slots: self.max_slots,
            max_world_size: self.max_world_size,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_shows_every_setting_with_its_default() {
        let example = SwitchConfigFile::parse(include_str!("../../../../docs/switch.toml")).unwrap();
        let default = Limits::new(u64::from(Limits::DEFAULT_MEMORY_MIB) << 20, 1);
        let mut limits = Limits { shards: 7, memory_bytes: 7, max_jobs: 7, ..default.clone() };
        let timers = &mut limits.timers;
        (timers.lease, timers.grace, timers.finish) = (Span::ZERO, Span::ZERO, Span::ZERO);
        example.apply(&mut limits);
        assert_eq!(Limits { quotas: Vec::new(), ..limits }, default);
        let SwitchConfigFile { listen, http, quotas, .. } = example;
        assert!(listen.is_some() && http.is_some());
        let QuotaFile { memory_mib, max_slots, max_world_size, .. } = &quotas[0];
        assert!(memory_mib.is_some() && max_slots.is_some() && max_world_size.is_some());
        let page = include_str!("../../../../docs/control.md");
        assert!(page.contains(&format!("(`--memory`, {} MiB)", Limits::DEFAULT_MEMORY_MIB)), "docs/control.md");
    }

    #[test]
    fn an_empty_file_leaves_everything_as_it_is() {
        let limits = Limits::new(123, 4);
        let mut applied = limits.clone();
        SwitchConfigFile::parse("").unwrap().apply(&mut applied);
        assert_eq!(applied, limits);
    }

    #[test]
    fn a_wrong_file_is_one_sentence_that_names_the_place() {
        let cases = [
            ("cores = 2\nport = 1", "line 2: unknown field `port`, expected one of `listen`"),
            ("[[quota]]\njobs = \"*\"\nslots = 1", "line 3: unknown field `slots`"),
            ("[[quota]]\nmax_slots = 1", "missing field `jobs`"),
            ("cores = \"two\"", "line 1: invalid type: string \"two\""),
            ("cores = 0", "cores = 0: a switch has 1 to 256"),
            ("cores = 300", "cores = 300: a switch has 1 to 256"),
            ("listen = \"here\"", "line 1: invalid socket address"),
            ("memory_mib = 0", "memory_mib = 0"),
            ("max_jobs = 5000", "max_jobs = 5000: it may be 1 to 4096"),
            ("lease_s = 0.5", "lease_s = 0.5: it may be 3 to 86400"),
            ("grace_s = nan", "grace_s = NaN"),
            ("finish_s = -1.0", "finish_s = -1: it may be 0 to 86400"),
            ("[[quota]]\njobs = \"\"", "empty pattern"),
            ("cores = ", "line 1: "),
            ("[switches.pigeon]\nwings = 2", "switches have no options for \"pigeon\", but for "),
        ];
        for (text, sentence) in cases {
            let error = SwitchConfigFile::parse(text).unwrap_err().to_string();
            assert!(error.contains(sentence) && !error.contains('\n'), "{text:?}: {error}");
        }
    }
}

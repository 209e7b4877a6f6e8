//! The switch's file: all settings of an operator, as TOML. `docs/switch.toml` shows all of them.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::Deserialize;
use tributary_proto::contract::options::Defaults;
use tributary_proto::contract::time::Span;
use tributary_proto::switch_options::{self, SwitchOptionError, SwitchOptions};

use super::{ConfigError, OptionTable, of_switches};
use crate::admission::{Limits, Quota, Timers};
use crate::ip_network::IpNetwork;
use crate::quantity::{Bytes, Duration};

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
    /// Memory for all jobs.
    pub memory: Option<Bytes>,
    /// The most jobs at a time.
    pub max_jobs: Option<u16>,
    /// Where servers may be that sum for everybody's jobs.
    pub servers: Option<Vec<IpNetwork>>,
    /// Silence after which a member is lost.
    pub lease: Option<Duration>,
    /// Time from a loss to the removal of its job.
    pub grace: Option<Duration>,
    /// Time that running collectives have to end when the switch is asked to stop.
    pub finish: Option<Duration>,
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
    /// Memory for all of these jobs together.
    pub memory: Option<Bytes>,
    /// The most slots of each job.
    pub max_slots: Option<u16>,
    /// The most ranks of each job.
    pub max_world_size: Option<u16>,
}

impl SwitchConfigFile {
    /// The most threads of one switch.
    pub const MAX_CORES: u16 = 256;
    /// The least memory of a switch.
    pub const MIN_MEMORY: Bytes = Bytes(1 << 20);
    /// The longest lease, grace or finish: a day.
    const MAX_TIME: Duration = Duration(Span::from_millis(86_400_000));

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
        if let Some(memory) = self.memory.filter(|memory| *memory < SwitchConfigFile::MIN_MEMORY) {
            return fail(format!(
                "memory = {memory}: no job fits; a switch has at least {}",
                SwitchConfigFile::MIN_MEMORY
            ));
        }
        if let Some(jobs) = self.max_jobs.filter(|jobs| !(1..=Limits::MAX_JOBS).contains(jobs)) {
            return fail(format!("max_jobs = {jobs}: it may be 1 to {}", Limits::MAX_JOBS));
        }
        let (zero, longest) = (Duration::default(), SwitchConfigFile::MAX_TIME);
        let least = Duration(Timers::default().takeover_silence().times(2));
        for (name, time, least) in
            [("lease", self.lease, least), ("grace", self.grace, zero), ("finish", self.finish, zero)]
        {
            if let Some(time) = time.filter(|time| !(least..=longest).contains(time)) {
                return fail(format!("{name} = {time}: it may be {least} to {longest}"));
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
        limits.memory_bytes = self.memory.map_or(limits.memory_bytes, |memory| memory.0);
        limits.max_jobs = self.max_jobs.unwrap_or(limits.max_jobs);
        limits.servers = self.servers.clone().unwrap_or_else(|| std::mem::take(&mut limits.servers));
        limits.timers.lease = self.lease.map_or(limits.timers.lease, |lease| lease.0);
        limits.timers.grace = self.grace.map_or(limits.timers.grace, |grace| grace.0);
        limits.timers.finish = self.finish.map_or(limits.timers.finish, |finish| finish.0);
        if !self.quotas.is_empty() {
            limits.quotas = self.quotas.iter().map(QuotaFile::quota).collect();
        }
    }
}

impl QuotaFile {
    fn quota(&self) -> Quota {
        Quota {
            jobs: self.jobs.clone(),
            memory_bytes: self.memory.map(|memory| memory.0),
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
        let default = Limits::new(Limits::DEFAULT_MEMORY.0, 1);
        let mut limits = Limits { shards: 7, memory_bytes: 7, max_jobs: 7, ..default.clone() };
        let timers = &mut limits.timers;
        (timers.lease, timers.grace, timers.finish) = (Span::ZERO, Span::ZERO, Span::ZERO);
        example.apply(&mut limits);
        assert_eq!(Limits { quotas: Vec::new(), ..limits }, default);
        let SwitchConfigFile { listen, http, quotas, .. } = example;
        assert!(listen.is_some() && http.is_some());
        let QuotaFile { memory, max_slots, max_world_size, .. } = &quotas[0];
        assert!(memory.is_some() && max_slots.is_some() && max_world_size.is_some());
        let page = include_str!("../../../../docs/control.md");
        assert!(page.contains(&format!("(`--memory`, {})", Limits::DEFAULT_MEMORY)), "docs/control.md");
    }

    #[test]
    fn an_empty_file_leaves_everything_as_it_is() {
        let limits = Limits::new(123, 4);
        let mut applied = limits.clone();
        SwitchConfigFile::parse("").unwrap().apply(&mut applied);
        assert_eq!(applied, limits);
    }

    #[test]
    fn a_wrong_file_is_one_sentence_that_names_the_line() {
        let cases = [
            ("cores = 2\nport = 1", "line 2: unknown field `port`, expected one of `listen`"),
            ("[[quota]]\njobs = \"*\"\nslots = 1", "line 3: unknown field `slots`"),
            ("[[quota]]\nmax_slots = 1", "missing field `jobs`"),
            ("cores = \"two\"", "line 1: invalid type: string \"two\""),
            ("cores = 0", "cores = 0: a switch has 1 to 256"),
            ("cores = 300", "cores = 300: a switch has 1 to 256"),
            ("listen = \"here\"", "line 1: invalid socket address"),
            ("memory = 0", "memory = 0 B: no job fits"),
            ("memory = \"1 stone\"", "line 1: \"1 stone\" is not a quantity"),
            ("max_jobs = 5000", "max_jobs = 5000: it may be 1 to 4096"),
            ("lease = \"500 ms\"", "lease = 500 ms: it may be 3 s to 86400 s"),
            ("grace = nan", "line 1: NaN has no unit"),
            ("finish = \"-1 s\"", "line 1: \"-1 s\" is negative"),
            ("finish = \"1e5 s\"", "finish = 100000 s: it may be 0"),
            ("[[quota]]\njobs = \"\"", "empty pattern"),
            ("cores = ", "line 1: "),
            ("[switches.pigeon]\nwings = 2", "switches have no options for \"pigeon\", except for "),
        ];
        for (text, sentence) in cases {
            let error = SwitchConfigFile::parse(text).unwrap_err().to_string();
            assert!(error.contains(sentence) && !error.contains('\n'), "{text:?}: {error}");
        }
    }
}

//! `tributary switch`: the aggregation daemon.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tributary_control::config::Tokens;
use tributary_control::config::{OperatorsFile, SwitchConfigFile};
use tributary_control::quantity::Bytes;
use tributary_control::{IpNetwork, Limits};
use tributary_net::os;
use tributary_net::switch_daemon::{FabricNode, RunningSwitch, StartError, SwitchOptions};
use tributary_operators::Allowed;
use tributary_proto::protocols;

use super::fabric;
use crate::failure::Failure;
use crate::flags::{parse_memory, parse_switch, resolve};
use crate::log::LogArgs;
use crate::output;

const EXAMPLES: &str = "\
Examples:
  tributary switch                                   every address of this machine, port 17777
  tributary switch --listen 10.0.0.1:17777 --cores 2 --memory 256MiB
  tributary switch --http 127.0.0.1:9100             Prometheus: http://127.0.0.1:9100/metrics
  tributary switch --parent 10.9.0.1:17777           below another switch, which sums for all racks
  tributary switch --config /etc/tributary.toml
  tributary switch --servers 10.0.0.7,10.1.0.0/16    where hosts may sum for everybody: tributary ps --help
  tributary switch --tokens /etc/tributary-tokens.toml     only for those who have one in TRIBUTARY_TOKEN
  tributary switch --operators any                   serve operators that jobs bring: tributary operator --help
  tributary switch --aggregators 16384               of memory that the jobs of some protocols share
  tributary switch --fabric fabric.toml --node leaf0     one of many: tributary lab fabric --help

The file has these keys; flags win over it:
  listen = \"10.0.0.1:17777\"
  http = \"127.0.0.1:9100\"
  parent = \"10.9.0.1:17777\"
  cores = 2
  memory = \"256 MiB\"
  max_jobs = 64
  servers = [\"10.0.0.7\", \"10.1.0.0/16\"]
  lease = \"10 s\"             a member that is silent for this long is lost
  grace = \"30 s\"             a job with a lost member is removed this long after
  finish = \"10 s\"            running collectives have this long to end when it is asked to stop
  [[quota]]                  the first whose pattern fits the job's name counts
  jobs = \"team-a-*\"
  memory = \"64 MiB\"
  max_slots = 512
  max_world_size = 16
  [operators]                which operators of jobs' own it serves: \"any\", \"none\", or SHA-256s with commas
  allow = \"none\"
  [switches.PROTOCOL]        what its jobs share: docs/protocols

Packets come by UDP and control by TCP at the same port; with --cores above 1 the further threads
receive at UDP ports that the system assigns. /status, /jobs and /metrics are served there too.
On SIGHUP it reads quotas and tokens again; running jobs stay. On SIGTERM it takes no more joins and ends when
nothing is being summed any more, or after `finish`; on Ctrl-C, and on a second signal, at once.
The log goes to stderr: jobs that are formed, refused or ended, members that are lost, paths that shrink.
Exit codes: 0 when it was asked to stop; 2 for settings that a person must correct, such as a port in use.";

/// The option of protocols whose jobs share aggregators.
const AGGREGATORS: &str = "aggregators";

fn memory_help() -> String {
    format!("Memory for jobs and for what they share [default: {}]", Limits::DEFAULT_MEMORY)
}

/// The flags of `tributary switch`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Where to listen, UDP for packets and TCP for control [default: 0.0.0.0:17777]
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: Option<SocketAddr>,
    /// Sum for one rack, below the switch at this address, which sums for all racks
    #[arg(long, value_name = "ADDR:PORT", value_parser = parse_switch)]
    pub parent: Option<String>,
    /// Threads that aggregate, each with its own share of the slots [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub cores: Option<u16>,
    #[arg(long, value_name = "BYTES", value_parser = parse_memory, help = memory_help())]
    pub memory: Option<Bytes>,
    /// Serve /status, /jobs and /metrics on this address too
    #[arg(long, value_name = "ADDR:PORT")]
    pub http: Option<SocketAddr>,
    /// Read the settings from a TOML file
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Serve only joins with a token of this TOML file (docs/tokens.toml), and give each tenant what the file says
    #[arg(long, value_name = "FILE", conflicts_with = "open")]
    pub tokens: Option<PathBuf>,
    /// Which operators of jobs' own it serves: any, none, or listed ones by the SHA-256 of their modules [default: none]
    #[arg(long, value_name = "any|none|SHA-256,...")]
    pub operators: Option<Allowed>,
    /// Serve every address without a token, and not only loopback, link-local and private ones
    #[arg(long)]
    pub open: bool,
    /// Without tokens: take servers (tributary ps) from these addresses or networks too, and not from this machine alone
    #[arg(long, value_name = "ADDR[/BITS],...", value_delimiter = ',', conflicts_with = "tokens")]
    pub servers: Option<Vec<IpNetwork>>,
    /// Be one switch of the fabric that this file describes
    #[arg(
        long, value_name = "FILE.toml", requires = "node",
        conflicts_with_all = ["listen", "parent", "cores", "memory", "http", "config", "tokens", "open", "servers"]
    )]
    pub fabric: Option<PathBuf>,
    /// What jobs of a protocol share here, in place of the file's; in a fabric the same at all switches
    #[arg(long = "switch-option", value_name = "PROTOCOL.NAME=VALUE", value_parser = fabric::switch_option)]
    pub switch_options: Vec<String>,
    /// Aggregators for the jobs of each protocol that has some: the memory that all of its jobs share
    #[arg(long, value_name = "N")]
    pub aggregators: Option<u32>,
    /// Which of the fabric's switches
    #[arg(long, value_name = "NAME", requires = "fabric")]
    pub node: Option<String>,
    /// Print one JSON object when ready, and one at the end
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub log: LogArgs,
}

/// Serves until a signal asks to stop.
pub fn run(args: Args) -> Result<(), Failure> {
    os::return_slots_to_the_kernel();
    allow_many_connections();
    // Before the ports are open, so that a signal that comes then is kept and not lost.
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    let options = options(&args)?;
    let switch = RunningSwitch::start(&options).map_err(not_started)?;
    print_ready(&switch, &options, args.json)?;
    let signal = serve(&mut signals, &args, options, &switch)?;
    switch.stop();
    let name = if signal == Some(SIGINT) { "SIGINT" } else { "SIGTERM" };
    match args.json {
        true => output::json(&json!({ "event": "stopped", "signal": name }))?,
        false => output::line(&format!("stopped by {name}"))?,
    }
    Ok(())
}

/// Counts errors that a person must correct as wrong calls, for which service managers do not start a service again.
fn not_started(error: StartError) -> Failure {
    match error {
        StartError::System { .. } => Failure::new(error),
        _ => Failure::usage(error),
    }
}

/// Runs until a signal asks to stop, and then until no sum is under way. A switch of a fabric has no quotas and no tokens to
/// read again, and its jobs outlive it.
fn serve(
    signals: &mut Signals,
    args: &Args,
    mut running: SwitchOptions,
    switch: &RunningSwitch,
) -> Result<Option<i32>, Failure> {
    let is_in_fabric = running.fabric.is_some();
    loop {
        match signals.forever().next() {
            Some(SIGHUP) if is_in_fabric => {}
            Some(SIGHUP) => renew(args, &mut running, switch)?,
            Some(SIGTERM) if !is_in_fabric => {
                switch.finish(|| signals.pending().any(|signal| signal != SIGHUP))?;
                return Ok(Some(SIGTERM));
            }
            other => return Ok(other),
        }
    }
}

/// Reads quotas and tokens again. Invalid files change nothing.
fn renew(args: &Args, running: &mut SwitchOptions, switch: &RunningSwitch) -> Result<(), Failure> {
    let sentence = match options(args) {
        Ok(new) => {
            let same = SwitchOptions { quotas: running.quotas.clone(), tokens: running.tokens.clone(), ..new.clone() };
            let others = if same == *running { "" } else { "; what else has changed holds when the switch restarts" };
            (running.quotas, running.tokens) = (new.quotas, new.tokens);
            switch.renew(running);
            format!("read quotas and tokens again{others}")
        }
        Err(failure) => {
            let sentence = format!("quotas and tokens stay as they were: {}", failure.sentence());
            output::complain(&format!("tributary: error: {sentence}"));
            sentence
        }
    };
    match args.json {
        true => output::json(&json!({ "event": "renewed", "sentence": sentence }))?,
        false => output::line(&sentence)?,
    }
    Ok(())
}

/// Raises the limit of open files: every member keeps a connection, and the usual soft limit is 1,024.
fn allow_many_connections() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a whole rlimit that lives through the call.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } == 0 {
        limit.rlim_cur = limit.rlim_max;
        // SAFETY: as above. If it fails, the old limit holds, and connections beyond it wait.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) };
    }
}

impl Args {
    /// Options as `PROTOCOL.NAME=VALUE`; options of one protocol come after those of all.
    fn switch_options(&self) -> Vec<String> {
        let shared = protocols::ALL.iter().filter_map(|protocol| protocol.shared.as_ref());
        let has_some = shared.filter(|shared| shared.options.specs.iter().any(|spec| spec.name == AGGREGATORS));
        let of_all = self.aggregators.into_iter().flat_map(|count| {
            let all = has_some.clone().map(|shared| shared.options.protocol);
            all.map(move |protocol| format!("{protocol}.{AGGREGATORS}={count}"))
        });
        of_all.chain(self.switch_options.iter().cloned()).collect()
    }
}

/// Defaults, then the file, then the flags.
fn options(args: &Args) -> Result<SwitchOptions, Failure> {
    if let (Some(file), Some(node)) = (&args.fabric, &args.node) {
        return options_in_fabric(args, file, node);
    }
    let file = match &args.config {
        None => SwitchConfigFile::default(),
        Some(path) => {
            let text = fs::read_to_string(path);
            let text = text.map_err(|error| Failure::usage(format!("cannot read '{}': {error}", path.display())))?;
            SwitchConfigFile::parse(&text).map_err(|error| Failure::usage(format!("'{}': {error}", path.display())))?
        }
    };
    let everywhere = (Ipv4Addr::UNSPECIFIED, SwitchOptions::DEFAULT_PORT).into();
    let mut options = SwitchOptions::new(args.listen.or(file.listen).unwrap_or(everywhere));
    options.switch_options = file.switch_options(&args.switch_options()).map_err(Failure::usage)?;
    let mut limits = Limits::new(options.memory_bytes as u64, options.shards as u16);
    file.apply(&mut limits);
    options.shards = args.cores.unwrap_or(limits.shards).into();
    options.memory_bytes = args.memory.map_or(limits.memory_bytes, |memory| memory.0) as usize;
    options.http = args.http.or(file.http);
    options.parent = args.parent.as_deref().map(resolve).transpose()?.or(file.parent);
    options.max_jobs = limits.max_jobs;
    options.quotas = limits.quotas;
    options.timers = limits.timers;
    options.tokens = args.tokens.as_deref().map(read_tokens).transpose()?;
    options.open = args.open;
    let of_file = file.operators.map(|OperatorsFile { allow }| {
        allow.parse().map_err(|error| Failure::usage(format!("[operators] allow = \"{allow}\": {error}")))
    });
    options.operators = operators(args, of_file)?;
    options.servers = args.servers.clone().unwrap_or(limits.servers);
    Ok(options)
}

/// The options of a switch of the fabric that a file describes.
fn options_in_fabric(args: &Args, file: &Path, node: &str) -> Result<SwitchOptions, Failure> {
    let file = fabric::ChosenFile { path: file.to_owned(), switch_options: args.switch_options() };
    let layout = file.read()?;
    let found = layout.node_named(node).filter(|&found| layout.is_switch(found));
    let found = found.ok_or_else(|| {
        let known: Vec<&str> = layout.switches().map(|switch| layout.name(switch)).collect();
        Failure::usage(format!("the fabric has no switch '{node}'; it has {}", known.join(", ")))
    })?;
    let of_file = layout.operators.get(&found).map(|allow| {
        allow.parse().map_err(|error| Failure::usage(format!("[operators] \"{allow}\" for {node}: {error}")))
    });
    let operators = operators(args, of_file)?;
    Ok(SwitchOptions { operators, ..SwitchOptions::in_fabric(Arc::new(layout), found) })
}

/// Which operators of jobs' own the switch serves: those of the flag, else those of the file, else none.
fn operators(args: &Args, of_file: Option<Result<Allowed, Failure>>) -> Result<Allowed, Failure> {
    args.operators.clone().map(Ok).or(of_file).unwrap_or(Ok(Allowed::None))
}

fn read_tokens(path: &Path) -> Result<Tokens, Failure> {
    let text = fs::read_to_string(path);
    let text = text.map_err(|error| Failure::usage(format!("cannot read '{}': {error}", path.display())))?;
    Tokens::parse(&text).map_err(|error| Failure::usage(format!("'{}': {error}", path.display())))
}

/// Which clients the switch serves, in words.
fn clients(options: &SwitchOptions) -> String {
    match &options.tokens {
        Some(tokens) => format!("tenants with a token: {}", tokens.tenants().len()),
        None if options.open => "open to everybody who reaches it".to_string(),
        None => "for loopback, link-local and private addresses (--tokens or --open for others)".to_string(),
    }
}

fn print_ready(switch: &RunningSwitch, options: &SwitchOptions, json: bool) -> Result<(), Failure> {
    let (listen, http) = (switch.listen_addr(), switch.http_addr());
    if let Some(FabricNode { layout, node }) = &options.fabric {
        return print_ready_in_fabric(layout.name(*node), listen, http, json);
    }
    let memory_mib = options.memory_bytes >> 20;
    if json {
        let shards = switch.shard_addrs();
        output::json(&json!({
            "event": "listening", "listen": listen, "http": http, "parent": options.parent, "cores": options.shards, "shards": shards,
            "memory_mib": memory_mib, "clients": clients(options), "pid": std::process::id(),
        }))?;
        return Ok(());
    }
    let shards = if options.shards == 1 { "1 shard".to_string() } else { format!("{} shards", options.shards) };
    let http = http.map(|http| format!(", http://{http}")).unwrap_or_default();
    let parent = options.parent.map(|parent| format!(", below the switch at {parent}")).unwrap_or_default();
    output::line(&format!(
        "listening on udp+tcp {listen}{http}, {shards}, {memory_mib} MiB{parent}, {}; stop with Ctrl-C or SIGTERM",
        clients(options)
    ))?;
    Ok(())
}

fn print_ready_in_fabric(node: &str, udp: SocketAddr, other: Option<SocketAddr>, json: bool) -> Result<(), Failure> {
    let control: Vec<SocketAddr> = [udp].into_iter().chain(other).collect();
    if json {
        let pid = std::process::id();
        output::json(&json!({ "event": "listening", "node": node, "listen": udp, "control": control, "pid": pid }))?;
        return Ok(());
    }
    let control: Vec<String> = control.iter().map(SocketAddr::to_string).collect();
    let control = control.join(" and ");
    output::line(&format!("{node}: listening on udp {udp}, control on tcp {control}; stop with Ctrl-C or SIGTERM"))?;
    Ok(())
}

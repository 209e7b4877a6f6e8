//! `tributary switch`: the aggregation daemon. [`settings`] is what it reads, [`service`] what it tells a service manager,
//! [`upgrade`] how a new program takes over.

mod service;
mod settings;
mod upgrade;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::{process, thread};

use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR2};
use signal_hook::iterator::Signals;
use signal_hook::low_level::raise;
use tributary_control::quantity::Bytes;
use tributary_control::{IpNetwork, Limits};
use tributary_net::handover::Ending;
use tributary_net::os;
use tributary_net::switch_daemon::{FabricNode, RunningSwitch, StartError, SwitchOptions};
use tributary_operators::Allowed;

use self::service::Notifier;
use super::fabric;
use crate::failure::Failure;
use crate::flags::{parse_memory, parse_switch};
use crate::log::LogArgs;
use crate::output::{self, Announcer};
use crate::program::Program;

const EXAMPLES: &str = "\
Examples:
  tributary switch                                   every address of this machine, port 17777
  tributary switch --listen 10.0.0.1:17777 --cores 2 --memory 256MiB
  tributary switch --http 127.0.0.1:9100             Prometheus: http://127.0.0.1:9100/metrics
  tributary switch --parent 10.9.0.1:17777           below another switch, which sums for all racks
  tributary switch --config /etc/tributary.toml
  tributary switch --check /etc/tributary.toml       only read it and the flags; 2 if it is wrong
  tributary switch --servers 10.0.0.7,10.1.0.0/16    where hosts may sum: tributary ps --help
  tributary switch --tokens /etc/tributary-tokens.toml     for those with one in TRIBUTARY_TOKEN
  tributary switch --operators any                   serve jobs' operators (tributary operator)
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
  [operators]                jobs' operators: \"any\", \"none\", or SHA-256s with commas
  allow = \"none\"
  [switches.PROTOCOL]        what its jobs share: docs/protocols

Packets come by UDP and control by TCP at the same port; with --cores above 1 the further threads
receive at UDP ports that the system assigns. /status, /jobs and /metrics are served there too.

On SIGHUP it reads its files again and takes over quotas, tokens, memory, max_jobs, servers and
times; running jobs stay. On SIGTERM it takes no more joins and ends when nothing is being summed
any more, or after `finish`; on Ctrl-C, and on a second signal, at once. Whoever is still summing
is told that the switch stops. On SIGUSR2 it starts its command line again, from the file that is
there now; the new program takes over, and this one ends with the last of its jobs.

The log goes to stderr: jobs that are formed, refused or ended, members that are lost, paths that
shrink. Exit codes: 0 when it was asked to stop; 2 for settings that a person must correct, such
as a port in use.";

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
    /// Check the settings of a TOML file, together with the other flags, and end
    #[arg(long, value_name = "FILE", conflicts_with_all = ["config", "fabric"])]
    pub check: Option<PathBuf>,
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
        conflicts_with_all = ["listen", "parent", "cores", "memory", "http", "config", "open", "servers"]
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

/// Serves until a signal asks to stop, or until the last job has ended after a new program took over.
pub fn run(args: Args, program: &Program) -> Result<(), Failure> {
    if let Some(file) = &args.check {
        settings::read(&args)?;
        return Ok(output::line(&format!("'{}' and the flags beside it are right", file.display()))?);
    }
    os::return_slots_to_the_kernel();
    os::allow_many_connections();
    // Before the ports are open, so that a signal that comes then is kept and not lost.
    let signals = Signals::new([SIGHUP, SIGINT, SIGTERM, SIGUSR2])?;
    let options = settings::read(&args)?;
    let (notifier, announcer) = (Arc::new(Notifier::of_environment()), Announcer::start(args.json)?);
    let switch = match upgrade::inherited_channel()? {
        None => RunningSwitch::start(&options),
        Some(channel) => RunningSwitch::take_over(&options, channel),
    };
    let switch = switch.map_err(not_started)?;
    announce_ready(&switch, &options, &announcer);
    notifier.send("READY=1");
    let signal = thread::scope(|scope| {
        let _watchdog = notifier.watch_over(scope, &switch);
        let (args, switch) = (&args, &switch);
        let (notifier, announcer) = (&notifier, &announcer);
        Daemon { args, program, running: options, switch, notifier, announcer }.serve(signals)
    })?;
    let Some(signal) = signal else {
        switch.stop();
        let text = "stopped: a new program has the switch, and the last job here has ended";
        announcer.announce(&json!({ "event": "stopped", "signal": null }), text);
        return Ok(());
    };
    notifier.send("STOPPING=1");
    let name = if signal == SIGINT { "SIGINT" } else { "SIGTERM" };
    switch.announce_stop()?;
    switch.stop();
    announcer.announce(&json!({ "event": "stopped", "signal": name }), &format!("stopped by {name}"));
    Ok(())
}

/// Counts errors that a person must correct as wrong calls, for which service managers do not start a service again.
fn not_started(error: StartError) -> Failure {
    match error {
        StartError::System { .. } => Failure::new(error),
        _ => Failure::usage(error),
    }
}

/// A switch that runs, and what it does at signals.
struct Daemon<'a> {
    args: &'a Args,
    program: &'a Program,
    /// The options as they are now.
    running: SwitchOptions,
    switch: &'a RunningSwitch,
    notifier: &'a Arc<Notifier>,
    announcer: &'a Announcer,
}

impl Daemon<'_> {
    /// Runs until a signal asks to stop, and then until no sum is under way. `None`: a new program has the switch, and no
    /// job is left here.
    fn serve(mut self, mut signals: Signals) -> Result<Option<i32>, Failure> {
        loop {
            match signals.forever().next() {
                Some(SIGHUP) => {
                    self.notifier.send_reloading();
                    self.reload();
                    self.notifier.send("READY=1");
                }
                Some(SIGUSR2) => self.hand_over(&signals),
                Some(SIGTERM) => {
                    self.notifier.send("STOPPING=1");
                    // Both programs of a switch are asked to stop, by each other and by a service manager.
                    let hurries = |signal| signal == SIGINT || signal == SIGTERM && self.notifier.is_main_process();
                    self.switch.finish(|| signals.pending().any(hurries))?;
                    return Ok(Some(SIGTERM));
                }
                other => return Ok(other),
            }
        }
    }

    /// Reads the files again, and takes over what may change while the switch runs. Invalid files change nothing. Nothing
    /// that happens here ends the switch.
    fn reload(&mut self) {
        let sentence = match settings::read(self.args) {
            Ok(new) => {
                let taken = self.running.with_changeable(&new);
                let others = if taken == new { "" } else { "; what else has changed holds when the switch restarts" };
                self.running = taken;
                self.switch.reload(&self.running);
                format!("read the files again{others}")
            }
            Err(failure) => {
                self.switch.reload_failed(failure.sentence());
                format!("the settings stay as they were: {}", failure.sentence())
            }
        };
        self.announcer.announce(&json!({ "event": "reloaded", "sentence": sentence }), &sentence);
    }

    /// Starts a new program that takes over. If it does not, this one goes on as before.
    fn hand_over(&self, signals: &Signals) {
        let (handle, notifier) = (signals.handle(), Arc::clone(self.notifier));
        let (announced, is_announced) = mpsc::channel::<()>();
        let on_end = move |ending| match ending {
            Ending::NoJobs => handle.close(),
            // The call fails only for numbers that are not signals.
            Ending::Stopped => drop(raise(SIGTERM)),
            Ending::TakenBack => {
                // The next program may fail before the manager has been told that it has the switch.
                let _ = is_announced.recv();
                notifier.send_main_process(process::id());
            }
        };
        match upgrade::hand_over(self.program, self.switch, on_end) {
            Ok(pid) => {
                self.notifier.send_main_process(pid);
                drop(announced);
                let text = format!("process {pid} has the switch; this one ends with the last of its jobs");
                self.announcer.announce(&json!({ "event": "handed_over", "pid": pid }), &text);
            }
            Err(failure) => {
                let sentence = format!("the switch stays with this program: {}", failure.sentence());
                self.announcer.announce(&json!({ "event": "not_handed_over", "sentence": sentence }), &sentence);
            }
        }
    }
}

/// Which clients the switch serves, in words.
fn clients(options: &SwitchOptions) -> String {
    match &options.tokens {
        Some(tokens) if !tokens.tenants().is_empty() => format!("tenants with a token: {}", tokens.tenants().len()),
        _ if options.open => "open to everybody who reaches it".to_string(),
        _ => "for loopback, link-local and private addresses (--tokens or --open for others)".to_string(),
    }
}

fn announce_ready(switch: &RunningSwitch, options: &SwitchOptions, announcer: &Announcer) {
    let (listen, http, pid) = (switch.listen_addr(), switch.http_addr(), process::id());
    if let Some(FabricNode { layout, node }) = &options.fabric {
        let (node, control): (_, Vec<SocketAddr>) = (layout.name(*node), [listen].into_iter().chain(http).collect());
        let both: Vec<String> = control.iter().map(SocketAddr::to_string).collect();
        let both = both.join(" and ");
        let text = format!("{node}: listening on udp {listen}, control on tcp {both}; stop with Ctrl-C or SIGTERM");
        let object = json!({ "event": "listening", "node": node, "listen": listen, "control": control, "pid": pid });
        return announcer.announce(&object, &text);
    }
    let memory_mib = options.memory_bytes >> 20;
    let object = json!({
        "event": "listening", "listen": listen, "http": http, "parent": options.parent, "cores": options.shards,
        "shards": switch.shard_addrs(), "memory_mib": memory_mib, "clients": clients(options), "pid": pid,
    });
    let shards = if options.shards == 1 { "1 shard".to_string() } else { format!("{} shards", options.shards) };
    let http = http.map(|http| format!(", http://{http}")).unwrap_or_default();
    let parent = options.parent.map(|parent| format!(", below the switch at {parent}")).unwrap_or_default();
    let text = format!(
        "listening on udp+tcp {listen}{http}, {shards}, {memory_mib} MiB{parent}, {}; stop with Ctrl-C or SIGTERM",
        clients(options)
    );
    announcer.announce(&object, &text);
}

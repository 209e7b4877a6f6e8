//! The settings of a switch: defaults, then the file, then the flags. The switch reads them when it starts and again at
//! SIGHUP; `--check` reads them and does nothing else.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use tributary_control::Limits;
use tributary_control::config::{OperatorsFile, SwitchConfigFile, Tokens};
use tributary_control::quantity::Bytes;
use tributary_net::os;
use tributary_net::switch_daemon::SwitchOptions;
use tributary_operators::Allowed;
use tributary_proto::protocols;

use super::super::fabric;
use super::Args;
use crate::failure::Failure;
use crate::flags::{parse_switch, resolve};

/// The option of protocols whose jobs share aggregators.
const AGGREGATORS: &str = "aggregators";

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

/// Reads and checks all settings. An error is one that a person must correct.
pub fn read(args: &Args) -> Result<SwitchOptions, Failure> {
    let options = match (&args.fabric, &args.node) {
        (Some(file), Some(node)) => in_fabric(args, file, node)?,
        _ => standalone(args)?,
    };
    let (given, machine) = (Bytes(options.memory_bytes as u64), Bytes(os::memory_bytes()));
    if given > machine {
        let sentence = format!("memory = {given}: this machine lets the switch have {machine}; give jobs less of it");
        return Err(Failure::usage(sentence));
    }
    Ok(options)
}

fn standalone(args: &Args) -> Result<SwitchOptions, Failure> {
    let file = match args.config.as_ref().or(args.check.as_ref()) {
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
    options.parent = parent(args, file.parent.as_deref())?;
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

/// The parent switch of the flag, else that of the file. A name that is unknown now is a wrong setting, because a service
/// manager that started the switch again and again would not make it known.
fn parent(args: &Args, of_file: Option<&str>) -> Result<Option<SocketAddr>, Failure> {
    let of_file = || of_file.map(|text| parse_switch(text).map_err(|why| Failure::usage(format!("parent: {why}"))));
    let parent = args.parent.clone().map(Ok).or_else(of_file).transpose()?;
    parent.map(|parent| resolve(&parent).map_err(|error| Failure::usage(error.sentence()))).transpose()
}

/// The options of a switch of the fabric that a file describes.
fn in_fabric(args: &Args, file: &Path, node: &str) -> Result<SwitchOptions, Failure> {
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
    let tokens = args.tokens.as_deref().map(read_tokens).transpose()?;
    Ok(SwitchOptions { operators, tokens, ..SwitchOptions::in_fabric(Arc::new(layout), found) })
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

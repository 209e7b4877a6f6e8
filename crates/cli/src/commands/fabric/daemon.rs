//! `tributary switch --fabric`: one switch of a fabric.

use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::json;
use tributary_net::fabric::{FabricSwitchOptions, RunningFabricSwitch};
use tributary_operators::Allowed;

use super::ChosenFile;
use crate::commands::switch::not_started;
use crate::failure::Failure;
use crate::output;

/// Starts the named switch of the fabric that the file describes; `operators` replaces the file's choice of operators.
pub fn start(file: &ChosenFile, node: &str, operators: Option<Allowed>) -> Result<RunningFabricSwitch, Failure> {
    let fabric = file.read()?;
    let found = fabric.node_named(node).filter(|&found| fabric.is_switch(found));
    let found = found.ok_or_else(|| {
        let known: Vec<&str> = fabric.switches().map(|switch| fabric.name(switch)).collect();
        Failure::usage(format!("the fabric has no switch '{node}'; it has {}", known.join(", ")))
    })?;
    let of_file = || match fabric.operators.get(&found) {
        Some(allow) => {
            allow.parse().map_err(|error| Failure::usage(format!("[operators] \"{allow}\" for {node}: {error}")))
        }
        None => Ok(Allowed::None),
    };
    let operators = operators.map_or_else(of_file, Ok)?;
    let options = FabricSwitchOptions { operators, ..FabricSwitchOptions::new(Arc::new(fabric), found) };
    RunningFabricSwitch::start(&options).map_err(not_started)
}

/// Prints that the switch listens, and where.
pub fn print_ready(switch: &RunningFabricSwitch, node: &str, json: bool) -> Result<(), Failure> {
    let (udp, control) = (switch.udp_addr(), switch.control_addrs());
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

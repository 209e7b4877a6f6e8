//! `tributary switch --fabric`: one switch of a fabric.

use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::json;
use tributary_net::fabric::{FabricSwitchOptions, RunningFabricSwitch};

use super::ChosenFile;
use crate::commands::switch::not_started;
use crate::failure::Failure;
use crate::output;

/// Starts the switch of this name of the fabric that the file describes.
pub fn start(file: &ChosenFile, node: &str) -> Result<RunningFabricSwitch, Failure> {
    let fabric = file.read()?;
    let found = fabric.node_named(node).filter(|&found| fabric.is_switch(found));
    let found = found.ok_or_else(|| {
        let known: Vec<&str> = fabric.switches().map(|switch| fabric.name(switch)).collect();
        Failure::usage(format!("the fabric has no switch '{node}'; it has {}", known.join(", ")))
    })?;
    RunningFabricSwitch::start(&FabricSwitchOptions::new(Arc::new(fabric), found)).map_err(not_started)
}

/// Says that it listens, and where.
pub fn tell_ready(switch: &RunningFabricSwitch, node: &str, json: bool) -> Result<(), Failure> {
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

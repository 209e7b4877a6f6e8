//! Finds the hosts that sum for a job instead of switches.

use tributary_proto::contract::ids::NodeId;
use tributary_proto::protocols;

use super::hosts::Allocation;
use crate::config::{ConfigError, JobSection, ParameterServers, ServerWord, invalid};
use crate::engine::JobPlan;

/// The servers of a job.
pub(super) struct Servers {
    /// The hosts, if servers have their own; empty if each rank's host has a server.
    pub hosts: Vec<NodeId>,
    /// The pool, a multiple of the number of servers.
    pub slots: u16,
}

/// The servers of a job, if it has any.
pub(super) fn servers(
    plan: &JobPlan,
    section: &JobSection,
    hosts: &mut Allocation,
) -> Result<Option<Servers>, ConfigError> {
    let name = &plan.name;
    let colocated = ParameterServers::Word(ServerWord::Colocated);
    let servers = match (&section.servers, section.protocol.server) {
        (None, None) => return Ok(None),
        (None, Some(_)) => &colocated,
        (Some(servers), _) => servers,
    };
    if section.protocol.server.is_none() {
        let with_servers = protocols::ALL.iter().filter(|protocol| protocol.server.is_some());
        let names: Vec<&str> = with_servers.map(|protocol| protocol.name).collect();
        return Err(invalid(format!(
            "{name}: {} has no servers; protocols with servers: {}",
            section.protocol.name,
            names.join(" and ")
        )));
    }
    let hosts = match servers {
        ParameterServers::Word(ServerWord::Colocated) => Vec::new(),
        ParameterServers::Dedicated(wanted) => hosts.take(&format!("{name}'s servers"), wanted, section.placement)?,
    };
    if let Some(both) = hosts.iter().find(|server| plan.members.contains(server)) {
        return Err(invalid(format!("{name}: host {} is both a rank and a server: write \"colocated\"", both.0)));
    }
    let count = if hosts.is_empty() { plan.members.len() } else { hosts.len() } as u64;
    // A server is as far behind the switches as the ranks are before them, so the path is twice as long.
    let whole = (2 * u64::from(plan.slots)).div_ceil(count) * count;
    let slots =
        if section.slots.is_some() { plan.slots } else { whole.min(u64::from(u16::MAX) / count * count) as u16 };
    Ok(Some(Servers { hosts, slots }))
}

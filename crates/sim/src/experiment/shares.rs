//! A job whose tensor ranks and servers on hosts of their own sum together, in the shares that their links allow: the plan
//! is that of a real job (`control::aggregation_plan`). Each way to sum is a job of its own over the same links.

use tributary_control::aggregation_plan::{AggregationPlan, HostLink};
use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::tensor::Spec;

use super::hosts::{Allocation, Servers, servers};
use crate::config::{ConfigError, JobSection, Shares, invalid};
use crate::engine::JobPlan;
use crate::topology::Graph;

/// A job to install: on switches, or with servers on these hosts, or with one beside each rank if the list is empty.
pub(super) type Sum = (JobPlan, Option<Vec<NodeId>>);

/// The jobs that sum the section's tensor: one, if it plans no shares.
pub(super) fn jobs(
    plan: JobPlan,
    section: &JobSection,
    hosts: &mut Allocation,
    graph: &Graph,
) -> Result<Vec<Sum>, ConfigError> {
    let served = servers(&plan, section, hosts)?;
    let Some(Shares::Planned) = section.shares else {
        return Ok(vec![match served {
            None => (plan, None),
            Some(Servers { hosts, slots }) => (JobPlan { slots, ..plan }, Some(hosts)),
        }]);
    };
    let refused = |why: &str| Err(invalid(format!("{}: shares = \"planned\" {why}", plan.name)));
    let Some(Servers { hosts: spare, .. }) = served.filter(|served| !served.hosts.is_empty()) else {
        return refused("needs servers on hosts of their own");
    };
    let links = |hosts: &[NodeId], ranks| hosts.iter().map(|&host| link(graph, host, ranks)).collect::<Vec<_>>();
    let own = links(&plan.members, 1);
    if own.iter().any(|link| *link != own[0]) {
        return refused("is for ranks whose links are equal");
    }
    let all = [own, links(&spare, 0)].concat();
    let Some(AggregationPlan::Shares { shares, .. }) = AggregationPlan::new(&all) else {
        return refused("finds no link of a server that is worth its share");
    };
    Ok(split(&plan, &spare, &shares[plan.members.len()..]))
}

/// A host's link; a host with several has the first.
fn link(graph: &Graph, host: NodeId, ranks: u32) -> HostLink {
    let edges = graph.edges().iter();
    let mut rates = edges.filter_map(|edge| match host {
        host if host == edge.a => Some((edge.a_to_b.rate, edge.b_to_a.rate)),
        host if host == edge.b => Some((edge.b_to_a.rate, edge.a_to_b.rate)),
        _ => None,
    });
    let (up, down) = rates.next().map_or((0.0, 0.0), |(up, down)| (up.0 as f64, down.0 as f64));
    HostLink { up_bits_per_s: up, down_bits_per_s: down, ..HostLink::new(up, ranks) }
}

/// The tensor cut after whole blocks: the share of each server, and the rest beside the ranks.
fn split(plan: &JobPlan, spare: &[NodeId], shares: &[f64]) -> Vec<Sum> {
    let (whole, block) = (plan.spec.elements, u32::from(plan.elements_per_packet));
    let sum = |elements: u32, whose: String, servers: usize| {
        // The path to a server and back is twice as long, and each server has a whole number of slots.
        let servers = servers.max(1) as u64;
        let slots = (2 * u64::from(plan.slots)).div_ceil(servers) * servers;
        let slots = slots.min(u64::from(u16::MAX) / servers * servers) as u16;
        JobPlan { name: format!("{}: {whose}", plan.name), spec: Spec { elements, ..plan.spec }, slots, ..plan.clone() }
    };
    let mut left = whole;
    let mut sums = Vec::new();
    for (&host, share) in spare.iter().zip(shares) {
        let elements = ((share * f64::from(whole) / f64::from(block)).ceil() as u32).saturating_mul(block).min(left);
        if elements > 0 {
            left -= elements;
            sums.push((sum(elements, format!("at host {}", host.0), 1), Some(vec![host])));
        }
    }
    if left > 0 {
        sums.push((sum(left, "at its ranks' hosts".to_owned(), plan.members.len()), Some(Vec::new())));
    }
    sums
}

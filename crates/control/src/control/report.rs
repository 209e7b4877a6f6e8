//! Answers to an operator: all jobs, and whether any job has a member at an address.

use std::net::IpAddr;

use tributary_proto::contract::config::Below;
use tributary_proto::contract::time::Time;

use crate::client::Client;
use crate::control::Control;
use crate::levels::Child;
use crate::report::{AboveView, JobView, MemberState, MemberView, Phase, SwitchView};
use crate::running::Running;

impl Control {
    /// True if a running job has a member or a server at this address.
    pub fn has_members_at(&self, address: IpAddr) -> bool {
        let client = Client::at(address);
        let members =
            |job: &Running| job.plan.children.iter().flat_map(|child| child.addrs.clone()).collect::<Vec<_>>();
        let servers = |job: &Running| job.plan.servers.dedicated().iter().map(|server| server.addr).collect::<Vec<_>>();
        let mut addrs = self.running.values().flat_map(|job| [members(job), servers(job)].concat());
        addrs.any(|addr| Client::at(addr.ip()) == client)
    }
}

impl Control {
    /// Every job: first the jobs that hold memory, by ascending id, then the jobs that form, by name.
    pub fn jobs(&self) -> Vec<JobView> {
        self.running_views().chain(self.forming_views()).collect()
    }

    fn running_views(&self) -> impl Iterator<Item = JobView> + '_ {
        self.running.values().map(|job| {
            let state_of = |wid: usize| (job.members[wid].state, job.members[wid].heard);
            let (members, switches) = views(&job.plan.children, state_of);
            let any = |state| {
                let mut all = job.members.iter().chain(&job.above);
                all.any(|member| member.state == state)
            };
            let gone = job.departed(None).members;
            let missing: Vec<u16> = gone.iter().filter(|gone| !gone.left).map(|gone| gone.rank).collect();
            let servers = job.server_views();
            let server_gone = servers.iter().any(|server| server.state != MemberState::Present);
            let phase = match job.started {
                None => Phase::Installing,
                Some(_) if job.superseded => Phase::Superseded,
                Some(_) if any(MemberState::Lost) || server_gone || !missing.is_empty() => Phase::Failed,
                Some(_) if any(MemberState::Left) => Phase::Ending,
                Some(_) => Phase::Running,
            };
            JobView {
                name: job.plan.name.clone(),
                id: Some(job.plan.config.job),
                phase,
                protocol: job.plan.protocol,
                operators: job.plan.config.options.operators(),
                world: job.plan.config.world_size,
                slots: job.slots(),
                elements_per_packet: job.plan.config.elements_per_packet,
                memory_bytes: job.memory_bytes(),
                since: job.started.unwrap_or_default(),
                missing,
                members,
                switches,
                servers,
                above: job.above.as_ref().map(|above| AboveView { state: above.state, heard: above.heard }),
                ranks_of: job.plan.children.iter().map(ranks).collect(),
            }
        })
    }

    fn forming_views(&self) -> impl Iterator<Item = JobView> + '_ {
        self.forming.iter().map(|(name, forming)| {
            let wish = forming.wish(self.limits.shards);
            let (members, switches) = views(&forming.children(), |_| (MemberState::Present, None));
            JobView {
                name: name.clone(),
                id: None,
                phase: Phase::Forming,
                protocol: wish.protocol,
                operators: wish.options.operators(),
                world: forming.world(),
                slots: 0,
                elements_per_packet: 0,
                memory_bytes: 0,
                since: forming.since,
                missing: forming.missing(),
                members,
                switches,
                servers: Vec::new(),
                above: None,
                ranks_of: Vec::new(),
            }
        })
    }
}

fn ranks(child: &Child) -> Vec<u16> {
    child.below.ranks().iter().map(|rank| rank.0).collect()
}

/// The workers and switches among children, each with its state and its newest sign of life.
fn views(
    children: &[Child],
    state_of: impl Fn(usize) -> (MemberState, Option<Time>),
) -> (Vec<MemberView>, Vec<SwitchView>) {
    let (mut members, mut switches) = (Vec::new(), Vec::new());
    for (wid, child) in children.iter().enumerate() {
        let (state, heard) = state_of(wid);
        match (&child.below, child.addrs.first()) {
            (Below::Worker(rank), Some(&addr)) => members.push(MemberView { rank: rank.0, addr, state, heard }),
            _ => switches.push(SwitchView { addr: child.control, ranks: ranks(child), state, heard }),
        }
    }
    (members, switches)
}

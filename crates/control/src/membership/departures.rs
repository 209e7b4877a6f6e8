//! Which members, switches and servers of a job are gone, as this switch sees it and its neighbours have reported.

use tributary_proto::contract::ids::ChildId;

use crate::levels::SwitchRanks;
use crate::membership::MemberState;
use crate::membership::losses::Outage;
use crate::membership::running_job::RunningJob;
use crate::servers::ServerAddr;

/// A member that has left a job or is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Gone {
    /// The member's rank.
    pub rank: u16,
    /// The member has left in good order; otherwise it fell silent.
    pub left: bool,
}

/// The members, switches and servers of a job that are gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Departed {
    /// Members, by ascending rank.
    pub members: Vec<Gone>,
    /// Switches that are lost, each with the ranks below it, which are gone with it. A switch without ranks is the parent.
    pub switches: Vec<SwitchRanks>,
    /// Servers, by ascending number.
    pub servers: Vec<ServerAddr>,
}

impl Departed {
    /// True if no member, switch or server is gone.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty() && self.switches.is_empty() && self.servers.is_empty()
    }

    pub(crate) fn extend(&mut self, other: &Departed) {
        self.members.extend(&other.members);
        self.switches.extend(other.switches.iter().cloned());
        self.servers.extend(&other.servers);
    }
}

/// A neighbouring switch. It learns what others have reported, and not what it has reported itself.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Neighbour {
    Child(ChildId),
    Parent,
}

impl RunningJob {
    /// All members, switches and servers that are gone, except those that `asker` is or has reported itself.
    pub(crate) fn departed(&self, asker: Option<Neighbour>) -> Departed {
        let mut gone = Departed::default();
        for wid in (0..self.members.len() as u16).map(ChildId).filter(|&wid| asker != Some(Neighbour::Child(wid))) {
            self.add_child(wid, &mut gone);
        }
        if let Some(parent) = self.parent.as_ref().filter(|_| asker != Some(Neighbour::Parent)) {
            gone.extend(&parent.reported);
            // A switch's control API is at the address of its first shard.
            let addr = self.plan.uplink.as_ref().and_then(|uplink| uplink.shards.first());
            if let (MemberState::Lost, Some(&addr)) = (parent.state, addr) {
                gone.switches.push(SwitchRanks { addr, ranks: Vec::new() });
            }
        }
        self.add_outages(&mut gone);
        self.add_servers(&mut gone);
        gone.members.sort_unstable_by_key(|gone| gone.rank);
        gone
    }

    /// Adds what a child has reported, and all ranks behind it if the child itself is gone.
    fn add_child(&self, wid: ChildId, gone: &mut Departed) {
        let (member, child) = (&self.members[wid.index()], &self.plan.children[wid.index()]);
        if member.state == MemberState::Present {
            return gone.extend(&member.reported);
        }
        let (reported, left) = (&member.reported.members, member.state == MemberState::Left);
        let ranks = || child.below.ranks().iter().map(|rank| rank.0);
        let unreported = ranks().filter(|&rank| !reported.iter().any(|gone| gone.rank == rank));
        gone.members.extend(reported);
        gone.members.extend(unreported.map(|rank| Gone { rank, left }));
        // A switch that has reported a lost rank has left because of that loss.
        let is_explained = left || reported.iter().any(|gone| !gone.left);
        match child.control.filter(|_| !is_explained) {
            Some(addr) => gone.switches.push(SwitchRanks { addr, ranks: ranks().collect() }),
            None => gone.switches.extend(member.reported.switches.iter().cloned()),
        }
    }

    /// Adds the switches with which ranks were lost.
    pub(crate) fn add_outages(&self, gone: &mut Departed) {
        let lost_with = |outage: &Outage, rank: u16| {
            let member = self.members.get(usize::from(rank));
            member.is_some_and(|member| member.state == MemberState::Lost && member.since >= outage.since)
        };
        for outage in &self.outages {
            let ranks: Vec<u16> = outage.switch.ranks.iter().copied().filter(|&rank| lost_with(outage, rank)).collect();
            if !ranks.is_empty() {
                gone.switches.push(SwitchRanks { addr: outage.switch.addr, ranks });
            }
        }
    }

    /// Adds the servers that are gone.
    fn add_servers(&self, gone: &mut Departed) {
        let servers = self.server_states().filter(|(_, state)| *state != MemberState::Present);
        gone.servers.extend(servers.map(|(server, _)| server));
    }
}

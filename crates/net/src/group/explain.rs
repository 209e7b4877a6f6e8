//! Explains a collective's error: it makes a sentence that names the culprit, from all that this worker can find out.

use std::net::SocketAddr;
use std::sync::Arc;

use tributary_proto::contract::host::CollectiveError;
use tributary_proto::contract::ids::Rank;
use tributary_proto::contract::packet::Addr;
use tributary_proto::contract::tensor::Spec;

use super::core::Core;
use super::driver::{Driver, Identity};
use super::error::GroupError;
use super::link::Blocked;
use super::watch;
use crate::rendezvous::{Standing, SwitchRanks};

impl Driver {
    /// The error for a collective that failed, with what the control API says of a silent switch, and with the paths on
    /// which packets do not pass.
    pub fn explain(&self, cause: CollectiveError) -> GroupError {
        if let Some(error) = self.peer_lost_error(&cause) {
            return error;
        }
        let named = self.named(&cause);
        let sentence = self.explanation.get_or_init(|| {
            let waited = cause.awaited_in().is_some();
            let blocked = waited.then(|| self.name_blocked_paths()).flatten();
            let sentence = blocked.unwrap_or_else(|| self.name_awaited(&cause, &named));
            match self.awaited(&cause) {
                Some(spec) => format!("{spec}: {sentence}"),
                None => sentence,
            }
        });
        GroupError::Failed { context: self.context(), sentence: sentence.clone(), cause: named }
    }

    /// The rank by which sentences name a member.
    pub(super) fn name_of(&self, member: u16) -> u16 {
        let names = self.hosts.get();
        names.and_then(|names| names.get(usize::from(member))).copied().unwrap_or(member)
    }

    /// An error with the ranks by which sentences name members.
    pub(super) fn named(&self, cause: &CollectiveError) -> CollectiveError {
        let mut named = cause.clone();
        let rename = |rank: &mut Rank| rank.0 = self.name_of(rank.0);
        match &mut named {
            CollectiveError::Missing { missing: ranks, .. } | CollectiveError::ChildSwitchSilent { ranks, .. } => {
                ranks.iter_mut().for_each(rename);
            }
            CollectiveError::PeerSilent { worker, .. } => rename(worker),
            CollectiveError::Mismatch { a, b, .. } => [a, b].into_iter().for_each(rename),
            CollectiveError::ParentSilent { .. }
            | CollectiveError::SwitchSilent { .. }
            | CollectiveError::ServerSilent { .. }
            | CollectiveError::Aborted => {}
        }
        named
    }

    /// The sentence for a cause, which is `named` with the ranks for people.
    fn name_awaited(&self, cause: &CollectiveError, named: &CollectiveError) -> String {
        let Identity { rank, servers, .. } = &self.identity;
        match cause {
            CollectiveError::SwitchSilent { .. } => self.explain_silence(cause),
            CollectiveError::ServerSilent { server, .. } => match servers.get(server.index()) {
                Some(addr) => format!("{named}; it is at {addr}: does it run, and do packets reach it?"),
                None => named.to_string(),
            },
            CollectiveError::Missing { missing, .. } if missing.contains(&Rank(*rank)) => {
                format!("this rank's packets do not reach {} ({named})", self.who_sums())
            }
            CollectiveError::ParentSilent { levels_up, .. } => self.name_switch(named, self.ancestor(*levels_up)),
            CollectiveError::ChildSwitchSilent { ranks, .. } => self.name_switch(named, self.switch_of(ranks)),
            _ => named.to_string(),
        }
    }

    /// The collective in which others were waited for, as `Mismatch` names it.
    fn awaited(&self, cause: &CollectiveError) -> Option<Spec> {
        self.cores.iter().filter_map(|core| core.lock()).find_map(|state| state.engine.awaited(cause))
    }

    /// The name of the machines to which this rank's contributions go.
    fn who_sums(&self) -> String {
        let Identity { switch, switches, servers, in_fabric, .. } = &self.identity;
        let addrs = |addrs: Vec<String>| addrs.join(" or ");
        match (servers.is_empty(), *in_fabric, switches.len()) {
            (false, ..) => format!("the server {}", addrs(servers.iter().map(SocketAddr::to_string).collect())),
            (_, true, _) => "the switch of the fabric that waits for them".into(),
            (.., 0 | 1) => format!("the switch {switch}"),
            _ => format!("the switch {}", addrs(switches.iter().map(|switch| switch.addr.to_string()).collect())),
        }
    }

    /// The sentence for paths on which only keepalives pass; `None` if there are none.
    fn name_blocked_paths(&self) -> Option<String> {
        let of_core = |core: &Arc<Core>| core.lock().map(|state| state.engine.link.blocked()).unwrap_or_default();
        let blocked: Vec<Blocked> = self.cores.iter().flat_map(of_core).collect();
        let name = |way: &Blocked| match way.to {
            Addr::Worker(rank) => format!("rank {} at {}", self.name_of(rank.0), way.at),
            Addr::Server(server) => format!("server {server} at {}", way.at),
            Addr::Switch(_) | Addr::Node(_) => format!("the switch {}", way.at),
        };
        let bytes = blocked.iter().map(|way| way.bytes).min()?;
        let targets: Vec<String> = blocked.iter().map(name).collect();
        Some(format!(
            "packets of {bytes} bytes do not come back from {}, and short ones do: the path there holds no packet of this \
             job any more; mend its MTU, or what drops long packets on it",
            targets.join(" and ")
        ))
    }

    /// The switch that is this number of levels above the rank's own switch.
    fn ancestor(&self, levels: u8) -> Option<SocketAddr> {
        let Identity { rank, switches, .. } = &self.identity;
        let mut way: Vec<&SwitchRanks> = switches.iter().filter(|switch| switch.ranks.contains(rank)).collect();
        way.sort_by_key(|switch| switch.ranks.len());
        way.get(usize::from(levels)).map(|switch| switch.addr)
    }

    /// The uppermost switch that has only these ranks below it.
    fn switch_of(&self, ranks: &[Rank]) -> Option<SocketAddr> {
        let all_there = |switch: &&SwitchRanks| switch.ranks.iter().all(|&rank| ranks.contains(&Rank(rank)));
        let below = self.identity.switches.iter().filter(all_there);
        below.max_by_key(|switch| switch.ranks.len()).map(|switch| switch.addr)
    }

    fn name_switch(&self, cause: &CollectiveError, switch: Option<SocketAddr>) -> String {
        match switch {
            Some(addr) => format!("{cause}; that switch is {addr}: does it run, and do packets reach it?"),
            None => cause.to_string(),
        }
    }

    fn explain_silence(&self, cause: &CollectiveError) -> String {
        let Identity { switch, job, job_id, key, .. } = &self.identity;
        match self.rendezvous.standing(*job_id, *key) {
            Standing::Installed => {
                format!("{cause}, although its control API does; is a firewall in between, or the switch overloaded?")
            }
            Standing::Unknown => watch::unknown(switch, job),
            Standing::Unreachable(how) => format!("{cause}, and its control API does not answer either: {how}"),
        }
    }

    pub(super) fn peer_lost_error(&self, cause: &CollectiveError) -> Option<GroupError> {
        let mut states = self.cores.iter().filter_map(|core| core.lock());
        let failure = states.find_map(|state| state.engine.failure_for(cause).cloned())?;
        let failure = failure.with_ranks(|member| self.name_of(member));
        Some(GroupError::PeerLost { context: self.context(), failure })
    }
}

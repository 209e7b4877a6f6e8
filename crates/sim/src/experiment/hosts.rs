//! Assigns hosts to the sections of a file, and finds the hosts that sum for a job instead of switches.

use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::sum_tree::SumOrder;
use tributary_proto::protocols;

use crate::config::{Config, ConfigError, Hosts, JobSection, ParameterServers, Placement, ServerWord, invalid};
use crate::engine::{HostRanks, JobPlan};
use crate::rng::{Purpose, Rng};

/// The hosts of a network, and which of them are taken.
pub struct Allocation {
    taken: Vec<bool>,
    seed: u64,
    /// The number of requests so far: each draws from its own generator.
    requests: u64,
}

impl Allocation {
    /// An allocation in which no host is taken.
    pub fn new(hosts: u32, seed: u64) -> Allocation {
        Allocation { taken: vec![false; hosts as usize], seed, requests: 0 }
    }

    /// The hosts that a section asks for. Hosts given by number, share or `rest` belong to no other section, unless
    /// they are drawn `shared`; a list and `all` may name hosts of other sections.
    pub fn take(&mut self, who: &str, hosts: &Hosts, placement: Placement) -> Result<Vec<NodeId>, ConfigError> {
        let all = self.taken.len() as u32;
        let chosen = match hosts {
            Hosts::Count(count) => self.draw(who, *count, placement)?,
            Hosts::Share(share) => self.draw(who, (share.0 * f64::from(all)).round() as u32, placement)?,
            Hosts::Rest => self.draw(who, self.free().len() as u32, placement)?,
            Hosts::All => self.arrange((0..all).collect(), placement),
            Hosts::List(list) => {
                self.check_list(who, list)?;
                list.clone()
            }
        };
        if chosen.is_empty() {
            return Err(invalid(format!("{who} gets no hosts")));
        }
        for &host in &chosen {
            self.taken[host as usize] = true;
        }
        Ok(chosen.into_iter().map(NodeId).collect())
    }

    fn free(&self) -> Vec<u32> {
        (0..self.taken.len() as u32).filter(|&host| !self.taken[host as usize]).collect()
    }

    fn draw(&mut self, who: &str, count: u32, placement: Placement) -> Result<Vec<u32>, ConfigError> {
        let free = match placement {
            Placement::Shared => (0..self.taken.len() as u32).collect(),
            Placement::Random | Placement::Packed => self.free(),
        };
        if count as usize > free.len() {
            return Err(invalid(format!("{who} wants {count} hosts, and {} are free", free.len())));
        }
        let mut chosen = self.arrange(free, placement);
        chosen.truncate(count as usize);
        Ok(chosen)
    }

    fn arrange(&mut self, mut hosts: Vec<u32>, placement: Placement) -> Vec<u32> {
        self.requests += 1;
        if placement != Placement::Packed {
            Rng::new(self.seed, Purpose::Placement, self.requests).shuffle(&mut hosts);
        }
        hosts
    }

    fn check_list(&self, who: &str, list: &[u32]) -> Result<(), ConfigError> {
        let mut seen = vec![false; self.taken.len()];
        for &host in list {
            match seen.get_mut(host as usize) {
                None => {
                    return Err(invalid(format!("{who} names host {host}; there are {}, from 0", self.taken.len())));
                }
                Some(true) => return Err(invalid(format!("{who} names host {host} twice"))),
                Some(seen) => *seen = true,
            }
        }
        Ok(())
    }
}

/// Real hosts share memory among this many ranks of a group.
const MAX_RANKS_PER_HOST: u16 = 64;

/// Cuts the collectives of a job with several ranks on each host, which must be able to sum there.
pub(super) fn host_ranks(
    config: &Config,
    section: &JobSection,
    plan: JobPlan,
) -> Result<(JobPlan, Option<HostRanks>), ConfigError> {
    let (name, ranks) = (&plan.name, section.ranks_per_host);
    if ranks == 1 {
        return Ok((plan, None));
    }
    let refuse = |why: String| Err(invalid(format!("{name}: ranks_per_host = {ranks}: {why}")));
    if !(1..=MAX_RANKS_PER_HOST).contains(&ranks) {
        return refuse(format!("a host has 1 to {MAX_RANKS_PER_HOST} ranks of a job"));
    }
    if config.hosts.is_none_or(|hosts| hosts.memory.is_none()) {
        return refuse("[hosts] says nothing of their memory: write its rate, as in memory = \"160 Gbit/s\"".into());
    }
    if plan.members.len() * usize::from(ranks) > usize::from(u16::MAX) {
        return refuse(format!("a job has at most {} ranks", u16::MAX));
    }
    if plan.sparse.is_some() || plan.custom_op.is_some() {
        let what = if plan.custom_op.is_some() { "with an operator of its own" } else { "of sparse tensors" };
        return refuse(format!("a job {what} is not summed in hosts' memory, where each rank is a member by itself"));
    }
    let (options, members) = (&plan.protocol.options, plan.members.len() as u16);
    if options.quorum(&plan.options, members).is_some() {
        return refuse("results that may lack ranks are not summed in hosts' memory".into());
    }
    if (options.order)(&plan.options) == SumOrder::Ranks {
        return refuse(
            "the job's options promise the order of all ranks, which sums in hosts' memory do not keep".into(),
        );
    }
    let fragments = HostRanks::cut(&plan.spec);
    let count = fragments.len() as u32;
    let Some(iterations) = plan.iterations.checked_mul(count) else {
        return refuse("the job has too many collectives".into());
    };
    let plan = JobPlan { operations: fragments.into(), iterations, ..plan };
    Ok((plan, Some(HostRanks { ranks, fragments: count })))
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Share;

    #[test]
    fn hosts_by_number_share_and_rest_are_disjoint() {
        let mut hosts = Allocation::new(10, 1);
        let a = hosts.take("a", &Hosts::Count(3), Placement::Random).unwrap();
        let b = hosts.take("b", &Hosts::Share(Share(0.4)), Placement::Packed).unwrap();
        let c = hosts.take("c", &Hosts::Rest, Placement::Random).unwrap();
        assert_eq!((a.len(), b.len(), c.len()), (3, 4, 3));
        let mut all: Vec<NodeId> = [a, b.clone(), c].concat();
        assert!(b.is_sorted());
        all.sort_unstable();
        assert_eq!(all, (0..10).map(NodeId).collect::<Vec<_>>());
        assert!(hosts.take("d", &Hosts::Rest, Placement::Random).unwrap_err().to_string().contains("d gets no hosts"));
    }

    #[test]
    fn shared_hosts_are_drawn_among_all_and_no_request_has_one_twice() {
        let mut hosts = Allocation::new(10, 1);
        let mut uses = [0; 10];
        for job in 0..20 {
            let mut taken = hosts.take("a", &Hosts::Count(6), Placement::Shared).unwrap();
            taken.iter().for_each(|host| uses[host.index()] += 1);
            taken.sort_unstable();
            taken.dedup();
            assert_eq!(taken.len(), 6, "job {job}");
        }
        assert!(uses.iter().all(|&uses| uses > 4), "all hosts have several jobs: {uses:?}");
    }

    #[test]
    fn impossible_requests_are_refused_with_a_sentence() {
        let mut hosts = Allocation::new(4, 1);
        let sentence = |error: Result<Vec<NodeId>, ConfigError>| error.unwrap_err().to_string();
        let random = Placement::Random;
        assert_eq!(sentence(hosts.take("a", &Hosts::Count(5), random)), "a wants 5 hosts, and 4 are free");
        assert_eq!(sentence(hosts.take("a", &Hosts::List(vec![4]), random)), "a names host 4; there are 4, from 0");
        assert_eq!(sentence(hosts.take("a", &Hosts::List(vec![1, 1]), random)), "a names host 1 twice");
    }
}

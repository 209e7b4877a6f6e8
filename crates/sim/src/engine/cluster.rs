//! Jobs that come and go, and the hosts that they use: as close together as possible, and there on the emptiest hosts.

use std::collections::{BTreeMap, VecDeque};

use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::time::{Span, Time};

use super::records::{JobIndex, JobPlan};
use crate::topology::Graph;

/// A job before it has hosts.
#[derive(Clone, Debug, PartialEq)]
pub struct Arrival {
    /// When it arrives.
    pub time: Time,
    /// The job's plan, without members, roots and start, and with the slots of one tree.
    pub plan: JobPlan,
    /// How many workers it needs.
    pub workers: u16,
    /// How many trees it should have; 0 if none are planned.
    pub trees: u16,
    /// The model that it trains.
    pub model: String,
    /// Which hosts it may use.
    pub limits: HostLimits,
}

/// Which hosts a job may run on, and how many workers each may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostLimits {
    /// For each host, whether the job may use it.
    pub may_use: Vec<bool>,
    /// How many workers of all jobs one host may have.
    pub workers_per_host: u16,
}

/// Jobs that come and go, and the hosts that they use.
pub struct Cluster {
    pub(super) groups: HostGroups,
    pub(super) lookahead: Option<Span>,
    /// For each host, how many workers are there.
    pub(super) workers: Vec<u16>,
    /// The memory of each switch for jobs' programs, if it is bounded.
    pub(super) memory: Option<u64>,
    pub(super) arrivals: VecDeque<Arrival>,
    pub(super) waiting: VecDeque<Arrival>,
    /// For each running job, how many ranks have not ended.
    pub(super) running: BTreeMap<u16, u32>,
    /// Jobs of ranks that have ended here, which other partitions may not know yet.
    pub(super) ended: Vec<JobIndex>,
    /// The last scheduling that was planned because a job has ended.
    pub(super) next_round: Option<Time>,
    /// Jobs that do not fit even into an empty network, and why.
    pub(super) refused: Vec<(String, String)>,
    /// How many jobs there are in all.
    pub(super) total: usize,
}

impl Cluster {
    pub(super) fn new(graph: &Graph, memory: Option<u64>, arrivals: Vec<Arrival>) -> Cluster {
        Cluster {
            groups: HostGroups::new(graph),
            lookahead: graph.lookahead(),
            workers: vec![0; graph.hosts() as usize],
            memory,
            total: arrivals.len(),
            arrivals: arrivals.into(),
            waiting: VecDeque::new(),
            running: BTreeMap::new(),
            ended: Vec::new(),
            next_round: None,
            refused: Vec::new(),
        }
    }

    /// How many jobs there are in all, including those that have not arrived.
    pub fn total(&self) -> usize {
        self.total
    }

    /// Jobs that have not arrived yet, earliest first.
    pub fn arrivals(&self) -> impl Iterator<Item = &Arrival> {
        self.arrivals.iter()
    }

    /// Jobs that could not run, and why.
    pub fn refused(&self) -> &[(String, String)] {
        &self.refused
    }

    /// How many workers are on hosts.
    pub fn workers(&self) -> u64 {
        self.workers.iter().map(|&workers| u64::from(workers)).sum()
    }

    pub(super) fn find_hosts(&self, arrival: &Arrival) -> Option<Vec<NodeId>> {
        let HostLimits { may_use, workers_per_host } = &arrival.limits;
        let free = |host: u32| match may_use[host as usize] {
            true => workers_per_host.saturating_sub(self.workers[host as usize]),
            false => 0,
        };
        self.groups.find(arrival.workers.into(), free)
    }
}

/// Why a job has to wait.
pub(super) enum Wait {
    Hosts,
    Memory(String),
}

impl Wait {
    pub(super) fn sentence(self, workers: u16) -> String {
        match self {
            Wait::Hosts => format!("its {workers} workers do not fit on the hosts that it may use"),
            Wait::Memory(sentence) => sentence,
        }
    }
}

/// Groups of hosts that are close to each other.
pub(super) struct HostGroups {
    /// The hosts that one switch connects from above, the smallest group first.
    groups: Vec<Vec<u32>>,
    /// For each host, the number of the switch next to it.
    rack: Vec<u32>,
}

impl HostGroups {
    /// The groups of a network.
    pub fn new(graph: &Graph) -> HostGroups {
        let mut below: Vec<Vec<u32>> = vec![Vec::new(); graph.nodes()];
        (0..graph.hosts()).for_each(|host| below[host as usize].push(host));
        let mut rack = vec![0; graph.hosts() as usize];
        // Upwards, so that a switch's hosts are known before switches above it need them.
        let mut uplinks: Vec<(NodeId, NodeId)> = graph
            .edges()
            .iter()
            .flat_map(|edge| [(edge.a, edge.b), (edge.b, edge.a)])
            .filter(|&(lower, upper)| graph.level(lower) < graph.level(upper))
            .collect();
        uplinks.sort_by_key(|&(lower, upper)| (graph.level(lower), lower, upper));
        for (lower, upper) in uplinks {
            let hosts = below[lower.index()].clone();
            if let (Some(&host), Some(switch)) = (hosts.first(), graph.switch_index(upper))
                && lower.0 < graph.hosts()
            {
                rack[host as usize] = switch;
            }
            below[upper.index()].extend(hosts);
        }
        let everyone = (0..graph.hosts()).collect();
        let mut groups: Vec<Vec<u32>> = below.split_off(graph.hosts() as usize);
        groups.push(everyone);
        groups.iter_mut().for_each(|hosts| {
            hosts.sort_unstable();
            hosts.dedup();
        });
        groups.sort_by_key(|hosts| (hosts.len(), hosts.first().copied()));
        groups.dedup();
        groups.retain(|hosts| !hosts.is_empty());
        HostGroups { groups, rack }
    }

    /// A host for each worker. Of the smallest groups with enough free hosts it takes the emptiest, and there it goes rack
    /// by rack, the emptiest first, and takes the emptiest hosts of each. `free` is how many more workers a host takes.
    pub fn find(&self, workers: usize, free: impl Fn(u32) -> u16) -> Option<Vec<NodeId>> {
        let open = |hosts: &Vec<u32>| hosts.iter().filter(|&&host| free(host) > 0).count();
        let size = self.groups.iter().find(|hosts| open(hosts) >= workers)?.len();
        let fitting = self.groups.iter().filter(|hosts| hosts.len() == size && open(hosts) >= workers);
        let capacity = |hosts: &[u32]| hosts.iter().map(|&host| u64::from(free(host))).sum::<u64>();
        let group = fitting.rev().max_by_key(|hosts| capacity(hosts))?;
        let mut racks: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for &host in group.iter().filter(|&&host| free(host) > 0) {
            racks.entry(self.rack[host as usize]).or_default().push(host);
        }
        let mut racks: Vec<Vec<u32>> = racks.into_values().collect();
        racks.sort_by_key(|hosts| std::cmp::Reverse(capacity(hosts)));
        let mut chosen = Vec::with_capacity(workers);
        for mut hosts in racks {
            hosts.sort_by_key(|&host| std::cmp::Reverse(free(host)));
            let left = workers - chosen.len();
            chosen.extend(hosts.into_iter().take(left).map(NodeId));
        }
        Some(chosen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn groups(shape: &str) -> HostGroups {
        let config = Config::parse(&format!("network = {{ {shape} }}")).unwrap();
        HostGroups::new(&config.network.build().unwrap())
    }

    fn chosen(groups: &HostGroups, workers: usize, free: impl Fn(u32) -> u16) -> Option<Vec<u32>> {
        Some(groups.find(workers, free)?.into_iter().map(|host| host.0).collect())
    }

    #[test]
    fn a_job_goes_to_one_rack_if_it_can_then_to_one_pod_then_anywhere() {
        // Four pods of two racks of two hosts.
        let groups = groups("clos = { ports = 4 }");
        assert_eq!(chosen(&groups, 2, |_| 1), Some(vec![0, 1]));
        assert_eq!(chosen(&groups, 3, |_| 1), Some(vec![0, 1, 2]));
        assert_eq!(chosen(&groups, 5, |_| 1), Some(vec![0, 1, 2, 3, 4]));
        assert_eq!(chosen(&groups, 2, |host| u16::from(host != 0)), Some(vec![2, 3]), "a rack with two free hosts");
        assert_eq!(chosen(&groups, 16, |_| 1).map(|hosts| hosts.len()), Some(16));
        assert_eq!(chosen(&groups, 17, |_| 1), None);
    }

    #[test]
    fn among_equals_the_emptiest_is_chosen() {
        let groups = groups("clos = { ports = 4 }");
        let busy = |host: u32| if host < 4 { 1 } else { 2 };
        assert_eq!(chosen(&groups, 2, busy), Some(vec![4, 5]), "the next pod's first rack");
        assert_eq!(chosen(&groups, 4, |host| [1, 1, 1, 2][host.min(3) as usize]), Some(vec![4, 5, 6, 7]));
        assert_eq!(chosen(&groups, 1, |host| [1, 2][usize::from(host == 9)]), Some(vec![9]));
    }

    #[test]
    fn networks_without_a_top_have_all_hosts_as_their_last_group() {
        let groups = groups("dumbbell = { left = 3, right = 3 }");
        assert_eq!(chosen(&groups, 3, |host| u16::from(host > 1)), Some(vec![3, 4, 5]));
        assert_eq!(chosen(&groups, 4, |_| 1), Some(vec![0, 1, 2, 3]));
    }
}

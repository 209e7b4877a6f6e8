//! Actions on the network, and the ranks that give up after a permanent loss.
//!
//! A switch of a static tree, a rank or a server may die and not come back, a cable of a tree may break, or a rank may
//! be cut off. Each protocol handles that differently, and some results may still be in flight. So each rank of the job
//! is watched from then on, and gives up when it has waited without progress for as long as a few retransmissions take:
//! the run need not last until its end.

use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::protocol::Placement;
use tributary_proto::contract::time::Span;

use crate::engine::faults::{Action, Loss};
use crate::engine::job::Job;
use crate::engine::records::{EndpointId, JobIndex};
use crate::engine::simulation::Simulation;
use crate::events::{EventId, EventKind};
use crate::net::LinkImpairment;
use crate::routing::Table;
use crate::topology::{LinkId, LinkSpec, Rate};

/// How many retransmission timeouts without progress make a rank give up: four in a row, each twice as long as the
/// last.
const TIMEOUTS: u64 = 16;

impl Simulation {
    pub(crate) fn carry_out(&mut self, action: Action) {
        self.apply(action);
        self.note_loss(action);
    }

    fn apply(&mut self, action: Action) {
        match action {
            Action::Impair(link, spec) => {
                let impairment = spec.map(|spec| LinkImpairment::new(spec, self.settings.seed, link.0));
                self.fabric.set_impairment(link, impairment);
            }
            Action::Cable(link, down) => self.set_cable(link, down),
            Action::Rate(link, rate) => self.set_rate(link, rate),
            Action::Kill(node) => self.kill(node),
            Action::Revive(switch) => self.revive(switch),
            Action::Reroute => {
                let fabric = &self.fabric;
                self.table = Table::new(&self.graph, |link| !fabric.link(link).down);
                self.feed_hosts_with_several_nics();
            }
            Action::ScheduleJobs => self.schedule_jobs(),
            Action::FailJob(job) => self.fail_job(job),
        }
    }

    fn set_cable(&mut self, link: LinkId, down: bool) {
        self.fabric.set_cable_down(link, down);
        for link in [link, link.reverse()] {
            // A NIC that waited for its cable sends again.
            let (from, _) = self.graph.ends(link);
            if from.index() < self.hosts.len() && self.fabric.owns(from) {
                self.feed(from);
            }
        }
    }

    /// Packets that wait for a NIC may take others now.
    fn feed_hosts_with_several_nics(&mut self) {
        for host in (0..self.graph.hosts()).map(NodeId) {
            if self.hosts[host.index()].nics.is_some() && self.fabric.owns(host) {
                self.feed(host);
            }
        }
    }

    fn set_rate(&mut self, link: LinkId, rate: Rate) {
        let spec = LinkSpec { rate, ..self.graph.queue_spec(link) };
        self.fabric.set_rate(link, &spec);
        if let Some(host) = self.hosts.get_mut(self.graph.ends(link).0.index()) {
            host.set_rate(&self.fabric, self.settings.nic_bytes);
        }
    }

    fn revive(&mut self, node: NodeId) {
        if self.graph.switch_index(node).is_none() {
            return;
        }
        self.fabric.set_node_down(node, false);
        for port in 0..self.fabric.ports(node).len() as u16 {
            let peer = self.fabric.link(self.fabric.port(node, port)).to;
            if peer.index() < self.hosts.len() && self.fabric.owns(peer) {
                self.feed(peer);
            }
        }
    }

    fn kill(&mut self, node: NodeId) {
        self.fabric.set_node_down(node, true);
        if !self.fabric.owns(node) {
            return;
        }
        if let Some(switch) = self.graph.switch_index(node) {
            return self.reinstall(switch);
        }
        let host = &mut self.hosts[node.index()];
        self.open -= host.silence(&mut self.fabric);
        for endpoint in host.endpoints.clone() {
            self.traffic.endpoints[endpoint.0 as usize].silence();
            self.finish_endpoint(endpoint);
        }
        self.end_steps_at(node);
    }

    /// Makes ranks wait for their collectives' deadlines, whatever their jobs lose.
    pub fn never_give_up(&mut self) {
        self.lost.ranks_wait = true;
    }

    /// After an action: finds the jobs that need what it removed, if no later action restores that.
    pub(crate) fn note_loss(&mut self, action: Action) {
        if self.lost.ranks_wait || !self.is_permanent(action) {
            return;
        }
        match action {
            Action::Kill(node) => self.lost.nodes.push(node),
            Action::Cable(link, true) => self.lost.cables.push(link),
            _ => return,
        }
        for index in 0..self.traffic.jobs.all().len() as u16 {
            let Some((what, consequence)) = self.describe_loss(JobIndex(index), action) else { continue };
            let job = self.traffic.jobs.get_mut(JobIndex(index));
            job.losses.push(Loss { time: self.fabric.now, what, consequence });
            self.watch(JobIndex(index));
        }
    }

    fn is_permanent(&self, action: Action) -> bool {
        let back = match action {
            Action::Kill(node) if self.graph.switch_index(node).is_none() => return true,
            Action::Kill(node) => Action::Revive(node),
            Action::Cable(link, true) => Action::Cable(link, false),
            _ => return false,
        };
        !self.schedule.has_after(self.fabric.now, back)
    }

    /// What a job has lost by an action, if it needs that; and what follows.
    fn describe_loss(&self, index: JobIndex, action: Action) -> Option<(String, Option<String>)> {
        let job = self.traffic.jobs.get(index);
        if let Action::Kill(node) = action
            && let Some(member) = job.rank_of(node)
        {
            let name = self.graph.name(node);
            let is_rank = member.index() < job.plan.members.len();
            let role = if is_rank { format!("its rank {member}") } else { "one of its servers".to_string() };
            return Some((format!("{name}, {role}, died"), None));
        }
        match job.plan.protocol.placement {
            Placement::Trees => self.tree_loss(index, action).map(|what| (what, None)),
            Placement::Hosts => self.cut_off_member(job, action, false),
            Placement::EveryHop => self.cut_off_member(job, action, true),
        }
    }

    fn tree_loss(&self, index: JobIndex, action: Action) -> Option<String> {
        let trees = self.traffic.jobs.get(index).plan.roots.len();
        let which = |lane: usize| if trees == 1 { "its tree".to_string() } else { format!("its tree {lane}") };
        let mut programs = self.programs.trees.iter().filter(|program| program.job() == index);
        match action {
            Action::Kill(node) => {
                let switch = self.graph.switch_index(node)?;
                let program = programs.find(|program| program.switch == switch)?;
                let role = if program.is_root() { "the root of" } else { "a switch of" };
                Some(format!("{}, {role} {}, died", self.graph.name(node), which(program.lane())))
            }
            Action::Cable(link, _) => {
                let (a, b) = self.graph.ends(link);
                let uses = |node: NodeId, port| self.fabric.port(node, port).index() / 2 == link.index() / 2;
                let program = programs.find(|program| {
                    let node = self.graph.switch(program.switch);
                    program.ports().any(|port| uses(node, port.0))
                })?;
                let (a, b) = (self.graph.name(a), self.graph.name(b));
                Some(format!("the cable between {a} and {b}, part of {}, broke", which(program.lane())))
            }
            _ => None,
        }
    }

    /// What broke, and the first member that can no longer be reached from the first remaining member, perhaps only by hosts'
    /// first cables.
    fn cut_off_member(&self, job: &Job, action: Action, by_first: bool) -> Option<(String, Option<String>)> {
        let mut left = job.members.iter().filter(|member| !self.lost.nodes.contains(member));
        let first = *left.next()?;
        let reached = self.reachable_from(first, by_first);
        let lost = left.find(|member| !reached[member.index()])?;
        let name = |node| self.graph.name(node);
        let what = match action {
            Action::Kill(node) => format!("{} died", name(node)),
            Action::Cable(link, _) => {
                let (a, b) = self.graph.ends(link);
                format!("the cable between {} and {} broke", name(a), name(b))
            }
            _ => return None,
        };
        Some((what, Some(format!("no path leads from {} to {}", name(first), name(*lost)))))
    }

    /// For each node, whether a path leads there over what is left, perhaps only by hosts' first cables.
    fn reachable_from(&self, first: NodeId, by_first: bool) -> Vec<bool> {
        let mut reached = vec![false; self.graph.nodes()];
        reached[first.index()] = true;
        let mut open = vec![first];
        let is_second = |link: LinkId| {
            let node = self.graph.ends(link).0;
            self.graph.switch_index(node).is_none() && self.fabric.port(node, 0) != link
        };
        while let Some(node) = open.pop() {
            // Hosts forward nothing.
            let ends = node != first && self.graph.switch_index(node).is_none();
            for &link in self.fabric.ports(node).iter().filter(|_| !ends) {
                let peer = self.graph.ends(link).1;
                let is_cable = |lost: &LinkId| lost.index() / 2 == link.index() / 2;
                let lost = self.lost.cables.iter().any(is_cable) || self.lost.nodes.contains(&peer);
                let leads_on = !lost && !(by_first && (is_second(link) || is_second(link.reverse())));
                if leads_on && !std::mem::replace(&mut reached[peer.index()], true) {
                    open.push(peer);
                }
            }
        }
        reached
    }

    /// Starts to watch the ranks of a job.
    fn watch(&mut self, job: JobIndex) {
        let at = self.fabric.now + self.progress_timeout(job);
        for (number, endpoint) in self.traffic.endpoints.iter_mut().enumerate() {
            if endpoint.job == job
                && endpoint.open
                && endpoint.last_progress.is_none()
                && self.fabric.owns(endpoint.host)
            {
                endpoint.last_progress = Some(endpoint.progress());
                self.fabric.queue.push(at, EventId::new(EventKind::ProgressCheck, number as u32));
            }
        }
    }

    /// How long a rank of a job waits without progress.
    fn progress_timeout(&self, job: JobIndex) -> Span {
        let job = self.traffic.jobs.get(job);
        let edges = || self.graph.edges().iter().flat_map(|edge| [edge.a_to_b, edge.b_to_a]);
        let in_switch = self.graph.latency(self.graph.switch(0)) + self.accelerator_latency();
        let longest = edges().map(|link| link.delay).max().unwrap_or_default() + in_switch;
        let queue = edges().map(|link| link.rate.time_of(link.queue_bytes)).max().unwrap_or_default();
        let levels = (0..self.graph.switches()).map(|switch| self.graph.level(self.graph.switch(switch))).max();
        // Up, down, and back again.
        let links = 4 * u64::from(levels.unwrap_or(1));
        let timers = job.plan.timers;
        let timeout = timers.initial_rto.max(timers.min_rto).max(longest.times(links));
        // Each retransmission passes empty queues, and one passes full queues.
        timeout.times(TIMEOUTS) + queue.times(links) + job.late.iter().copied().max().unwrap_or_default()
    }

    /// Checks whether a rank makes progress; the rank gives up if it makes none.
    pub(crate) fn check_progress(&mut self, id: EndpointId) {
        let endpoint = &mut self.traffic.endpoints[id.0 as usize];
        if !endpoint.open {
            return;
        }
        let (job, progress) = (endpoint.job, endpoint.progress());
        if endpoint.last_progress.replace(progress) != Some(progress) || !endpoint.waits() {
            let again = self.fabric.now + self.progress_timeout(job);
            return self.fabric.queue.push(again, EventId::new(EventKind::ProgressCheck, id.0));
        }
        endpoint.silence();
        self.finish_endpoint(id);
        self.traffic.jobs.get_mut(job).gave_up.get_or_insert(self.fabric.now);
    }
}

//! Jobs begin and cease to hold memory.

use tributary_proto::contract::ids::JobId;
use tributary_proto::contract::protocol::Protocol;

use crate::control::Control;
use crate::holding::{Held, Holding, is_charged_by_tree};
use crate::plan::{Effect, Ticket};
use crate::running::Running;
use crate::tidings::{End, Tiding};

impl Control {
    /// A join is on the way for no longer than it takes so many jobs to begin and end.
    const ENDED_KEPT: usize = 64;

    /// The next news for operators, the oldest first.
    pub fn poll_tiding(&mut self) -> Option<Tiding> {
        if self.tidings.is_empty() {
            let news: Vec<Tiding> = self.running.values_mut().flat_map(Running::tidings).collect();
            self.tidings.extend(news);
        }
        self.tidings.pop_front()
    }

    pub(crate) fn install(&mut self, job: Running) {
        let id = job.plan.config.job;
        self.owners.insert(job.plan.name.clone(), id);
        let plan = job.plan.clone();
        self.effects.push_back(Effect::Install(plan.clone()));
        self.running.insert(id, job);
        self.servers_changed(&plan);
    }

    /// Removes a job; returns the joins that still waited for its installation.
    pub(crate) fn remove(&mut self, id: JobId) -> Vec<Ticket> {
        let Some(mut job) = self.running.remove(&id) else { return Vec::new() };
        let end = if self.stopping && job.is_whole() { End::Stopped } else { job.end() };
        self.tidings.extend(job.tidings());
        self.tidings.push_back(Tiding::Ended { plan: job.plan.clone(), end });
        // Other jobs may wait for its name or its memory.
        self.urgent |= self.awaits_signs();
        if self.owners.get(&job.plan.name) == Some(&id) {
            self.owners.remove(&job.plan.name);
        }
        if job.plan.children.iter().any(|child| child.incarnation.is_some()) {
            self.ended.push_back(job.plan.clone());
            let too_many = self.ended.len().saturating_sub(Control::ENDED_KEPT);
            self.ended.drain(..too_many);
        }
        self.effects.push_back(Effect::Remove(id));
        self.spread_out();
        self.servers_changed(&job.plan);
        if let Some(uplink) = &job.plan.uplink {
            let (name, key, wid) = (job.plan.name.clone(), job.plan.config.key, uplink.wid);
            let lost = !job.has_ended_well();
            self.effects.push_back(Effect::Descend { name, job: id, key, wid, lost });
        }
        job.into_waiting()
    }

    /// The next id that no job has. An id that was given back comes again after 65,535 others, so that packets that are
    /// still under way for an old job do not reach a new one.
    pub(crate) fn next_id(&mut self) -> JobId {
        loop {
            self.last_id = JobId(self.last_id.0.checked_add(1).unwrap_or(1));
            if !self.running.contains_key(&self.last_id) {
                return self.last_id;
            }
        }
    }

    /// The trees of a job that is installed, or was taken over, are planned: from now on it is charged this.
    pub fn placed(&mut self, id: JobId, holding: Holding) {
        if let Some(job) = self.running.get_mut(&id) {
            job.holding = Some(holding);
        }
    }

    /// True if this switch is the seat of a fabric that finds room for a job of this protocol when it plans the job's
    /// trees.
    pub(crate) fn finds_room_later(&self, protocol: &Protocol) -> bool {
        self.limits.planned_trees.is_some() && is_charged_by_tree(protocol)
    }
}

/// The bytes that these jobs hold of the switch where they hold the most.
pub(crate) fn held<'a>(jobs: impl Iterator<Item = &'a Running>) -> u64 {
    held_with(jobs, Running::memory_bytes).most()
}

/// What these jobs hold of each switch, if a job that is charged at every switch is charged `bytes` there.
pub(crate) fn held_with<'a>(jobs: impl Iterator<Item = &'a Running>, bytes: impl Fn(&Running) -> u64) -> Held {
    let mut held = Held::default();
    jobs.for_each(|job| held.add(job.plan.protocol, job.holding.as_ref(), || bytes(job)));
    held
}

//! Running jobs and a newcomer divide the memory among themselves.
//!
//! A newcomer gets its share at once: the shares of other jobs are cut before the newcomer is installed. A job's
//! members have agreed on the most slots that the job may ever have; a switch tells them packet by packet for how many
//! it has room.

use tributary_proto::contract::ids::JobId;

use super::Control;
use crate::admission::{Free, Limits, Quota, least_slots, round, rules};
use crate::client::Client;
use crate::control::holding::held;
use crate::memory::{Bytes, JobShape};
use crate::name::JobName;
use crate::plan::Effect;
use crate::refusal::Refusal;
use crate::running::Running;
use crate::shares::{divide, is_worth_growing, least, with};

/// The result of a division: what the newcomer gets and what the other jobs keep.
pub(crate) struct Division {
    /// The newcomer's shape, with the most slots that it may ever have.
    pub most: JobShape,
    /// The newcomer's slots now.
    pub slots: u16,
    /// The slots of the other jobs from now on.
    pub others: Vec<(JobId, u16)>,
}

/// A job that takes part in a division.
struct Party<'a> {
    /// `None` for the newcomer, which has no id yet.
    id: Option<JobId>,
    name: &'a JobName,
    client: &'a Client,
    /// The job's shape, with the most slots that it may have.
    shape: JobShape,
}

/// Jobs that together may have no more than so many bytes.
enum Group<'a> {
    Client(&'a Client, u64),
    Quota(&'a Quota, u64),
}

impl Group<'_> {
    fn has(&self, name: &JobName, client: &Client) -> bool {
        match self {
            Group::Client(own, _) => *own == client,
            Group::Quota(quota, _) => name.matches(&quota.jobs),
        }
    }

    fn bytes(&self) -> u64 {
        match self {
            Group::Client(_, bytes) | Group::Quota(_, bytes) => *bytes,
        }
    }

    /// The refusal for a newcomer that does not fit beside the fewest slots of the other jobs.
    fn refusal(&self, job: &JobName, need: u64) -> Refusal {
        let (job, allowed) = (job.clone(), format!("{} for all of its jobs", Bytes(self.bytes())));
        let needed = format!("at least {} besides the others' least", Bytes(need));
        match self {
            Group::Client(client, _) => Refusal::OverShare { job, client: (*client).clone(), allowed, needed },
            Group::Quota(quota, _) => Refusal::OverQuota { job, pattern: quota.jobs.clone(), allowed, needed },
        }
    }
}

/// The jobs among which memory is divided, and the jobs whose memory does not change.
struct Parties<'a> {
    limits: &'a Limits,
    /// Jobs that take part in the division.
    parties: Vec<Party<'a>>,
    /// Jobs whose memory does not change.
    fixed: Vec<&'a Running>,
    /// Bytes that some of all these jobs share.
    shared: u64,
}

impl<'a> Parties<'a> {
    /// All running jobs for which `counts` is true.
    fn running(control: &'a Control, counts: impl Fn(&Running) -> bool) -> Parties<'a> {
        let shared = control.shared_by(&counts);
        let running = control.running.values().filter(|job| counts(job));
        let (sharing, fixed): (Vec<&Running>, Vec<&Running>) = running.partition(|job| job.sharing.is_some());
        let parties = sharing.into_iter().filter_map(Party::running).collect();
        Parties { limits: &control.limits, parties, fixed, shared }
    }

    fn groups(&self) -> Vec<Group<'a>> {
        let mut clients: Vec<&Client> = self.parties.iter().map(|party| party.client).collect();
        clients.sort_unstable();
        clients.dedup();
        let limited = |client| Some(Group::Client(client, self.limits.share_of(client).memory_bytes?));
        let quotas = self.limits.quotas.iter().filter_map(|quota| Some(Group::Quota(quota, quota.memory_bytes?)));
        clients.into_iter().filter_map(limited).chain(quotas).collect()
    }

    /// What the jobs that take no part leave of so many bytes. Only jobs for which `is_of` is true count.
    fn left(&self, bytes: u64, is_of: impl Fn(&Running) -> bool) -> u64 {
        bytes.saturating_sub(held(self.fixed.iter().copied().filter(|job| is_of(job))))
    }

    /// What the jobs that take no part, and what jobs share, leave of the switch.
    fn left_of_switch(&self) -> u64 {
        self.left(self.limits.memory_bytes, |_| true).saturating_sub(self.shared)
    }

    /// The slots of each job. An error if the jobs do not fit even with the fewest slots: it names a group that has the
    /// newcomer; `None` means that the switch is full.
    fn divide(mut self) -> Result<Vec<u16>, Option<Group<'a>>> {
        for group in self.groups() {
            let is_in = |party: &Party<'_>| group.has(party.name, party.client);
            let members: Vec<usize> = (0..self.parties.len()).filter(|&at| is_in(&self.parties[at])).collect();
            let shapes: Vec<JobShape> = members.iter().map(|&at| self.parties[at].shape.clone()).collect();
            let left = self.left(group.bytes(), |job| group.has(&job.plan.name, &job.client));
            match divide(left, &shapes) {
                Some(slots) => members.iter().zip(slots).for_each(|(&at, slots)| self.parties[at].shape.slots = slots),
                None if members.iter().any(|&at| self.parties[at].id.is_none()) => return Err(Some(group)),
                None => members.iter().for_each(|&at| self.parties[at].shape.slots = least(&self.parties[at].shape)),
            }
        }
        let shapes: Vec<JobShape> = self.parties.iter().map(|party| party.shape.clone()).collect();
        divide(self.left_of_switch(), &shapes).ok_or(None)
    }
}

impl Control {
    /// What a newcomer of this name and client would get, and what the other jobs would keep. `succeeding`: as if the
    /// newcomer's predecessors were gone already.
    pub(crate) fn division(
        &self,
        name: &JobName,
        client: &Client,
        wish: JobShape,
        succeeding: bool,
    ) -> Result<Division, Refusal> {
        let most = self.most(name, client, wish)?;
        let mut all = Parties::running(self, |job| !(succeeding && job.plan.name == *name));
        let fewest: u64 = all.parties.iter().map(|party| with(&party.shape, least(&party.shape)).bytes()).sum();
        let free = all.left_of_switch().saturating_sub(fewest);
        let others: Vec<JobId> = all.parties.iter().filter_map(|party| party.id).collect();
        all.parties.push(Party { id: None, name, client, shape: most.clone() });
        let newcomer = with(&most, least(&most));
        let slots = all.divide().map_err(|group| match group {
            Some(group) => group.refusal(name, newcomer.bytes()),
            None => self.full(name, &newcomer, free),
        })?;
        let own = slots.last().copied().unwrap_or_default();
        Ok(Division { most, slots: own, others: others.into_iter().zip(slots).collect() })
    }

    /// The newcomer's largest shape, by all rules that do not depend on other jobs.
    fn most(&self, name: &JobName, client: &Client, wish: JobShape) -> Result<JobShape, Refusal> {
        let mut most = round(wish.slots, wish.parts());
        for rule in rules(&self.limits, name, client, Free { switch: 0, total: 0, quota: None, share: None }) {
            if let Some(ranks) = rule.max_world.filter(|&ranks| wish.world > ranks) {
                return Err((rule.over)(format!("{ranks} ranks"), wish.world.to_string()));
            }
            if let Some(allowed) = rule.max_slots {
                let fewest = least_slots(wish.parts());
                if allowed < fewest {
                    return Err((rule.over)(format!("{allowed} slots"), format!("at least {fewest}")));
                }
                while most > allowed {
                    most /= 2;
                }
            }
        }
        Ok(with(&wish, most))
    }

    /// The refusal for a newcomer that does not fit beside the fewest slots of the other jobs.
    fn full(&self, name: &JobName, newcomer: &JobShape, free: u64) -> Refusal {
        Refusal::Full {
            job: name.clone(),
            free,
            total: self.limits.memory_bytes,
            need: newcomer.bytes(),
            slots: newcomer.slots,
            elements: newcomer.elements_per_packet,
            world: newcomer.world,
            less: newcomer.savings(),
        }
    }

    /// Gives running jobs these slots, if they have others.
    pub(crate) fn resize(&mut self, slots: &[(JobId, u16)]) {
        for &(id, slots) in slots {
            let Some(sharing) = self.running.get_mut(&id).and_then(|job| job.sharing.as_mut()) else { continue };
            if sharing.slots != slots {
                sharing.slots = slots;
                self.effect(Effect::Resize(id, slots));
            }
        }
    }

    /// A job has gone. The other jobs take its memory if that is worth a new epoch: if they get half as many slots
    /// again.
    pub(crate) fn spread_out(&mut self) {
        if self.stopping {
            return;
        }
        let all = Parties::running(self, |_| true);
        let ids: Vec<JobId> = all.parties.iter().filter_map(|party| party.id).collect();
        let Ok(slots) = all.divide() else { return };
        let is_worth_it = |id: &JobId, slots: u16| {
            let now = self.running[id].sharing.as_ref().map_or(0, |sharing| sharing.slots);
            is_worth_growing(now, slots)
        };
        let larger: Vec<(JobId, u16)> =
            ids.into_iter().zip(slots).filter(|(id, slots)| is_worth_it(id, *slots)).collect();
        self.make_way(&larger, None);
        self.resize(&larger);
    }
}

impl<'a> Party<'a> {
    fn running(job: &'a Running) -> Option<Party<'a>> {
        let shape = job.sharing.as_ref()?.most.clone();
        Some(Party { id: Some(job.plan.config.job), name: &job.plan.name, client: &job.client, shape })
    }
}

//! A pending job at a switch with a parent: its joins there, and what follows from the answers.

use tributary_proto::contract::time::{Span, Time};

use super::Control;
use crate::admission::grant::Grant;
use crate::admission::ledger::Applicant;
use crate::admission::{JobShape, Refusal};
use crate::effect::Effect;
use crate::levels::{ParentAnswer, Uplink};
use crate::membership::pending_job::PendingJob;
use crate::names::JobName;
use crate::servers::{JobServer, Servers};

impl Control {
    /// Joins the parent switch with the ranks that have come here.
    pub(super) fn join_parent(&mut self, now: Time, name: &JobName) {
        let Some(job) = self.pending.get(name) else { return };
        let most_slots = match self.grant(name, &job.client, self.wish(job), true) {
            // If jobs divide the memory, all switches agree on the most slots that the job may ever have.
            Ok(grant) => grant.most().slots,
            Err(refusal) => {
                self.fail_pending(name, &refusal);
                return;
            }
        };
        let ranks = job.ranks.values().map(|rank| (rank.request.clone(), now.since(rank.since))).collect();
        let switches = job.switches_below();
        self.last_sequence += 1;
        let sequence = self.last_sequence;
        let job = self.pending.get_mut(name).expect("it was found before");
        (job.sequence, job.answer) = (sequence, None);
        self.effect(Effect::JoinParent { name: name.clone(), sequence, ranks, most_slots, switches });
    }

    /// Withdraws the join at the parent switch.
    pub(super) fn withdraw_from_parent(&mut self, name: &JobName, job: &PendingJob) {
        if let Some(answer) = &job.answer {
            self.leave_parent(name, answer);
        } else if self.has_parent {
            let (ranks, switches) = (Vec::new(), Vec::new());
            let sequence = job.sequence;
            self.effect(Effect::JoinParent { name: name.clone(), sequence, ranks, most_slots: 0, switches });
        }
    }

    fn leave_parent(&mut self, name: &JobName, answer: &ParentAnswer) {
        let ParentAnswer { job, key, wid, .. } = *answer;
        self.effect(Effect::LeaveParent { name: name.clone(), job, key, wid, completed: None });
    }

    /// Takes the answer of the parent switch to a join.
    pub fn parent_answered(&mut self, now: Time, name: &JobName, sequence: u64, answer: Result<ParentAnswer, Refusal>) {
        let waits = self.pending.get_mut(name).filter(|job| job.sequence == sequence);
        match (waits, answer) {
            (None, Ok(answer)) => self.leave_parent(name, &answer),
            (None, Err(_)) => {}
            (Some(job), Ok(answer)) => {
                job.answer = Some(answer);
                self.complete(now, name);
            }
            (Some(job), Err(refusal)) => {
                let only = refusal.rank().and_then(|rank| job.ranks.get(&rank)).map(|rank| rank.ticket);
                match only {
                    Some(ticket) => {
                        self.answer(ticket, Err(refusal));
                        self.withdraw_pending(now, ticket);
                    }
                    None => drop(self.fail_pending(name, &refusal)),
                }
            }
        }
    }

    /// Notes the ranks that the parent switch misses, for people.
    pub fn missing_at_parent(&mut self, name: &JobName, missing: Vec<u16>) {
        if let Some(job) = self.pending.get_mut(name) {
            job.missing_at_parent = Some(missing);
        }
    }

    /// Installs a job that the parent switch has admitted, as soon as there is memory for it.
    pub(super) fn complete_in_levels(&mut self, now: Time, name: &JobName) {
        let shards = self.limits.shards;
        let Some(job) = self.pending.get_mut(name) else { return };
        let complete_since = *job.complete_since.get_or_insert(now);
        let Some(answer) = &job.answer else { return };
        let (slots, elements_per_packet) = (answer.slots, answer.elements_per_packet);
        let wish = job.wish(shards);
        let servers = match (wish.protocol.server, answer.servers.len() as u16) {
            (None, _) => 0,
            (Some(_), 0) => wish.world_size,
            (Some(_), dedicated) => dedicated,
        };
        let shape = JobShape { slots, elements_per_packet, servers, ..wish };
        // The whole pool that the parent has granted, or nothing; if jobs divide the memory, a share of it.
        let fits = |granted: Result<Grant, Refusal>| match granted {
            Ok(Grant { shape, .. }) if shape.slots == slots || shape.resizes() => Ok(()),
            Ok(_) => Err(None),
            Err(refusal) => Err(Some(refusal)),
        };
        let client = job.client.clone();
        let later = fits(self.grant(name, &client, shape.clone(), true));
        let Err(refusal) = fits(self.grant(name, &client, shape.clone(), false)) else {
            let job = self.pending.remove(name).expect("it was found before");
            return self.install_in_levels(now, name, job, shape);
        };
        if later.is_ok() && now < complete_since + self.limits.timers.takeover_silence() {
            return;
        }
        let refusal = refusal.unwrap_or_else(|| {
            let free = self.ledger().free(Applicant { name, client: &client }, shape.protocol);
            Refusal::full(name, &shape, free.switch, free.total)
        });
        self.fail_pending(name, &refusal);
    }

    fn install_in_levels(&mut self, now: Time, name: &JobName, mut pending: PendingJob, shape: JobShape) {
        let Some(answer) = pending.answer.take() else { return };
        let ParentAnswer { job, key, wid, shards, workers, servers, switches, .. } = answer;
        let servers = match (shape.protocol.server, servers.is_empty()) {
            (None, _) => Servers::None,
            (Some(_), true) => Servers::Colocated,
            (Some(_), false) => {
                let known_to_parent = |addr| JobServer { addr, incarnation: None };
                Servers::Dedicated(servers.into_iter().map(known_to_parent).collect())
            }
        };
        // The parent has used the id again, so any job with that id has ended there long ago.
        let orphans = self.remove(job);
        for ticket in orphans {
            self.answer(ticket, Err(Refusal::UnknownJob { job: name.clone() }));
        }
        let parent = Some((Uplink { wid, shards }, switches));
        let config = shape.config(job, key);
        let division = self.grant(name, &pending.client, shape.clone(), false).ok().and_then(|grant| grant.division);
        self.install_pending(now, name, pending, Grant { shape, division }, config, workers, servers, parent);
    }

    /// True if all ranks below this switch that the name's former jobs had have come again: the parent switch waits for
    /// the end of those jobs.
    pub(super) fn succeeds_in_levels(&self, name: &JobName) -> bool {
        let all_are_back = |pending: &PendingJob| {
            let mut former = self.predecessors(name).flat_map(|job| job.plan.ranks_below());
            former.all(|rank| pending.ranks.contains_key(&rank))
        };
        self.has_parent && self.pending.get(name).is_some_and(all_are_back)
    }

    /// How much longer than its ranks a job waits here. The parent switch should be the one that reports which ranks did
    /// not come.
    pub(super) fn patience(&self) -> Span {
        const FOR_THE_PARENT: Span = Span::from_millis(2_000);
        if self.has_parent { FOR_THE_PARENT } else { Span::ZERO }
    }
}

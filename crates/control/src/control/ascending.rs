//! A rendezvous at a switch with a parent: its questions to the switch above, and what follows from the answers.

use tributary_proto::contract::time::{Span, Time};

use crate::admission::Free;
use crate::control::Control;
use crate::forming::Forming;
use crate::levels::{Ascent, Uplink};
use crate::memory::JobShape;
use crate::name::JobName;
use crate::plan::Effect;
use crate::refusal::Refusal;
use crate::servers::{JobServer, Servers};

impl Control {
    /// Tells the switch above which ranks have come here.
    pub(super) fn ask_above(&mut self, now: Time, name: &JobName) {
        let Some(forming) = self.forming.get(name) else { return };
        // If jobs divide the memory, all switches agree on the most slots that the job may ever have.
        let wish = self.wish(forming);
        let granted = match wish.resizes() {
            true => self.division(name, &forming.client, wish, true).map(|division| division.most),
            false => self.grant(name, &forming.client, wish, true),
        };
        let most_slots = match granted {
            Ok(shape) => shape.slots,
            Err(refusal) => {
                self.fail_forming(name, &refusal);
                return;
            }
        };
        let ranks = forming.seats.values().map(|seat| (seat.request.clone(), now.since(seat.since))).collect();
        let switches = forming.places();
        self.last_question += 1;
        let question = self.last_question;
        let forming = self.forming.get_mut(name).expect("looked up above");
        (forming.question, forming.ascent) = (question, None);
        self.effect(Effect::Ascend { name: name.clone(), question, ranks, most_slots, switches });
    }

    /// Withdraws the question to the switch above.
    pub(super) fn forget_above(&mut self, name: &JobName, forming: &Forming) {
        if let Some(ascent) = &forming.ascent {
            self.descend(name, ascent);
        } else if self.has_parent {
            let (ranks, switches) = (Vec::new(), Vec::new());
            let question = forming.question;
            self.effect(Effect::Ascend { name: name.clone(), question, ranks, most_slots: 0, switches });
        }
    }

    fn descend(&mut self, name: &JobName, ascent: &Ascent) {
        let Ascent { job, key, wid, .. } = *ascent;
        self.effect(Effect::Descend { name: name.clone(), job, key, wid, lost: true });
    }

    /// Takes the answer of the switch above to a question.
    pub fn ascended(&mut self, now: Time, name: &JobName, question: u64, outcome: Result<Ascent, Refusal>) {
        let waits = self.forming.get_mut(name).filter(|forming| forming.question == question);
        match (waits, outcome) {
            (None, Ok(ascent)) => self.descend(name, &ascent),
            (None, Err(_)) => {}
            (Some(forming), Ok(ascent)) => {
                forming.ascent = Some(ascent);
                self.complete(now, name);
            }
            (Some(forming), Err(refusal)) => {
                let only = refusal.rank().and_then(|rank| forming.seats.get(&rank)).map(|seat| seat.ticket);
                match only {
                    Some(ticket) => {
                        self.answer(ticket, Err(refusal));
                        self.withdraw_forming(now, ticket);
                    }
                    None => drop(self.fail_forming(name, &refusal)),
                }
            }
        }
    }

    /// Notes the ranks that the switch above misses, for people.
    pub fn missing_above(&mut self, name: &JobName, missing: Vec<u16>) {
        if let Some(forming) = self.forming.get_mut(name) {
            forming.missing_above = Some(missing);
        }
    }

    /// Installs a job that the switch above has admitted, as soon as there is memory for it.
    pub(super) fn complete_below(&mut self, now: Time, name: &JobName) {
        let shards = self.limits.shards;
        let Some(forming) = self.forming.get_mut(name) else { return };
        let full_since = *forming.full_since.get_or_insert(now);
        let Some(ascent) = &forming.ascent else { return };
        let (slots, elements_per_packet) = (ascent.slots, ascent.elements_per_packet);
        let wish = forming.wish(shards);
        let servers = match (wish.protocol.server, ascent.servers.len() as u16) {
            (None, _) => 0,
            (Some(_), 0) => wish.world,
            (Some(_), dedicated) => dedicated,
        };
        let shape = JobShape { slots, elements_per_packet, servers, ..wish };
        // The whole pool that the switch above has granted, or none; if jobs divide the memory, a share of it.
        let fits = |granted: Result<JobShape, Refusal>| match granted {
            Ok(granted) if granted.slots == slots || granted.resizes() => Ok(()),
            Ok(_) => Err(None),
            Err(refusal) => Err(Some(refusal)),
        };
        let client = forming.client.clone();
        let later = fits(self.grant(name, &client, shape.clone(), true));
        let Err(refusal) = fits(self.grant(name, &client, shape.clone(), false)) else {
            let forming = self.forming.remove(name).expect("looked up above");
            return self.install_below(now, name, forming, shape);
        };
        if later.is_ok() && now < full_since + self.limits.timers.succession() {
            return;
        }
        let Free { switch: free, total, .. } = self.free(name, &client, shape.protocol, false);
        let refusal = refusal.unwrap_or_else(|| Refusal::Full {
            job: name.clone(),
            free,
            total,
            need: shape.bytes(),
            slots,
            elements: elements_per_packet,
            world: shape.world,
            less: shape.savings(),
        });
        self.fail_forming(name, &refusal);
    }

    fn install_below(&mut self, now: Time, name: &JobName, mut forming: Forming, shape: JobShape) {
        let Some(Ascent { job, key, wid, shards, workers, servers, switches, .. }) = forming.ascent.take() else {
            return;
        };
        let servers = match (shape.protocol.server, servers.is_empty()) {
            (None, _) => Servers::None,
            (Some(_), true) => Servers::Colocated,
            (Some(_), false) => {
                let known_above = |addr| JobServer { addr, incarnation: None };
                Servers::Dedicated(servers.into_iter().map(known_above).collect())
            }
        };
        // The switch above has used the id anew, so any job with that id has ended there long ago.
        let orphans = self.remove(job);
        for ticket in orphans {
            self.answer(ticket, Err(Refusal::UnknownJob { job: name.clone() }));
        }
        let above = Some((Uplink { wid, shards }, switches));
        let (config, division) = (shape.config(job, key), self.divided(name, &forming.client, shape.clone()));
        self.install_formed(now, name, forming, (shape, division), config, workers, servers, above);
    }

    /// True if all ranks below this switch that the name's former jobs had have come anew: the switch above waits for
    /// the end of those jobs.
    pub(super) fn succeeds_below(&self, name: &JobName) -> bool {
        let anew = |forming: &Forming| {
            let mut former = self.predecessors(name).flat_map(|job| job.plan.ranks_below());
            former.all(|rank| forming.seats.contains_key(&rank))
        };
        self.has_parent && self.forming.get(name).is_some_and(anew)
    }

    /// How much longer than its ranks a job waits here. The switch above should be the one that reports which ranks did
    /// not come.
    pub(super) fn patience(&self) -> Span {
        const FOR_THE_SWITCH_ABOVE: Span = Span::from_millis(2_000);
        if self.has_parent { FOR_THE_SWITCH_ABOVE } else { Span::ZERO }
    }
}

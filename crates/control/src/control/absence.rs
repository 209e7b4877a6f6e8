//! What the driver says of switches of the fabric that cannot be reached.

use tributary_proto::contract::ids::JobId;
use tributary_proto::contract::time::Time;

use crate::control::Control;
use crate::levels::SwitchPlace;
use crate::running::Absence;

impl Control {
    /// All switches that cannot be reached now and that a job has ranks behind; with them the signs of life since the last
    /// call were asked for in vain.
    pub fn absent(&mut self, now: Time, id: JobId, absent: &[SwitchPlace]) {
        let Some(job) = self.running.get_mut(&id) else { return };
        let (stay, back): (Vec<Absence>, Vec<Absence>) =
            std::mem::take(&mut job.absences).into_iter().partition(|absence| absent.contains(&absence.place));
        job.absences = stay;
        for place in absent {
            if !job.absences.iter().any(|absence| absence.place == *place) {
                job.absences.push(Absence { place: place.clone(), since: now });
            }
        }
        // Its ranks have their time to be heard through it again.
        for rank in back.into_iter().flat_map(|absence| absence.place.ranks) {
            if let Some(member) = job.members.get_mut(usize::from(rank)) {
                member.watch.forgive(now);
            }
        }
    }
}

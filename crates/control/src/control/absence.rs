//! The driver's reports on switches of the fabric that cannot be reached.

use tributary_proto::contract::ids::JobId;
use tributary_proto::contract::time::Time;

use crate::control::Control;
use crate::levels::SwitchPlace;
use crate::running::Absence;

impl Control {
    /// Takes all switches that now cannot be reached and have ranks of the job behind them. The driver asked these
    /// switches for signs of life since the last call, in vain.
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
        // The ranks of a switch that can be reached again get their time anew to be heard through it.
        for rank in back.into_iter().flat_map(|absence| absence.place.ranks) {
            if let Some(member) = job.members.get_mut(usize::from(rank)) {
                member.watch.forgive(now);
            }
        }
    }
}

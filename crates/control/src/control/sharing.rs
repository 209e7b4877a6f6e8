//! The machines that all jobs of a protocol share, as part of the switch's memory. A machine comes with the first of these
//! jobs. It stays when the last one has gone, so that operators see what it has counted, until other jobs need its memory.

use tributary_proto::contract::ids::JobId;
use tributary_proto::contract::protocol::Protocol;

use super::Control;
use super::holding::{held, held_with};
use crate::admission::Free;
use crate::name::JobName;
use crate::plan::Effect;
use crate::refusal::Refusal;
use crate::running::Running;

impl Control {
    /// Bytes that jobs hold, and what they share.
    pub fn memory_used(&self) -> u64 {
        // A job whose trees are not planned yet counts with the most that it may need.
        held(self.running.values()).saturating_add(self.shared_bytes()).min(self.limits.memory_bytes)
    }

    /// Bytes of the machines that are there, whether jobs use them or not.
    fn shared_bytes(&self) -> u64 {
        self.shared.values().map(|protocol| self.limits.shared.bytes(protocol)).sum()
    }

    /// Bytes of the machines that some of these jobs use.
    pub(super) fn shared_by(&self, counts: impl Fn(&Running) -> bool) -> u64 {
        let used = |protocol: &&&Protocol| self.uses(protocol, &counts);
        self.shared.values().filter(used).map(|protocol| self.limits.shared.bytes(protocol)).sum()
    }

    fn uses(&self, protocol: &Protocol, counts: impl Fn(&Running) -> bool) -> bool {
        self.running.values().any(|job| job.plan.protocol == protocol && counts(job))
    }

    /// Of so many free bytes, those that the machine of a newcomer's protocol leaves if the newcomer is the first of these
    /// jobs to use it.
    pub(super) fn left_beside_shared(
        &self,
        name: &JobName,
        protocol: &'static Protocol,
        Free { switch: free, total, .. }: Free,
        counts: impl Fn(&Running) -> bool,
    ) -> Result<u64, Refusal> {
        if self.uses(protocol, counts) {
            return Ok(free);
        }
        let need = self.limits.shared.bytes(protocol);
        let (job, protocol) = (name.clone(), protocol.name);
        free.checked_sub(need).ok_or(Refusal::NothingToShare { job, protocol, free, total, need })
    }

    /// Gives up machines that no job uses as far as others need their memory: these jobs will have so many slots, and a
    /// newcomer of this protocol takes so many bytes.
    pub(super) fn make_way(&mut self, slots: &[(JobId, u16)], newcomer: Option<(&'static Protocol, u64)>) {
        let slots_of = |id: JobId| slots.iter().find(|(other, _)| *other == id).map(|&(_, slots)| slots);
        let mut later = held_with(self.running.values(), |job| job.memory_bytes_with(slots_of(job.plan.config.job)));
        newcomer.iter().for_each(|(protocol, bytes)| later.add(protocol, None, || *bytes));
        let newcomer = newcomer.map(|(protocol, _)| protocol);
        if let Some(protocol) = newcomer.filter(|protocol| protocol.shared.is_some()) {
            self.shared.insert(protocol.code, protocol);
        }
        while later.by_switch(&self.limits).any(|(memory, held)| held.saturating_add(self.shared_bytes()) > memory) {
            let is_idle =
                |protocol: &&&'static Protocol| newcomer != Some(**protocol) && !self.uses(protocol, |_| true);
            let Some(&idle) = self.shared.values().find(is_idle) else { return };
            self.shared.remove(&idle.code);
            self.effect(Effect::Unshare(idle));
        }
    }
}

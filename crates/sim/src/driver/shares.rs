//! The shares of a switch's memory that jobs have, if a file says how much memory there is. The code is that of real
//! switches.

use tributary_control::JobShape;
use tributary_control::admission::{divide_beside, is_resized};
use tributary_control::trees::TreeSwitch;
use tributary_proto::contract::protocol::Placement;

use super::install::{InstallError, Program};
use super::jobs::{JobIndex, JobPlan};
use super::simulation::Simulation;

/// A switch that cannot hold all of its jobs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the jobs at switch {switch} need at least {need} bytes of its memory, which is {memory}: give switches more, or jobs fewer \
     trees, slots or elements in a packet"
)]
pub struct TooLittleMemory {
    /// The switch, by number.
    pub switch: u32,
    /// How much memory all jobs need at least.
    pub need: u64,
    /// How much memory there is.
    pub memory: u64,
}

/// Why a job cannot run in a network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRoom {
    /// The job is invalid.
    #[error(transparent)]
    Install(#[from] InstallError),
    /// The other jobs leave too little memory.
    #[error(transparent)]
    Memory(#[from] TooLittleMemory),
}

impl Simulation {
    /// Divides each switch's memory among its installed jobs, before anything is sent. Jobs whose machines can be
    /// resized get equal shares of what the other jobs leave, for each tree, as far as they can use it.
    pub fn share_memory(&mut self, memory: u64) -> Result<(), TooLittleMemory> {
        for switch in 0..self.switches.len() as u32 {
            for (at, room) in self.division(switch, memory, &[])? {
                self.programs[at].set_room(room, &mut self.switches[switch as usize]);
            }
        }
        Ok(())
    }

    /// Bytes of a switch's memory that jobs are charged for, as on a real switch.
    pub fn charged_bytes(&self, switch: u32) -> u64 {
        let here = self.programs.iter().filter(|program| program.switch == switch && program.is_there());
        here.map(|program| JobShape { slots: program.room(), ..program.shape() }.bytes()).sum()
    }

    /// The room of each resizable program at a switch, then the room of new programs of these shapes.
    fn division(&self, switch: u32, memory: u64, new: &[JobShape]) -> Result<Vec<(usize, u16)>, TooLittleMemory> {
        let here = |program: &Program| program.switch == switch && program.is_there();
        let (sharing, fixed): (Vec<usize>, Vec<usize>) = (0..self.programs.len())
            .filter(|&at| here(&self.programs[at]))
            .partition(|&at| self.programs[at].resizes());
        let (new_sharing, new_fixed): (Vec<&JobShape>, Vec<&JobShape>) =
            new.iter().partition(|shape| shape.protocol.resizes);
        let fixed = fixed.iter().map(|&at| self.programs[at].shape().bytes());
        let taken: u64 = fixed.chain(new_fixed.iter().map(|shape| shape.bytes())).sum();
        let shapes = sharing.iter().map(|&at| self.programs[at].shape());
        let shapes: Vec<JobShape> = shapes.chain(new_sharing.into_iter().cloned()).collect();
        let rooms = divide_beside(memory, taken, &shapes).map_err(|need| TooLittleMemory { switch, need, memory })?;
        Ok(sharing.into_iter().zip(rooms).collect())
    }

    /// Checks that a job can be installed beside those that are there.
    pub(super) fn check_room(&self, plan: &JobPlan, memory: Option<u64>) -> Result<(), NoRoom> {
        super::install::check(plan, self.traffic.jobs.all().len())?;
        if plan.protocol.placement != Placement::Trees {
            return Ok(());
        }
        let trees = self.plan_trees(plan)?;
        let Some(memory) = memory else { return Ok(()) };
        let config = self.job_config(self.traffic.jobs.next_index(), plan, trees.len());
        let parts: Vec<&TreeSwitch> = trees.iter().flat_map(|tree| &tree.switches).collect();
        for switch in 0..self.switches.len() as u32 {
            let node = self.graph.switch(switch);
            let own = parts.iter().filter(|part| part.node == node);
            let new: Vec<JobShape> =
                own.map(|part| super::install::shape(plan.protocol, &config, part.children.len())).collect();
            if !new.is_empty() {
                self.division(switch, memory, &new)?;
            }
        }
        Ok(())
    }

    /// A job has come or left, so the other jobs at its switches have less or more memory. As control planes do: a job
    /// that comes gets its share at once, and jobs that stay grow only if that is worth starting again.
    pub(super) fn spread_memory(&mut self, changed: JobIndex, memory: Option<u64>) {
        let Some(memory) = memory else { return };
        let is_changed = |program: &&Program| program.job() == changed;
        let mut switches: Vec<u32> = self.programs.iter().filter(is_changed).map(|program| program.switch).collect();
        switches.sort_unstable();
        switches.dedup();
        for switch in switches {
            let divided = self.division(switch, memory, &[]);
            for (at, room) in divided.expect("it was checked, or there is more than before") {
                self.give_room(at, room, changed);
            }
        }
        self.set_switch_timers();
    }

    fn give_room(&mut self, at: usize, room: u16, changed: JobIndex) {
        let program = &mut self.programs[at];
        let switch = &mut self.switches[program.switch as usize];
        let comes = program.job() == changed;
        if comes {
            program.set_room(room, switch);
        } else if is_resized(program.room(), room) {
            program.resize(room, switch);
            if self.fabric.owns(switch.exits.node) {
                switch.drain(&mut self.fabric, &self.table, program.lane(), &mut self.traffic.scratch);
            }
        }
    }
}

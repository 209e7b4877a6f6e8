//! What jobs have of a switch's memory, where a file says how much there is: as on real switches, by one code.

use tributary_control::{JobShape, divide};

use super::install::Program;
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
    /// What all jobs need at least.
    pub need: u64,
    /// What there is.
    pub memory: u64,
}

impl Simulation {
    /// Divides each switch's memory among the jobs that are installed there: those whose machines can be resized have equal
    /// shares in each tree, as far as they have use for them, of what the others leave. Before anything is sent.
    pub fn share_memory(&mut self, memory: u64) -> Result<(), TooLittleMemory> {
        for switch in 0..self.switches.len() as u32 {
            let here = |program: &Program| program.switch == switch;
            let (sharing, fixed): (Vec<usize>, Vec<usize>) = (0..self.programs.len())
                .filter(|&at| here(&self.programs[at]))
                .partition(|&at| self.programs[at].resizes());
            let taken: u64 = fixed.iter().map(|&at| self.programs[at].shape().bytes()).sum();
            let shapes: Vec<JobShape> = sharing.iter().map(|&at| self.programs[at].shape()).collect();
            let rooms = memory.checked_sub(taken).and_then(|left| divide(left, &shapes));
            let Some(rooms) = rooms else {
                let fewest = |shape: &JobShape| JobShape { slots: shape.slots.min(2), ..shape.clone() }.bytes();
                let need = taken + shapes.iter().map(fewest).sum::<u64>();
                return Err(TooLittleMemory { switch, need, memory });
            };
            for (at, room) in sharing.into_iter().zip(rooms) {
                self.programs[at].set_room(room, &mut self.switches[switch as usize]);
            }
        }
        Ok(())
    }
}

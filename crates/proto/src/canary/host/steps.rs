//! The numbers of blocks on the wire: a window of positions, each of which goes from phase to phase.

/// One block's position in the window, and how often the position was used before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Step {
    /// The position.
    pub position: u16,
    /// The phase, modulo [`Steps::phases`].
    pub phase: u32,
}

/// How a step's phase relates to the one that its position is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Relation {
    /// The phase is over.
    Earlier,
    /// The phase is the current one.
    Same,
    /// The phase is the next one, which other ranks may have begun.
    Next,
    /// The phase cannot have begun.
    Later,
}

/// The arithmetic of a window.
#[derive(Clone, Copy, Debug, Hash)]
pub struct Steps {
    window: u32,
    /// Phases before the numbers start again. The number is even, so that two neighbours always differ in parity:
    /// leaders keep blocks by parity.
    phases: u32,
}

impl Steps {
    /// A window of this many positions, 2 to 65,535.
    pub fn new(window: u16) -> Steps {
        let window = u32::from(window);
        Steps { window, phases: (u32::MAX / window) & !1 }
    }

    /// The number that packets carry. It counts the blocks, as in §3.4.
    pub fn id(&self, step: Step) -> u32 {
        step.phase * self.window + u32::from(step.position)
    }

    /// The step of a packet; `None` for numbers that are never used.
    pub fn of(&self, id: u32) -> Option<Step> {
        let step = Step { position: (id % self.window) as u16, phase: id / self.window };
        (step.phase < self.phases).then_some(step)
    }

    /// The phase after this one.
    pub fn after(&self, phase: u32) -> u32 {
        (phase + 1) % self.phases
    }

    /// The phase before this one.
    pub fn before(&self, phase: u32) -> u32 {
        self.distance(phase, 1)
    }

    /// Phases compare as serial numbers.
    pub fn relation(&self, phase: u32, current: u32) -> Relation {
        match self.distance(phase, current) {
            0 => Relation::Same,
            1 => Relation::Next,
            ahead if ahead < self.phases / 2 => Relation::Later,
            _ => Relation::Earlier,
        }
    }

    /// How far a phase is ahead of another, modulo `phases`.
    fn distance(&self, phase: u32, current: u32) -> u32 {
        if phase >= current { phase - current } else { self.phases - (current - phase) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_one_step_and_phases_wrap() {
        for window in [2, 3, 257, 65_535] {
            let steps = Steps::new(window);
            for phase in [0, 1, 2, steps.phases / 2, steps.phases - 1] {
                for position in [0, window / 2, window - 1] {
                    let step = Step { position, phase };
                    assert_eq!(steps.of(steps.id(step)), Some(step));
                }
                assert_eq!(steps.before(steps.after(phase)), phase);
                assert_eq!(steps.relation(steps.after(phase), phase), Relation::Next);
                assert_eq!(steps.relation(phase, steps.after(phase)), Relation::Earlier);
                assert_eq!(steps.relation(steps.after(steps.after(phase)), phase), Relation::Later);
                assert_ne!(steps.after(phase) % 2, phase % 2);
            }
            assert_eq!(steps.of(u32::MAX), None);
        }
    }
}

//! How jobs divide a switch's memory, if a file bounds it. The rules are those of real switches.

use tributary_control::JobShape;
use tributary_control::admission::{divide_beside, is_resized};
use tributary_control::trees::TreeSwitch;
use tributary_proto::contract::protocol::Placement;

use crate::engine::program::{Program, shape};
use crate::engine::records::{DoesNotFit, JobIndex, JobPlan, TooLittleMemory};
use crate::engine::simulation::Simulation;
use crate::engine::switch::SwitchNode;

impl Simulation {
    /// Divides each switch's memory among its installed jobs, before anything is sent. Jobs whose machines can be
    /// resized get equal shares of what the other jobs leave, for each tree, as far as they can use it.
    pub fn share_memory(&mut self, memory: u64) -> Result<(), TooLittleMemory> {
        for switch in 0..self.switches.len() as u32 {
            for (at, slots) in self.divide_memory(switch, memory, &[])? {
                self.programs.trees[at].reinstall_with(slots, &mut self.switches[switch as usize]);
            }
        }
        Ok(())
    }

    /// Bytes of a switch's memory that jobs are charged for, as on a real switch.
    pub fn charged_bytes(&self, switch: u32) -> u64 {
        let here = self.programs.trees.iter().filter(|program| program.switch == switch && program.is_installed());
        here.map(|program| JobShape { slots: program.slots(), ..program.shape() }.bytes()).sum()
    }

    /// The slots of each resizable program at a switch, and then those of new programs of these shapes.
    fn divide_memory(&self, switch: u32, memory: u64, new: &[JobShape]) -> Result<Vec<(usize, u16)>, TooLittleMemory> {
        let here = |program: &Program| program.switch == switch && program.is_installed();
        let (sharing, fixed): (Vec<usize>, Vec<usize>) = (0..self.programs.trees.len())
            .filter(|&at| here(&self.programs.trees[at]))
            .partition(|&at| self.programs.trees[at].resizes());
        let (new_sharing, new_fixed): (Vec<&JobShape>, Vec<&JobShape>) =
            new.iter().partition(|shape| shape.protocol.resizes);
        let fixed = fixed.iter().map(|&at| self.programs.trees[at].shape().bytes());
        let taken: u64 = fixed.chain(new_fixed.iter().map(|shape| shape.bytes())).sum();
        let shapes = sharing.iter().map(|&at| self.programs.trees[at].shape());
        let shapes: Vec<JobShape> = shapes.chain(new_sharing.into_iter().cloned()).collect();
        let divided = divide_beside(memory, taken, &shapes).map_err(|need| TooLittleMemory { switch, need, memory })?;
        Ok(sharing.into_iter().zip(divided).collect())
    }

    /// Checks that a job fits beside the installed ones.
    pub(crate) fn check_fits(&self, plan: &JobPlan, memory: Option<u64>) -> Result<(), DoesNotFit> {
        plan.check(self.traffic.jobs.all().len())?;
        if plan.protocol.placement != Placement::Trees {
            return Ok(());
        }
        let trees = self.plan_trees(self.traffic.jobs.next_index(), plan)?;
        let Some(memory) = memory else { return Ok(()) };
        let config = self.job_config(self.traffic.jobs.next_index(), plan, trees.len());
        let planned: Vec<&TreeSwitch> = trees.iter().flat_map(|tree| &tree.switches).collect();
        for switch in 0..self.switches.len() as u32 {
            let node = self.graph.switch(switch);
            let here = planned.iter().filter(|planned| planned.node == node);
            let new: Vec<JobShape> =
                here.map(|planned| shape(plan.protocol, &config, planned.children.len())).collect();
            if !new.is_empty() {
                self.divide_memory(switch, memory, &new)?;
            }
        }
        Ok(())
    }

    /// A job has started or left, so the other jobs at its switches have less or more memory. As in control planes, a
    /// job that starts gets its share at once, and jobs that stay grow only if that is worth starting again.
    pub(crate) fn spread_memory(&mut self, changed: JobIndex, memory: Option<u64>) {
        let Some(memory) = memory else { return };
        let is_changed = |program: &&Program| program.job() == changed;
        let mut switches: Vec<u32> =
            self.programs.trees.iter().filter(is_changed).map(|program| program.switch).collect();
        switches.sort_unstable();
        switches.dedup();
        for switch in switches {
            let divided = self.divide_memory(switch, memory, &[]);
            for (at, slots) in divided.expect("it was checked, or there is more than before") {
                self.resize_program(at, slots, changed);
            }
        }
        self.set_switch_timers();
    }

    fn resize_program(&mut self, at: usize, slots: u16, changed: JobIndex) {
        let program = &mut self.programs.trees[at];
        let switch = &mut self.switches[program.switch as usize];
        if program.job() == changed {
            program.reinstall_with(slots, switch);
        } else if is_resized(program.slots(), slots) {
            program.resize(slots, switch);
            if self.fabric.owns(switch.forwarding.node) {
                switch.drain(&mut self.fabric, &self.table, program.lane(), &mut self.traffic.scratch);
            }
        }
    }

    /// The most memory that the programs of one switch hold, or have held before a job left, in bytes.
    pub fn switch_memory_bytes(&self) -> usize {
        let mut bytes = vec![0; self.switches.len()];
        let local = |program: &&Program| program.is_installed() && self.fabric.owns(self.graph.switch(program.switch));
        for program in self.programs.trees.iter().filter(local) {
            bytes[program.switch as usize] += program.memory_bytes(&self.switches[program.switch as usize]);
        }
        let local = |(_, switch): &(&mut usize, &SwitchNode)| self.fabric.owns(switch.forwarding.node);
        for (bytes, switch) in bytes.iter_mut().zip(&self.switches).filter(local) {
            *bytes += switch.shared().map(|(.., bytes)| bytes).sum::<usize>();
        }
        bytes.into_iter().max().unwrap_or(0).max(self.programs.max_memory)
    }

    /// Bytes that programs still hold for jobs that have left.
    pub fn leaked_bytes(&self) -> usize {
        let has_left = |job: JobIndex| {
            self.traffic.jobs.get(job).lifetime.as_ref().is_some_and(|lifetime| lifetime.left.is_some())
        };
        let programs = self.programs.trees.iter().filter(|program| has_left(program.job()));
        programs.map(|program| program.memory_bytes(&self.switches[program.switch as usize])).sum()
    }
}

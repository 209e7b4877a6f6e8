//! What the programs in switches say: how much of their memory holds sums that are not complete, and what they dropped.

use tributary_proto::contract::drop_reason::DropCounters;
use tributary_proto::contract::ids::JobId;

use super::jobs::Job;
use super::simulation::Simulation;

/// What of one switch's memory is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Occupancy {
    /// Slots with a sum that is not complete, and descriptors that are held.
    pub slots: u64,
    /// The bytes that programs hold for them.
    pub bytes: u64,
}

impl Occupancy {
    fn add(&mut self, used: u32, all: u32, bytes: usize) {
        self.slots += u64::from(used);
        self.bytes += bytes as u64 * u64::from(used) / u64::from(all.max(1));
    }
}

impl Simulation {
    /// For each switch, by number.
    pub fn occupancy(&self) -> Vec<Occupancy> {
        let mut switches = vec![Occupancy::default(); self.switches.len()];
        for program in &self.programs {
            if let Some((machine, bytes)) = program.state(&self.switches[program.switch as usize]) {
                switches[program.switch as usize].add(machine.slots_waiting, machine.slots, bytes);
            }
        }
        for (occupancy, switch) in switches.iter_mut().zip(&self.switches) {
            switch.arrays().for_each(|(array, bytes)| occupancy.add(array.held, array.entries, bytes));
        }
        switches
    }

    /// A job's packets that were of no use to its programs in switches. A switch that died has forgotten its own.
    pub fn drops_in_switches(&self, job: &Job) -> DropCounters {
        let id = JobId(job.index.0 + 1);
        let mut sum = DropCounters::default();
        let reports =
            self.switches.iter().flat_map(|switch| &switch.pipelines).filter_map(|pipeline| pipeline.report(id));
        reports.for_each(|report| sum.add(&report.drops));
        sum
    }
}

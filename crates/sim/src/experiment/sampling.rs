//! Samples links, switches and jobs at equal steps of simulated time, between events. Sampling changes nothing, and
//! costs nothing if the file does not ask for it.

use tributary_proto::contract::time::{Span, Time};

use super::faults::cables;
use crate::config::{Config, ConfigError, Duration, Sample, SampleWord, invalid};
use crate::engine::{Gauge, Simulation};
use crate::report::Samples;
use crate::topology::LinkId;

/// The most steps of a figure, and the length of steps that is tried first.
const FIGURE_STEPS: usize = 512;
const FIGURE_STEP: Span = Span(100_000);

/// The most values of links that a run keeps: at 16 bytes each, 128 MiB.
const MAX_VALUES: usize = 8 << 20;

/// Takes samples while a simulation runs.
pub struct Sampler {
    samples: Option<Samples>,
    most_steps: usize,
}

impl Sampler {
    /// The sampler for a file.
    pub fn new(config: &Config, simulation: &Simulation) -> Result<Sampler, ConfigError> {
        config.report.check()?;
        let Some(sample) = config.report.sample else { return Ok(Sampler { samples: None, most_steps: 0 }) };
        let graph = simulation.graph();
        let mut links: Vec<LinkId> =
            cables(graph, &config.report.links).map_err(|error| invalid(format!("report: {error}")))?;
        links = links.into_iter().flat_map(|cable| [cable, cable.reverse()]).collect();
        links.sort_unstable();
        links.dedup();
        let gauges: Vec<Gauge> = simulation.gauges().into_iter().map(|(gauge, _)| gauge).collect();
        let columns = links.len().max(graph.switches() as usize).max(gauges.len()).max(1);
        let (every, most) = match sample {
            Sample::Word(SampleWord::Auto) => (FIGURE_STEP, FIGURE_STEPS),
            Sample::Every(Duration(every)) => (every, usize::MAX),
        };
        // An even number, so that half of the steps are left when every other step is dropped.
        let most_steps = most.min(MAX_VALUES / columns).max(2) & !1;
        Ok(Sampler { samples: Some(Samples::new(every, links, graph.switches() as usize, gauges)), most_steps })
    }

    /// How far the simulation may run before the next sample.
    pub fn stop(&self, end: Time) -> Time {
        match &self.samples {
            Some(samples) => end.min(Time(samples.next().0 - 1)),
            None => end,
        }
    }

    /// Takes the samples that are due by a time before which no event is left.
    pub fn take(&mut self, simulation: &Simulation, until: Time) {
        let Some(samples) = &mut self.samples else { return };
        while samples.next() <= until {
            if samples.steps == self.most_steps {
                samples.thin();
                continue;
            }
            let now = samples.next();
            for &link in &samples.links {
                let link = simulation.fabric.link(link);
                samples.queued.push(link.queued_bytes(now));
                samples.busy.push(link.busy_time(now));
            }
            samples.switches.extend(simulation.occupancy());
            samples.handled.extend(simulation.handled());
            samples.measures.extend(simulation.gauges().into_iter().map(|(_, measure)| measure));
            samples.steps += 1;
        }
    }

    /// Runs up to a time, and takes the samples that are due before it.
    pub fn run_to(&mut self, simulation: &mut Simulation, end: Time) {
        loop {
            let stop = self.stop(end);
            while simulation.step(stop) {}
            if stop == end {
                return;
            }
            let next = simulation.next_time();
            self.take(simulation, next.min(end));
        }
    }

    /// Takes over the samples of another partition.
    pub fn absorb(&mut self, other: &Sampler, partition: &Simulation) {
        let (Some(ours), Some(theirs)) = (&mut self.samples, &other.samples) else { return };
        let graph = partition.graph();
        ours.absorb(
            theirs,
            |link| partition.fabric.owns(graph.ends(link).0),
            |switch| partition.fabric.owns(graph.switch(switch as u32)),
            |job, rank| partition.fabric.owns(partition.traffic.jobs.get(job).members[rank.index()]),
        );
    }

    /// All samples.
    pub fn into_samples(self) -> Option<Samples> {
        self.samples
    }
}

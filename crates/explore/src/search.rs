//! The search through all states, the nearest first, so that an error is found by a short run.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::ControlFlow;

use crate::bounds::{Bounds, BoundsError};
use crate::fingerprint::Fingerprint;
use crate::state::{MachineCache, State};
use crate::step::Step;
use crate::topology::Topology;

/// A run that has not ended after this many steps without a fault counts as endless. Runs of such small systems take
/// some hundreds.
const MOST_FAIR_STEPS: usize = 10_000;
/// How many steps of an endless run are shown.
const SHOWN_FAIR_STEPS: usize = 40;
/// How many states there are between two checks whether to go on.
const REPORT_EVERY: u64 = 1 << 10;

/// The progress of a search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// How many states were found.
    pub states: u64,
    /// How many steps were tried: each leads to a new state or to a known one.
    pub steps: u64,
    /// How many steps lead from the first state to the present ones.
    pub depth: u32,
    /// How many states wait for their steps to be tried.
    pub waiting: u64,
    /// How many states are ends: every rank has its sums.
    pub ends: u64,
    /// How many states of single machines there are.
    pub machines: u64,
}

/// An error that the search found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// A wrong sum, or a failure, as a sentence.
    Wrong(String),
    /// A state from which the run never ends, even without further faults.
    NoEnd,
}

/// A run with an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counterexample {
    /// The error.
    pub found: Found,
    /// The run; if it does not end, with the first steps of the endless part.
    pub steps: Vec<Step>,
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exploration {
    /// The search's progress at its end.
    pub progress: Progress,
    /// All states were found, and none has an error.
    pub is_complete: bool,
    /// A run with an error, if there is one.
    pub counterexample: Option<Counterexample>,
}

/// Goes through all states; reports its progress, and stops early if `watch` says so.
pub fn explore(
    bounds: &Bounds,
    watch: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
) -> Result<Exploration, BoundsError> {
    let topology = Topology::new(bounds)?;
    let mut machines = MachineCache::new(bounds, true);
    let first = State::new(&topology, &mut machines)?;
    let mut search =
        Search { topology, machines, known: HashMap::default(), paths: Vec::new(), progress: Progress::default() };
    let found = search.run(first, watch);
    let (is_complete, counterexample) = match found {
        ControlFlow::Continue(()) => (true, None),
        ControlFlow::Break(counterexample) => (false, counterexample),
    };
    Ok(Exploration { progress: search.progress, is_complete, counterexample })
}

/// A hasher for fingerprints, which are hashes already.
#[derive(Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("fingerprints are numbers of 128 bits");
    }
    fn write_u128(&mut self, number: u128) {
        self.0 = number as u64;
    }
}

/// What is known of a state.
#[derive(Clone, Copy, Default)]
struct Known {
    /// The state was reached.
    reached: bool,
    /// A run from here ends if there are no more faults.
    ends: bool,
}

/// How a state was first reached.
#[derive(Clone, Copy)]
struct Path {
    before: u32,
    step: Step,
}

/// The predecessor of the first state.
const NOWHERE: u32 = u32::MAX;

struct Search {
    topology: Topology,
    machines: MachineCache,
    known: HashMap<Fingerprint, Known, BuildHasherDefault<AsItIs>>,
    paths: Vec<Path>,
    progress: Progress,
}

/// `Break(None)` means that the search was stopped.
type Onward = ControlFlow<Option<Counterexample>>;

impl Search {
    fn run(&mut self, first: State, watch: &mut dyn FnMut(&Progress) -> ControlFlow<()>) -> Onward {
        let mut layer = Vec::new();
        self.reach(first, NOWHERE, Step::Lose(0), &mut layer)?;
        while !layer.is_empty() {
            let mut next = Vec::new();
            for (done, (state, number)) in layer.iter().enumerate() {
                self.expand(state, *number, &mut next)?;
                self.progress.waiting = (layer.len() - done - 1 + next.len()) as u64;
                if (done as u64).is_multiple_of(REPORT_EVERY) {
                    self.report(watch)?;
                }
            }
            self.progress.depth += u32::from(!next.is_empty());
            layer = next;
        }
        let _ = self.report(watch);
        ControlFlow::Continue(())
    }

    fn report(&mut self, watch: &mut dyn FnMut(&Progress) -> ControlFlow<()>) -> Onward {
        self.progress.machines = self.machines.known() as u64;
        match watch(&self.progress) {
            ControlFlow::Break(()) => ControlFlow::Break(None),
            ControlFlow::Continue(()) if self.progress.states >= self.topology.bounds.most_states => {
                ControlFlow::Break(None)
            }
            ControlFlow::Continue(()) => ControlFlow::Continue(()),
        }
    }

    /// Tries all steps from a state.
    fn expand(&mut self, state: &State, number: u32, next: &mut Vec<(State, u32)>) -> Onward {
        for step in state.steps(&self.topology) {
            let (after, outcome) = state.after(&self.topology, step, &mut self.machines);
            self.progress.steps += 1;
            if let Some(wrong) = outcome.wrong {
                let mut steps = self.path(number);
                steps.push(step);
                return ControlFlow::Break(Some(Counterexample { found: Found::Wrong(wrong), steps }));
            }
            self.reach(after, number, step, next)?;
        }
        ControlFlow::Continue(())
    }

    /// Notes a state if it is new.
    fn reach(&mut self, state: State, before: u32, step: Step, next: &mut Vec<(State, u32)>) -> Onward {
        let fingerprint = state.fingerprint();
        if std::mem::replace(&mut self.known.entry(fingerprint).or_default().reached, true) {
            return ControlFlow::Continue(());
        }
        let number = self.paths.len() as u32;
        self.paths.push(Path { before, step });
        self.progress.states += 1;
        self.progress.ends += u64::from(state.has_ended(&self.topology));
        self.finish(&state, number)?;
        next.push((state, number));
        ControlFlow::Continue(())
    }

    /// Runs on without faults until the end, or until a state from which that was done before. Here the machines keep
    /// their times: a machine that waits for its third timer must not be taken for one that waits for its first.
    fn finish(&mut self, state: &State, number: u32) -> Onward {
        let shared = self.machines.intern(false);
        let finished = self.run_on(state, number);
        self.machines.intern(shared);
        finished
    }

    fn run_on(&mut self, state: &State, number: u32) -> Onward {
        let (mut state, mut passed, mut steps) = (state.clone(), Vec::new(), Vec::new());
        loop {
            let fingerprint = state.fingerprint();
            if self.known.get(&fingerprint).is_some_and(|known| known.ends) {
                break;
            }
            passed.push(fingerprint);
            if state.has_ended(&self.topology) {
                break;
            }
            let step = state.fair_step(&self.topology).filter(|_| steps.len() < MOST_FAIR_STEPS);
            let Some(step) = step else {
                steps.truncate(SHOWN_FAIR_STEPS);
                return self.counterexample(Found::NoEnd, number, steps);
            };
            steps.push(step);
            let (after, outcome) = state.after(&self.topology, step, &mut self.machines);
            if let Some(wrong) = outcome.wrong {
                return self.counterexample(Found::Wrong(wrong), number, steps);
            }
            state = after;
        }
        passed.into_iter().for_each(|fingerprint| self.known.entry(fingerprint).or_default().ends = true);
        ControlFlow::Continue(())
    }

    fn counterexample(&self, found: Found, number: u32, further: Vec<Step>) -> Onward {
        let steps = self.path(number).into_iter().chain(further).collect();
        ControlFlow::Break(Some(Counterexample { found, steps }))
    }

    /// The steps that lead to a state.
    fn path(&self, number: u32) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut at = self.paths[number as usize];
        while at.before != NOWHERE {
            steps.push(at.step);
            at = self.paths[at.before as usize];
        }
        steps.reverse();
        steps
    }
}

//! One rank's way through its collectives: what to do next, and why it cannot go on.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tributary_numeric::{DType, ReduceOp};

use crate::error::{LocalError, have_begun, named, names_of};
use crate::handover::{ChunkKind, Counters, Handover, Next, Stage, has_reached};
use crate::layout::{Layout, SLOTS, Status};
use crate::os::{self, Process};
use crate::sum::Adder;
use crate::work::{Chunk, Collective};

/// How long a sleep lasts at most: a death is noticed after one.
pub const NAP: Duration = Duration::from_millis(50);
/// How often a wait asks before it sleeps, where each rank has a processor: some microseconds.
const SPINS: u32 = 2000;

/// The counters in the memory, of this rank.
struct Shared<'a> {
    layout: &'a Layout,
    rank: usize,
}

impl Counters for Shared<'_> {
    fn load(&self, rank: usize, stage: Stage) -> u32 {
        self.layout.counter(rank, stage).word.load(std::sync::atomic::Ordering::Acquire)
    }

    fn publish(&self, stage: Stage, count: u32) {
        self.layout.counter(self.rank, stage).publish(count);
    }
}

/// A collective under way.
struct Active {
    collective: Arc<Collective>,
    /// The number of its first chunk.
    first: u32,
    /// Its number in the group.
    number: u32,
}

/// What a step did.
pub enum Step {
    /// Some work.
    Worked,
    /// It has waited, or must be called again after a wait.
    Waits(Wait),
    /// There is nothing to do.
    Idle,
}

/// Which ranks a step waits for.
#[derive(Clone, Copy)]
pub struct Wait {
    stage: Stage,
    count: u32,
    ranks: u64,
}

/// The machine of one rank.
pub struct Machine {
    rank: usize,
    ranks: usize,
    /// By how many ranks averages are divided.
    pub averaged: u16,
    /// The ranks' numbers in sentences.
    names: Vec<u16>,
    processes: Vec<Process>,
    handover: Handover,
    active: VecDeque<Active>,
    /// One past the last chunk.
    end: u32,
    /// Collectives so far.
    numbers: u32,
    adders: Vec<((DType, ReduceOp), Adder)>,
    spins: u32,
    /// When it is time to ask which processes have ended.
    next_check: Instant,
}

impl Machine {
    /// A machine that has nothing to do yet.
    pub fn new(rank: usize, names: Vec<u16>, processes: Vec<Process>) -> Machine {
        let ranks = names.len();
        Machine {
            rank,
            ranks,
            averaged: ranks as u16,
            names,
            processes,
            handover: Handover::new(ranks, SLOTS),
            active: VecDeque::new(),
            end: 0,
            numbers: 0,
            adders: Vec::new(),
            spins: if ranks <= os::processors() { SPINS } else { 0 },
            next_check: Instant::now(),
        }
    }

    /// Begins a collective behind those that there are.
    pub fn push(&mut self, collective: Arc<Collective>) {
        let (first, number) = (self.end, self.numbers);
        self.end = self.end.wrapping_add(collective.plan.chunks());
        self.numbers = self.numbers.wrapping_add(1);
        self.active.push_back(Active { collective, first, number });
    }

    /// Takes all collectives out, since none will go on.
    pub fn take_all(&mut self) -> Vec<Arc<Collective>> {
        self.active.drain(..).map(|active| active.collective).collect()
    }

    /// Takes a step; returns a collective that has ended with it.
    pub fn step(&mut self, layout: &Layout) -> Result<(Step, Option<Arc<Collective>>), LocalError> {
        let shared = Shared { layout, rank: self.rank };
        let kind =
            |chunk| active(&self.active, chunk).map_or(ChunkKind { shares: false, opens: true }, Active::kind(chunk));
        match self.handover.next(&shared, self.end, kind) {
            Next::Idle => Ok((Step::Idle, None)),
            Next::Wait { stage, count, ranks } => Ok((Step::Waits(Wait { stage, count, ranks }), None)),
            Next::Work(stage, chunk) => {
                self.work(layout, stage, chunk)?;
                self.handover.finish(&shared, stage);
                Ok((Step::Worked, if stage == Stage::CopyOut { self.ended(chunk) } else { None }))
            }
        }
    }

    fn work(&mut self, layout: &Layout, stage: Stage, number: u32) -> Result<(), LocalError> {
        let active = active(&self.active, number).expect("it is a chunk of a collective under way");
        let index = number.wrapping_sub(active.first);
        let (plan, operands) = (&active.collective.plan, &active.collective.operands);
        let chunk = Chunk { layout, rank: self.rank, ranks: self.ranks, number, index, plan, operands };
        let description = plan.description();
        match stage {
            Stage::CopyIn if index == 0 => {
                layout.describe(self.rank, active.number, description, &active.collective.operation);
                chunk.copy_in();
            }
            Stage::CopyIn => chunk.copy_in(),
            Stage::Reduce => {
                if index == 0 {
                    agree(layout, &self.names, active.number)?;
                }
                if plan.has_shares() {
                    chunk.reduce(adder(
                        &mut self.adders,
                        description.dtype,
                        description.op,
                        (self.ranks, self.averaged),
                    ));
                }
            }
            Stage::CopyOut if description.kind.reduces() => {
                chunk.copy_out(Some(adder(
                    &mut self.adders,
                    description.dtype,
                    description.op,
                    (self.ranks, self.averaged),
                )));
            }
            Stage::CopyOut => chunk.copy_out(None),
        }
        Ok(())
    }

    /// The collective whose last chunk this is.
    fn ended(&mut self, chunk: u32) -> Option<Arc<Collective>> {
        let front = self.active.front()?;
        let last = front.first.wrapping_add(front.collective.plan.chunks()).wrapping_sub(1);
        (chunk == last).then(|| self.active.pop_front().expect("it is there").collective)
    }

    /// Waits a little for these ranks; fails if they will not come.
    pub fn wait(&mut self, layout: &Layout, wait: Wait, until: Instant) -> Result<(), LocalError> {
        let Wait { stage, count, ranks } = wait;
        let bell = layout.counter(ranks.trailing_zeros() as usize, stage);
        let seen = || bell.word.load(std::sync::atomic::Ordering::Acquire);
        for _ in 0..self.spins {
            if has_reached(seen(), count) {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        let before = seen();
        if has_reached(before, count) {
            return Ok(());
        }
        self.check_statuses(layout, wait)?;
        let now = Instant::now();
        let deadline = self.active.front().map_or(until, |active| active.collective.deadline);
        if now >= deadline {
            return Err(LocalError::timed_out(names_of(ranks, &self.names), have_begun(stage)));
        }
        if now >= self.next_check {
            self.next_check = now + NAP;
            self.check_processes(layout, wait)?;
        }
        bell.sleep(before, NAP.min(deadline - now).min(until.saturating_duration_since(now)));
        Ok(())
    }

    /// Fails if ranks for which this one waits have said that they do not go on.
    fn check_statuses(&self, layout: &Layout, Wait { stage, count, ranks }: Wait) -> Result<(), LocalError> {
        let shared = Shared { layout, rank: self.rank };
        let mut left = 0;
        for rank in (0..self.ranks).filter(|rank| ranks >> rank & 1 == 1) {
            let status = layout.status(rank);
            // What it has published before it gave up counts.
            if status == Status::Running || has_reached(shared.load(rank, stage), count) {
                continue;
            }
            let named = |ranks| names_of(ranks, &self.names);
            match status {
                Status::TimedOut(missing) if missing >> self.rank & 1 == 1 => {
                    return Err(LocalError::given_up(self.names[rank], self.names[self.rank]));
                }
                Status::TimedOut(missing) => return Err(LocalError::timed_out(named(missing), have_begun(stage))),
                Status::Lost(missing) => return Err(LocalError::died(named(missing))),
                Status::Disagreed => {
                    let sentence = format!("rank {} brings something else", self.names[rank]);
                    return Err(LocalError::Mismatch { sentence, brought: Vec::new() });
                }
                Status::Reported => {
                    return Err(LocalError::Reported { rank: self.names[rank], message: layout.message(rank) });
                }
                Status::Left | Status::Running => left |= 1 << rank,
            }
        }
        if left == 0 { Ok(()) } else { Err(LocalError::left(names_of(left, &self.names))) }
    }

    /// Fails if a process that this rank waits for has ended, unless it has published what is needed before.
    fn check_processes(&self, layout: &Layout, wait: Wait) -> Result<(), LocalError> {
        let ended = os::ended(&self.processes) & wait.ranks;
        let shared = Shared { layout, rank: self.rank };
        let is_lost = |rank: usize| ended >> rank & 1 == 1 && !has_reached(shared.load(rank, wait.stage), wait.count);
        let lost: u64 = (0..self.ranks).filter(|&rank| is_lost(rank)).map(|rank| 1 << rank).sum();
        if lost == 0 {
            return Ok(());
        }
        // Who has left in good order and then ended has left.
        self.check_statuses(layout, Wait { ranks: lost, ..wait })?;
        Err(LocalError::died(names_of(lost, &self.names)))
    }
}

impl Active {
    fn kind(chunk: u32) -> impl Fn(&Active) -> ChunkKind {
        move |active| active.collective.plan.kind(chunk.wrapping_sub(active.first))
    }
}

/// The collective that a chunk belongs to.
fn active(all: &VecDeque<Active>, chunk: u32) -> Option<&Active> {
    all.iter().find(|active| chunk.wrapping_sub(active.first) < active.collective.plan.chunks())
}

fn adder(
    adders: &mut Vec<((DType, ReduceOp), Adder)>,
    dtype: DType,
    op: ReduceOp,
    (ranks, averaged): (usize, u16),
) -> &mut Adder {
    let index = adders.iter().position(|(key, _)| *key == (dtype, op)).unwrap_or_else(|| {
        let adder = Adder::new(dtype, op, ranks, averaged).expect("submissions are checked");
        adders.push(((dtype, op), adder));
        adders.len() - 1
    });
    &mut adders[index].1
}

/// Fails if ranks have described different collectives, and names all ranks with what they bring.
fn agree(layout: &Layout, names: &[u16], number: u32) -> Result<(), LocalError> {
    let first = layout.descriptions(0, number);
    if (1..names.len()).all(|rank| layout.descriptions(rank, number) == first) {
        return Ok(());
    }
    let (mut camps, mut brought): (Vec<(String, Vec<u16>)>, Vec<_>) = Default::default();
    for (rank, &name) in names.iter().enumerate() {
        let operation = layout.descriptions(rank, number).map(|[_, operation]| operation);
        brought.extend(operation.map(|operation| (name, operation)));
        let sentence = operation.map_or_else(|| "something unknown".into(), |operation| operation.to_string());
        match camps.iter_mut().find(|(other, _)| *other == sentence) {
            Some((_, ranks)) => ranks.push(name),
            None => camps.push((sentence, vec![name])),
        }
    }
    let bring = |(operation, ranks): &(String, Vec<u16>)| {
        format!("{} {} {operation}", named(ranks), if ranks.len() == 1 { "brings" } else { "bring" })
    };
    let all = camps.iter().map(bring).collect::<Vec<_>>().join("; ");
    Err(LocalError::Mismatch { sentence: format!("ranks disagree: {all}"), brought })
}

//! The processor of a switch: clusters of cores that run a handler for each packet.
//!
//! Start with [`Processor`]. It does no input or output and reads no clock: packets are given to it with their times
//! ([`Processor::arrive`]), it says when something happens next ([`Processor::next_time`]), and it goes on to a time
//! ([`Processor::advance`]). A packet waits in the packet memory for a core of its block's home subset, first come, first
//! served, and stays there until its handler has ended. What a handler does is in [`handlers`]: steps that take cycles, some
//! of which need a buffer's lock; a core that waits for a lock is busy with waiting. Every number of cycles is the caller's.
//! Not modelled: packets that come twice, a limit of the working memory (its peak is counted), caches, DMA.

pub mod counters;
pub mod handlers;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use counters::{Counters, Level};
use handlers::{Blocks, Handling, Step, Task, Work};

/// Who may run a block's handlers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subset {
    /// One core: S = 1.
    Core,
    /// All cores of one cluster: S = C.
    Cluster,
}

/// The processor's parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Clusters.
    pub clusters: u32,
    /// Cores of each.
    pub cores: u32,
    /// The home of a block.
    pub subset: Subset,
    /// Bytes of the packet memory.
    pub packet_memory: u64,
}

impl Shape {
    /// Cores of all clusters: K.
    pub fn all_cores(&self) -> u32 {
        self.clusters * self.cores
    }

    /// Cores of a subset: S.
    pub fn subset_cores(&self) -> u32 {
        match self.subset {
            Subset::Core => 1,
            Subset::Cluster => self.cores,
        }
    }

    /// The subset that has a block's packets.
    pub fn home(&self, block: u64) -> u32 {
        (block % u64::from(self.all_cores() / self.subset_cores())) as u32
    }
}

/// A packet, as far as the processor cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// What it is summed with.
    pub block: u64,
    /// Whose it is.
    pub child: u32,
    /// Its bytes in the packet memory.
    pub bytes: u64,
}

/// The packet memory has no room for a packet: the caller drops it, or marks or pauses before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// A handler has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Of which packet.
    pub packet: Packet,
    /// On which core.
    pub core: u32,
    /// When the packet arrived, ...
    pub arrived: u64,
    /// ... when the handler began ...
    pub started: u64,
    /// ... and when it ended.
    pub ended: u64,
    /// It sent the block's sum.
    pub sent: bool,
}

/// A stretch of a core's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// The core.
    pub core: u32,
    /// The packet whose handler it runs.
    pub packet: Packet,
    /// What it does; none: it waits for a lock.
    pub work: Option<Work>,
    /// The buffer that it writes to or waits for.
    pub buffer: u32,
    /// From ...
    pub from: u64,
    /// ... to.
    pub to: u64,
}

/// A handler on its core.
struct Running {
    task: Task,
    arrived: u64,
    started: u64,
    /// What it does now, and since when it does it or waits for the lock to do it.
    step: Step,
    since: u64,
    /// The buffer whose lock it has.
    holds: Option<u32>,
}

/// A home of blocks: the packets that wait for one of its cores.
#[derive(Default)]
struct Queue {
    waiting: VecDeque<(Packet, u64)>,
    length: Level,
}

/// Clusters of cores.
pub struct Processor {
    shape: Shape,
    blocks: Blocks,
    cores: Vec<Option<Running>>,
    queues: Vec<Queue>,
    /// When a step of a core ends. Of those that end at one time the lower core's is first.
    ends: BinaryHeap<Reverse<(u64, u32)>>,
    counters: Counters,
    stretches: Option<Vec<Stretch>>,
    finished: Vec<Finished>,
}

impl Processor {
    /// A processor that has nothing to do.
    pub fn new(shape: Shape, handling: Handling) -> Processor {
        let subsets = shape.all_cores() / shape.subset_cores();
        Processor {
            shape,
            blocks: Blocks::new(handling),
            cores: (0..shape.all_cores()).map(|_| None).collect(),
            queues: (0..subsets).map(|_| Queue::default()).collect(),
            ends: BinaryHeap::new(),
            counters: Counters::default(),
            stretches: None,
            finished: Vec::new(),
        }
    }

    /// Keeps what every core does and when, for [`Processor::stretches`].
    pub fn recording(mut self) -> Processor {
        self.stretches = Some(Vec::new());
        self
    }

    /// What cores did, in the order in which it ended.
    pub fn stretches(&self) -> &[Stretch] {
        self.stretches.as_deref().unwrap_or_default()
    }

    /// What was counted.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Packets that wait for a core of a subset.
    pub fn queue(&self, subset: u32) -> &Level {
        &self.queues[subset as usize].length
    }

    /// When something happens next.
    pub fn next_time(&self) -> Option<u64> {
        self.ends.peek().map(|Reverse((at, _))| *at)
    }

    /// A packet comes in. Everything before this time must have happened ([`Processor::advance`]); a core that becomes free at
    /// it is free for the packet only if that has happened too.
    pub fn arrive(&mut self, now: u64, packet: Packet) -> Result<(), Full> {
        debug_assert!(self.next_time().is_none_or(|next| next >= now), "something happens before {now}");
        if self.counters.input_bytes.value() + packet.bytes > self.shape.packet_memory {
            self.counters.refused += 1;
            return Err(Full);
        }
        self.counters.input_bytes.rise(now, packet.bytes);
        self.counters.packets.rise(now, 1);
        let subset = self.shape.home(packet.block);
        let first = subset * self.shape.subset_cores();
        let free = (first..first + self.shape.subset_cores()).find(|&core| self.cores[core as usize].is_none());
        match free {
            Some(core) => self.begin(now, core, packet, now),
            None => {
                let queue = &mut self.queues[subset as usize];
                queue.waiting.push_back((packet, now));
                queue.length.rise(now, 1);
                self.counters.queued.rise(now, 1);
            }
        }
        Ok(())
    }

    /// Everything happens that does so up to a time. Gives the handlers that ended.
    pub fn advance(&mut self, now: u64) -> Vec<Finished> {
        while let Some(&Reverse((at, core))) = self.ends.peek().filter(|Reverse((at, _))| *at <= now) {
            self.ends.pop();
            if let Some(running) = &self.cores[core as usize] {
                let (step, since) = (running.step, running.since);
                self.counters.busy[step.work as usize] += at - since;
                self.note(core, Some(step.work), since, at);
                self.proceed(at, core);
            }
        }
        std::mem::take(&mut self.finished)
    }

    fn begin(&mut self, now: u64, core: u32, packet: Packet, arrived: u64) {
        let (task, step) = self.blocks.begin(now, packet, &mut self.counters);
        self.cores[core as usize] = Some(Running { task, arrived, started: now, step, since: now, holds: None });
        self.take(now, core, step);
    }

    /// A step has ended: the next one, or the end.
    fn proceed(&mut self, now: u64, core: u32) {
        let Some(running) = &mut self.cores[core as usize] else { return };
        let next = self.blocks.next(now, &mut running.task, &mut self.counters);
        let block = running.task.packet.block;
        if let Some(buffer) = running.holds.filter(|&buffer| next.and_then(|step| step.lock) != Some(buffer)) {
            running.holds = None;
            if let Some(waiter) = self.blocks.release(block, buffer) {
                self.granted(now, waiter, buffer);
            }
        }
        match next {
            Some(step) => self.take(now, core, step),
            None => self.end(now, core),
        }
    }

    /// A core takes up a step, or waits for its lock.
    fn take(&mut self, now: u64, core: u32, step: Step) {
        let Some(running) = &mut self.cores[core as usize] else { return };
        (running.step, running.since) = (step, now);
        if let Some(buffer) = step.lock.filter(|buffer| running.holds != Some(*buffer)) {
            if !self.blocks.acquire(running.task.packet.block, buffer, core) {
                return;
            }
            running.holds = Some(buffer);
        }
        self.ends.push(Reverse((now + step.cycles, core)));
    }

    /// A core has the lock for which it waited.
    fn granted(&mut self, now: u64, core: u32, buffer: u32) {
        let Some(running) = &mut self.cores[core as usize] else { return };
        let since = std::mem::replace(&mut running.since, now);
        running.holds = Some(buffer);
        self.ends.push(Reverse((now + running.step.cycles, core)));
        self.counters.lock_waiting += now - since;
        self.note(core, None, since, now);
    }

    /// A handler has ended: its core takes the packet that has waited longest.
    fn end(&mut self, now: u64, core: u32) {
        let Some(Running { task, arrived, started, .. }) = self.cores[core as usize].take() else { return };
        let sent = self.blocks.end(now, &task, &mut self.counters);
        let packet = task.packet;
        self.counters.input_bytes.fall(now, packet.bytes);
        self.counters.packets.fall(now, 1);
        self.counters.finished += 1;
        self.finished.push(Finished { packet, core, arrived, started, ended: now, sent });
        let queue = &mut self.queues[(core / self.shape.subset_cores()) as usize];
        if let Some((packet, arrived)) = queue.waiting.pop_front() {
            queue.length.fall(now, 1);
            self.counters.queued.fall(now, 1);
            self.begin(now, core, packet, arrived);
        }
    }

    fn note(&mut self, core: u32, work: Option<Work>, from: u64, to: u64) {
        let Some(Running { task, step, .. }) = &self.cores[core as usize] else { return };
        let stretch = Stretch { core, packet: task.packet, work, buffer: step.buffer, from, to };
        self.stretches.iter_mut().filter(|_| to > from).for_each(|stretches| stretches.push(stretch));
    }
}

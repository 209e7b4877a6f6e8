//! The processor of a switch: clusters of cores that run a handler for each packet.
//!
//! Start with [`Processor`]. It does no input or output and reads no clock: packets are given to it with their times
//! ([`Processor::arrive`]), it tells the next time at which something happens ([`Processor::next_time`]), and it goes
//! on to a time ([`Processor::advance`]). A packet waits in the packet memory until its home cluster fetches it, and
//! then for a core of its block's home subset, first come, first served; it stays in the packet memory until its
//! handler has ended. [`handlers`] has a handler's steps, which take time; some need a buffer's lock, and a core that
//! waits for a lock is busy with waiting. A [`Machine`] tells the cost of a step: the machine of [`model`], whose
//! packets are all alike, or the switch's own with the prices of [`prices`]. Times are numbers of one unit, which the
//! caller chooses. Not modelled: banks of memory that two cores access, and the network between clusters.

pub(crate) mod counters;
pub(crate) mod handlers;
mod homes;
pub mod model;
pub mod operators;
pub mod prices;
pub mod steps;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use tributary_proto::contract::work::Needs;

use counters::{Counters, Level};
use handlers::{Blocks, Step, Task};
pub use homes::Assignment;
use homes::Homes;
pub(crate) use model::Fetching;
pub use model::{Shape, Subset};
use steps::{Kind, Machine, Spent};

/// The properties of a packet that matter to the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The block that it belongs to.
    pub block: u64,
    /// The owner of the block: blocks of different owners differ.
    pub owner: u32,
    /// The child that sent it, for people.
    pub child: u32,
    /// Its bytes in the packet memory.
    pub bytes: u64,
    /// What its handler must have of the block.
    pub needs: Needs,
    /// How long its handler takes to start.
    pub start: u64,
    /// The caller's number for it.
    pub tag: u32,
    /// The cluster that handles it; the processor sets it.
    pub cluster: u32,
    /// The subset of cores that handles it; the processor sets it.
    pub home: u32,
}

impl Packet {
    /// A packet that needs nothing of its block.
    pub fn new(block: u64, child: u32, bytes: u64) -> Packet {
        Packet { block, owner: 0, child, bytes, needs: Needs::Nothing, start: 0, tag: 0, cluster: 0, home: 0 }
    }

    fn key(&self) -> (u32, u64) {
        (self.owner, self.block)
    }
}

/// The packet memory is full, so the caller drops the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// A handler has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// The handler's packet.
    pub packet: Packet,
    /// The core.
    pub core: u32,
    /// When the packet arrived.
    pub arrived: u64,
    /// When the handler began.
    pub started: u64,
    /// When the handler ended.
    pub ended: u64,
    /// The handler's call of the machine completed the block; the handler that ends the block sends the sum.
    pub completes: bool,
    /// The tag of the packet that completed the block, if this handler ended the block.
    pub sent: Option<u32>,
}

/// A period of a core's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// The core.
    pub core: u32,
    /// The packet whose handler it runs.
    pub packet: Packet,
    /// The kind of its work; `None` while it waits for a lock.
    pub kind: Option<Kind>,
    /// The buffer that it writes to or waits for.
    pub buffer: u32,
    /// When the period begins.
    pub from: u64,
    /// When the period ends.
    pub to: u64,
}

/// A handler on its core.
struct Running {
    task: Task,
    arrived: u64,
    started: u64,
    /// Its present step, and since when it does the step or waits for the step's lock.
    step: Step,
    since: u64,
    /// The buffer whose lock it has.
    holds: Option<u32>,
}

/// The home of blocks: the packets that wait for one of its cores.
#[derive(Default)]
struct Queue {
    waiting: VecDeque<(Packet, u64)>,
    length: Level,
}

/// A cluster's input: the packets that it has not fetched, and those that it fetches.
#[derive(Default)]
struct Cluster {
    waiting: VecDeque<(Packet, u64)>,
    fetching: VecDeque<(Packet, u64)>,
    /// How many packets it has fetched or fetches whose handlers have not begun.
    fetched: u32,
    /// When its DMA is free.
    free_at: u64,
    /// When the handlers' code is in its instruction cache.
    warm_at: Option<u64>,
}

/// An end of a fetch or a step. Of those at the same time, fetches come first, then the step of the lower core.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Fetch(u32),
    Step(u32),
}

/// Clusters of cores.
pub struct Processor {
    shape: Shape,
    blocks: Blocks,
    homes: Homes,
    cores: Vec<Option<Running>>,
    queues: Vec<Queue>,
    clusters: Vec<Cluster>,
    ends: BinaryHeap<Reverse<(u64, End)>>,
    counters: Counters,
    stretches: Option<Vec<Stretch>>,
    finished: Vec<Finished>,
}

impl Processor {
    /// A processor without packets.
    pub fn new(shape: Shape) -> Processor {
        let subsets = shape.subsets();
        Processor {
            shape,
            blocks: Blocks::new(shape.clusters, shape.working_memory),
            homes: Homes::new(shape.assignment, subsets),
            cores: (0..shape.all_cores()).map(|_| None).collect(),
            queues: (0..subsets).map(|_| Queue::default()).collect(),
            clusters: (0..shape.clusters).map(|_| Cluster::default()).collect(),
            ends: BinaryHeap::new(),
            counters: Counters::default(),
            stretches: None,
            finished: Vec::new(),
        }
    }

    /// Records what every core does and when, for [`Processor::stretches`].
    pub fn recording(mut self) -> Processor {
        self.stretches = Some(Vec::new());
        self
    }

    /// The processor's clusters, cores and memories.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The recorded periods of cores, in the order of their ends.
    pub fn stretches(&self) -> &[Stretch] {
        self.stretches.as_deref().unwrap_or_default()
    }

    /// The counts.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The packets that wait for a core of a subset, once its cluster has fetched them.
    pub fn queue(&self, subset: u32) -> &Level {
        &self.queues[subset as usize].length
    }

    /// The longest queue of packets for a core of one subset.
    pub fn longest_queue(&self) -> u64 {
        self.queues.iter().map(|queue| queue.length.peak()).max().unwrap_or(0)
    }

    /// An arriving packet was marked, or would have been if its sender supported marks.
    pub fn count_mark(&mut self, is_marked: bool) {
        self.counters.marked += u64::from(is_marked);
    }

    /// The next time at which something happens.
    pub fn next_time(&self) -> Option<u64> {
        self.ends.peek().map(|Reverse((at, _))| *at)
    }

    /// A packet arrives. Everything before this time must have happened ([`Processor::advance`]); a core that becomes
    /// free at this very time is free for the packet only if that has happened too.
    pub fn arrive(&mut self, now: u64, mut packet: Packet, machine: &mut dyn Machine) -> Result<(), Full> {
        debug_assert!(self.next_time().is_none_or(|next| next >= now), "something happens before {now}");
        if self.counters.input_bytes.value() + packet.bytes > self.shape.packet_memory {
            self.counters.refused += 1;
            return Err(Full);
        }
        self.counters.input_bytes.rise(now, packet.bytes);
        self.counters.packets.rise(now, 1);
        self.counters.begin(now);
        packet.home = self.homes.of(&packet);
        packet.cluster = packet.home * self.shape.subset_cores() / self.shape.cores;
        if self.shape.fetching.is_some() {
            self.clusters[packet.cluster as usize].waiting.push_back((packet, now));
            self.fetch(now, packet.cluster);
        } else {
            self.enqueue(now, packet, now, machine);
        }
        Ok(())
    }

    /// Goes on to a time. Returns the handlers that ended.
    pub fn advance(&mut self, now: u64, machine: &mut dyn Machine) -> Vec<Finished> {
        while let Some(&Reverse((at, end))) = self.ends.peek().filter(|Reverse((at, _))| *at <= now) {
            self.ends.pop();
            match end {
                End::Fetch(cluster) => {
                    if let Some((packet, arrived)) = self.clusters[cluster as usize].fetching.pop_front() {
                        self.enqueue(at, packet, arrived, machine);
                    }
                }
                End::Step(core) => {
                    if let Some(running) = &self.cores[core as usize] {
                        let (step, since) = (running.step, running.since);
                        self.counters.busy.add(&step.spent.unwrap_or_default());
                        self.note(core, Some(step.kind), since, at);
                        self.proceed(at, core, machine);
                    }
                }
            }
        }
        std::mem::take(&mut self.finished)
    }

    /// A cluster fetches the packets that wait for it, while it has free slots.
    fn fetch(&mut self, now: u64, cluster: u32) {
        let Some(Fetching { input_slots, bytes_per_cycle, latency, cycle }) = self.shape.fetching else { return };
        let own = &mut self.clusters[cluster as usize];
        while own.fetched < input_slots
            && let Some((packet, arrived)) = own.waiting.pop_front()
        {
            own.fetched += 1;
            own.free_at = own.free_at.max(now) + packet.bytes.div_ceil(bytes_per_cycle) * cycle;
            own.fetching.push_back((packet, arrived));
            self.ends.push(Reverse((own.free_at + latency * cycle, End::Fetch(cluster))));
        }
    }

    /// A packet is now where cores can take it.
    fn enqueue(&mut self, now: u64, packet: Packet, arrived: u64, machine: &mut dyn Machine) {
        let subset = packet.home;
        let first = subset * self.shape.subset_cores();
        let free = (first..first + self.shape.subset_cores()).find(|&core| self.cores[core as usize].is_none());
        match free {
            Some(core) => self.begin(now, core, packet, arrived, machine),
            None => {
                let queue = &mut self.queues[subset as usize];
                queue.waiting.push_back((packet, arrived));
                queue.length.rise(now, 1);
                self.counters.queued.rise(now, 1);
            }
        }
    }

    fn begin(&mut self, now: u64, core: u32, packet: Packet, arrived: u64, machine: &mut dyn Machine) {
        let own = &mut self.clusters[packet.cluster as usize];
        let warm_at = *own.warm_at.get_or_insert(now + self.shape.cold_start);
        let (task, step) = self.blocks.begin(packet, packet.start + warm_at.saturating_sub(now));
        self.cores[core as usize] = Some(Running { task, arrived, started: now, step, since: now, holds: None });
        if self.shape.fetching.is_some() {
            own.fetched -= 1;
            self.fetch(now, packet.cluster);
        }
        self.take(now, core, step, machine);
    }

    /// A step has ended: begins the next step, or ends the handler.
    fn proceed(&mut self, now: u64, core: u32, machine: &mut dyn Machine) {
        let Some(running) = &mut self.cores[core as usize] else { return };
        let next = self.blocks.next(now, &mut running.task, &mut self.counters);
        let packet = running.task.packet;
        if let Some(buffer) = running.holds.filter(|&buffer| next.and_then(|step| step.lock) != Some(buffer)) {
            running.holds = None;
            if let Some(waiter) = self.blocks.release(&packet, buffer) {
                self.granted(now, waiter, buffer, machine);
            }
        }
        match next {
            Some(step) => self.take(now, core, step, machine),
            None => self.end(now, core, machine),
        }
    }

    /// A core begins a step, or waits for the step's lock.
    fn take(&mut self, now: u64, core: u32, step: Step, machine: &mut dyn Machine) {
        let Some(running) = &mut self.cores[core as usize] else { return };
        (running.step, running.since) = (step, now);
        if let Some(buffer) = step.lock.filter(|buffer| running.holds != Some(*buffer)) {
            if !self.blocks.acquire(&running.task.packet, buffer, core) {
                return;
            }
            running.holds = Some(buffer);
        }
        self.perform(now, core, machine);
    }

    /// A core does a step, for which it has everything that it needs.
    fn perform(&mut self, now: u64, core: u32, machine: &mut dyn Machine) {
        let Some(running) = &mut self.cores[core as usize] else { return };
        let spent: Spent = match running.step.spent {
            Some(spent) => spent,
            None => {
                let (kind, spent) = self.blocks.call(now, &mut running.task, machine, &mut self.counters);
                running.step = Step { kind, spent: Some(spent), ..running.step };
                spent
            }
        };
        self.ends.push(Reverse((now + spent.total(), End::Step(core))));
    }

    /// A core gets the lock for which it waited.
    fn granted(&mut self, now: u64, core: u32, buffer: u32, machine: &mut dyn Machine) {
        let Some(running) = &mut self.cores[core as usize] else { return };
        let since = std::mem::replace(&mut running.since, now);
        running.holds = Some(buffer);
        self.counters.lock_waiting += now - since;
        self.note(core, None, since, now);
        self.perform(now, core, machine);
    }

    /// A handler has ended: its core takes the packet that has waited longest.
    fn end(&mut self, now: u64, core: u32, machine: &mut dyn Machine) {
        let Some(Running { task, arrived, started, .. }) = self.cores[core as usize].take() else { return };
        let sent = self.blocks.end(now, &task, &mut self.counters);
        let (packet, completes) = (task.packet, task.completes());
        if sent.is_some() {
            self.homes.end(&packet);
        }
        self.counters.input_bytes.fall(now, packet.bytes);
        self.counters.packets.fall(now, 1);
        self.counters.end(now, packet.bytes);
        self.finished.push(Finished { packet, core, arrived, started, ended: now, completes, sent });
        let queue = &mut self.queues[(core / self.shape.subset_cores()) as usize];
        if let Some((packet, arrived)) = queue.waiting.pop_front() {
            queue.length.fall(now, 1);
            self.counters.queued.fall(now, 1);
            self.begin(now, core, packet, arrived, machine);
        }
    }

    fn note(&mut self, core: u32, kind: Option<Kind>, from: u64, to: u64) {
        let Some(Running { task, step, .. }) = &self.cores[core as usize] else { return };
        let stretch = Stretch { core, packet: task.packet, kind, buffer: step.buffer, from, to };
        self.stretches.iter_mut().filter(|_| to > from).for_each(|stretches| stretches.push(stretch));
    }
}

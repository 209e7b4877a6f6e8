//! The work of a block's handlers: their steps, and the locks of buffers.

use std::collections::{BTreeMap, VecDeque};

use tributary_proto::contract::work::Needs;

use super::Packet;
use super::counters::Counters;
use super::steps::{Called, Kind, Machine, Spent};

/// A step of a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The main kind of its work.
    pub kind: Kind,
    /// How long it takes; `None` for the step that calls the machine, whose time is not known before.
    pub spent: Option<Spent>,
    /// The buffer whose lock it needs. A handler that needs the same lock for its next step keeps it.
    pub lock: Option<u32>,
    /// The buffer that it reads or writes.
    pub buffer: u32,
}

/// A handler: its packet, and its progress.
pub struct Task {
    pub(super) packet: Packet,
    called: Called,
    /// The round of the block to which it belongs.
    round: u32,
    stage: Stage,
    /// The packet whose call completed the block that this handler sends.
    sends: Option<u32>,
}

impl Task {
    /// True if its call of the machine completed the block.
    pub(super) fn completes(&self) -> bool {
        self.called.completes
    }
}

#[derive(Clone, Copy)]
enum Stage {
    Starting,
    /// It calls the machine, and combines its packet with this buffer.
    Calling(u32),
    /// It has merged the buffers below `next` into its own.
    Merging {
        own: u32,
        next: u32,
        tail: Tail,
    },
    /// It makes this node of the tree.
    Climbing {
        level: usize,
        index: usize,
        merges: bool,
    },
    Ending,
}

/// A buffer of a block, and its lock.
#[derive(Clone, Default)]
struct Buffer {
    owner: Option<u32>,
    waiting: VecDeque<u32>,
}

/// A node of a tree: a copy of a packet, or the sum of two nodes.
#[derive(Clone, Copy, PartialEq)]
enum Node {
    /// No handler makes it yet.
    Missing,
    /// It exists from this time on.
    From(u64),
    /// A handler has taken it.
    Taken,
}

/// The end of a block: the packet that completed it, and the costs of the end.
#[derive(Clone, Copy)]
struct Tail {
    tag: u32,
    merge: Spent,
    end: Spent,
}

/// A block that some handler works on, or that has begun and is not complete.
#[derive(Default)]
struct Block {
    /// How many handlers work on it.
    handlers: u32,
    buffers: Vec<Buffer>,
    /// The round whose packets the machine takes now. A slot's next round may begin before the handler ends that sends
    /// this round's sum again for a rank that has asked for it.
    current: u32,
    rounds: BTreeMap<u32, Round>,
}

/// One sum.
#[derive(Default)]
struct Round {
    /// How many handlers have called the machine and still combine their packets with buffers.
    combining: u32,
    /// For each buffer, whether a packet is in it, or will be before another handler owns it.
    used: Vec<bool>,
    /// The nodes of each level, the leaves first.
    nodes: Vec<Vec<Node>>,
    tail: Option<Tail>,
    /// Its bytes of the working memory, and the bytes of a buffer.
    bytes: u64,
    buffer_bytes: u64,
}

/// All blocks, and their locks and buffers.
pub struct Blocks {
    blocks: BTreeMap<(u32, u64), Block>,
    /// For each cluster the bytes of its blocks; and the most that it may have.
    working: Vec<u64>,
    capacity: u64,
}

impl Blocks {
    pub(super) fn new(clusters: u32, capacity: u64) -> Blocks {
        Blocks { blocks: BTreeMap::new(), working: vec![0; clusters as usize], capacity }
    }

    /// A handler begins with its first step.
    pub(super) fn begin(&mut self, packet: Packet, start: u64) -> (Task, Step) {
        let mut task = Task { packet, called: Called::default(), round: 0, stage: Stage::Starting, sends: None };
        let block = self.blocks.entry(packet.key()).or_default();
        block.handlers += 1;
        let step = match start {
            0 => block.first(&mut task),
            cycles => Step { kind: Kind::Start, spent: Some(Spent::on(Kind::Start, cycles)), lock: None, buffer: 0 },
        };
        (task, step)
    }

    /// A handler has what it needs and calls the machine. Returns the time of its step.
    pub(super) fn call(
        &mut self,
        now: u64,
        task: &mut Task,
        machine: &mut dyn Machine,
        counters: &mut Counters,
    ) -> (Kind, Spent) {
        let buffer = if let Stage::Calling(own) = task.stage { own } else { 0 };
        let called = machine.call(now, &task.packet, buffer);
        task.called = called;
        let Some(block) = self.blocks.get_mut(&task.packet.key()) else { return (Kind::Start, Spent::default()) };
        task.round = block.current;
        block.current += u32::from(called.completes);
        if !called.counts && !called.completes {
            return (called.combine.main(), called.combine);
        }
        let buffers = block.buffers.len();
        let round = block.rounds.entry(task.round).or_default();
        if called.completes {
            round.tail = Some(Tail { tag: task.packet.tag, merge: called.merge, end: called.end });
        }
        let grown = match task.packet.needs {
            _ if !called.counts => 0,
            Needs::Buffer(_) | Needs::Table | Needs::Array if round.bytes == 0 => called.buffer_bytes * buffers as u64,
            Needs::Leaf(..) => called.buffer_bytes,
            _ => 0,
        };
        round.buffer_bytes = round.buffer_bytes.max(called.buffer_bytes);
        round.bytes += grown;
        round.used.resize(buffers, false);
        self.hold(now, task, grown, counters);
        self.bring(now, task)
    }

    /// A handler combines its packet with its buffer.
    fn bring(&mut self, now: u64, task: &mut Task) -> (Kind, Spent) {
        let Called { counts, copy, combine, .. } = task.called;
        let Some(round) = self.round(task).filter(|_| counts) else { return (combine.main(), combine) };
        if let Needs::Leaf(index, children) = task.packet.needs {
            if round.nodes.is_empty() {
                round.plant(children.into());
            }
            round.nodes[0][usize::from(index)] = Node::From(now + copy.total());
            return (Kind::Copy, copy);
        }
        round.combining += 1;
        // If there is only one buffer, the machine knows what is in it.
        let several = round.used.len() > 1;
        let own = if let Stage::Calling(own) = task.stage { own } else { 0 };
        let own = round.used.get_mut(own as usize).filter(|_| several);
        let used = own.is_none_or(|own| std::mem::replace(own, true));
        let spent = if used { combine } else { copy };
        (spent.main(), spent)
    }

    fn round(&mut self, task: &Task) -> Option<&mut Round> {
        self.blocks.get_mut(&task.packet.key())?.rounds.get_mut(&task.round)
    }

    fn hold(&mut self, now: u64, task: &Task, bytes: u64, counters: &mut Counters) {
        if bytes > 0 {
            let cluster = &mut self.working[task.packet.cluster as usize];
            *cluster += bytes;
            counters.crowded += u64::from(*cluster > self.capacity);
            counters.working_bytes.rise(now, bytes);
        }
    }

    fn give_back(&mut self, now: u64, task: &Task, bytes: u64, counters: &mut Counters) {
        self.working[task.packet.cluster as usize] -= bytes;
        counters.working_bytes.fall(now, bytes);
    }

    /// The next step of a handler; `None` if it ends.
    pub(super) fn next(&mut self, now: u64, task: &mut Task, counters: &mut Counters) -> Option<Step> {
        let block = self.blocks.get_mut(&task.packet.key())?;
        match task.stage {
            Stage::Starting => Some(block.first(task)),
            Stage::Calling(_) if matches!(task.packet.needs, Needs::Leaf(..)) && task.called.counts => {
                let Needs::Leaf(index, _) = task.packet.needs else { return None };
                self.climb(now, task, 0, index.into())
            }
            Stage::Calling(own) => {
                let Called { counts, completes, end, .. } = task.called;
                let tail = self.round(task).and_then(|round| {
                    round.combining -= u32::from(counts);
                    if round.combining == 0 { round.tail.take() } else { None }
                });
                match tail {
                    Some(tail) => self.merge(task, tail, own, 0),
                    None if completes => None,
                    None => self.blocks.get_mut(&task.packet.key())?.finish(task, end, Some(own)),
                }
            }
            Stage::Merging { own, next, tail } => self.merge(task, tail, own, next),
            Stage::Climbing { level, index, merges } => {
                if merges {
                    let round = self.round(task)?;
                    let bytes = round.buffer_bytes.min(round.bytes);
                    round.bytes -= bytes;
                    self.give_back(now, task, bytes, counters);
                }
                self.climb(now, task, level, index)
            }
            Stage::Ending => None,
        }
    }

    /// The last handler merges the next of the other buffers, or ends the block.
    fn merge(&mut self, task: &mut Task, tail: Tail, own: u32, next: u32) -> Option<Step> {
        let block = self.blocks.get_mut(&task.packet.key())?;
        let used = block.rounds.get(&task.round).map_or(&[][..], |round| &round.used);
        let other = (next..used.len() as u32).find(|&other| other != own && used[other as usize]);
        let Some(other) = other else {
            task.sends = Some(tail.tag);
            return block.finish(task, tail.end, Some(own));
        };
        task.stage = Stage::Merging { own, next: other + 1, tail };
        let lock = (!block.buffers.is_empty()).then_some(own);
        Some(Step { kind: Kind::Merge, spent: Some(tail.merge), lock, buffer: other })
    }

    /// A handler has made a node. It goes on if the sibling is there and no other handler has taken it. Of two nodes
    /// that are made at the same time, the handler on the lower core goes on, because it is asked first.
    fn climb(&mut self, now: u64, task: &mut Task, mut level: usize, mut index: usize) -> Option<Step> {
        let merge = task.called.merge;
        let block = self.blocks.get_mut(&task.packet.key())?;
        let round = block.rounds.get_mut(&task.round)?;
        let leaves = round.nodes[0].len();
        loop {
            let (width, sibling) = (round.nodes[level].len(), index ^ 1);
            if width == 1 {
                let tail = round.tail.take()?;
                task.sends = Some(tail.tag);
                return block.finish(task, tail.end, None);
            }
            let nodes = &mut round.nodes;
            let alone = sibling == width;
            let there = alone || matches!(nodes[level][sibling], Node::From(time) if time <= now);
            if nodes[level][index] == Node::Taken || !there {
                return None;
            }
            nodes[level][index] = Node::Taken;
            if !alone {
                nodes[level][sibling] = Node::Taken;
            }
            (level, index) = (level + 1, index / 2);
            nodes[level][index] = Node::From(if alone { now } else { now + merge.total() });
            if !alone {
                task.stage = Stage::Climbing { level, index, merges: true };
                // Into the right one of the two buffers, as in the paper: B0 + B1 is then in B1.
                let buffer = ((((index + 1) << level) - 1).min(leaves - 1)) as u32;
                return Some(Step { kind: Kind::Merge, spent: Some(merge), lock: None, buffer });
            }
        }
    }

    /// A handler ends. Returns the packet whose sum it has sent, in which case nothing of the block is kept.
    pub(super) fn end(&mut self, now: u64, task: &Task, counters: &mut Counters) -> Option<u32> {
        let key = task.packet.key();
        let block = self.blocks.get_mut(&key)?;
        block.handlers -= 1;
        if task.sends.is_some() {
            let bytes = block.rounds.remove(&task.round).map_or(0, |round| round.bytes);
            self.give_back(now, task, bytes, counters);
        }
        if self.blocks.get(&key).is_some_and(|block| block.handlers == 0 && block.rounds.is_empty()) {
            self.blocks.remove(&key);
        }
        task.sends
    }

    /// Gives a core the lock of a buffer, or queues the core behind those that wait; true if it has the lock.
    pub(super) fn acquire(&mut self, packet: &Packet, buffer: u32, core: u32) -> bool {
        let Some(block) = self.blocks.get_mut(&packet.key()) else { return false };
        let buffer = &mut block.buffers[buffer as usize];
        match buffer.owner {
            None => buffer.owner = Some(core),
            Some(_) => buffer.waiting.push_back(core),
        }
        buffer.owner == Some(core)
    }

    /// The owner of a buffer returns the lock. Returns the core that gets it: the one that has waited longest.
    pub(super) fn release(&mut self, packet: &Packet, buffer: u32) -> Option<u32> {
        let buffer = &mut self.blocks.get_mut(&packet.key())?.buffers[buffer as usize];
        buffer.owner = buffer.waiting.pop_front();
        buffer.owner
    }
}

impl Block {
    /// The step in which a handler calls the machine.
    fn first(&mut self, task: &mut Task) -> Step {
        let own = match task.packet.needs {
            Needs::Nothing => None,
            Needs::Buffer(buffers) => Some(self.choose(buffers.max(1))),
            Needs::Table | Needs::Array => Some(self.choose(1)),
            Needs::Leaf(..) => None,
        };
        task.stage = Stage::Calling(own.unwrap_or(0));
        let buffer = if let Needs::Leaf(index, _) = task.packet.needs { index.into() } else { own.unwrap_or(0) };
        Step { kind: Kind::Combine, spent: None, lock: own, buffer }
    }

    /// The first buffer that no handler owns, or else the one for which the fewest wait.
    fn choose(&mut self, buffers: u16) -> u32 {
        if self.buffers.len() < usize::from(buffers) {
            self.buffers.resize(buffers.into(), Buffer::default());
        }
        let waiting = |buffer: &Buffer| (buffer.owner.is_some(), buffer.waiting.len());
        let chosen = self.buffers[..usize::from(buffers)].iter().enumerate();
        chosen.min_by_key(|(index, buffer)| (waiting(buffer), *index)).map_or(0, |(index, _)| index as u32)
    }

    /// The last step of a handler.
    fn finish(&self, task: &mut Task, end: Spent, own: Option<u32>) -> Option<Step> {
        task.stage = Stage::Ending;
        let lock = own.filter(|_| !self.buffers.is_empty() && task.packet.needs != Needs::Nothing);
        let kind = if end[Kind::Scan] > 0 { Kind::Scan } else { Kind::Send };
        (end.total() > 0).then_some(Step { kind, spent: Some(end), lock, buffer: own.unwrap_or(0) })
    }
}

impl Round {
    /// A tree without any nodes yet.
    fn plant(&mut self, leaves: usize) {
        let mut width = leaves;
        while width > 0 {
            self.nodes.push(vec![Node::Missing; width]);
            width = if width == 1 { 0 } else { width.div_ceil(2) };
        }
    }
}

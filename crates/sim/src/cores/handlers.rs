//! What the handlers of a block's packets do: steps, and the locks of its buffers.

use std::collections::{BTreeMap, VecDeque};

use super::Packet;
use super::counters::Counters;

/// How a block's packets become its sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Design {
    /// Each packet for itself, without a lock and without a buffer: queues alone.
    Apart,
    /// So many buffers. A handler owns one while it combines, the first that nobody owns, or else waits for the one
    /// for which the fewest wait. The handler that is the last to combine merges the other buffers into its own, one after
    /// the other.
    Buffers(u32),
    /// A buffer for each child. A handler copies its packet there, and merges it with its sibling if that is there, and so
    /// on upwards; it never waits.
    Tree,
}

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// The handler starts: its overhead.
    Start,
    /// A packet is copied into a buffer that is empty.
    Copy,
    /// A packet is combined with a buffer.
    Combine,
    /// A buffer is combined with another one.
    Merge,
    /// The sum is read back and sent.
    Send,
}

impl Work {
    /// How many there are.
    pub const COUNT: usize = Work::Send as usize + 1;
}

/// How long steps take, in cycles. A start or a send of no cycles is no step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// The overhead of a handler.
    pub start: u64,
    /// The first packet of a buffer.
    pub copy: u64,
    /// Every later one, and one buffer with another.
    pub combine: u64,
    /// The result.
    pub send: u64,
}

/// What the handlers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handling {
    /// How they sum.
    pub design: Design,
    /// Packets of a block.
    pub children: u32,
    /// Bytes of a buffer.
    pub buffer_bytes: u64,
    /// How long it takes.
    pub costs: Costs,
}

/// A step of a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// What it does.
    pub work: Work,
    /// How long it takes.
    pub cycles: u64,
    /// The buffer whose lock it needs. A handler that needs the same one for its next step keeps it.
    pub lock: Option<u32>,
    /// The buffer that it reads or writes.
    pub buffer: u32,
}

/// A handler: its packet, and how far it is.
pub struct Task {
    pub(super) packet: Packet,
    stage: Stage,
}

#[derive(Clone, Copy)]
enum Stage {
    Starting,
    /// It combines its packet with this buffer.
    Combining(u32),
    /// It has merged the buffers below `next` into its own.
    Merging {
        own: u32,
        next: u32,
    },
    /// It makes this node of the tree: level and place.
    Climbing {
        level: usize,
        place: usize,
        merges: bool,
    },
    Sending,
}

/// A buffer of a block, and its lock.
#[derive(Clone, Default)]
struct Buffer {
    owner: Option<u32>,
    waiting: VecDeque<u32>,
    /// A packet is in it, or will be before anybody else owns it.
    used: bool,
}

/// A node of a tree: a packet's copy, or two nodes' sum.
#[derive(Clone, Copy, PartialEq)]
enum Node {
    /// Nobody makes it yet.
    Missing,
    /// It is there from this time on.
    From(u64),
    /// Somebody has taken it.
    Taken,
}

/// A block that is begun and not complete.
struct Block {
    combined: u32,
    buffers: Vec<Buffer>,
    /// Level by level, the leaves first.
    nodes: Vec<Vec<Node>>,
}

/// All blocks, and what is done to them.
pub struct Blocks {
    handling: Handling,
    blocks: BTreeMap<u64, Block>,
}

impl Blocks {
    pub(super) fn new(handling: Handling) -> Blocks {
        Blocks { handling, blocks: BTreeMap::new() }
    }

    /// A handler begins with its first step.
    pub(super) fn begin(&mut self, now: u64, packet: Packet, counters: &mut Counters) -> (Task, Step) {
        let mut task = Task { packet, stage: Stage::Starting };
        let start = self.handling.costs.start;
        let step = match start {
            0 => self.first(now, &mut task, counters),
            cycles => Step { work: Work::Start, cycles, lock: None, buffer: 0 },
        };
        (task, step)
    }

    /// What a handler does after a step; none: it ends.
    pub(super) fn next(&mut self, now: u64, task: &mut Task, counters: &mut Counters) -> Option<Step> {
        match task.stage {
            Stage::Starting => Some(self.first(now, task, counters)),
            Stage::Combining(own) => {
                let block = self.blocks.get_mut(&task.packet.block)?;
                block.combined += 1;
                (block.combined == self.handling.children).then_some(())?;
                self.merge(task, own, 0)
            }
            Stage::Merging { own, next } => self.merge(task, own, next),
            Stage::Climbing { level, place, merges } => {
                if merges {
                    counters.working_bytes.fall(now, self.handling.buffer_bytes);
                }
                self.climb(now, task, level, place)
            }
            Stage::Sending => None,
        }
    }

    /// The step by which a packet gets into a buffer.
    fn first(&mut self, now: u64, task: &mut Task, counters: &mut Counters) -> Step {
        let Handling { design, children, buffer_bytes, costs } = self.handling;
        let is_new = !self.blocks.contains_key(&task.packet.block);
        let block = self.blocks.entry(task.packet.block).or_insert_with(|| Block::new(design, children));
        match design {
            Design::Apart => {
                task.stage = Stage::Combining(0);
                Step { work: Work::Combine, cycles: costs.combine, lock: None, buffer: 0 }
            }
            Design::Buffers(count) => {
                if is_new {
                    counters.working_bytes.rise(now, buffer_bytes * u64::from(count));
                }
                let own = block.choose();
                let used = std::mem::replace(&mut block.buffers[own as usize].used, true);
                let (work, cycles) = if used { (Work::Combine, costs.combine) } else { (Work::Copy, costs.copy) };
                task.stage = Stage::Combining(own);
                Step { work, cycles, lock: Some(own), buffer: own }
            }
            Design::Tree => {
                counters.working_bytes.rise(now, buffer_bytes);
                let child = task.packet.child;
                block.nodes[0][child as usize] = Node::From(now + costs.copy);
                task.stage = Stage::Climbing { level: 0, place: child as usize, merges: false };
                Step { work: Work::Copy, cycles: costs.copy, lock: None, buffer: child }
            }
        }
    }

    /// The last handler merges the next of the other buffers, or sends.
    fn merge(&self, task: &mut Task, own: u32, next: u32) -> Option<Step> {
        let buffers = &self.blocks.get(&task.packet.block)?.buffers;
        let lock = (!buffers.is_empty()).then_some(own);
        let other = (next..buffers.len() as u32).find(|&other| other != own && buffers[other as usize].used);
        let Some(other) = other else { return self.send(task, lock) };
        task.stage = Stage::Merging { own, next: other + 1 };
        Some(Step { work: Work::Merge, cycles: self.handling.costs.combine, lock, buffer: other })
    }

    /// A handler has made a node: it goes on if the sibling is there, and nobody has taken them. Of two that are made at one
    /// time the handler on the lower core goes on, as it is asked first.
    fn climb(&mut self, now: u64, task: &mut Task, mut level: usize, mut place: usize) -> Option<Step> {
        let Costs { combine, .. } = self.handling.costs;
        let nodes = &mut self.blocks.get_mut(&task.packet.block)?.nodes;
        loop {
            let (width, sibling) = (nodes[level].len(), place ^ 1);
            if width == 1 {
                return self.send(task, None);
            }
            let alone = sibling == width;
            let there = alone || matches!(nodes[level][sibling], Node::From(time) if time <= now);
            if nodes[level][place] == Node::Taken || !there {
                return None;
            }
            nodes[level][place] = Node::Taken;
            if !alone {
                nodes[level][sibling] = Node::Taken;
            }
            (level, place) = (level + 1, place / 2);
            nodes[level][place] = Node::From(if alone { now } else { now + combine });
            if !alone {
                task.stage = Stage::Climbing { level, place, merges: true };
                // Into the right one of the two, as the paper has it: B0 + B1 is then in B1.
                let buffer = ((((place + 1) << level) - 1) as u32).min(self.handling.children - 1);
                return Some(Step { work: Work::Merge, cycles: combine, lock: None, buffer });
            }
        }
    }

    /// The sum is complete.
    fn send(&self, task: &mut Task, lock: Option<u32>) -> Option<Step> {
        task.stage = Stage::Sending;
        let cycles = self.handling.costs.send;
        (cycles > 0).then_some(Step { work: Work::Send, cycles, lock, buffer: lock.unwrap_or(0) })
    }

    /// A handler ends; true if it has sent the sum. Then nothing of the block stays.
    pub(super) fn end(&mut self, now: u64, task: &Task, counters: &mut Counters) -> bool {
        let sent = matches!(task.stage, Stage::Sending);
        if sent {
            self.blocks.remove(&task.packet.block);
            let buffers = match self.handling.design {
                Design::Apart => 0,
                Design::Buffers(count) => u64::from(count),
                Design::Tree => 1,
            };
            counters.working_bytes.fall(now, buffers * self.handling.buffer_bytes);
        }
        sent
    }

    /// Gives a core a buffer's lock, or puts it behind those that wait; true if it has it.
    pub(super) fn acquire(&mut self, block: u64, buffer: u32, core: u32) -> bool {
        let Some(block) = self.blocks.get_mut(&block) else { return false };
        let buffer = &mut block.buffers[buffer as usize];
        match buffer.owner {
            None => buffer.owner = Some(core),
            Some(_) => buffer.waiting.push_back(core),
        }
        buffer.owner == Some(core)
    }

    /// A buffer's owner gives its lock back. Gives the core that has it then: the one that has waited longest.
    pub(super) fn release(&mut self, block: u64, buffer: u32) -> Option<u32> {
        let buffer = &mut self.blocks.get_mut(&block)?.buffers[buffer as usize];
        buffer.owner = buffer.waiting.pop_front();
        buffer.owner
    }
}

impl Block {
    fn new(design: Design, children: u32) -> Block {
        let buffers = match design {
            Design::Buffers(count) => vec![Buffer::default(); count as usize],
            Design::Apart | Design::Tree => Vec::new(),
        };
        let mut nodes = Vec::new();
        let mut width = if design == Design::Tree { children as usize } else { 0 };
        while width > 0 {
            nodes.push(vec![Node::Missing; width]);
            width = if width == 1 { 0 } else { width.div_ceil(2) };
        }
        Block { combined: 0, buffers, nodes }
    }

    /// The first buffer that nobody owns, or else the one for which the fewest wait.
    fn choose(&self) -> u32 {
        let waiting = |buffer: &Buffer| (buffer.owner.is_some(), buffer.waiting.len());
        let chosen = self.buffers.iter().enumerate().min_by_key(|(index, buffer)| (waiting(buffer), *index));
        chosen.map_or(0, |(index, _)| index as u32)
    }
}

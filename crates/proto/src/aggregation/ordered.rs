//! The ordered accumulator: combines the vectors of children along one fixed tree, in whatever order they arrive.
//!
//! Floats are not associative. So that a sum's bits depend only on the children's positions, and not on arrival, loss
//! or packet size, a block is combined along a balanced binary tree over the positions 0..n: a node of more than one
//! position splits at the largest power of two below their number, and the lower positions are the left operand. A
//! vector that arrives is combined with its sibling if the sibling is complete, the result with the next sibling, and
//! so on upwards; a node waits only while its sibling is incomplete.
//!
//! At most `ceil(n/2)` nodes wait at once ([`nodes_needed`]). Each has its own slot in memory, so that no node is ever
//! searched for: a node lies in the slot of the first pair of children that it covers. No two waiting nodes share a
//! pair: the two halves of a pair are siblings, which do not wait once both are there.

mod forest;
mod load;
mod own;
mod rule;

use std::ops::Range;

use tributary_numeric::Lanes;

pub use self::forest::{Forest, cover};
pub use self::load::{reference, reference_of};
use self::own::Own;
use self::rule::Step;
pub use self::rule::{Arrangement, Rule, Scaled, VectorFormat};

/// Nodes begin at multiples of this, where the kernels are fastest.
const ALIGNMENT: usize = 64;
const UNBEGUN: &str = "a block begins before its vectors come";
/// How many children's arrivals one word remembers.
const WORD_BITS: usize = u64::BITS as usize;

/// The most nodes of one block, of this many children, that wait at the same time.
pub fn nodes_needed(children: usize) -> usize {
    children.div_ceil(2).max(1)
}

/// The positions that a node covers: `2^level` positions from a multiple of `2^level` on, without those beyond the last
/// child.
#[derive(Clone, Copy, Hash)]
struct Node {
    level: u32,
    start: usize,
}

impl Node {
    fn len(self) -> usize {
        1 << self.level
    }
    fn sibling(self) -> Node {
        Node { start: self.start ^ self.len(), ..self }
    }
    fn parent(self) -> Node {
        Node { level: self.level + 1, start: self.start & !self.len() }
    }
    /// The node's position among the nodes of its block.
    fn slot(self) -> usize {
        self.start / 2
    }
}

/// Accumulators of a fixed number of blocks, each with the same children. All memory is allocated when it is made.
#[derive(Clone, Hash)]
pub struct OrderedAccumulator {
    children: usize,
    /// How many nodes each block has.
    width: usize,
    /// Bytes from a node to the next, and so the most bytes of a block's lanes.
    stride: usize,
    nodes: Lanes,
    blocks: Box<[Block]>,
    /// Which children from the 65th on have arrived: this many words for each block.
    more_arrived: Box<[u64]>,
    more_words: usize,
    /// What the switch combines of a tree that reaches beyond this switch.
    forest: Option<Box<Forest>>,
    /// The job's own operators, at work here.
    own: Own,
}

/// How many words of bits beyond the first this many children take.
fn more_words(children: usize) -> usize {
    children.div_ceil(WORD_BITS) - 1
}

/// What a packet needs to know of its block: one line of the cache.
#[derive(Clone, Copy, Default, Hash)]
#[repr(align(64))]
struct Block {
    rule: Option<Rule>,
    /// Which of the first 64 children have arrived, a bit for each.
    arrived: u64,
    /// Elements of the block's vectors, once one is there.
    elements: u32,
    /// How many children have arrived.
    count: u16,
    /// How many of them have brought nothing.
    excused: u16,
}

const _: () = assert!(size_of::<Block>() == 64, "a packet touches one line");

impl OrderedAccumulator {
    /// Accumulators for `blocks` of at most `lane_bytes`, each with one vector from each of `children`, at least 1, and
    /// of `width` nodes: [`nodes_needed`] if blocks are combined along the tree, else as many as a block has buffers.
    pub fn new(children: usize, width: usize, blocks: usize, lane_bytes: usize) -> OrderedAccumulator {
        assert!(children > 0, "a tree has leaves");
        let stride = lane_bytes.next_multiple_of(ALIGNMENT);
        OrderedAccumulator {
            children,
            width,
            stride,
            nodes: Lanes::zeroed(blocks * width * stride),
            blocks: vec![Block::default(); blocks].into(),
            more_arrived: vec![0; blocks * more_words(children)].into(),
            more_words: more_words(children),
            forest: None,
            own: Own::default(),
        }
    }

    /// The same for blocks that are combined along a forest, whose positions are the children.
    pub fn with_forest(self, forest: Option<Forest>) -> OrderedAccumulator {
        OrderedAccumulator { forest: forest.map(Box::new), ..self }
    }

    /// What [`OrderedAccumulator::memory_bytes`] will return, without the job's own operators.
    pub fn memory_needed(children: usize, width: usize, blocks: usize, lane_bytes: usize) -> usize {
        let nodes = Lanes::memory_needed(blocks * width * lane_bytes.next_multiple_of(ALIGNMENT));
        let state = blocks * (size_of::<Block>() + more_words(children) * size_of::<u64>());
        size_of::<OrderedAccumulator>() - size_of::<Lanes>() + nodes + state
    }

    /// Bytes that the accumulator has taken.
    pub fn memory_bytes(&self) -> usize {
        let forest = self.forest.as_ref().map_or(0, |forest| size_of::<Forest>() + forest.memory_bytes());
        let state = size_of_val(&*self.blocks) + size_of_val(&*self.more_arrived) + forest + self.own.memory_bytes();
        size_of::<OrderedAccumulator>() - size_of::<Lanes>() + self.nodes.memory_bytes() + state
    }

    /// How many vectors a complete block has.
    pub fn children(&self) -> usize {
        self.children
    }

    /// Brings a host's vector to its position; true if the block is complete. A child's second vector of a block
    /// changes nothing. The caller ensures that all vectors of a block have the same length, at most the block's.
    pub fn add(&mut self, block: usize, child: usize, vector: &[u8]) -> bool {
        self.insert(block, child, vector, VectorFormat::Host)
    }

    /// The same for the partial result of a switch below.
    pub fn add_partial(&mut self, block: usize, child: usize, partial: &[u8]) -> bool {
        self.insert(block, child, partial, VectorFormat::Partial)
    }

    /// The child has no vector for the block; only where vectors are combined as they come. True if the block is
    /// complete. The result of a block without any vector is empty.
    pub fn excuse(&mut self, block: usize, child: usize) -> bool {
        if !self.has(block, child) {
            debug_assert!(matches!(self.rule(block).arrangement, Arrangement::Buffers(1)));
            self.arrive(block, child);
            self.blocks[block].excused += 1;
        }
        self.is_complete(block)
    }

    fn arrive(&mut self, block: usize, child: usize) {
        let current = &mut self.blocks[block];
        current.count += 1;
        match child / WORD_BITS {
            0 => current.arrived |= 1 << child,
            word => self.more_arrived[block * self.more_words + word - 1] |= 1 << (child % WORD_BITS),
        }
    }

    /// True if the child's vector of the block has arrived.
    pub fn has(&self, block: usize, child: usize) -> bool {
        self.arrived(block, child / WORD_BITS) >> (child % WORD_BITS) & 1 == 1
    }

    /// True if every child's vector of the block has arrived.
    pub fn is_complete(&self, block: usize) -> bool {
        usize::from(self.blocks[block].count) == self.children
    }

    /// The lanes of a complete block, as long as its vectors were; the lanes of an incomplete block mean nothing.
    pub fn result(&self, block: usize) -> &[u8] {
        &self.memory()[self.lanes(block, 0)]
    }

    /// How many vectors a complete block consists of.
    pub fn roots(&self) -> usize {
        self.forest.as_ref().map_or(1, |forest| forest.roots())
    }

    /// The number of a node among the nodes of all blocks.
    fn node(&self, block: usize, slot: usize) -> usize {
        block * self.width + slot
    }

    /// Finishes a complete block, which has the contributions of all ranks (`Combine::finish`).
    pub fn finish(&mut self, block: usize, ranks: u16) {
        let (finish, lanes) = (self.rule(block).combine.finish, self.lanes(block, 0));
        finish(&mut self.memory_mut()[lanes], ranks);
    }

    /// Keeps a result in place of the contributions, as it came: a vector of a host's size.
    pub fn replace(&mut self, block: usize, vector: &[u8]) {
        let size = self.rule(block).result_size();
        self.blocks[block].elements = (vector.len() / size) as u32;
        let start = self.lanes(block, 0).start;
        self.memory_mut()[start..start + vector.len()].copy_from_slice(vector);
        self.blocks[block].rule.iter_mut().for_each(|rule| rule.is_replaced = true);
    }

    fn rule(&self, block: usize) -> &Rule {
        self.blocks[block].rule.as_ref().expect(UNBEGUN)
    }

    /// Forgets the block's vectors, so that others may come, which are combined by the rule.
    pub fn begin(&mut self, block: usize, rule: Rule) {
        let needed = match rule.arrangement {
            Arrangement::Tree => nodes_needed(self.children),
            Arrangement::Buffers(buffers) => buffers.into(),
            Arrangement::Forest => self.forest().buffers(),
        };
        debug_assert!(self.width >= needed, "{:?} needs {needed} nodes", rule.arrangement);
        self.blocks[block] = Block { rule: Some(rule), ..Block::default() };
        // Skipped for no words: without memory, processors take long to find that there is nothing to write.
        if self.more_words > 0 {
            self.more_arrived[block * self.more_words..][..self.more_words].fill(0);
        }
    }

    /// How many nodes of the block wait for another or are the result; never more than [`nodes_needed`].
    pub fn nodes_in_use(&self, block: usize) -> usize {
        if let Some(Rule { arrangement: Arrangement::Buffers(buffers), .. }) = self.blocks[block].rule {
            return if self.is_complete(block) { 1 } else { self.count(block).min(buffers.into()) };
        }
        if self.forest.is_some() {
            return self.branches_in_use(block);
        }
        let root = Node { level: self.children.next_power_of_two().ilog2(), start: 0 };
        self.in_use_below(block, root)
    }

    fn in_use_below(&self, block: usize, node: Node) -> usize {
        if node.start >= self.children {
            0
        } else if self.have_arrived(block, self.positions(node)) {
            1
        } else if node.level == 0 {
            0
        } else {
            let left = Node { level: node.level - 1, start: node.start };
            self.in_use_below(block, left) + self.in_use_below(block, left.sibling())
        }
    }

    fn insert(&mut self, block: usize, child: usize, vector: &[u8], format: VectorFormat) -> bool {
        assert!(child < self.children, "the tree has {} places", self.children);
        if self.has(block, child) {
            return self.is_complete(block);
        }
        let current = &mut self.blocks[block];
        let rule = current.rule.as_ref().expect(UNBEGUN);
        if current.count == current.excused {
            current.elements = (vector.len() / rule.size(format)) as u32;
            let lane_bytes = current.elements as usize * rule.combine.lane_size;
            assert!(lane_bytes <= self.stride, "a block has room for {} bytes", self.stride);
        }
        let (rule, before) = (*rule, current.count - current.excused);
        self.arrive(block, child);
        let current = &self.blocks[block];
        if let Arrangement::Buffers(buffers) = rule.arrangement {
            let step = if before < buffers { Step::Store } else { Step::Right };
            let buffer = if buffers == 1 { 0 } else { usize::from(before % buffers) };
            let node = block * self.width + buffer;
            let start = node * self.stride;
            let lanes = start..start + current.elements as usize * rule.combine.lane_size;
            let is_complete = usize::from(current.count) == self.children;
            self.step(&rule, format, step, (node, lanes), vector);
            if is_complete && buffers > 1 {
                self.bring_together(block, buffers);
            }
            return is_complete;
        }
        if rule.arrangement == Arrangement::Forest {
            return self.insert_in_forest(block, child, vector, format);
        }

        // A leaf whose sibling is there is combined directly from its packet.
        let leaf = self.raised(Node { level: 0, start: child });
        let sibling = leaf.sibling();
        if self.is_root(leaf) || !self.have_arrived(block, self.positions(sibling)) {
            let (node, lanes) = (self.node(block, child / 2), self.lanes(block, child / 2));
            self.step(&rule, format, Step::Store, (node, lanes), vector);
            return self.is_root(leaf);
        }
        let side = if sibling.start < leaf.start { Step::Right } else { Step::Left };
        let (node, lanes) = (self.node(block, sibling.slot()), self.lanes(block, sibling.slot()));
        self.step(&rule, format, side, (node, lanes), vector);
        self.climb(block, leaf.parent())
    }

    /// The last vector of a block in several buffers has come: merges the other buffers into the first, one after the
    /// other.
    fn bring_together(&mut self, block: usize, buffers: u16) {
        let rule = *self.rule(block);
        for buffer in 1..buffers.min(self.blocks[block].count) {
            self.merge(&rule, block, 0, buffer.into());
        }
    }

    /// Merges the second slot's vector, which lies behind the first slot's, into the first.
    fn merge(&mut self, rule: &Rule, block: usize, left: usize, right: usize) {
        let nodes = [left, right].map(|slot| self.node(block, slot));
        let (left, right) = (self.lanes(block, left), self.lanes(block, right));
        if let Some(number) = rule.own {
            return self.own.merge(number, nodes[0], nodes[1], right.len());
        }
        let (low, high) = self.memory_mut().split_at_mut(right.start);
        (rule.combine.merge)(&mut low[left], &high[..right.end - right.start]);
    }

    /// Merges a complete node with its sibling as long as the sibling is complete too; true if that leads to the root.
    fn climb(&mut self, block: usize, mut node: Node) -> bool {
        loop {
            node = self.raised(node);
            if self.is_root(node) {
                return true;
            }
            let sibling = node.sibling();
            if !self.have_arrived(block, self.positions(sibling)) {
                return false;
            }
            let (left, right) = if node.start < sibling.start { (node, sibling) } else { (sibling, node) };
            let rule = *self.rule(block);
            self.merge(&rule, block, left.slot(), right.slot());
            node = node.parent();
        }
    }

    /// The highest node that covers the same children: a node whose sibling lies beyond the last child covers the same
    /// as its parent.
    fn raised(&self, mut node: Node) -> Node {
        while !self.is_root(node) && node.sibling().start >= self.children {
            node = node.parent();
        }
        node
    }

    fn is_root(&self, node: Node) -> bool {
        node.start == 0 && node.len() >= self.children
    }

    fn positions(&self, node: Node) -> Range<usize> {
        node.start..self.children.min(node.start + node.len())
    }

    fn have_arrived(&self, block: usize, positions: Range<usize>) -> bool {
        let (first, last) = (positions.start / WORD_BITS, (positions.end - 1) / WORD_BITS);
        (first..=last).all(|word| {
            let from = positions.start.saturating_sub(word * WORD_BITS);
            let to = WORD_BITS.min(positions.end - word * WORD_BITS);
            let mask = (u64::MAX >> (WORD_BITS - (to - from))) << from;
            self.arrived(block, word) & mask == mask
        })
    }

    /// The bytes of a node, as many as the block's vectors need.
    fn lanes(&self, block: usize, slot: usize) -> Range<usize> {
        let start = self.node(block, slot) * self.stride;
        start..start + self.blocks[block].elements as usize * self.rule(block).combine.lane_size
    }

    /// How many children's vectors of the block have arrived.
    pub fn count(&self, block: usize) -> usize {
        self.blocks[block].count.into()
    }
    /// A word of the bits of the children that have arrived.
    fn arrived(&self, block: usize, word: usize) -> u64 {
        match word {
            0 => self.blocks[block].arrived,
            word => self.more_arrived[block * self.more_words + word - 1],
        }
    }
}

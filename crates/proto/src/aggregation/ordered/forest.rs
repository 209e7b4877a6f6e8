//! What one switch can combine of the balanced tree over all ranks of a job, whichever ranks are below it.
//!
//! The tree is the accumulator's tree, with a position for each rank: a node of more than one rank splits at the
//! largest power of two below their number. A switch combines two vectors if it has both halves of a node, and no
//! others: a vector that it cannot combine goes on as it is. So the expression is the same wherever ranks are. A switch
//! whose ranks are a node of the tree sends one vector a block; another switch sends at most as many as it has ranks.

use std::ops::Range;

use super::OrderedAccumulator;
use super::rule::{Step, VectorFormat};

/// A node of the tree whose vector the switch gets or can make.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Branch {
    /// The positions whose vectors it combines.
    pub(super) positions: Range<usize>,
    /// The branch with which it is combined, and the branch that the two make.
    pub(super) meets: Option<Meeting>,
    /// The accumulator of the block in which it lies: the accumulator of its lowest position.
    pub(super) buffer: usize,
}

/// The meeting of two branches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Meeting {
    pub(super) sibling: usize,
    /// The sibling has the higher ranks.
    pub(super) is_left: bool,
    pub(super) parent: usize,
}

/// The branches of one switch: first its positions in the order of their ranks, then the branches that are made of
/// them.
#[derive(Clone, Debug, Hash)]
pub struct Forest {
    pub(super) branches: Box<[Branch]>,
    pub(super) roots: Box<[usize]>,
    /// For each position, the root of which it becomes part.
    root_of: Box<[u16]>,
    buffers: usize,
}

/// The two halves of a node of the tree; `None` for a single rank.
fn halves(node: &Range<u16>) -> Option<[Range<u16>; 2]> {
    let len = node.end - node.start;
    let middle = node.start + len.next_power_of_two() / 2;
    (len > 1).then_some([node.start..middle, middle..node.end])
}

/// The largest nodes of the tree over `world_size` ranks that consist of these ranks only, in the order of their ranks.
/// The ranks ascend.
pub fn cover(ranks: &[u16], world_size: u16) -> Vec<Range<u16>> {
    fn below(node: Range<u16>, ranks: &[u16], found: &mut Vec<Range<u16>>) {
        let first = ranks.partition_point(|&rank| rank < node.start);
        let present = ranks[first..].partition_point(|&rank| rank < node.end);
        if present == usize::from(node.end - node.start) {
            found.push(node);
        } else if present > 0 {
            halves(&node).into_iter().flatten().for_each(|half| below(half, ranks, found));
        }
    }
    let mut found = Vec::new();
    below(0..world_size, ranks, &mut found);
    found
}

/// Adds the branch that is the whole node, if its parts are there; if they are not all there, those that are become
/// roots.
fn grow(node: Range<u16>, nodes: &[Range<u16>], branches: &mut Vec<Branch>, roots: &mut Vec<usize>) -> Option<usize> {
    let position = nodes.partition_point(|other| other.start < node.start);
    let first = nodes.get(position).filter(|first| first.start < node.end)?;
    if *first == node {
        return Some(position);
    }
    let [lower, upper] = halves(&node)?.map(|half| grow(half, nodes, branches, roots));
    let (Some(left), Some(right)) = (lower, upper) else {
        roots.extend(lower.into_iter().chain(upper));
        return None;
    };
    let parent = branches.len();
    branches[left].meets = Some(Meeting { sibling: right, is_left: true, parent });
    branches[right].meets = Some(Meeting { sibling: left, is_left: false, parent });
    let positions = branches[left].positions.start..branches[right].positions.end;
    branches.push(Branch { positions, meets: None, buffer: 0 });
    Some(parent)
}

impl Forest {
    /// The forest of a switch that gets these nodes of the tree over `world_size` ranks. They ascend and do not
    /// overlap.
    pub fn new(nodes: &[Range<u16>], world_size: u16) -> Forest {
        let leaf = |position: usize| Branch { positions: position..position + 1, meets: None, buffer: 0 };
        let mut branches: Vec<Branch> = (0..nodes.len()).map(leaf).collect();
        let mut roots = Vec::new();
        let whole = grow(0..world_size, nodes, &mut branches, &mut roots);
        roots.extend(whole);
        roots.sort_unstable_by_key(|&root| branches[root].positions.start);
        // Two neighbouring positions that meet share an accumulator: the second vector that comes is combined directly
        // with the first.
        let mut buffers = 0;
        for (position, branch) in branches.iter_mut().take(nodes.len()).enumerate() {
            let shares = branch.meets.is_some_and(|meets| !meets.is_left && meets.sibling + 1 == position);
            branch.buffer = if shares { buffers - 1 } else { buffers };
            buffers += usize::from(!shares);
        }
        for branch in nodes.len()..branches.len() {
            branches[branch].buffer = branches[branches[branch].positions.start].buffer;
        }
        let spread = |(number, &root): (usize, &usize)| branches[root].positions.clone().map(move |_| number as u16);
        let root_of = roots.iter().enumerate().flat_map(spread).collect();
        Forest { branches: branches.into(), roots: roots.into(), root_of, buffers }
    }

    /// How many vectors a block becomes: one, if the switch has all ranks.
    pub fn roots(&self) -> usize {
        self.roots.len()
    }

    /// How many accumulators a block takes.
    pub fn buffers(&self) -> usize {
        self.buffers
    }

    /// Bytes on the heap.
    pub fn memory_bytes(&self) -> usize {
        size_of_val(&*self.branches) + size_of_val(&*self.roots) + size_of_val(&*self.root_of)
    }

    /// The most that [`Forest::memory_bytes`] returns for this many positions.
    pub fn memory_most(positions: usize) -> usize {
        positions * (2 * size_of::<Branch>() + size_of::<usize>() + size_of::<u16>())
    }
}

impl OrderedAccumulator {
    /// The number of the root of which a position becomes part.
    pub fn root_of(&self, position: usize) -> u16 {
        self.forest.as_ref().map_or(0, |forest| forest.root_of[position])
    }

    pub(super) fn forest(&self) -> &Forest {
        self.forest.as_deref().expect("an accumulator for blocks along a forest is made with one")
    }

    /// Brings a vector to its position, and combines branches as long as siblings are complete.
    pub(super) fn insert_in_forest(
        &mut self,
        block: usize,
        position: usize,
        vector: &[u8],
        format: VectorFormat,
    ) -> bool {
        let (rule, mut at) = (*self.rule(block), position);
        let meets = self.forest().branches[position].meets;
        let sibling = meets.filter(|meets| self.has_branch(block, meets.sibling));
        let (buffer, step) = match sibling {
            // A vector is combined directly if its sibling is the left operand, or if the two share an accumulator.
            Some(meets) if !meets.is_left => (self.buffer(meets.sibling), Step::Right),
            Some(meets) if self.buffer(meets.sibling) == self.buffer(position) => (self.buffer(position), Step::Left),
            _ => (self.buffer(position), Step::Store),
        };
        let (node, lanes) = (self.node(block, buffer), self.lanes(block, buffer));
        self.step(&rule, format, step, (node, lanes), vector);
        if let Some(meets) = sibling.filter(|_| step != Step::Store) {
            at = meets.parent;
        }
        while let Some(meets) = self.forest().branches[at].meets.filter(|meets| self.has_branch(block, meets.sibling)) {
            let (left, right) = if meets.is_left { (at, meets.sibling) } else { (meets.sibling, at) };
            self.merge(&rule, block, self.buffer(left), self.buffer(right));
            at = meets.parent;
        }
        self.is_complete(block)
    }

    fn buffer(&self, branch: usize) -> usize {
        self.forest().branches[branch].buffer
    }

    fn has_branch(&self, block: usize, branch: usize) -> bool {
        self.have_arrived(block, self.forest().branches[branch].positions.clone())
    }

    /// How many branches of the block wait for another, or are complete.
    pub(super) fn branches_in_use(&self, block: usize) -> usize {
        let forest = self.forest();
        let waits = |branch: &usize| {
            let parent = forest.branches[*branch].meets.map(|meets| meets.parent);
            self.has_branch(block, *branch) && !parent.is_some_and(|parent| self.has_branch(block, parent))
        };
        (0..forest.branches.len()).filter(waits).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_in_a_row_are_one_node_where_the_tree_has_it() {
        let bounds = |ranks: &[u16], world_size| {
            cover(ranks, world_size).iter().map(|node| (node.start, node.end)).collect::<Vec<_>>()
        };
        assert_eq!(bounds(&[0, 1, 2, 3], 8), [(0, 4)]);
        assert_eq!(bounds(&[4, 5, 6], 7), [(4, 7)], "the last node is as wide as there are ranks");
        assert_eq!(bounds(&[1, 2, 3, 4], 8), [(1, 2), (2, 4), (4, 5)]);
        assert_eq!(bounds(&[0, 2, 4], 8), [(0, 1), (2, 3), (4, 5)]);
        assert_eq!(bounds(&[0], 1), [(0, 1)]);
    }

    #[test]
    fn a_switch_leaves_what_it_covers_whoever_brings_it() {
        for world_size in 1..40u16 {
            for step in 1..5 {
                let ranks: Vec<u16> = (0..world_size).filter(|rank| rank % 5 < step).collect();
                let single: Vec<Range<u16>> = ranks.iter().map(|&rank| rank..rank + 1).collect();
                let forest = Forest::new(&single, world_size);
                let nodes = cover(&ranks, world_size);
                let left = |root: &usize| {
                    let positions = &forest.branches[*root].positions;
                    ranks[positions.start]..ranks[positions.end - 1] + 1
                };
                assert_eq!(forest.roots.iter().map(left).collect::<Vec<_>>(), nodes, "{ranks:?} of {world_size}");
                assert_eq!(forest.branches[forest.roots[0]].buffer, 0);
                assert!(forest.buffers <= usize::from(world_size).div_ceil(2).max(1), "{ranks:?} of {world_size}");
                // The switch above gets these nodes, and the rest from other switches.
                let rest: Vec<u16> = (0..world_size).filter(|rank| !ranks.contains(rank)).collect();
                let mut all = [nodes, cover(&rest, world_size)].concat();
                all.sort_unstable_by_key(|node| node.start);
                assert_eq!(Forest::new(&all, world_size).roots(), 1);
                assert!(forest.memory_bytes() <= Forest::memory_most(single.len()));
            }
        }
    }
}

//! Sums of dense blocks, bit for bit.

use tributary_pspin::{CallError, Fault};

use crate::bench::{Bench, CHILD, MOST_BUFFERS, WINDOW, dense_packet};
use crate::element::{Element, Random};

const PROGRAMS: [&str; 2] = ["dense-plain", "dense-xpulp"];
const ROUNDS: u64 = 10;

/// The vectors of all children of some blocks, which have the same number of elements each.
struct Blocks {
    element: Element,
    /// The number of the first one.
    first: u32,
    values: Vec<Vec<Vec<u32>>>,
    /// Which packet comes when: of a block, from a child.
    order: Vec<(u32, u16)>,
}

impl Blocks {
    fn random(element: Element, first: u32, children: u32, random: &mut Random) -> Blocks {
        let mut vector = |count| (0..count).map(|_| element.random(random)).collect::<Vec<u32>>();
        let counts = (0..WINDOW).map(|at| at as usize * 83 % (1024 / element.bytes() + 1));
        let values = counts.map(|count| (0..children).map(|_| vector(count)).collect()).collect();
        let mut order: Vec<_> = (0..WINDOW).flat_map(|b| (0..children).map(move |c| (b, c as u16))).collect();
        random.shuffle(&mut order);
        Blocks { element, first, values, order }
    }

    fn vector(&self, block: u32, child: u16) -> &[u32] {
        &self.values[block as usize][usize::from(child)]
    }

    fn packet(&self, block: u32, child: u16) -> Vec<u8> {
        dense_packet(self.first + block, child, self.element, self.vector(block, child))
    }

    fn add(&self, a: &[u32], b: &[u32]) -> Vec<u32> {
        a.iter().zip(b).map(|(&a, &b)| self.element.add(a, b)).collect()
    }

    /// Children of a block in the order in which they come.
    fn arrivals(&self, block: u32) -> Vec<u16> {
        self.order.iter().filter(|(b, _)| *b == block).map(|&(_, child)| child).collect()
    }

    fn is_last(&self, at: usize) -> bool {
        !self.order[at + 1..].iter().any(|(block, _)| *block == self.order[at].0)
    }

    fn check(&self, sent: &[Vec<u8>], block: u32, expected: &[u32], what: &str) {
        assert_eq!(sent, [dense_packet(self.first + block, CHILD, self.element, expected)], "{what}, block {block}");
    }
}

/// Runs a design over random blocks: of all types, with both programs.
fn for_each(design: &str, buffers: u32, run: impl Fn(&mut Bench, &Blocks, &mut Random, &str)) {
    for (program, element) in PROGRAMS.iter().flat_map(|program| Element::ALL.map(|element| (program, element))) {
        for seed in 0..ROUNDS {
            let mut random = Random(seed);
            let children = 1 + random.below(16) as u32;
            let buffers = if buffers == 0 { children } else { buffers };
            let mut bench = Bench::dense(program, design, element, children, buffers);
            // Later blocks have the memory of those before.
            for first in [0, WINDOW, 2 * WINDOW] {
                let blocks = Blocks::random(element, first, children, &mut random);
                let what = format!("{program} {design} {element:?} seed {seed} from {first}");
                run(&mut bench, &blocks, &mut random, &what);
            }
        }
    }
}

#[test]
fn a_single_buffer_adds_packets_as_they_come_each_once() {
    for_each("single", 1, |bench, blocks, random, what| {
        for (at, &(block, child)) in blocks.order.iter().enumerate() {
            let sent = bench.sent(&blocks.packet(block, child));
            if blocks.is_last(at) {
                let vectors = blocks.arrivals(block).into_iter().map(|child| blocks.vector(block, child).to_vec());
                let sum = vectors.reduce(|sum, vector| blocks.add(&sum, &vector)).unwrap();
                blocks.check(&sent, block, &sum, what);
            } else {
                assert!(sent.is_empty(), "{what}");
                if random.below(4) == 0 {
                    assert!(bench.sent(&blocks.packet(block, child)).is_empty(), "{what}: a duplicate");
                }
            }
        }
    });
}

#[test]
fn several_buffers_are_taken_as_they_are_free_and_the_last_handler_brings_them_together() {
    for_each("multi", MOST_BUFFERS, |bench, blocks, random, what| {
        let mut sums = vec![[const { None::<Vec<u32>> }; MOST_BUFFERS as usize]; WINDOW as usize];
        for (at, &(block, child)) in blocks.order.iter().enumerate() {
            // Others hold some of the buffers, but not all.
            let free = random.below(MOST_BUFFERS as usize);
            let taken = std::array::from_fn(|buffer| buffer != free && random.below(2) == 0);
            let mine = taken.iter().position(|taken| !taken).unwrap();
            bench.take_buffers(block, taken);
            let sent = bench.sent(&blocks.packet(block, child));
            bench.take_buffers(block, [false; MOST_BUFFERS as usize]);
            let (sums, vector) = (&mut sums[block as usize], blocks.vector(block, child));
            sums[mine] = Some(sums[mine].take().map_or(vector.to_vec(), |sum| blocks.add(&sum, vector)));
            if blocks.is_last(at) {
                let first = sums[mine].take().unwrap();
                let sum = sums.iter().flatten().fold(first, |sum, other| blocks.add(&sum, other));
                blocks.check(&sent, block, &sum, what);
            } else {
                assert!(sent.is_empty(), "{what}");
                assert!(bench.sent(&blocks.packet(block, child)).is_empty(), "{what}: a duplicate");
            }
        }
    });
}

/// The sum of a run of children along the tree: pairs, then pairs of these; an odd one at the end waits for a later level.
fn along_the_tree(blocks: &Blocks, vectors: Vec<Vec<u32>>) -> Vec<u32> {
    match <[Vec<u32>; 1]>::try_from(vectors) {
        Ok([sum]) => sum,
        Err(vectors) => {
            let pairs = vectors.chunks(2).map(|pair| match pair {
                [a, b] => blocks.add(a, b),
                odd => odd[0].clone(),
            });
            along_the_tree(blocks, pairs.collect())
        }
    }
}

#[test]
fn a_tree_gives_the_same_bits_whoever_comes_first() {
    for_each("tree", 0, |bench, blocks, _, what| {
        for (at, &(block, child)) in blocks.order.iter().enumerate() {
            let sent = bench.sent(&blocks.packet(block, child));
            if blocks.is_last(at) {
                let sum = along_the_tree(blocks, blocks.values[block as usize].clone());
                blocks.check(&sent, block, &sum, what);
            } else {
                assert!(sent.is_empty(), "{what}");
                assert!(bench.sent(&blocks.packet(block, child)).is_empty(), "{what}: a duplicate");
            }
        }
    });
}

#[test]
fn a_handler_waits_as_long_as_another_core_holds_the_lock() {
    for design in ["single", "multi", "tree"] {
        let mut bench = Bench::dense("dense-plain", design, Element::I32, 2, 2);
        let error = bench.deliver_while_locked(&dense_packet(0, 0, Element::I32, &[1]));
        assert!(matches!(error, CallError::Fault(Fault::CycleLimit { .. })), "{design}: {error}");
    }
}

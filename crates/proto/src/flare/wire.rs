//! Flare's own end of the header; [`slots::wire`](crate::aggregation::slots::wire) has what is before it. Big-endian;
//! `docs/wire.md` draws them.
//!
//! ```text
//!  16                 32        34      35         36      40
//!  | of all slots ... | subtree | flags | reserved | order | vector or body ...
//! ```
//!
//! A switch brings a block in several packets if sums are along one tree over all ranks and the switch's ranks are not
//! a node of it; the *subtree* distinguishes these packets. The *order* names the expression by which a vector was
//! combined, so that people can compare runs: in a rank's packet it is a hash of the rank; in a vector that a switch
//! has combined along the tree, a hash of all children's orders, each at its position; where arrival decides, 0.
//!
//! In a job whose floats are scaled, sums do not depend on an order, and the flag `EXPONENT` says that an exponent is in
//! its bytes, as SwitchML's packets have one.

use crate::aggregation::agreement::ExponentHint;
use crate::aggregation::slots::{Word, wire as slots};
use crate::contract::drop_reason::DropReason;
use crate::contract::ids::{ChildId, Rank};
use crate::contract::protocol::Description;
use crate::contract::sum_tree::SumTree;
use crate::contract::tensor::Spec;
use crate::contract::wire::{u16, u32};
use tributary_numeric::{BlockExponent, splitmix64};

pub use crate::aggregation::report::Mismatch;
pub use crate::aggregation::slots::wire::{Kind, put_wid};

/// Bytes of the common header and of this protocol's own.
pub const HEADER_LEN: usize = slots::header_len::<Says>();

/// The header.
pub type Header = slots::Header<Says>;

/// The hash of an expression; 0 for no expression, or for one that has no name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Order(pub u32);

impl Order {
    /// No order.
    pub const NONE: Order = Order(0);

    /// The order of one rank's own vector.
    pub fn of_rank(rank: Rank) -> Order {
        Order(mixed(1, rank.0.into(), 0))
    }

    /// Joins a child's order. The orders are added, so that it makes no difference which child comes first.
    #[inline]
    pub fn join(&mut self, child: ChildId, said: Order) {
        self.0 = self.0.wrapping_add(mixed(3, child.0.into(), said.0));
    }

    /// The order of a vector that a switch has combined, from its children's joined orders.
    pub fn of_switch(joined: Order) -> Order {
        // Never 0, which means no order.
        Order(mixed(2, 0, joined.0).max(1))
    }

    /// The order of all ranks' sum along a tree.
    pub fn of(tree: &SumTree) -> Order {
        match tree {
            SumTree::Rank(rank) => Order::of_rank(Rank(*rank)),
            SumTree::Switch(children) => {
                let mut joined = Order::NONE;
                for (position, child) in children.iter().enumerate() {
                    joined.join(ChildId(position as u16), Order::of(child));
                }
                Order::of_switch(joined)
            }
        }
    }
}

/// The upper half of a mixed word, because the lower bits of products are weak.
fn mixed(what: u64, position: u64, hash: u32) -> u32 {
    (splitmix64(what << 48 | position << 32 | u64::from(hash)) >> 32) as u32
}

/// Flare's own fields of the header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Says {
    /// Which of its sender's vectors of the block the packet carries.
    pub subtree: u16,
    /// [`EXPONENT`] with the flags of an exponent; otherwise 0.
    flags: u8,
    /// The expression by which the vector was combined; an exponent, if the flags say so.
    order: Order,
}

/// The packet has an exponent and no order.
const EXPONENT: u8 = 8;

impl Says {
    /// What a packet of a block with an order says.
    pub fn ordered(order: Order) -> Says {
        Says { order, ..Says::NOTHING }
    }

    /// What a packet of a block says that ranks scale alike.
    pub fn scaled(hint: ExponentHint) -> Says {
        let exponent = u32::from(hint.exponent.exponent as u16) << 16;
        Says { flags: EXPONENT | hint.flags(), order: Order(exponent), ..Says::NOTHING }
    }

    /// The exponent, if the packet has one.
    fn hint(self) -> Option<ExponentHint> {
        (self.flags & EXPONENT != 0).then(|| ExponentHint::of((self.order.0 >> 16) as i16, self.flags ^ EXPONENT))
    }

    /// Joins the exponent of another rank's block.
    fn join_hint(&mut self, hint: &ExponentHint) {
        let mut joined = match self.hint() {
            Some(joined) => joined,
            None if *self == Says::NEUTRAL => *hint,
            // A rank has sent no exponent.
            None => ExponentHint::UNKNOWN,
        };
        joined.join(hint);
        *self = Says { subtree: self.subtree, ..Says::scaled(joined) };
    }

    /// What a switch says that has joined these words, of a vector that was combined in this order.
    pub fn concluded(self, order: Order) -> Says {
        match self.flags {
            0 => Says::ordered(order),
            _ => Says { subtree: 0, ..self },
        }
    }

    /// The order, where the packet has one.
    pub fn order(self) -> Order {
        if self.flags == 0 { self.order } else { Order::NONE }
    }
}

impl Word for Says {
    const LEN: usize = 8;
    const NOTHING: Says = Says { subtree: 0, flags: 0, order: Order::NONE };
    const NEUTRAL: Says = Says::NOTHING;

    #[inline(always)]
    fn read(&mut self, bytes: &[u8], spec: &Spec) -> Result<(), DropReason> {
        *self = Says { subtree: u16(bytes, 0), flags: bytes[2], order: Order(u32(bytes, 4)) };
        match self.flags {
            0 => Ok(()),
            // Without `EXPONENT` the flags are none that a hint has.
            flags => ExponentHint::read(u16(bytes, 4) as i16, flags ^ EXPONENT, spec).map(drop),
        }
    }

    #[inline]
    fn put(self, bytes: &mut [u8]) {
        bytes[0..2].copy_from_slice(&self.subtree.to_be_bytes());
        bytes[2..4].copy_from_slice(&[self.flags, 0]);
        bytes[4..8].copy_from_slice(&self.order.0.to_be_bytes());
    }

    #[inline]
    fn join(&mut self, child: ChildId, said: &Says) {
        match said.hint() {
            None if self.flags == 0 => self.order.join(child, said.order),
            None => self.join_hint(&ExponentHint::UNKNOWN),
            Some(hint) => self.join_hint(&hint),
        }
    }

    #[inline]
    fn subtree(self) -> u16 {
        self.subtree
    }

    fn with_subtree(self, subtree: u16) -> Says {
        Says { subtree, ..self }
    }

    fn order(self) -> Option<u32> {
        let order = Says::order(self);
        (order != Order::NONE).then_some(order.0)
    }

    fn agreed(self) -> Option<BlockExponent> {
        self.hint()?.agreed()
    }
}

/// Describes a packet whose common header was checked.
pub fn describe(bytes: &[u8]) -> Description {
    slots::describe::<Says>(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn racks(racks: &[&[u16]]) -> SumTree {
        let rack = |ranks: &&[u16]| SumTree::Switch(ranks.iter().map(|&rank| SumTree::Rank(rank)).collect());
        SumTree::Switch(racks.iter().map(rack).collect())
    }

    #[test]
    fn each_tree_has_its_own_order() {
        let trees = [
            SumTree::star(4),
            SumTree::star(5),
            racks(&[&[0, 1], &[2, 3]]),
            racks(&[&[0, 2], &[1, 3]]),
            racks(&[&[2, 3], &[0, 1]]),
            racks(&[&[0, 1, 2], &[3]]),
            SumTree::Switch(vec![SumTree::star(4)]),
        ];
        for (at, tree) in trees.iter().enumerate() {
            assert_ne!(Order::of(tree), Order::NONE);
            assert!(trees[..at].iter().all(|other| Order::of(other) != Order::of(tree)), "{tree:?}");
        }
    }

    #[test]
    fn arrival_makes_no_difference_to_an_order() {
        let said = |ranks: [u16; 3]| {
            let mut joined = Order::NONE;
            ranks.iter().for_each(|&rank| joined.join(ChildId(rank), Order::of_rank(Rank(rank))));
            Order::of_switch(joined)
        };
        assert_eq!(said([2, 0, 1]), Order::of(&SumTree::star(3)));
        assert_eq!(said([1, 2, 0]), said([0, 1, 2]));
    }
}

//! The paper's three designs of aggregation (§6), and which of them sums a collective (§6.4).
//!
//! A shard of our switch is one thread, so a block's packets never meet at once and no handler waits for a buffer. A
//! design decides which vectors meet: all in one buffer as they come; as they come, in several buffers in turn, where
//! as many cores at work would have put them; or along a tree whose bits do not depend on arrival.

use crate::aggregation::ordered::{Arrangement, nodes_needed};
use crate::contract::tensor::Spec;

/// How a block's packets are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Design {
    /// In one buffer (§6.1).
    Single,
    /// In this many buffers, at least two; the last packet combines them (§6.2).
    Multi(u16),
    /// Along a binary tree, in which each vector has its own position (§6.3).
    Tree,
}

impl Design {
    /// How a block of this many children's vectors is combined.
    pub fn arrangement(self, children: usize) -> Arrangement {
        match self {
            Design::Single => Arrangement::Buffers(1),
            // More buffers than packets would stay empty.
            Design::Multi(buffers) => Arrangement::Buffers(buffers.min(children as u16)),
            Design::Tree => Arrangement::Tree,
        }
    }

    /// How many buffers a block of this many children's vectors takes.
    pub fn buffers(self, children: usize) -> usize {
        match self {
            Design::Single => 1,
            Design::Multi(buffers) => children.min(buffers.into()),
            Design::Tree => nodes_needed(children),
        }
    }
}

/// Which design sums a collective, by the collective's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Selection {
    /// As in the paper's equations: `B` buffers end contention from `512 KiB / B` on.
    Model,
    /// As §6.4 prints it: with the numbers 2 and 4 exchanged.
    Printed,
}

impl Selection {
    fn design(self, bytes: u64) -> Design {
        const KIB: u64 = 1024;
        let (least_buffers, most_buffers) = match self {
            Selection::Model => (2, 4),
            Selection::Printed => (4, 2),
        };
        // The model's equations say "from", the printed sentence says "above".
        let reaches = |kib: u64| if self == Selection::Model { bytes >= kib * KIB } else { bytes > kib * KIB };
        if reaches(512) {
            Design::Single
        } else if reaches(256) {
            Design::Multi(least_buffers)
        } else if reaches(128) {
            Design::Multi(most_buffers)
        } else {
            Design::Tree
        }
    }
}

/// What a job has chosen about designs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Choice {
    /// One design for all of its collectives.
    Always(Design),
    /// By each collective's size.
    BySize(Selection),
}

impl Choice {
    /// The design of a collective.
    #[inline]
    pub fn design(self, spec: &Spec) -> Design {
        match self {
            Choice::Always(design) => design,
            Choice::BySize(selection) => selection.design(u64::from(spec.elements) * spec.dtype.size() as u64),
        }
    }

    /// The most buffers that a block of any collective may take.
    pub fn buffers(self, children: usize) -> usize {
        match self {
            Choice::Always(design) => design.buffers(children),
            Choice::BySize(_) => Design::Tree.buffers(children).max(Design::Multi(4).buffers(children)),
        }
    }
}

#[cfg(test)]
mod tests {
    use tributary_numeric::{DType, ReduceOp};

    use super::*;

    #[test]
    fn auto_goes_by_a_collectives_bytes_as_the_model_or_as_the_page_has_it() {
        use Design::{Multi, Single, Tree};
        const ROWS: [(u64, Design, Design); 9] = [
            (0, Tree, Tree),
            (128 * 1024 - 1, Tree, Tree),
            (128 * 1024, Multi(4), Tree),
            (128 * 1024 + 1, Multi(4), Multi(2)),
            (256 * 1024, Multi(2), Multi(2)),
            (256 * 1024 + 1, Multi(2), Multi(4)),
            (512 * 1024, Single, Multi(4)),
            (512 * 1024 + 1, Single, Single),
            (u32::MAX as u64, Single, Single),
        ];
        for (bytes, model, printed) in ROWS {
            assert_eq!(Selection::Model.design(bytes), model, "{bytes} bytes");
            assert_eq!(Selection::Printed.design(bytes), printed, "{bytes} bytes");
        }
        let spec = Spec::allreduce(64 * 1024, DType::F64, ReduceOp::Sum);
        assert_eq!(Choice::BySize(Selection::Model).design(&spec), Single, "512 KiB");
    }

    #[test]
    fn memory_suffices_for_whatever_design_is_chosen() {
        for children in 1usize..40 {
            for (design, buffers) in [
                (Design::Single, 1),
                (Design::Multi(2), 2.min(children)),
                (Design::Multi(8), 8.min(children)),
                (Design::Tree, children.div_ceil(2)),
            ] {
                assert_eq!(Choice::Always(design).buffers(children), buffers, "{design:?} of {children}");
            }
            for selection in [Selection::Model, Selection::Printed] {
                for bytes in [0, 200, 300, 600].map(|kib| kib * 1024) {
                    let needed = selection.design(bytes).buffers(children);
                    assert!(Choice::BySize(selection).buffers(children) >= needed, "{bytes} bytes of {children}");
                }
            }
        }
    }
}

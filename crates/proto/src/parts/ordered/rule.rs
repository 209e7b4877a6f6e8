//! How vectors of a block are combined, whoever brings them.

use tributary_numeric::{Combine, Fixed16, ReduceOp, Scale};

/// What a vector is on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Form {
    /// A host's.
    Host,
    /// A partial result of a switch below.
    Partial,
}

/// What becomes of a vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Step {
    /// `lanes <- vector`.
    Store,
    /// `lanes <- lanes o vector`.
    Right,
    /// `lanes <- vector o lanes`.
    Left,
}

/// 16-bit floats that travel as they are and are added in fixed point (SwitchML §4.6).
#[derive(Clone, Copy, Hash)]
pub struct Scaled {
    /// What brings them there and back.
    pub kernels: &'static Fixed16,
    /// The block's scale, on which its ranks have agreed.
    pub scale: Scale,
    /// The sum or the average.
    pub op: ReduceOp,
}

/// Which of a block's vectors meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arrangement {
    /// Siblings of the tree over the places: one expression, whatever comes first.
    Tree,
    /// Siblings of a tree over more places than there are here, as far as they are here: what a switch of several does.
    Forest,
    /// As they come, in so many buffers in turn, at least one; the last vector brings the buffers together, the later ones into
    /// the first.
    Buffers(u16),
}

/// How the vectors of one block are combined.
#[derive(Clone, Copy, Hash)]
pub struct Rule {
    pub(super) combine: &'static Combine,
    pub(super) arrangement: Arrangement,
    pub(super) scaled: Option<Scaled>,
    /// The job's own operator that combines, by its number.
    pub(super) own: Option<u8>,
    /// The lanes hold what whoever has all contributions says, as it came.
    pub(super) is_replaced: bool,
}

impl Rule {
    /// Along the tree, or in any order where that makes no difference.
    pub fn native(combine: &'static Combine, is_ordered: bool) -> Rule {
        Rule::arranged(combine, if is_ordered { Arrangement::Tree } else { Arrangement::Buffers(1) })
    }

    /// In one of the ways.
    pub fn arranged(combine: &'static Combine, arrangement: Arrangement) -> Rule {
        Rule { combine, arrangement, scaled: None, own: None, is_replaced: false }
    }

    /// The same with one of the job's own operators, where there is one.
    pub fn by(self, own: Option<u8>) -> Rule {
        Rule { own, ..self }
    }

    /// Along the tree.
    pub fn along_the_tree(combine: &'static Combine) -> Rule {
        Rule::arranged(combine, Arrangement::Tree)
    }

    /// As vectors come, where that makes no difference to the result.
    pub fn in_any_order(combine: &'static Combine) -> Rule {
        Rule::arranged(combine, Arrangement::Buffers(1))
    }

    /// The same, of hosts' vectors that are brought to fixed point here; partial results are in fixed point.
    pub fn in_fixed_point(combine: &'static Combine, scaled: Scaled) -> Rule {
        Rule { scaled: Some(scaled), ..Rule::in_any_order(combine) }
    }

    /// Bytes of an element on the wire.
    pub(super) fn size(&self, form: Form) -> usize {
        match form {
            Form::Host => self.scaled.map_or(self.combine.wire_size, |scaled| scaled.kernels.wire_size),
            Form::Partial => self.combine.partial_size,
        }
    }

    /// Brings a vector to some lanes, without an operator of the job's own.
    #[inline]
    pub(super) fn step(&self, form: Form, step: Step, lanes: &mut [u8], vector: &[u8]) {
        let combine = self.combine;
        let combined = match (form, step, &self.scaled) {
            (Form::Host, Step::Store, Some(scaled)) => return (scaled.kernels.store)(lanes, vector, scaled.scale),
            (Form::Host, _, Some(scaled)) => return (scaled.kernels.add)(lanes, vector, scaled.scale),
            (Form::Host, Step::Store, None) => combine.store,
            (Form::Host, Step::Right, None) => combine.add,
            (Form::Host, Step::Left, None) => combine.add_left,
            (Form::Partial, Step::Store, _) => combine.store_partial,
            (Form::Partial, Step::Right, _) => combine.add_partial,
            (Form::Partial, Step::Left, _) => combine.add_left_partial,
        };
        combined(lanes, vector);
    }
}

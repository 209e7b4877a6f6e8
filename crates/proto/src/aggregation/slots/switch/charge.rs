//! The memory that a job is charged for its slots, before it is allocated.

use super::pool::Pool;
use super::positions::Positions;
use super::slot::Version;
use crate::aggregation::ordered::{Forest, OrderedAccumulator};
use crate::aggregation::slots::Dialect;
use crate::aggregation::slots::wire::Mismatch;
use crate::contract::custom_op::Capacity;
use crate::contract::protocol::ShardShape;
use crate::contract::values::Values;

impl<D: Dialect> Pool<D> {
    /// Bytes that [`Pool::new`] takes for a job of this shape, whose values are real elements.
    pub fn memory(shape: &ShardShape<'_>) -> u64 {
        let (children, versions) = (usize::from(shape.children), 2 * usize::from(shape.slots));
        let dialect = D::of(shape.options, shape.levels, shape.world_size);
        let lane_bytes = dialect.narrow().lane_bytes(Values::Elements, 4 * usize::from(shape.elements_per_packet));
        // Where ranks are is not known yet: at worst each rank is a subtree by itself.
        let (positions, tables) = match dialect.is_over_ranks() {
            true => {
                let subtrees = usize::from(shape.world_size);
                let tables =
                    Positions::memory_most(subtrees, children) + Forest::memory_most(subtrees) + size_of::<Forest>();
                (subtrees, tables)
            }
            false => (children, 0),
        };
        let width = dialect.width(children, shape.world_size);
        let capacity = Capacity { vector_bytes: lane_bytes, accumulators: versions * width };
        let own = shape.options.operators().memory_bytes(capacity);
        // If the job has operators of its own, all accumulators lie in the operators' memory.
        let lane_bytes = if own > 0 { 0 } else { lane_bytes };
        let sums = OrderedAccumulator::memory_needed(positions, width, versions, lane_bytes) + own;
        let excused = positions.div_ceil(64) * size_of::<u64>();
        (sums + tables + versions * (size_of::<Version<D::Word>>() + size_of::<Option<Mismatch>>() + excused)) as u64
    }
}

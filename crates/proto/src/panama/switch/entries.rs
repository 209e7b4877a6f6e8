//! The packet memory of one tree: for each VID that may wait, the fields of its contributions, joined, and their sum.

use tributary_numeric::ReduceOp;

use crate::aggregation::ordered::{OrderedAccumulator, Rule, VectorFormat, nodes_needed};
use crate::contract::ids::ChildId;
use crate::contract::numbers::{Encoding, NarrowBlocks};
use crate::contract::packet::Ecn;
use crate::contract::protocol::ShardShape;
use crate::contract::tensor::Spec;
use crate::contract::values::Values;
use crate::heap::heap_bytes;
use crate::panama::wire::{Header, Mismatch, slot_of};

/// The joined fields of the contributions to one VID.
#[derive(Clone, Copy, Debug, Hash)]
pub struct Entry {
    /// The collective that they belong to.
    pub spec: Spec,
    /// Elements of the vector.
    pub elements: u32,
    /// How many ports have contributed; 0 if the entry is free.
    pub count: u16,
    /// How many ranks' data the vector contains.
    pub contributors: u16,
    /// The least room on the way up.
    pub wnd_cap: u16,
    /// Marked if any contribution was (§4.2.2).
    pub ecn: Ecn,
    /// The vector is a result that a child had.
    pub is_known: bool,
}

const FREE: Entry = Entry {
    spec: Spec::NOTHING,
    elements: 0,
    count: 0,
    contributors: 0,
    wnd_cap: u16::MAX,
    ecn: Ecn::NotCapable,
    is_known: false,
};

/// Entries for as many VIDs as a port has room for.
#[derive(Clone, Hash)]
pub struct Entries {
    entries: Vec<Entry>,
    sums: OrderedAccumulator,
    mismatches: Vec<Option<Mismatch>>,
    /// Bytes of a vector in the form in which it is summed.
    lane_bytes: usize,
}

impl Entries {
    /// Entries for `capacity` VIDs of `children` contributions each.
    pub fn new(
        values: Values,
        narrow: NarrowBlocks,
        payload_bytes: usize,
        capacity: usize,
        children: usize,
    ) -> Entries {
        Entries::with_lanes(narrow.lane_bytes(values, payload_bytes), capacity, children)
    }

    fn with_lanes(lane_bytes: usize, capacity: usize, children: usize) -> Entries {
        Entries {
            entries: vec![FREE; capacity],
            sums: OrderedAccumulator::new(children, nodes_needed(children), capacity, lane_bytes),
            mismatches: vec![None; capacity],
            lane_bytes,
        }
    }

    /// Makes room for this many VIDs; all entries are lost.
    pub fn resize(&mut self, capacity: usize) {
        *self = Entries::with_lanes(self.lane_bytes, capacity, self.sums.children());
    }

    /// Bytes that [`Entries::new`] takes for a job of this shape, whose values are real elements.
    pub fn memory(shape: &ShardShape<'_>) -> u64 {
        let (children, capacity) = (usize::from(shape.children), usize::from(shape.slots));
        let narrow = NarrowBlocks::fitting(shape.levels);
        let lane_bytes = narrow.lane_bytes(Values::Elements, 4 * usize::from(shape.elements_per_packet));
        let sums = OrderedAccumulator::memory_needed(children, nodes_needed(children), capacity, lane_bytes);
        (sums + capacity * (size_of::<Entry>() + size_of::<Option<Mismatch>>())) as u64
    }

    #[inline]
    fn at(&self, vid: u64) -> usize {
        slot_of(vid, self.entries.len())
    }

    /// The entry of a VID that may wait.
    #[inline]
    pub fn get(&self, vid: u64) -> &Entry {
        &self.entries[self.at(vid)]
    }

    /// True if the child has contributed.
    #[inline]
    pub fn has(&self, vid: u64, child: ChildId) -> bool {
        let at = self.at(vid);
        self.entries[at].count > 0 && self.sums.has(at, child.index())
    }

    /// The lowest child that has contributed.
    pub fn first(&self, vid: u64) -> Option<ChildId> {
        let count = self.sums.children() as u16;
        (0..count).map(ChildId).find(|&child| self.has(vid, child))
    }

    /// Adds a child's first contribution to a VID.
    #[inline]
    pub fn add(&mut self, vid: u64, header: &Header, block: (u32, &Encoding, VectorFormat), ecn: Ecn, vector: &[u8]) {
        let at = self.open(vid, header, block, ecn);
        let entry = &mut self.entries[at];
        if entry.is_known {
            return self.sums.note(at, header.wid.index());
        }
        entry.contributors += header.contributors;
        block.2.add(&mut self.sums, at, header.wid.index(), vector);
    }

    /// A child brings the result: it replaces the contributions that have come and those that will.
    pub fn adopt(&mut self, vid: u64, header: &Header, block: (u32, &Encoding, VectorFormat), ecn: Ecn, vector: &[u8]) {
        let at = self.open(vid, header, block, ecn);
        self.sums.note(at, header.wid.index());
        let entry = &mut self.entries[at];
        if !entry.is_known {
            (entry.is_known, entry.contributors) = (true, header.contributors);
            self.sums.replace(at, vector);
        }
    }

    /// Opens the VID's entry, and joins the fields of a packet with those before it.
    #[inline]
    fn open(
        &mut self,
        vid: u64,
        header: &Header,
        (elements, encoding, _): (u32, &Encoding, VectorFormat),
        ecn: Ecn,
    ) -> usize {
        let at = self.at(vid);
        let entry = &mut self.entries[at];
        if entry.count == 0 {
            *entry = Entry { spec: header.spec, elements, ..FREE };
            self.sums.begin(at, Rule::native(encoding.combine, encoding.is_ordered));
        }
        entry.count += 1;
        entry.wnd_cap = entry.wnd_cap.min(header.wnd_cap);
        entry.ecn = either(entry.ecn, ecn);
        at
    }

    /// The VID waits for no other contribution. At the root averages are divided by the number of ranks that
    /// contributed.
    pub fn finish(&mut self, vid: u64, is_root: bool) {
        let at = self.at(vid);
        let Entry { contributors, spec, is_known, .. } = self.entries[at];
        if is_known {
            return;
        }
        self.sums.close(at);
        if is_root && spec.op == ReduceOp::Avg {
            self.sums.finish(at, contributors);
        }
    }

    /// Writes the sum.
    pub fn load(&self, vid: u64, vector: &mut [u8], format: VectorFormat) {
        format.load(&self.sums, self.at(vid), vector);
    }

    /// Frees the entry of a VID.
    pub fn free(&mut self, vid: u64) {
        let at = self.at(vid);
        self.entries[at].count = 0;
        self.mismatches[at] = None;
    }

    /// Frees all entries.
    pub fn clear(&mut self) {
        self.entries.iter_mut().for_each(|entry| entry.count = 0);
        self.mismatches.fill(None);
    }

    /// Notes that ranks disagree.
    pub fn note(&mut self, vid: u64, mismatch: Mismatch) {
        let at = self.at(vid);
        self.mismatches[at] = Some(mismatch);
    }

    /// The VID's note that ranks disagree, if there is one.
    pub fn mismatch(&self, vid: u64) -> Option<Mismatch> {
        self.mismatches[self.at(vid)]
    }

    /// Bytes on the heap.
    pub fn memory_bytes(&self) -> usize {
        heap_bytes(&self.entries) + heap_bytes(&self.mismatches) + self.sums.memory_bytes()
            - size_of::<OrderedAccumulator>()
    }
}

/// Marked if either is marked, else capable if either is capable.
fn either(a: Ecn, b: Ecn) -> Ecn {
    match (a, b) {
        (Ecn::CongestionExperienced, _) | (_, Ecn::CongestionExperienced) => Ecn::CongestionExperienced,
        (Ecn::Capable, _) | (_, Ecn::Capable) => Ecn::Capable,
        (Ecn::NotCapable, Ecn::NotCapable) => Ecn::NotCapable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_on_any_way_up_is_a_mark() {
        use Ecn::{Capable, CongestionExperienced, NotCapable};
        for (a, b, both) in [
            (NotCapable, NotCapable, NotCapable),
            (NotCapable, Capable, Capable),
            (Capable, Capable, Capable),
            (Capable, CongestionExperienced, CongestionExperienced),
            (CongestionExperienced, CongestionExperienced, CongestionExperienced),
            (NotCapable, CongestionExperienced, CongestionExperienced),
        ] {
            assert_eq!((either(a, b), either(b, a)), (both, both));
        }
    }
}

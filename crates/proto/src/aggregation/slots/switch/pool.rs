//! The slots' memory: for each slot two versions with phase, count, bitmap and accumulator. All memory is allocated at
//! once.

use std::ops::Range;

use tributary_numeric::ReduceOp;

use super::positions::Positions;
use super::slot::{Block, Relation, State, UNKNOWN, Version, VersionId};
use crate::aggregation::agreement::Agreement;
use crate::aggregation::ordered::{Arrangement, Forest, OrderedAccumulator, Rule, Scaled, VectorFormat};
use crate::aggregation::slots::wire::{Header, Kind, Mismatch};
use crate::aggregation::slots::{Dialect, Word};
use crate::contract::config::SwitchConfig;
use crate::contract::custom_op::{Capacity, Fault};
use crate::contract::drop_reason::DropReason;
use crate::contract::ids::ChildId;
use crate::contract::numbers::{Encoding, Numbers};
use crate::contract::options::TO_THE_LETTER;
use crate::contract::tensor::Spec;
use crate::contract::time::{Span, Time};
use crate::contract::values::Values;
use crate::heap::heap_bytes;
use crate::reliability::recovery::Order;
use crate::reliability::slot_lists;

/// All slots of one job in one tree.
#[derive(Clone, Hash)]
pub struct Pool<D: Dialect> {
    pub(super) dialect: D,
    slots: Range<u16>,
    versions: Vec<Version<D::Word>>,
    /// `pool[2, s]` and `seen[2, s, n]` of Algorithm 3, with one block for each version.
    sums: OrderedAccumulator,
    /// Positions of which a packet was dropped that had crossed the answer: a bitmap of `words` words for each version.
    excused: Vec<u64>,
    words: usize,
    children: usize,
    positions: Positions,
    /// All ranks are below this switch.
    is_root: bool,
    /// True if every packet that was counted already is answered, as in Algorithm 3 (line 21).
    answers_all: bool,
    /// Ranks of the whole job.
    world_size: u16,
    /// Slots of the job in all trees.
    job_slots: u16,
    /// Bytes of vector that a packet may have.
    payload_bytes: usize,
    mismatches: Vec<Option<Mismatch>>,
}

impl<D: Dialect> Pool<D> {
    /// New slots of a switch's tree.
    pub fn new(values: Values, config: &SwitchConfig) -> Pool<D> {
        let (job, children) = (&config.job, config.members.len());
        let slots = slot_lists::slots_of(job, config.tree);
        let dialect = D::of(&job.options, job.levels, job.world_size);
        let (positions, forest) = match dialect.is_over_ranks() {
            true => Some(Positions::of_ranks(config)).map(|(positions, forest)| (positions, Some(forest))),
            false => None,
        }
        .unwrap_or_else(|| (Positions::of_children(children), None));
        let width = forest.as_ref().map_or_else(|| dialect.width(children, job.world_size), Forest::buffers);
        let versions = 2 * slots.len();
        let words = positions.len().div_ceil(64);
        let lane_bytes = dialect.narrow().lane_bytes(values, job.payload_bytes());
        let instances = match values {
            Values::Elements => {
                let capacity = Capacity { vector_bytes: lane_bytes, accumulators: versions * width };
                job.options.operators().instances(capacity)
            }
            Values::Fingerprint => Box::default(),
        };
        let unused = |version: usize| Version {
            // Phases 0 and 1 come next.
            phase: (version as u32 % 2).wrapping_sub(2),
            state: State::Unused,
            word: D::Word::NOTHING,
            block: Block { kind: Kind::Probe, spec: Spec::NOTHING, elements: 0 },
            has_two_laps: false,
            agreement: Agreement::default(),
            completed_at: Time::ZERO,
            turnaround: UNKNOWN,
            round: Span::ZERO,
        };
        Pool {
            dialect,
            slots,
            versions: (0..versions).map(unused).collect(),
            sums: OrderedAccumulator::new(positions.len(), width, versions, lane_bytes)
                .with_forest(forest)
                .with_own(instances),
            excused: vec![0; versions * words],
            words,
            children,
            positions,
            is_root: config.parent.is_none(),
            answers_all: job.options.has_choice(Order::OPTION.name, TO_THE_LETTER),
            world_size: job.world_size,
            job_slots: job.slots,
            payload_bytes: job.payload_bytes(),
            mismatches: vec![None; versions],
        }
    }

    /// The version that serves this phase of this slot, if the slot is here.
    pub fn version(&self, idx: u16, phase: u32) -> Option<VersionId> {
        self.slots.contains(&idx).then(|| VersionId(2 * usize::from(idx - self.slots.start) + (phase % 2) as usize))
    }

    /// The slot of a version.
    pub fn slot_of(&self, id: VersionId) -> u16 {
        self.slots.start + (id.0 / 2) as u16
    }

    /// What a version holds.
    pub fn get(&self, id: VersionId) -> &Version<D::Word> {
        &self.versions[id.0]
    }

    /// True if the other version holds the result of the phase before `phase`, or that phase is before the first.
    pub fn shadow_complete(&self, id: VersionId, phase: u32) -> bool {
        let shadow = &self.versions[id.0 ^ 1];
        shadow.phase == phase.wrapping_sub(1) && matches!(shadow.state, State::Complete | State::Unused)
    }

    /// When the result of the slot's phase before this version's was complete; zero if there was none.
    #[inline]
    pub fn before(&self, id: VersionId) -> Time {
        self.versions[id.0 ^ 1].completed_at
    }

    /// The position of a child's subtree, if the child brings such a subtree.
    #[inline]
    pub fn position(&self, wid: ChildId, subtree: u16) -> Option<usize> {
        self.positions.of(wid, subtree)
    }

    /// The number of vectors in a complete block.
    pub fn positions(&self) -> usize {
        self.positions.len()
    }

    /// The number of packets in which a block goes up.
    pub fn subtrees(&self) -> usize {
        self.sums.roots()
    }

    /// Which of these packets a position's vector belongs to.
    pub fn subtree_of(&self, position: usize) -> u16 {
        self.sums.root_of(position)
    }

    /// `seen[ver, idx, wid]`.
    pub fn has_seen(&self, id: VersionId, position: usize) -> bool {
        self.sums.has(id.0, position)
    }

    /// True if a child has brought all that it has to bring.
    fn has_all_of(&self, id: VersionId, wid: ChildId) -> bool {
        !self.positions.any(wid, |position| !self.has_seen(id, position))
    }

    /// Takes a version for a new phase, whose first contribution has come. Fails if the block is to be scaled here and
    /// ranks cannot have agreed on a scale.
    pub fn begin(
        &mut self,
        now: Time,
        id: VersionId,
        phase: u32,
        block: Block,
        encoding: &Encoding,
    ) -> Result<(), DropReason> {
        let shadow = &self.versions[id.0 ^ 1];
        let mut agreement = shadow.agreement;
        let is_scaled = encoding.is_scaled && block.elements > 0;
        let exponent = if is_scaled { agreement.follow(block.stage()) } else { None };
        let rule = match encoding.at_switch {
            Some(kernels) if is_scaled => {
                let (exponent, world_size) = (exponent.ok_or(DropReason::Unexpected)?, self.world_size);
                Rule::in_fixed_point(encoding.combine, Scaled { kernels, exponent, world_size, op: block.spec.op })
            }
            _ => Rule::arranged(encoding.combine, self.arrangement(&block.spec, encoding)).by(encoding.custom_op),
        };
        let block_elements = encoding.block_elements(self.payload_bytes, self.dialect.narrow());
        let has_two_laps = block.spec.elements / block_elements >= 2 * u32::from(self.job_slots);
        let (turnaround, round) = measured(now, shadow, has_two_laps);
        self.sums.begin(id.0, rule);
        self.excused[id.0 * self.words..][..self.words].fill(0);
        let word = D::Word::NEUTRAL;
        let (state, completed_at) = (State::Open, Time::ZERO);
        self.versions[id.0] =
            Version { phase, state, word, block, has_two_laps, agreement, completed_at, turnaround, round };
        Ok(())
    }

    /// Which vectors of a collective's blocks are combined with each other.
    pub fn arrangement(&self, spec: &Spec, encoding: &Encoding) -> Arrangement {
        let in_any_order = encoding.is_scaled || spec.primitive.sole_source().is_some() && self.spares();
        if in_any_order { Arrangement::Buffers(1) } else { self.dialect.arrangement(spec, encoding, self.children) }
    }

    /// Adds one contribution, which was not seen yet and is of the version's block; returns the new count.
    #[inline]
    pub fn add(
        &mut self,
        id: VersionId,
        header: &Header<D::Word>,
        position: usize,
        vector: &[u8],
        format: VectorFormat,
    ) -> u16 {
        format.add(&mut self.sums, id.0, position, vector);
        self.versions[id.0].word.join(header.wid, &header.word);
        self.sums.count(id.0) as u16
    }

    /// Counts the contribution of a child that has nothing to bring; returns the new count.
    #[inline]
    pub fn excuse(&mut self, id: VersionId, header: &Header<D::Word>, position: usize) -> u16 {
        self.sums.excuse(id.0, position);
        self.versions[id.0].word.join(header.wid, &header.word);
        self.sums.count(id.0) as u16
    }

    /// Sets the number of elements of a block, which is 0 until a contribution with a vector has come.
    pub fn fill(&mut self, id: VersionId, elements: u32) {
        self.versions[id.0].block.elements = elements;
    }

    /// True if a child may have nothing to bring to a broadcast. False where blocks have several subtrees.
    pub fn spares(&self) -> bool {
        !self.dialect.is_over_ranks()
    }

    /// The switch above has said that the block is complete. Its sum goes to a rank that is not below this switch.
    pub fn finish_elsewhere(&mut self, now: Time, id: VersionId, word: D::Word) {
        self.versions[id.0].word = word;
        self.all_in(now, id, State::Complete);
    }

    /// All contributions of all ranks are in.
    pub fn complete(&mut self, now: Time, id: VersionId) {
        let divides = self.versions[id.0].block.spec.op == ReduceOp::Avg;
        if divides || matches!(self.dialect.numbers(), Numbers::Int8(_)) {
            self.sums.finish(id.0, self.world_size);
        }
        self.conclude(id);
        self.all_in(now, id, State::Complete);
    }

    /// All children's contributions are in, and go to the switch above.
    pub fn await_parent(&mut self, now: Time, id: VersionId) {
        self.conclude(id);
        self.all_in(now, id, State::AwaitsParent);
    }

    fn conclude(&mut self, id: VersionId) {
        let version = &mut self.versions[id.0];
        version.word = self.dialect.concluded(&version.block.spec, version.word, self.is_root);
    }

    fn all_in(&mut self, now: Time, id: VersionId, state: State) {
        let version = &mut self.versions[id.0];
        (version.state, version.completed_at) = (state, now);
        if state == State::Complete {
            // The answer to a PROBE must agree on an exponent. Hosts drop an answer that does not.
            let _ = version.agreement.conclude(version.block.stage(), version.word.agreed());
        }
    }

    /// True if a packet that was counted already needs no answer: it came sooner after the last contribution than a round
    /// trip takes, and is the first such of its child and phase. Without a known round trip all are answered (line 21).
    pub fn crossed(&mut self, now: Time, id: VersionId, position: usize) -> bool {
        let version = &self.versions[id.0];
        let all_in = matches!(version.state, State::AwaitsParent | State::Complete);
        if self.answers_all || !all_in || now.since(version.completed_at) >= version.round {
            return false;
        }
        let (word, bit) = (&mut self.excused[id.0 * self.words + position / 64], 1 << (position % 64));
        let first = *word & bit == 0;
        *word |= bit;
        first
    }

    /// Puts the parent's result in place of the partial sum.
    pub fn finish(&mut self, now: Time, id: VersionId, word: D::Word, vector: &[u8]) {
        self.sums.replace(id.0, vector);
        self.versions[id.0].word = word;
        self.all_in(now, id, State::Complete);
    }

    /// Writes the accumulator to a vector: the result as hosts get it, or what the children have brought so far.
    pub fn load(&self, id: VersionId, vector: &mut [u8], format: VectorFormat) {
        format.load(&self.sums, id.0, vector);
    }

    /// Writes one of the subtrees that go up.
    pub fn load_subtree(&self, id: VersionId, subtree: usize, vector: &mut [u8]) {
        self.sums.load_root(id.0, subtree, vector);
    }

    /// Notes that ranks disagree on a version's block.
    pub fn note(&mut self, id: VersionId, mismatch: Mismatch) {
        self.versions[id.0].state = State::Mismatched;
        self.mismatches[id.0] = Some(mismatch);
    }

    /// The note about a slot's phase, if there is one.
    pub fn mismatch(&self, idx: u16, phase: u32) -> Option<Mismatch> {
        let id = self.version(idx, phase)?;
        let version = self.get(id);
        if version.phase == phase && version.state == State::Mismatched { self.mismatches[id.0] } else { None }
    }

    /// The lowest child that contributed.
    pub fn first_seen(&self, id: VersionId) -> Option<ChildId> {
        (0..self.children as u16)
            .map(ChildId)
            .find(|&wid| self.positions.any(wid, |position| self.has_seen(id, position)))
    }

    /// Instructions that the job's custom operators have taken so far; `None` if the job has none.
    pub fn instructions(&self) -> Option<u64> {
        self.sums.instructions()
    }

    /// Why one of the job's custom operators has failed, if one has.
    #[inline]
    pub fn fault(&self) -> Option<&Fault> {
        self.sums.fault()
    }

    /// True if the child has contributed to this phase of the slot, as far as the slot remembers.
    pub fn has_contributed(&self, idx: u16, phase: u32, wid: ChildId) -> bool {
        self.version(idx, phase).is_some_and(|id| match Relation::of(phase, self.get(id).phase) {
            Relation::Same => self.get(id).state != State::Unused && self.has_all_of(id, wid),
            Relation::Earlier => true,
            Relation::Next | Relation::Later => false,
        })
    }

    /// True if this phase of the slot has its result, as far as the slot remembers.
    pub fn is_done(&self, idx: u16, phase: u32) -> bool {
        self.version(idx, phase).is_some_and(|id| match Relation::of(phase, self.get(id).phase) {
            Relation::Same => self.get(id).state == State::Complete,
            Relation::Earlier => true,
            Relation::Next | Relation::Later => false,
        })
    }

    /// Number of slots.
    pub fn slots(&self) -> u32 {
        self.slots.len() as u32
    }

    fn waiting(&self) -> impl Iterator<Item = VersionId> + '_ {
        (0..self.versions.len())
            .map(VersionId)
            .filter(|&id| matches!(self.get(id).state, State::Open | State::AwaitsParent))
    }

    /// Number of slots whose sum is not complete.
    pub fn slots_waiting(&self) -> u32 {
        // Of the two versions of a slot at most one is incomplete: the other is its shadow copy.
        self.waiting().count() as u32
    }

    /// Children that some incomplete sum waits for, ascending.
    pub fn missing(&self) -> Vec<ChildId> {
        let waits_for = |&wid: &ChildId| self.waiting().any(|id| !self.has_all_of(id, wid));
        (0..self.children as u16).map(ChildId).filter(waits_for).collect()
    }

    /// Bytes on the heap.
    pub fn memory_bytes(&self) -> usize {
        heap_bytes(&self.versions) + self.sums.memory_bytes() - size_of::<OrderedAccumulator>()
            + heap_bytes(&self.excused)
            + self.positions.memory_bytes()
            + heap_bytes(&self.mismatches)
    }
}

/// Learns about round trips from a block's first contribution. Its sender is the quickest child, which has used a result
/// to send again. That takes a round trip if both blocks are of one collective, and any time if ranks computed something
/// in between. If every collective has two blocks or more in each slot, at most every second turnaround spans two
/// collectives, so the shorter of the last two turnarounds is a round trip. Nothing is known of smaller collectives.
fn measured<W>(now: Time, before: &Version<W>, has_two_laps: bool) -> (Span, Span) {
    if before.state != State::Complete || !before.has_two_laps || !has_two_laps {
        return (UNKNOWN, Span::ZERO);
    }
    let turnaround = now.since(before.completed_at);
    // If the turnaround before is unknown, that block was the first of its collective, and this block is not.
    (turnaround, turnaround.min(before.turnaround))
}

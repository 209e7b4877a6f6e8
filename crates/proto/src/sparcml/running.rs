//! One collective on one rank: the chunks that it holds, its current step, and whether it is complete.

mod merging;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::chunk::{self, Chunk};
use super::codec::{Blocks, Codec};
use super::message::{Envelope, Incoming, Message};
use super::plan::{Merge, Plan, What};
use super::wire::Data;
use super::{Algorithm, Choices};
use crate::aggregation::ordered::VectorFormat;
use crate::contract::config::HostConfig;
use crate::contract::drop_reason::DropReason;
use crate::contract::host::Collective;
use crate::contract::ids::Rank;
use crate::contract::tensor::{Spec, Tensor};
use crate::contract::time::Time;
use crate::contract::values::Values;

/// A message and its receiver.
pub type Outgoing = (Rank, Arc<Message>);
/// Chunks, by number.
type Chunks = Vec<(u16, Arc<Chunk>)>;

/// A collective that was not handed back yet.
#[derive(Clone, Hash)]
pub struct Running {
    /// The data.
    pub tensor: Box<dyn Tensor>,
    /// The collective's kind.
    pub spec: Spec,
    /// When to give up.
    pub deadline: Option<Time>,
    /// When the collective was submitted.
    pub submitted_at: Time,
    /// Its first messages were made.
    pub is_started: bool,
    /// Its output is written.
    pub is_complete: bool,
    op: u64,
    me: Rank,
    world_size: u16,
    is_sparse: bool,
    gathers_dense: bool,
    codec: Codec,
    plan: Plan,
    /// The current step.
    at: usize,
    /// The messages of the current step were made.
    is_sent: bool,
    chunks: BTreeMap<u16, Arc<Chunk>>,
    /// The form of the chunks that are held.
    format: VectorFormat,
    incoming: BTreeMap<(Rank, u8), Incoming>,
    /// How many messages of the step are incomplete, once the step's own messages were made.
    missing: usize,
    /// Of a dense tensor: the lanes of the step's sum, as far as all ranks' lanes have come.
    sum: Vec<u8>,
    /// How many ranks' lanes have come no further than that; 0 if not counted.
    behind: usize,
    /// Ranks that have everything that this rank contributes to their chunks, and of which `take_served` has not told
    /// yet.
    served: Vec<Rank>,
}

/// Reads this rank's contribution to a block: zeros if the rank brings nothing.
fn read(tensor: &dyn Tensor, me: Rank, block: Range<usize>, vector: &mut [u8]) {
    match tensor.spec().primitive.contributes(me) {
        true => tensor.read_input(block, vector),
        false => vector.fill(0),
    }
}

/// The lanes at these bytes of a chunk, from this rank's contribution.
fn brought(blocks: &Blocks<'_>, lanes: &Range<usize>, tensor: &dyn Tensor, me: Rank) -> Vec<u8> {
    blocks.brought(lanes, tensor, |block, vector| read(tensor, me, block, vector))
}

impl Running {
    /// A collective that has not begun.
    pub fn new(now: Time, op: u64, collective: Collective, values: Values, config: &HostConfig) -> Running {
        let (spec, job) = (collective.tensor.spec(), &config.job);
        let choices = Choices::of(&job.options);
        let algorithm = choices.algorithm(&spec, job.world_size);
        let codec = Codec::new(values, job.payload_bytes(), &spec, choices.is_sparse);
        Running {
            tensor: collective.tensor,
            spec,
            deadline: collective.deadline,
            submitted_at: now,
            is_started: false,
            is_complete: false,
            op,
            me: config.rank,
            world_size: job.world_size,
            is_sparse: choices.is_sparse,
            gathers_dense: algorithm == Algorithm::DenseSplitAllgather,
            codec: codec.expect("a driver asks first what a protocol can"),
            plan: Plan::new(algorithm, config.rank, job.world_size),
            at: 0,
            is_sent: false,
            chunks: BTreeMap::new(),
            format: VectorFormat::Host,
            incoming: BTreeMap::new(),
            missing: 0,
            sum: Vec::new(),
            behind: 0,
            served: Vec::new(),
        }
    }

    /// Reads this rank's contribution, and begins. A large dense tensor is read block by block when it is sent. A rank
    /// that has a chunk's result has had all ranks' contributions to it, so nothing is read after it was overwritten.
    pub fn start(&mut self) -> Vec<Outgoing> {
        self.is_started = true;
        for number in 0..self.plan.chunks {
            let range = self.plan.range(number, self.spec.elements);
            let chunk = match self.is_sparse {
                true => self.read_sparse(range),
                false if self.plan.chunks > 1 => Chunk { range, data: chunk::Data::Brought },
                false => {
                    let blocks = Blocks::new(&self.codec, &range);
                    let lanes = brought(&blocks, &(0..blocks.lanes_len()), &*self.tensor, self.me);
                    Chunk { range, data: chunk::Data::Full { lanes } }
                }
            };
            self.chunks.insert(number, Arc::new(chunk));
        }
        self.advance()
    }

    /// Goes through all steps whose messages have come; returns the messages to be sent.
    pub fn advance(&mut self) -> Vec<Outgoing> {
        let mut outgoing = Vec::new();
        while self.is_started && !self.is_complete {
            let Some(step) = self.plan.steps.get(self.at) else {
                self.complete();
                break;
            };
            if !std::mem::replace(&mut self.is_sent, true) {
                outgoing.extend(step.sends.iter().map(|&(to, what)| (to, self.message(step.label, what))));
                self.missing = self.awaited().count();
                self.behind = 0;
            }
            if self.behind == 0 && !self.is_sparse {
                self.sum_blocks();
            }
            if self.missing > 0 || !self.merge_step() {
                break;
            }
            self.at += 1;
            self.is_sent = false;
        }
        outgoing
    }

    /// Takes in a fragment of a message, whose body has this many bytes on the wire.
    pub fn take(&mut self, from: Rank, data: &Data, body: &[u8], wire_len: usize) -> Result<(), DropReason> {
        let most = u64::from(self.spec.elements) + u64::from(self.plan.chunks);
        let step = self.plan.step_of(from, data.label);
        let step = step.filter(|_| u64::from(data.fragments) <= most).ok_or(DropReason::BadField)?;
        let incoming = self.incoming.entry((from, data.label)).or_default();
        let before = incoming.lanes_of(data.chunk);
        incoming.take(&self.codec, &self.plan, data, body, wire_len)?;
        if self.is_sent && self.plan.steps.get(self.at).is_some_and(|at| at.label == data.label) {
            self.missing -= usize::from(incoming.is_complete());
            let has_passed = before <= self.sum.len() && self.sum.len() < incoming.lanes_of(data.chunk);
            self.behind -= usize::from(has_passed && self.behind > 0);
        }
        while step.merge == Merge::Gather
            && let Some((number, chunk, start, lanes)) = incoming.news()
        {
            if self.spec.primitive.receives(self.me) {
                Blocks::new(&self.codec, &chunk.range).write(start, lanes, &mut *self.tensor);
            }
            if start == 0 {
                self.served.push(Rank(number));
            }
        }
        Ok(())
    }

    /// Ranks that have got everything that this rank contributes to their chunks, since the last call.
    pub fn take_served(&mut self) -> Vec<Rank> {
        std::mem::take(&mut self.served)
    }

    /// Reads a block of this rank's contribution to a dense tensor.
    pub fn read(&self, block: Range<usize>, vector: &mut [u8]) {
        read(&*self.tensor, self.me, block, vector);
    }

    /// The ranks whose messages of the current step have not come.
    pub fn awaited(&self) -> impl Iterator<Item = Rank> + '_ {
        let step = self.plan.steps.get(self.at);
        step.into_iter().flat_map(|step| &step.from).copied().filter(|&from| {
            let label = self.plan.steps[self.at].label;
            !self.incoming.get(&(from, label)).is_some_and(Incoming::is_complete)
        })
    }

    /// The ranks that wait for what this rank can send only after the current step.
    pub fn owed(&self) -> impl Iterator<Item = Rank> + '_ {
        self.plan.steps.iter().skip(self.at + 1).flat_map(|step| step.sends.iter().map(|(to, _)| *to))
    }

    fn message(&self, label: u8, what: What) -> Arc<Message> {
        let goes = |number: u16| match what {
            What::All => true,
            What::Chunk(one) => number == one,
            What::AllBut(one) => number != one,
        };
        let chunks = self.chunks.iter().filter(|(number, _)| goes(**number));
        let chunks = chunks.map(|(&number, chunk)| (number, Arc::clone(chunk))).collect();
        let envelope = Envelope { op: self.op, until: self.deadline, spec: self.spec, codec: self.codec };
        Arc::new(Message::new(envelope, label, self.format, chunks))
    }

    /// Finishes the chunks that are held, which are sums over all ranks.
    fn finish(&mut self) {
        for chunk in self.chunks.values_mut() {
            Arc::make_mut(chunk).finish(self.codec.combine, self.world_size);
        }
        self.format = VectorFormat::Host;
    }

    /// Writes the result, if it is not written yet. If chunks are missing, the collective never completes.
    fn complete(&mut self) {
        if self.world_size == 1 {
            self.finish();
        }
        if self.chunks.len() != usize::from(self.plan.chunks) {
            return;
        }
        for chunk in std::mem::take(&mut self.chunks).into_values() {
            match &chunk.data {
                // In a job of one rank no step has written the result.
                chunk::Data::Full { lanes } if self.world_size == 1 && self.spec.primitive.receives(self.me) => {
                    Blocks::new(&self.codec, &chunk.range).write(0, lanes, &mut *self.tensor);
                }
                chunk::Data::Full { .. } | chunk::Data::Brought => {}
                chunk::Data::Sparse { .. } | chunk::Data::Dense { .. } if chunk.range.is_empty() => {}
                chunk::Data::Sparse { .. } | chunk::Data::Dense { .. } => self.write_sparse(&chunk),
            }
        }
        self.is_complete = true;
    }

    fn read_sparse(&self, range: Range<u32>) -> Chunk {
        let tensor = self.tensor.sparse().expect("the job's tensors are sparse");
        let positions = tensor.positions(range.clone());
        let indices = tensor.indices()[positions.clone()].to_vec();
        let combine = self.codec.combine;
        let mut values = vec![0; indices.len() * combine.wire_size];
        tensor.read_values(positions, &mut values);
        let mut lanes = vec![0; indices.len() * combine.lane_size];
        (combine.store)(&mut lanes, &values);
        let is_shorter_dense = self.codec.is_shorter_dense(indices.len(), range.len());
        let chunk = Chunk { range, data: chunk::Data::Sparse { indices, lanes } };
        if is_shorter_dense { chunk.densified(combine) } else { chunk }
    }

    fn write_sparse(&mut self, chunk: &Chunk) {
        let (combine, start) = (self.codec.combine, chunk.range.start);
        let tensor = self.tensor.sparse_mut().expect("the job's tensors are sparse");
        let load = |lanes: &[u8], count: usize| {
            let mut values = vec![0; count * combine.wire_size];
            (combine.load)(lanes, &mut values);
            values
        };
        match &chunk.data {
            chunk::Data::Sparse { indices, lanes } => {
                tensor.write_block(chunk.range.clone(), indices, &load(lanes, indices.len()));
            }
            chunk::Data::Dense { present, lanes } => {
                let there = || (0..chunk.range.len()).filter(|&at| chunk::is_present(present, at));
                let indices: Vec<u32> = there().map(|at| start + at as u32).collect();
                let all = load(lanes, chunk.range.len());
                let values: Vec<u8> =
                    there().flat_map(|at| &all[at * combine.wire_size..][..combine.wire_size]).copied().collect();
                tensor.write_block(chunk.range.clone(), &indices, &values);
            }
            chunk::Data::Full { .. } | chunk::Data::Brought => unreachable!("a sparse tensor's part has indices"),
        }
    }
}

//! One collective on one rank: what it holds of which part, which step it is in, and when it is complete.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::codec::{Codec, Shape};
use super::incoming::Incoming;
use super::message::{Envelope, Message};
use super::options::{Algorithm, Choices};
use super::part::{self, Part};
use super::plan::{Merge, Plan, What};
use super::wire::Data;
use crate::contract::config::HostConfig;
use crate::contract::drop_reason::DropReason;
use crate::contract::host::Collective;
use crate::contract::ids::Rank;
use crate::contract::tensor::{Spec, Tensor};
use crate::contract::time::Time;
use crate::contract::values::Values;
use crate::parts::form::Form;

/// A message to be sent.
pub type Outgoing = (Rank, Arc<Message>);
/// Parts, by number.
type Parts = Vec<(u16, Arc<Part>)>;

/// A collective that has not been handed back.
#[derive(Clone, Hash)]
pub struct Running {
    /// The data.
    pub tensor: Box<dyn Tensor>,
    /// What it is.
    pub spec: Spec,
    /// When to give up.
    pub deadline: Option<Time>,
    /// When it came.
    pub submitted_at: Time,
    /// Its first messages were made.
    pub is_started: bool,
    /// Its output is written.
    pub is_complete: bool,
    op: u64,
    me: Rank,
    world: u16,
    is_sparse: bool,
    gathers_dense: bool,
    codec: Codec,
    plan: Plan,
    /// The step that it is in.
    at: usize,
    /// The messages of that step were made.
    is_sent: bool,
    held: BTreeMap<u16, Arc<Part>>,
    /// What is held: what ranks have brought, or finished, or partial.
    form: Form,
    incoming: BTreeMap<(Rank, u8), Incoming>,
}

impl Running {
    /// A collective at its start.
    pub fn new(now: Time, op: u64, collective: Collective, values: Values, config: &HostConfig) -> Running {
        let (spec, job) = (collective.tensor.spec(), &config.job);
        let choices = Choices::of(&job.options);
        let algorithm = choices.algorithm(&spec, job.world);
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
            world: job.world,
            is_sparse: choices.is_sparse,
            gathers_dense: algorithm == Algorithm::DenseSplitAllgather,
            codec: codec.expect("a driver asks first what a protocol can"),
            plan: Plan::new(algorithm, config.rank, job.world),
            at: 0,
            is_sent: false,
            held: BTreeMap::new(),
            form: Form::Host,
            incoming: BTreeMap::new(),
        }
    }

    /// Reads what the rank brings, and begins.
    pub fn start(&mut self) -> Vec<Outgoing> {
        self.is_started = true;
        for number in 0..self.plan.parts {
            let part = if self.is_sparse { self.read_sparse(number) } else { self.read_dense(number) };
            self.held.insert(number, Arc::new(part));
        }
        self.advance()
    }

    /// Goes through all steps for which everything has come; gives what is to be sent.
    pub fn advance(&mut self) -> Vec<Outgoing> {
        let mut outgoing = Vec::new();
        while self.is_started && !self.is_complete {
            let Some(step) = self.plan.steps.get(self.at) else {
                self.complete();
                break;
            };
            if !std::mem::replace(&mut self.is_sent, true) {
                outgoing.extend(step.sends.iter().map(|&(to, what)| (to, self.message(step.label, what))));
            }
            if self.awaited().next().is_some() || !self.merge_step() {
                break;
            }
            self.at += 1;
            self.is_sent = false;
        }
        outgoing
    }

    /// Takes in a piece of a message, whose body is so long on the wire.
    pub fn take(&mut self, from: Rank, data: &Data, body: &[u8], wire_len: usize) -> Result<(), DropReason> {
        let most = u64::from(self.spec.elements) + u64::from(self.plan.parts);
        if self.plan.step_of(from, data.label).is_none() || u64::from(data.pieces) > most {
            return Err(DropReason::BadField);
        }
        self.incoming.entry((from, data.label)).or_default().take(&self.codec, data, body, wire_len)
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
            What::Part(one) => number == one,
            What::AllBut(one) => number != one,
        };
        let held = self.held.iter().filter(|(number, _)| goes(**number));
        let parts = held.map(|(&number, part)| (number, Arc::clone(part))).collect();
        let envelope = Envelope { op: self.op, until: self.deadline, spec: self.spec, codec: self.codec };
        Arc::new(Message::new(envelope, label, self.form, parts))
    }

    /// Brings what has come in this step to what is held; false if some of it makes no sense, so that it never completes.
    fn merge_step(&mut self) -> bool {
        let step = &self.plan.steps[self.at];
        let (label, merge, completes) = (step.label, step.merge, step.completes);
        let mut come = Vec::new();
        for &from in &step.from {
            let message = self.incoming.remove(&(from, label)).unwrap_or_default();
            let Some(parts) = message.parts(&self.codec, &self.plan) else { return false };
            come.push((from, parts));
        }
        match merge {
            Merge::Gather => self.held.extend(come.into_iter().flat_map(|(_, parts)| parts)),
            Merge::Combine => {
                for (_, parts) in come {
                    self.form = Form::Partial;
                    for (number, theirs) in parts {
                        let Some(mine) = self.held.remove(&number) else { return false };
                        let Some(sum) = self.combined(mine, &theirs) else { return false };
                        self.held.insert(number, Arc::new(sum));
                    }
                }
            }
            Merge::Own => {
                let Some(sum) = self.own_part(come) else { return false };
                self.held = BTreeMap::from([(self.me.0, Arc::new(sum))]);
            }
        }
        if completes || merge == Merge::Own {
            self.finish();
        }
        true
    }

    fn combined(&self, mine: Arc<Part>, theirs: &Part) -> Option<Part> {
        let sum = Arc::unwrap_or_clone(mine).combined(theirs, self.codec.combine)?;
        let is_shorter_dense = self.is_sparse && self.codec.is_shorter_dense(sum.count(), sum.range.len());
        Some(if is_shorter_dense { sum.densified(self.codec.combine) } else { sum })
    }

    /// The sum of this rank's part: neighbours in rank first, then theirs, so that pairs are copied a few times and not once a
    /// rank.
    fn own_part(&mut self, come: Vec<(Rank, Parts)>) -> Option<Part> {
        let mut parts = BTreeMap::from([(self.me, self.held.remove(&self.me.0)?)]);
        for (from, theirs) in come {
            let [(number, part)] = <[_; 1]>::try_from(theirs).ok()?;
            if number != self.me.0 {
                return None;
            }
            parts.insert(from, part);
        }
        let mut parts: Vec<Arc<Part>> = parts.into_values().collect();
        while parts.len() > 1 {
            let mut sums = Vec::with_capacity(parts.len().div_ceil(2));
            let mut rest = parts.into_iter();
            while let Some(first) = rest.next() {
                sums.push(match rest.next() {
                    Some(second) => Arc::new(self.combined(first, &second)?),
                    None => first,
                });
            }
            parts = sums;
        }
        let sum = Arc::unwrap_or_clone(parts.pop()?);
        Some(if self.gathers_dense { sum.densified(self.codec.combine) } else { sum })
    }

    /// What is held are the sums of all ranks.
    fn finish(&mut self) {
        for part in self.held.values_mut() {
            Arc::make_mut(part).finish(self.codec.combine, self.world);
        }
        self.form = Form::Host;
    }

    /// Writes the result; where parts are missing, the collective never completes.
    fn complete(&mut self) {
        if self.world == 1 {
            self.finish();
        }
        if self.held.len() != usize::from(self.plan.parts) {
            return;
        }
        for part in std::mem::take(&mut self.held).into_values().filter(|part| !part.range.is_empty()) {
            if self.is_sparse {
                self.write_sparse(&part);
            } else if self.spec.primitive.gets(self.me) {
                self.write_dense(&part);
            }
        }
        self.is_complete = true;
    }

    fn read_sparse(&self, number: u16) -> Part {
        let range = self.plan.range(number, self.spec.elements);
        let tensor = self.tensor.sparse().expect("the job's tensors are sparse");
        let places = tensor.places(range.clone());
        let indices: Vec<u32> = places.clone().map(|place| tensor.index(place)).collect();
        let combine = self.codec.combine;
        let mut values = vec![0; indices.len() * combine.wire_size];
        tensor.read_values(places, &mut values);
        let mut lanes = vec![0; indices.len() * combine.lane_size];
        (combine.store)(&mut lanes, &values);
        let is_shorter_dense = self.codec.is_shorter_dense(indices.len(), range.len());
        let part = Part { range, data: part::Data::Sparse { indices, lanes } };
        if is_shorter_dense { part.densified(combine) } else { part }
    }

    /// A rank that brings nothing brings zeros.
    fn read_dense(&self, number: u16) -> Part {
        let range = self.plan.range(number, self.spec.elements);
        let mut lanes = vec![0; self.codec.full_len(range.len())];
        let mut rest = lanes.as_mut_slice();
        let mut vector = Vec::new();
        for block in self.blocks(&range) {
            vector.clear();
            vector.resize(self.tensor.native_len(block.len()), 0);
            if self.spec.primitive.brings(self.me) {
                self.tensor.read_input(block.clone(), &mut vector);
            }
            let (lane, after) = rest.split_at_mut(self.codec.lanes_len(Shape::Full, block.len()));
            (self.codec.combine.store)(lane, &vector);
            rest = after;
        }
        Part { range, data: part::Data::Full { lanes } }
    }

    /// The blocks of a part of a dense tensor.
    fn blocks(&self, range: &std::ops::Range<u32>) -> impl Iterator<Item = std::ops::Range<usize>> + use<> {
        let (start, end) = (range.start as usize, range.end as usize);
        let block = self.codec.capacity(Shape::Full, Form::Host);
        (start..end).step_by(block).map(move |first| first..(first + block).min(end))
    }

    fn write_sparse(&mut self, part: &Part) {
        let (combine, start) = (self.codec.combine, part.range.start);
        let tensor = self.tensor.sparse_mut().expect("the job's tensors are sparse");
        let load = |lanes: &[u8], count: usize| {
            let mut values = vec![0; count * combine.wire_size];
            (combine.load)(lanes, &mut values);
            values
        };
        match &part.data {
            part::Data::Sparse { indices, lanes } => {
                tensor.write_block(part.range.clone(), indices, &load(lanes, indices.len()));
            }
            part::Data::Dense { present, lanes } => {
                let there = || (0..part.range.len()).filter(|&at| part::is_present(present, at));
                let indices: Vec<u32> = there().map(|at| start + at as u32).collect();
                let all = load(lanes, part.range.len());
                let values: Vec<u8> =
                    there().flat_map(|at| &all[at * combine.wire_size..][..combine.wire_size]).copied().collect();
                tensor.write_block(part.range.clone(), &indices, &values);
            }
            part::Data::Full { .. } => unreachable!("a sparse tensor's part has indices"),
        }
    }

    fn write_dense(&mut self, part: &Part) {
        let part::Data::Full { lanes } = &part.data else { return };
        let mut rest = lanes.as_slice();
        let mut vector = Vec::new();
        for block in self.blocks(&part.range) {
            let (lane, after) = rest.split_at(self.codec.lanes_len(Shape::Full, block.len()));
            vector.clear();
            vector.resize(self.tensor.native_len(block.len()), 0);
            (self.codec.combine.load)(lane, &mut vector);
            self.tensor.write(block, &vector);
            rest = after;
        }
    }
}

//! A job's own operators at work in one accumulator. The first fault is remembered, and nothing is combined after it.

use std::hash::{Hash, Hasher};
use std::ops::Range;

use tributary_numeric::Lanes;

use super::OrderedAccumulator;
use super::rule::{Rule, Step, VectorFormat};
use crate::contract::custom_op::{Fault, Instance};

/// The instances, by the operators' numbers.
#[derive(Default)]
pub(super) struct Own {
    instances: Box<[Box<dyn Instance>]>,
    fault: Option<Fault>,
}

impl Own {
    pub(super) fn new(instances: Box<[Box<dyn Instance>]>) -> Own {
        Own { instances, fault: None }
    }

    pub(super) fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }

    /// Applies a rule's step to opaque elements, in the instance's own accumulator of a node.
    pub(super) fn step(&mut self, number: u8, step: Step, node: usize, vector: &[u8]) {
        if self.fault.is_some() {
            return;
        }
        let instance = &mut self.instances[usize::from(number)];
        let done = match step {
            Step::Store => instance.store(node, vector),
            Step::Left => instance.add_left(node, vector),
            Step::Right => instance.add(node, vector),
        };
        self.fault = done.err();
    }

    /// Merges two nodes, whose vectors have this many bytes.
    pub(super) fn merge(&mut self, number: u8, left: usize, right: usize, bytes: usize) {
        if self.fault.is_none() {
            self.fault = self.instances[usize::from(number)].merge(left, right, bytes).err();
        }
    }

    /// How many instructions the operators' calls have taken so far; `None` if there are no operators.
    pub(super) fn instructions(&self) -> Option<u64> {
        (!self.instances.is_empty()).then(|| self.instances.iter().map(|each| each.instructions()).sum())
    }

    /// Writes the result of a node.
    pub(super) fn load(&self, number: u8, node: usize, vector: &mut [u8]) {
        if self.fault.is_none() {
            vector.copy_from_slice(self.instances[usize::from(number)].lanes(node, vector.len()));
        }
    }

    /// The accumulators of the first operator, if it has its own.
    #[inline]
    pub(super) fn home(&self) -> Option<&[u8]> {
        self.instances.first()?.accumulators().map(|all| all.bytes)
    }

    /// The same, mutable.
    #[inline]
    pub(super) fn home_mut(&mut self) -> Option<&mut [u8]> {
        self.instances.first_mut()?.accumulators_mut().map(|all| all.bytes)
    }

    /// Bytes on the heap.
    pub(super) fn memory_bytes(&self) -> usize {
        let instances = self.instances.iter().map(|instance| instance.memory_bytes()).sum::<usize>();
        instances + size_of_val(&*self.instances)
    }
}

impl Clone for Own {
    fn clone(&self) -> Own {
        let instances = self.instances.iter().map(|instance| instance.fork()).collect();
        Own { instances, fault: self.fault.clone() }
    }
}

impl Hash for Own {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.instances.iter().for_each(|instance| instance.state().hash(state));
        self.fault.hash(state);
    }
}

impl OrderedAccumulator {
    /// The same with the job's own operators. Results of built-in operators lie in the accumulators of the first own
    /// operator, which have room for them, and take no memory of their own.
    pub fn with_own(mut self, instances: Box<[Box<dyn Instance>]>) -> OrderedAccumulator {
        if let Some(home) = instances.first().and_then(|instance| instance.accumulators()) {
            let nodes = self.blocks.len() * self.width;
            assert!(home.stride >= self.stride && home.bytes.len() >= nodes * home.stride, "accumulators have room");
            (self.stride, self.nodes) = (home.stride, Lanes::zeroed(0));
        }
        OrderedAccumulator { own: Own::new(instances), ..self }
    }

    /// The memory of all nodes.
    #[inline]
    pub(super) fn memory(&self) -> &[u8] {
        self.own.home().unwrap_or(&self.nodes)
    }

    /// The same, mutable.
    #[inline]
    pub(super) fn memory_mut(&mut self) -> &mut [u8] {
        self.own.home_mut().unwrap_or(&mut self.nodes)
    }

    /// Applies a rule's step to a vector and a node's lanes.
    #[inline]
    pub(super) fn step(
        &mut self,
        rule: &Rule,
        format: VectorFormat,
        step: Step,
        (node, lanes): (usize, Range<usize>),
        vector: &[u8],
    ) {
        match rule.own {
            Some(number) => self.own.step(number, step, node, vector),
            None => rule.step(format, step, &mut self.memory_mut()[lanes], vector),
        }
    }

    /// How many instructions the job's custom operators have taken so far; `None` if the job has none.
    pub fn instructions(&self) -> Option<u64> {
        self.own.instructions()
    }

    /// The fault of one of the job's own operators, if one has failed; sums are invalid since then.
    pub fn fault(&self) -> Option<&Fault> {
        self.own.fault()
    }
}

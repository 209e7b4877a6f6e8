//! CustomOps of a job's own (§3, F1): combined in the order that they need, paid for, and alone in their failure.

use std::sync::Arc;

use tributary_numeric::{DType, ReduceOp};
use tributary_proto::contract::config::{Below, JobConfig};
use tributary_proto::contract::custom_op::{
    Accumulators, Capacity, CustomOp, CustomOpHash, Fault, Instance, OrderDependence,
};
use tributary_proto::contract::protocol::ShardShape;
use tributary_proto::contract::tensor::Spec;
use tributary_proto::contract::values::Values;
use tributary_proto::flare::PROTOCOL;

use crate::harness::link::LinkConfig;
use crate::harness::reduction::{reduce, star, switch_config};
use crate::setup::{job, lossy, racks};

/// Maps `x -> m x + c` modulo 2^24, of six bytes, one after the other: they do not commute. `m` of 0 fails.
struct Maps;

/// With its accumulators.
#[derive(Clone)]
struct AtWork {
    capacity: Capacity,
    accumulators: Vec<u8>,
    instructions: u64,
}

impl AtWork {
    fn stride(&self) -> usize {
        stride(self.capacity)
    }
}

fn stride(capacity: Capacity) -> usize {
    capacity.vector_bytes.next_multiple_of(64)
}

const SIZE: usize = 6;
/// Instructions of a call, of which the maps say that they take this many.
pub const CALL: u64 = 400_000;
pub const OWN: ReduceOp = ReduceOp::Custom(0);

fn coefficients(map: &[u8]) -> [u32; 2] {
    [0, 3].map(|at| u32::from_le_bytes([map[at], map[at + 1], map[at + 2], 0]))
}

fn map([m, c]: [u32; 2]) -> [u8; SIZE] {
    let ([m0, m1, m2, _], [c0, c1, c2, _]) = (m.to_le_bytes(), c.to_le_bytes());
    [m0, m1, m2, c0, c1, c2]
}

fn compose(left: &[u8], right: &[u8]) -> Result<Vec<u8>, Fault> {
    assert!(left.len() == right.len() && left.len().is_multiple_of(SIZE), "whole elements");
    let mut result = Vec::new();
    for (left, right) in left.chunks(SIZE).zip(right.chunks(SIZE)) {
        let ([m, c], [n, d]) = (coefficients(left), coefficients(right));
        if m == 0 {
            return Err(Fault("the operator maps has failed".to_owned()));
        }
        result.extend(map([m.wrapping_mul(n), m.wrapping_mul(d).wrapping_add(c)]));
    }
    Ok(result)
}

impl CustomOp for Maps {
    fn hash(&self) -> CustomOpHash {
        CustomOpHash([7; 32])
    }
    fn name(&self) -> &str {
        "maps"
    }
    fn element_size(&self) -> usize {
        SIZE
    }
    fn order_dependence(&self) -> OrderDependence {
        OrderDependence::RankOrder
    }
    fn module(&self) -> &[u8] {
        b"maps"
    }
    fn memory_bytes(&self, capacity: Capacity) -> usize {
        1_000 + stride(capacity) * capacity.accumulators
    }
    fn instance(&self, capacity: Capacity) -> Box<dyn Instance> {
        Box::new(AtWork { capacity, accumulators: vec![0; stride(capacity) * capacity.accumulators], instructions: 0 })
    }
}

impl Instance for AtWork {
    fn store(&mut self, accumulator: usize, vector: &[u8]) -> Result<(), Fault> {
        let at = accumulator * self.stride();
        self.accumulators[at..][..vector.len()].copy_from_slice(vector);
        Ok(())
    }
    fn add(&mut self, accumulator: usize, vector: &[u8]) -> Result<(), Fault> {
        self.instructions += CALL;
        let sum = compose(self.lanes(accumulator, vector.len()), vector)?;
        self.store(accumulator, &sum)
    }
    fn add_left(&mut self, accumulator: usize, vector: &[u8]) -> Result<(), Fault> {
        self.instructions += CALL;
        let sum = compose(vector, self.lanes(accumulator, vector.len()))?;
        self.store(accumulator, &sum)
    }
    fn merge(&mut self, left: usize, right: usize, bytes: usize) -> Result<(), Fault> {
        let right = self.lanes(right, bytes).to_vec();
        self.add(left, &right)
    }
    fn lanes(&self, accumulator: usize, bytes: usize) -> &[u8] {
        assert!(accumulator < self.capacity.accumulators, "there is no accumulator {accumulator}");
        &self.accumulators[accumulator * self.stride()..][..bytes]
    }
    fn accumulators(&self) -> Option<Accumulators<&[u8]>> {
        Some(Accumulators { bytes: &self.accumulators, stride: self.stride() })
    }
    fn accumulators_mut(&mut self) -> Option<Accumulators<&mut [u8]>> {
        let stride = self.stride();
        Some(Accumulators { bytes: &mut self.accumulators, stride })
    }
    fn instructions(&self) -> u64 {
        self.instructions
    }
    fn state(&self) -> &[u8] {
        &self.accumulators
    }
    fn fork(&self) -> Box<dyn Instance> {
        Box::new(self.clone())
    }
    fn memory_bytes(&self) -> usize {
        Maps.memory_bytes(self.capacity)
    }
}

/// A job with the operator.
pub fn own_job(world_size: u16, slots: u16, elements_per_packet: u16, reproducible: &str) -> JobConfig {
    let hash = Maps.hash().to_string();
    let given = [("operators", hash.as_str()), ("reproducible", reproducible)];
    let job = job(world_size, slots, elements_per_packet, &given);
    JobConfig { options: job.options.clone().provided(&[Arc::new(Maps)]), ..job }
}

pub fn inputs(world_size: u16, elements: usize) -> Vec<Vec<u8>> {
    let element = |rank: usize, i: usize| map([(rank * 77 + i * 5) as u32 | 1, (rank * 3 + i * i) as u32]);
    (0..usize::from(world_size)).map(|rank| (0..elements).flat_map(|i| element(rank, i)).collect()).collect()
}

pub fn composed(inputs: &[Vec<u8>]) -> Vec<u8> {
    inputs.iter().skip(1).fold(inputs[0].clone(), |left, right| compose(&left, right).unwrap())
}

#[test]
fn an_operator_that_does_not_commute_is_applied_in_the_order_of_ranks_wherever_they_are() {
    // Blocks of 64 bytes have ten elements, and four bytes that no element has.
    let inputs = inputs(7, 105);
    for (seed, link) in [(1, LinkConfig::default()), (2, lossy()), (3, lossy())] {
        let job = JobConfig { trees: 1 + seed as u16 % 2, ..own_job(7, 12, 16, "ranks") };
        assert!(reduce(&mut star(seed, link, &job), &inputs, OWN) == composed(&inputs), "one switch, seed {seed}");
        for placement in
            [&[&[0u16, 2, 4, 6][..], &[1, 3, 5]][..], &[&[4, 5, 6], &[0, 1, 2, 3]], &[&[6], &[0, 3, 4], &[1, 2, 5]]]
        {
            let mut network = racks(seed, link, &job, placement);
            assert!(reduce(&mut network, &inputs, OWN) == composed(&inputs), "{placement:?}, seed {seed}");
        }
    }
}

/// Built-in operators find their accumulators where the job's own has its.
#[test]
fn built_in_operators_and_the_jobs_own_take_turns_in_the_same_memory() {
    let inputs = inputs(5, 105);
    let most = |i: usize| inputs.iter().map(|input| input[i]).max().unwrap();
    let greatest: Vec<u8> = (0..inputs[0].len()).map(most).collect();
    for (seed, link) in [(1, LinkConfig::default()), (2, lossy())] {
        let job = own_job(5, 12, 16, "ranks");
        for mut network in [star(seed, link, &job), racks(seed, link, &job, &[&[0, 2, 4], &[1, 3]])] {
            for turn in 0..3 {
                assert!(reduce(&mut network, &inputs, OWN) == composed(&inputs), "own, turn {turn}, seed {seed}");
                assert!(reduce(&mut network, &inputs, ReduceOp::Max) == greatest, "built in, turn {turn}, seed {seed}");
            }
        }
    }
}

#[test]
fn what_a_job_cannot_do_is_refused_with_a_sentence() {
    let can = |elements: u32, dtype: DType, op: ReduceOp, reproducible: &str| {
        let spec = Spec::allreduce(elements, dtype, op);
        (PROTOCOL.check)(&spec, &own_job(2, 4, 16, reproducible).options).map_err(|refusal| refusal.to_string())
    };
    assert_eq!(can(60, DType::U8, OWN, "ranks"), Ok(()));
    assert_eq!(
        can(60, DType::U8, OWN, "off").unwrap_err(),
        "flare cannot do a job's operator 0 of 60 bytes in any order: choose reproducible=ranks, as the operator does not commute"
    );
    assert!(can(60, DType::U8, OWN, "tree").is_err());
    assert!(can(61, DType::U8, OWN, "ranks").unwrap_err().contains("bring whole elements"));
    assert!(can(60, DType::F32, OWN, "ranks").is_err(), "elements are bytes");
    assert!(can(60, DType::U8, ReduceOp::Custom(1), "ranks").unwrap_err().contains("which the job does not have"));
}

#[test]
fn an_operator_is_charged_for_what_its_instances_take() {
    for reproducible in ["off", "tree"] {
        let job = own_job(5, 16, 64, reproducible);
        let shape = ShardShape {
            slots: job.slots,
            elements_per_packet: job.elements_per_packet,
            children: 5,
            world_size: 5,
            levels: false,
            options: &job.options,
        };
        let machine = PROTOCOL.switch(Values::Elements, &switch_config(&job, 0, &Below::workers(5), None)).unwrap();
        let plain = ShardShape { options: &crate::setup::options(&[("reproducible", reproducible)]), ..shape };
        // All accumulators lie in the instance, where no others' start has to be found at a multiple of 64.
        let more = 1_000 + 16 - 63;
        assert_eq!((PROTOCOL.memory)(&shape) - (PROTOCOL.memory)(&plain), more, "an instance, and where it is");
        assert!(machine.memory_bytes() as u64 <= (PROTOCOL.memory)(&shape) + 4_096);
    }
}

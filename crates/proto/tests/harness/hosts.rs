//! Jobs whose hosts sum for each other, without a machine in the switch: their ranks, inputs, and the check of every output.

use tributary_numeric::{Element, ReduceOp};
use tributary_proto::contract::host::{Collective, CollectiveError, HostEvent};
use tributary_proto::contract::ids::OpId;
use tributary_proto::contract::tensor::Tensor;
use tributary_proto::contract::time::Time;
use tributary_proto::tensors::{ElementTensor, InPlaceStorage, VecStorage};

use super::Network;
use super::link::SplitMix;

/// A rank's input of a collective: any bits.
pub fn input(rank: u16, op: u64, elements: usize) -> Vec<i32> {
    let mut random = SplitMix(u64::from(rank) << 32 | op);
    (0..elements).map(|_| random.next() as i32).collect()
}

/// What every rank must get.
pub fn sum(world: u16, op: u64, elements: usize) -> Vec<i32> {
    let mut sum = vec![0i32; elements];
    for rank in 0..world {
        sum.iter_mut().zip(input(rank, op, elements)).for_each(|(sum, value)| *sum = sum.wrapping_add(value));
    }
    sum
}

/// Integers, in place: what is read after it was overwritten is seen.
pub fn collective(rank: u16, op: u64, elements: usize, deadline: Option<Time>) -> Collective {
    let storage = InPlaceStorage::new(input(rank, op, elements));
    Collective { tensor: Box::new(ElementTensor::new(storage, ReduceOp::Sum)), deadline }
}

/// The output of a tensor.
pub fn output<T: Element>(tensor: &dyn Tensor) -> Vec<u8> {
    let elements = tensor.spec().elements as usize;
    let mut bytes = vec![0; T::DTYPE.size() * elements];
    tensor.read_output(0..elements, &mut bytes);
    bytes
}

pub fn apart<T: Element>(input: Vec<T>, op: ReduceOp) -> Collective {
    Collective { tensor: Box::new(ElementTensor::new(VecStorage::new(input), op)), deadline: None }
}

/// Submits collectives of these sizes on all ranks at once.
pub fn submit_all(net: &mut Network, sizes: &[usize], deadline: Option<Time>) {
    for (op, &elements) in sizes.iter().enumerate() {
        for rank in 0..net.hosts.len() {
            net.submit(rank, collective(rank as u16, op as u64, elements, deadline)).unwrap();
        }
    }
}

/// Every rank completed collectives of these sizes, in order, with the exact sums.
pub fn check_sums(events: Vec<Vec<HostEvent>>, sizes: &[usize]) {
    let world = events.len() as u16;
    let sums: Vec<Vec<i32>> = sizes.iter().enumerate().map(|(op, &elements)| sum(world, op as u64, elements)).collect();
    for (rank, events) in events.into_iter().enumerate() {
        assert_eq!(events.len(), sizes.len(), "rank {rank} of {world} completes {sizes:?}");
        for ((index, event), sum) in events.into_iter().enumerate().zip(&sums) {
            let HostEvent::Done { op, tensor } = event else { panic!("collective {index} of rank {rank} failed") };
            assert_eq!(op, OpId(index as u64));
            let values: Vec<i32> = output::<i32>(&*tensor)
                .chunks_exact(4)
                .map(|bytes| i32::from_be_bytes(bytes.try_into().unwrap()))
                .collect();
            assert!(values == *sum, "collective {index} of {} elements, rank {rank} of {world}", sum.len());
        }
    }
}

/// Submits, runs and checks; when the last rank was done.
pub fn reduce(net: &mut Network, sizes: &[usize], limit: Time) -> Time {
    submit_all(net, sizes, None);
    let events = net.run_until_idle(limit);
    check_sums(events, sizes);
    net.last_event()
}

/// The error with which each rank's collectives failed; panics where one did not fail.
pub fn errors(events: Vec<Vec<HostEvent>>) -> Vec<Vec<(OpId, CollectiveError)>> {
    let failed = |event| match event {
        HostEvent::Failed { op, error, .. } => (op, error),
        HostEvent::Done { op, .. } => panic!("collective {op} completed"),
    };
    events.into_iter().map(|events| events.into_iter().map(failed).collect()).collect()
}

//! Jobs whose hosts sum for each other, without a machine in the switch: their ranks, inputs, and the check of every
//! output.

use tributary_numeric::{DType, Element, ReduceOp};
use tributary_proto::contract::host::{Collective, CollectiveError, Host, HostEvent};
use tributary_proto::contract::ids::{OpId, Rank};
use tributary_proto::contract::packet::{Addr, Ecn, Packet};
use tributary_proto::contract::tensor::{Spec, Tensor};
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::tensors::{ElementTensor, InPlaceStorage, VecStorage};

use super::Network;
use super::link::{LinkConfig, SplitMix};
use super::reduction::at_ms;

/// A rank's input of a collective: any bits.
pub fn input(rank: u16, op: u64, elements: usize) -> Vec<i32> {
    let mut random = SplitMix(u64::from(rank) << 32 | op);
    (0..elements).map(|_| random.next() as i32).collect()
}

/// What every rank must get.
pub fn sum(world_size: u16, op: u64, elements: usize) -> Vec<i32> {
    let mut sum = vec![0i32; elements];
    for rank in 0..world_size {
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

pub fn separate<T: Element>(input: Vec<T>, op: ReduceOp) -> Collective {
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
    let world_size = events.len() as u16;
    let sums: Vec<Vec<i32>> =
        sizes.iter().enumerate().map(|(op, &elements)| sum(world_size, op as u64, elements)).collect();
    for (rank, events) in events.into_iter().enumerate() {
        assert_eq!(events.len(), sizes.len(), "rank {rank} of {world_size} completes {sizes:?}");
        for ((index, event), sum) in events.into_iter().enumerate().zip(&sums) {
            let HostEvent::Done { op, tensor } = event else { panic!("collective {index} of rank {rank} failed") };
            assert_eq!(op, OpId(index as u64));
            let values: Vec<i32> = output::<i32>(&*tensor)
                .chunks_exact(4)
                .map(|bytes| i32::from_be_bytes(bytes.try_into().unwrap()))
                .collect();
            assert!(values == *sum, "collective {index} of {} elements, rank {rank} of {world_size}", sum.len());
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

pub fn silent(worker: u16, op: u64) -> CollectiveError {
    CollectiveError::PeerSilent { worker: Rank(worker), op: OpId(op) }
}

/// Runs to the end; every rank but the dead one must fail each of its collectives with this error.
pub fn all_but_fail(net: &mut Network, dead: usize, collectives: usize, error: &CollectiveError) {
    let errors = errors(net.run_until_idle(at_ms(60_000)));
    for (rank, errors) in errors.into_iter().enumerate().filter(|(rank, _)| *rank != dead) {
        assert_eq!(errors.len(), collectives, "rank {rank}");
        for (_, found) in errors {
            assert_eq!(found, *error, "rank {rank}");
        }
    }
}

/// Rank 1 brings something else than all others, on networks with losses: every rank fails, and names rank 1, another,
/// and what both bring.
pub fn all_fail_with_both_specs(net: impl Fn(u16, LinkConfig) -> Network) {
    let f32s = |elements: u32| Spec::allreduce(elements, DType::F32, ReduceOp::Sum);
    let others: [(Collective, Spec); 4] = [
        (separate(vec![1.0f32; 1001], ReduceOp::Sum), f32s(1001)),
        (separate(vec![1i32; 1000], ReduceOp::Sum), Spec { dtype: DType::I32, ..f32s(1000) }),
        (separate(vec![1.0f32; 1000], ReduceOp::Avg), Spec { op: ReduceOp::Avg, ..f32s(1000) }),
        (separate(Vec::<f32>::new(), ReduceOp::Sum), f32s(0)),
    ];
    for (world_size, (other, other_spec)) in [2, 3, 8, 8].into_iter().zip(others) {
        let mut net = net(world_size, LinkConfig { loss: 0.02, ..LinkConfig::default() });
        let mut other = Some(other);
        for rank in 0..usize::from(world_size) {
            let same = || separate(vec![1.0f32; 1000], ReduceOp::Sum);
            net.submit(rank, if rank == 1 { other.take().unwrap() } else { same() }).unwrap();
        }
        for (rank, errors) in errors(net.run_until_idle(at_ms(10_000))).into_iter().enumerate() {
            let [(op, CollectiveError::Mismatch { a, a_spec, b, b_spec, op: in_error })] = errors[..] else {
                panic!("rank {rank} of {world_size}: {errors:?}");
            };
            assert_eq!((op, in_error), (OpId(0), OpId(0)));
            assert!(a < b && (a == Rank(1) || b == Rank(1)), "{a} and {b}");
            let (one, same) = if a == Rank(1) { (a_spec, b_spec) } else { (b_spec, a_spec) };
            assert_eq!((one, same), (other_spec, f32s(1000)));
        }
    }
}

/// Sends all that is to be sent, and hears all that is to be told.
pub fn drain(machine: &mut dyn Host, now: Time) {
    let mut buf = vec![0; machine.max_packet_len()];
    let mut sent = 0;
    while let Some(transmit) = machine.poll_transmit(now, &mut buf) {
        sent += 1;
        assert!(transmit.len <= buf.len() && sent < 10_000, "the machine comes to rest");
    }
    while machine.poll_event().is_some() {}
}

/// Submits the collectives, then hands the machine packets: their bytes, who sent them, and about how long nothing
/// comes then.
pub fn feed(
    machine: &mut dyn Host,
    collectives: impl IntoIterator<Item = Collective>,
    packets: &[(Vec<u8>, u16, u64)],
) {
    let mut now = Time::ZERO;
    for collective in collectives {
        machine.submit(now, collective).unwrap();
        drain(machine, now);
    }
    for (bytes, from, wait_ms) in packets {
        let packet = Packet { bytes, wire_len: bytes.len(), ecn: Ecn::CongestionExperienced };
        let _ = machine.handle_packet(now, Addr::Worker(Rank(*from)), packet);
        drain(machine, now);
        now += Span::from_millis(wait_ms / 20);
        if machine.poll_timeout().is_some_and(|due| due <= now) {
            machine.handle_timeout(now);
            drain(machine, now);
            assert!(machine.poll_timeout().is_none_or(|due| due > now), "no timer stays due");
        }
    }
}

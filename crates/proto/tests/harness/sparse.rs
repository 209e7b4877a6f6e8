//! Sparse allreduces, and what they must give: of each index that any rank names, the ranks' values, combined at home.

use std::collections::BTreeMap;

use tributary_numeric::{Element, ReduceOp, codec, native};
use tributary_proto::contract::host::{Collective, HostEvent};
use tributary_proto::tensors::SparseElements;

use super::Network;
use super::link::SplitMix;
use super::reduction::at_ms;

/// A rank's elements: index and value, ascending.
pub type Pairs<T> = Vec<(u32, T)>;

/// Elements of some indices of `size`, drawn with this probability; each rank's values are made from its rank and the
/// index.
pub fn drawn<T>(seed: u64, world_size: u16, size: u32, density: f64, make: impl Fn(usize, u32) -> T) -> Vec<Pairs<T>> {
    let mut draw = SplitMix(seed);
    let mut of = |rank: usize| -> Pairs<T> {
        let is_there = |_: &u32| density >= 1.0 || draw.chance(density);
        (0..size).filter(is_there).collect::<Vec<u32>>().into_iter().map(|index| (index, make(rank, index))).collect()
    };
    (0..usize::from(world_size)).map(&mut of).collect()
}

/// A small whole number that is not 0: of a few of them any sum is exact, and a lost or doubled one shows.
pub fn whole(rank: usize, index: u32) -> f32 {
    let value = ((rank * 7919 + index as usize * 31) % 201) as f32 - 100.0;
    if value == 0.0 { 101.0 } else { value }
}

/// A rank's tensor.
pub fn tensor<T: Element>(pairs: &[(u32, T)], size: u32, op: ReduceOp) -> SparseElements<T> {
    let indices: Vec<i64> = pairs.iter().map(|&(index, _)| index.into()).collect();
    SparseElements::new(&indices, pairs.iter().map(|&(_, value)| value).collect(), size as usize, op)
        .expect("it is sorted")
}

/// A collective of a rank's tensor.
pub fn collective<T: Element>(pairs: &[(u32, T)], size: u32, op: ReduceOp) -> Collective {
    Collective { tensor: Box::new(tensor(pairs, size, op)), deadline: None }
}

/// The union of all indices, each with its values combined in the order of the ranks, as bits.
pub fn expected<T: Element>(inputs: &[Pairs<T>], op: ReduceOp) -> BTreeMap<u32, Vec<u8>> {
    let combine = native(T::DTYPE, op).expect("it has a meaning");
    let mut lanes: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
    for &(index, value) in inputs.iter().flatten() {
        let bytes = bits(value);
        match lanes.get_mut(&index) {
            Some(lane) => (combine.add)(lane, &bytes),
            None => {
                let mut lane = vec![0; combine.lane_size];
                (combine.store)(&mut lane, &bytes);
                lanes.insert(index, lane);
            }
        }
    }
    let finished = |(index, mut lane): (u32, Vec<u8>)| {
        let mut bytes = vec![0; combine.wire_size];
        (combine.finish)(&mut lane, inputs.len() as u16);
        (combine.load)(&lane, &mut bytes);
        (index, bytes)
    };
    lanes.into_iter().map(finished).collect()
}

/// An element's bits.
pub fn bits<T: Element>(value: T) -> Vec<u8> {
    let mut bytes = vec![0; T::DTYPE.size()];
    codec::write_native(&[value], &mut bytes);
    bytes
}

/// A result with its values as bits, the same on every rank.
pub fn result<T: Element>(events: Vec<Vec<HostEvent>>) -> BTreeMap<u32, Vec<u8>> {
    let of_rank = |(rank, mut events): (usize, Vec<HostEvent>)| {
        let [HostEvent::Done { .. }] = &events[..] else { panic!("rank {rank}: {} events", events.len()) };
        let Some(HostEvent::Done { tensor, .. }) = events.pop() else { unreachable!() };
        let (indices, values) = SparseElements::<T>::from_tensor(tensor).expect("it is the same").result().take();
        assert!(indices.is_sorted_by(|a, b| a < b), "rank {rank}'s indices ascend");
        indices.into_iter().zip(values.into_iter().map(bits)).collect::<Vec<_>>()
    };
    let mut results = events.into_iter().enumerate().map(of_rank);
    let first = results.next().expect("a rank");
    assert!(results.all(|other| other == first), "the same bits on every rank");
    first.into_iter().collect()
}

/// Runs one collective over the ranks' elements.
pub fn reduce<T: Element>(
    network: &mut Network,
    inputs: &[Pairs<T>],
    size: u32,
    op: ReduceOp,
) -> BTreeMap<u32, Vec<u8>> {
    for (rank, input) in inputs.iter().enumerate() {
        network.submit(rank, collective(input, size, op)).unwrap();
    }
    // Each loss costs 200 ms at most: who takes a minute does not come to an end.
    result::<T>(network.run_until_idle(at_ms(60_000)))
}

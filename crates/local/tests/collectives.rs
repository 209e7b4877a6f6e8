//! The collectives of ranks that are threads: exact results, in every type, at every size, in place and not.

use std::time::Duration;

use half::{bf16, f16};
use tributary_local::{Description, Group, Kind, Lent, Operands};
use tributary_numeric::{DType, ReduceOp};

use crate::ranks::{PATIENCE, bits, expected, lent, together};

fn run(group: &Group, description: Description, input: Lent, output: Lent) {
    let elements = description.elements;
    let kept = match description.kind {
        Kind::Reduce { root } if usize::from(root) != group.rank() => 0..0,
        Kind::ReduceScatter => {
            group.rank() * (elements / group.ranks())..(group.rank() + 1) * (elements / group.ranks())
        }
        _ => 0..elements,
    };
    let pending = group.submit(description, Operands { input, output, kept }, PATIENCE).unwrap();
    pending.wait(PATIENCE).expect("it ends").unwrap();
}

const KIND: Kind = Kind::AllReduce;

#[test]
fn sums_have_the_bits_of_a_switch_in_every_type_with_every_operator_at_every_size() {
    for ranks in [2, 3, 5] {
        together(ranks, move |group| {
            for dtype in DType::ALL {
                for op in ReduceOp::ALL.into_iter().filter(|op| op.takes(dtype)) {
                    for elements in [0, 1, 7, 1000, 70_001] {
                        let bytes = elements * dtype.size();
                        let inputs: Vec<Vec<u8>> = (0..ranks).map(|rank| bits(rank, bytes)).collect();
                        let mut own = inputs[group.rank()].clone();
                        let description = Description { kind: KIND, dtype, op, elements };
                        run(group, description, lent(&mut own), lent(&mut own));
                        assert!(own == expected(dtype, op, &inputs), "{description} of {ranks} ranks");
                    }
                }
            }
        });
    }
}

#[test]
fn large_sums_of_many_chunks_leave_their_input_and_keep_what_is_wanted() {
    together(3, |group| {
        let (dtype, op, elements) = (DType::F32, ReduceOp::Avg, 1_000_003);
        let inputs: Vec<Vec<u8>> = (0..3).map(|rank| bits(rank, 4 * elements)).collect();
        let mut own = inputs[group.rank()].clone();
        let kept = 123_457 * group.rank()..777_777;
        let mut output = vec![0; 4 * kept.len()];
        let operands = Operands { input: lent(&mut own), output: lent(&mut output), kept: kept.clone() };
        let description = Description { kind: KIND, dtype, op, elements };
        let pending = group.submit(description, operands, PATIENCE).unwrap();
        pending.wait(PATIENCE).unwrap().unwrap();
        assert!(own == inputs[group.rank()]);
        assert!(output == expected(dtype, op, &inputs)[4 * kept.start..4 * kept.end]);
    });
}

#[test]
fn reduces_scatters_gathers_and_broadcasts_bring_what_they_say() {
    for ranks in [2, 4] {
        together(ranks, move |group| {
            for elements in [0, 5, 20_000, 300_000] {
                for (dtype, op) in
                    [(DType::F16, ReduceOp::Sum), (DType::I64, ReduceOp::Max), (DType::F32, ReduceOp::Avg)]
                {
                    let whole = elements * ranks;
                    let inputs: Vec<Vec<u8>> = (0..ranks).map(|rank| bits(rank, whole * dtype.size())).collect();
                    let sum = expected(dtype, op, &inputs);
                    let shard = elements * dtype.size();
                    let at = group.rank() * shard..(group.rank() + 1) * shard;

                    let mut own = inputs[group.rank()].clone();
                    let (input, output) = (lent(&mut own), lent(&mut own[at.clone()]));
                    let description = Description { kind: Kind::ReduceScatter, dtype, op, elements: whole };
                    run(group, description, input, output);
                    assert!(own[at] == sum[group.rank() * shard..][..shard], "{description}");

                    let mut own = inputs[group.rank()].clone();
                    let description = Description { kind: Kind::Reduce { root: 1 }, dtype, op, elements: whole };
                    run(group, description, lent(&mut own), lent(&mut own));
                    assert!(own == if group.rank() == 1 { sum } else { inputs[group.rank()].clone() });
                }
                moves(group, ranks, elements);
            }
        });
    }
}

fn moves(group: &Group, ranks: usize, bytes: usize) {
    let inputs: Vec<Vec<u8>> = (0..ranks).map(|rank| bits(rank, bytes)).collect();
    let description = Description { kind: Kind::AllGather, dtype: DType::U8, op: ReduceOp::Sum, elements: bytes };
    let (mut own, mut all) = (inputs[group.rank()].clone(), vec![0; bytes * ranks]);
    run(group, description, lent(&mut own), lent(&mut all));
    assert!(all == inputs.concat());
    for root in 0..ranks {
        let mut own = inputs[group.rank()].clone();
        let kind = Kind::Broadcast { root: root as u16 };
        run(group, Description { kind, ..description }, lent(&mut own), lent(&mut own));
        assert!(own == inputs[root]);
    }
}

#[test]
fn several_in_flight_end_in_order_without_anybody_who_waits() {
    together(3, |group| {
        let sizes = [10, 200_000, 3, 50_000, 0, 1];
        let mut data: Vec<Vec<u8>> = sizes
            .iter()
            .map(|&elements| (0..elements).flat_map(|i: u32| (i + group.rank() as u32).to_ne_bytes()).collect())
            .collect();
        let start = |bytes: &mut Vec<u8>| {
            let elements = bytes.len() / 4;
            let description = Description { kind: KIND, dtype: DType::I32, op: ReduceOp::Sum, elements };
            let memory = lent(bytes);
            let operands = Operands { input: memory, output: memory, kept: 0..elements };
            group.submit(description, operands, PATIENCE).unwrap()
        };
        let pending: Vec<_> = data.iter_mut().map(start).collect();
        group.go_on().unwrap();
        while !pending.iter().all(|pending| pending.is_done()) {
            std::thread::sleep(Duration::from_millis(1));
        }
        for (bytes, pending) in data.iter().zip(&pending) {
            pending.wait(Duration::ZERO).unwrap().unwrap();
            for (index, element) in bytes.as_chunks().0.iter().enumerate() {
                assert_eq!(u32::from_ne_bytes(*element), 3 * index as u32 + 3);
            }
        }
    });
}

#[test]
fn sixteen_bit_floats_are_rounded_once() {
    together(3, |group| {
        // Each addition alone would lose the small one.
        let own = [f16::from_f32(2048.0), f16::from_f32(1.0), f16::from_f32(1.0)][group.rank()];
        let mut bytes = own.to_ne_bytes().to_vec();
        let description = Description { kind: KIND, dtype: DType::F16, op: ReduceOp::Sum, elements: 1 };
        run(group, description, lent(&mut bytes), lent(&mut bytes));
        assert_eq!(f16::from_ne_bytes(bytes[..].try_into().unwrap()), f16::from_f32(2050.0));
        let mut bytes = bf16::from_f32(1e38).to_ne_bytes().to_vec();
        let description = Description { dtype: DType::BF16, op: ReduceOp::Avg, ..description };
        run(group, description, lent(&mut bytes), lent(&mut bytes));
        assert_eq!(bf16::from_ne_bytes(bytes[..].try_into().unwrap()), bf16::from_f32(1e38));
    });
}

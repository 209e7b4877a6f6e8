//! Every kernel of every instruction set on one packet's block of 360 elements, in cache.
//!
//! Throughput counts bytes of the tensor in memory (binary32: 4 an element), for lanes those of the vector.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use tributary_numeric::kernels::{self, ElementKernels, Kernels, Unscale};
use tributary_numeric::{Element, bf16, f16};

/// What a packet of 1500 bytes holds.
const ELEMENTS: usize = 360;

fn lanes(c: &mut Criterion) {
    let mut group = c.benchmark_group("lanes");
    group.throughput(Throughput::Bytes(4 * ELEMENTS as u64));
    let (mut lanes, mut vector) = (vec![1u32; ELEMENTS], vec![7u8; 4 * ELEMENTS]);
    let mut copy = vec![0u8; 4 * ELEMENTS];
    group.bench_function("copy", |b| b.iter(|| black_box(&mut copy).copy_from_slice(black_box(&vector))));
    for Kernels { name, store_be, add_be, load_be, .. } in kernels::available() {
        group.bench_function(BenchmarkId::new("store_be", name), |b| {
            b.iter(|| store_be(black_box(&mut lanes), black_box(&vector)))
        });
        group.bench_function(BenchmarkId::new("add_be", name), |b| {
            b.iter(|| add_be(black_box(&mut lanes), black_box(&vector)))
        });
        group.bench_function(BenchmarkId::new("load_be", name), |b| {
            b.iter(|| load_be(black_box(&lanes), black_box(&mut vector)))
        });
    }
}

fn element<T: Element>(c: &mut Criterion, select: fn(&'static Kernels) -> &'static ElementKernels<T>, one: T) {
    let mut group = c.benchmark_group(T::DTYPE.name());
    group.throughput(Throughput::Bytes((T::DTYPE.size() * ELEMENTS) as u64));
    let (mut data, mut vector) = (vec![one; ELEMENTS], vec![0u8; 4 * ELEMENTS]);
    let mut bytes = vec![0u8; T::DTYPE.size() * ELEMENTS];
    for table in kernels::available() {
        let kernels = select(table);
        let fixed = kernels.fixed.as_ref().expect("a type that has fixed point");
        let id = |what| BenchmarkId::new(what, table.name);
        group.bench_function(id("max_abs"), |b| b.iter(|| (fixed.max_abs)(black_box(&data))));
        group.bench_function(id("encode"), |b| {
            b.iter(|| (fixed.encode)(black_box(&data), [1024.0, 1.0], black_box(&mut vector)))
        });
        for (what, divisor) in [("decode_sum", 1.0), ("decode_avg", 3.0)] {
            let unscale = Unscale { unit: if T::DTYPE.is_float() { 1.0 / 1024.0 } else { 1.0 }, divisor };
            group.bench_function(id(what), |b| {
                b.iter(|| (fixed.decode)(black_box(&vector), unscale, black_box(&mut data)))
            });
        }
        data.fill(one);
        group.bench_function(id("write"), |b| b.iter(|| (kernels.write)(black_box(&data), black_box(&mut bytes))));
        bytes.fill(0);
        group.bench_function(id("sum_in_place"), |b| {
            b.iter(|| (kernels.folds.sum.in_place)(black_box(&mut data), black_box(&bytes)))
        });
        group.bench_function(id("divide"), |b| b.iter(|| (kernels.divide)(black_box(&mut data), black_box(3))));
    }
}

fn elements(c: &mut Criterion) {
    element::<f32>(c, |table| &table.f32, 1.5);
    element::<f16>(c, |table| &table.f16, f16::from_f32(1.5));
    element::<bf16>(c, |table| &table.bf16, bf16::from_f32(1.5));
    element::<i32>(c, |table| &table.i32, 1536);
}

criterion_group!(benches, lanes, elements);
criterion_main!(benches);

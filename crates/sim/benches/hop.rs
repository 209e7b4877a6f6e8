//! A hop: a packet comes out of a link, is routed, and joins the next one's queue, with ECN, counters and the trace's hash.
//! Hosts send 64 packets each to one host of a random permutation, as in workload W; the unit is one hop.

use std::hint::black_box;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::time::{Span, Time};
use tributary_sim::Balancing;
use tributary_sim::engine::{Settings, Simulation};
use tributary_sim::net::LosslessSpec;
use tributary_sim::topology::{LinkSpec, MarkBytes, Rate, leaf_spine};

const PACKETS: u64 = 64;
const PACKET_BYTES: u16 = 1024;

/// A network of `size` leaves, spines and hosts a leaf, with everything still to send.
fn ready(size: u32, settings: &Settings) -> Simulation {
    let spec = LinkSpec {
        rate: Rate(100_000_000_000),
        delay: Span::from_micros(1),
        queue_bytes: 1 << 20,
        mark_bytes: Some(MarkBytes::threshold(100_000)),
    };
    let mut simulation = Simulation::new(leaf_spine(size, size, size, spec, spec, Span::ZERO), settings.clone());
    let hosts: Vec<NodeId> = (0..simulation.graph().hosts()).map(NodeId).collect();
    simulation.send_permutation(&hosts, settings.seed, PACKETS * u64::from(PACKET_BYTES), PACKET_BYTES);
    simulation
}

fn run(mut simulation: Simulation) -> Simulation {
    simulation.run(Time(u64::MAX));
    simulation
}

fn hop(c: &mut Criterion) {
    let random = Settings { balancing: [Balancing::Random; 2], ..Settings::default() };
    let lossless = Settings { lossless: Some(LosslessSpec::new(500_000, 490_000)), ..random.clone() };
    let least_queued = Settings { balancing: [Balancing::LeastQueued; 2], ..random.clone() };
    let cases = [
        ("random", 8, random.clone()),
        ("random", 32, random),
        ("least_queued", 8, least_queued),
        ("lossless", 8, lossless),
    ];
    let mut group = c.benchmark_group("hop");
    for (name, size, settings) in cases {
        group.throughput(Throughput::Elements(run(ready(size, &settings)).fabric.hops()));
        group.bench_function(BenchmarkId::new(name, size * size), |bench| {
            bench.iter_batched(|| ready(size, &settings), |ready| black_box(run(ready)), BatchSize::LargeInput);
        });
    }
    group.finish();
}

criterion_group!(benches, hop);
criterion_main!(benches);

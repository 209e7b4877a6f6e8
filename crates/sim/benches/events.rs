//! The event queue alone: one event taken out and one put in, with as many pending as links at 100 Gbit/s would.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use tributary_proto::contract::time::{Span, Time};
use tributary_sim::events::{Event, EventId, EventKind, EventQueue};

/// A packet of 1,024 bytes at 100 Gbit/s; every eighth link was idle and waits for the wire's 1 us too.
fn ahead(step: u64) -> u64 {
    let packet = 81_920 + step.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 977;
    if step.is_multiple_of(8) { packet + 1_000_000 } else { packet }
}

fn hold(c: &mut Criterion) {
    let mut group = c.benchmark_group("event_queue/pop_push");
    group.throughput(Throughput::Elements(1));
    for pending in [64u32, 4096, 65_536] {
        group.bench_function(BenchmarkId::new("wheel", pending), |bench| {
            let mut queue = EventQueue::new(Span(1_100_000), pending as usize);
            for id in 0..pending {
                queue.push(Time(ahead(u64::from(id))), EventId::new(EventKind::Arrival, id));
            }
            let mut step = 0;
            bench.iter(|| {
                let event = queue.pop().expect("as many as before");
                step += 1;
                queue.push(Time(event.time.0 + ahead(step)), event.id);
                black_box(event)
            });
        });
        group.bench_function(BenchmarkId::new("binary_heap", pending), |bench| {
            let mut queue = BinaryHeap::new();
            for id in 0..pending {
                queue.push(Reverse(Event {
                    time: Time(ahead(u64::from(id))),
                    id: EventId::new(EventKind::Arrival, id),
                }));
            }
            let mut step = 0;
            bench.iter(|| {
                let Reverse(event) = queue.pop().expect("as many as before");
                step += 1;
                queue.push(Reverse(Event { time: Time(event.time.0 + ahead(step)), id: event.id }));
                black_box(event)
            });
        });
    }
    group.finish();
}

criterion_group!(benches, hold);
criterion_main!(benches);

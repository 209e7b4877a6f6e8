//! Worlds drawn from seeds: first faults, in which nothing wrong may come out; then healing, and everything finishes.

use std::sync::Arc;

use tributary_numeric::{DType, ReduceOp};
use tributary_proto::contract::host::{Collective, HostEvent};
use tributary_proto::contract::tensor::{Spec, Tensor};
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::ring::Layout;
use tributary_proto::tensors::{FingerprintTensor, Roster};

use crate::harness::Network;
use crate::harness::link::{LinkConfig, SplitMix};
use crate::harness::nodes::Node;
use crate::setup::{at_ms, check_sums, collective, job, ring};

fn draw_link(random: &mut SplitMix) -> LinkConfig {
    let mut share = |most: u64| if random.below(2) == 0 { 0.0 } else { random.below(most) as f64 / 100.0 };
    let (loss, duplicate, reorder, corrupt) = (share(30), share(30), share(50), share(5));
    LinkConfig {
        rate_bps: [100_000_000, 1_000_000_000, 100_000_000_000][random.below(3) as usize],
        delay: Span(random.below(100_000_000)),
        loss,
        duplicate,
        reorder,
        reorder_delay: Span(random.below(2_000_000_000)),
        corrupt,
        flips: None,
        queue_bytes: [u64::MAX, 15_000, 200_000][random.below(3) as usize],
        mark_bytes: [u64::MAX, 10_000][random.below(2) as usize],
    }
}

fn run_scenario(seed: u64) {
    let mut random = SplitMix(seed);
    let world_size = 1 + random.below(12) as u16;
    let job = job(world_size, 16 + random.below(350) as u16);
    let sizes: Vec<usize> =
        (0..1 + random.below(6)).map(|_| random.below(20_000) as usize >> random.below(15)).collect();
    let mut net = ring(seed, draw_link(&mut random), &job);
    net.timer_grain = Span(random.below(2) * random.below(1_000_000_000));
    for rank in 0..world_size {
        let start = at_ms(random.below(3) * random.below(200));
        for (op, &elements) in sizes.iter().enumerate() {
            net.submit_at(start, usize::from(rank), collective(rank, op as u64, elements, None));
        }
    }
    net.run_until(at_ms(100 + random.below(500)));
    net.set_links(|link| *link = LinkConfig::default());
    let events = net.run_until_idle(at_ms(60_000));
    check_sums(events, &sizes);
}

#[test]
fn everything_finishes_after_faults_end() {
    for seed in 0..150 {
        println!("seed {seed}");
        run_scenario(seed);
    }
}

/// When, from where, where to and how many bytes: a packet without its contents.
type Sighting = (Time, Node, Node, usize);

/// A ring of three under loss, with real elements or with fingerprints: its packets, and the tensors afterwards.
fn trace(tensors: impl Fn(u16) -> Box<dyn Tensor>) -> (Vec<Sighting>, Vec<Box<dyn Tensor>>) {
    let link = LinkConfig { loss: 0.03, reorder: 0.05, ..LinkConfig::default() };
    let mut net: Network = ring(5, link, &job(3, 64));
    net.record_trace();
    for rank in 0..3u16 {
        net.submit(usize::from(rank), Collective { tensor: tensors(rank), deadline: None }).unwrap();
    }
    let events = net.run_until_idle(at_ms(10_000)).into_iter().flatten();
    let tensors = events.map(|event| match event {
        HostEvent::Done { tensor, .. } => tensor,
        HostEvent::Failed { error, .. } => panic!("{error}"),
    });
    let tensors = tensors.collect();
    let trace = net.trace.unwrap().into_iter().map(|e| (e.time, e.from, e.to, e.wire_len)).collect();
    (trace, tensors)
}

#[test]
fn fingerprints_give_the_trace_of_real_elements_and_prove_every_sum() {
    let spec = Spec::allreduce(10_000, DType::I32, ReduceOp::Sum);
    let roster = Roster::new(3);
    let fingerprint = |rank| FingerprintTensor::new(spec, Arc::clone(&roster), rank, 0);
    let (with_elements, _) = trace(|rank| collective(rank, 0, 10_000, None).tensor);
    let (with_fingerprints, outputs) = trace(|rank| Box::new(fingerprint(rank)));
    assert!(with_elements == with_fingerprints, "the machines do not look at the data");
    assert_eq!(outputs.len(), 3);
    let layout = Layout::new(&spec, &job(3, 64));
    for output in outputs {
        let mut proof = fingerprint(0);
        for block in (0..3).flat_map(|chunk| layout.blocks(chunk)) {
            let range = layout.range(block);
            let mut words = vec![0; output.native_len(range.len())];
            output.read_output(range.clone(), &mut words);
            proof.write(range, &words);
        }
        assert!(proof.verification().is_complete());
    }
}

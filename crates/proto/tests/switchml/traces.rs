//! Fingerprints in place of elements make the same packets at the same times; and the same seed the same bytes.

use tributary_numeric::{DType, ReduceOp, bf16, f16};
use tributary_proto::contract::config::JobConfig;
use tributary_proto::contract::host::{Collective, HostEvent};
use tributary_proto::contract::tensor::{Spec, Tensor};
use tributary_proto::contract::values::Values;
use tributary_proto::tensors::{FingerprintTensor, Roster};

use crate::harness::Network;
use crate::harness::link::LinkConfig;
use crate::harness::nodes::TraceEntry;
use crate::setup::{at_ms, collective, host_of, in_place, input, job, pipelines};

const SIZES: [usize; 6] = [1, 0, 65, 5000, 360, 20_000];

fn trace(values: Values, job: &JobConfig, collective: impl Fn(u16, usize, usize) -> Collective) -> Vec<TraceEntry> {
    let hosts = (0..job.world_size).map(|rank| host_of(values, job, rank)).collect();
    let link = LinkConfig { loss: 0.02, duplicate: 0.02, reorder: 0.02, ..LinkConfig::default() };
    let mut network = Network::star(7, link, hosts, pipelines(values, job, job.world_size));
    network.record_trace();
    for (op, &elements) in SIZES.iter().enumerate() {
        for rank in 0..job.world_size {
            network.submit(usize::from(rank), collective(rank, op, elements)).unwrap();
        }
    }
    for events in network.run_until_idle(at_ms(100_000)) {
        assert_eq!(events.len(), SIZES.len());
        assert!(events.iter().all(|event| matches!(event, HostEvent::Done { .. })));
    }
    network.trace.unwrap()
}

fn narrow<T>(rank: u16, op: usize, elements: usize, of: impl Fn(f32) -> T) -> Vec<T> {
    input(rank, op, elements).into_iter().map(|value| of(value as f32)).collect()
}

#[test]
fn fingerprints_make_the_same_packets_as_elements() {
    for (shards, dtype) in [(1, DType::F32), (2, DType::F32), (2, DType::I32), (1, DType::F16), (2, DType::BF16)] {
        let job = JobConfig { trees: shards, ..job(4, 16, 64) };
        let roster = Roster::new(job.world_size);
        let real = trace(Values::Elements, &job, |rank, op, elements| match dtype {
            DType::F16 => in_place(narrow(rank, op, elements, f16::from_f32), ReduceOp::Sum),
            DType::BF16 => in_place(narrow(rank, op, elements, bf16::from_f32), ReduceOp::Sum),
            _ => collective(rank, op, elements, dtype.is_float()),
        });
        let prints = trace(Values::Fingerprint, &job, |rank, op, elements| {
            let spec = Spec::allreduce(elements as u32, dtype, ReduceOp::Sum);
            let tensor = FingerprintTensor::new(spec, roster.clone(), rank, op as u64);
            assert_eq!(tensor.spec(), spec);
            Collective { tensor: Box::new(tensor), deadline: None }
        });
        // All but the bytes in memory.
        let packets =
            |trace: &[TraceEntry]| trace.iter().map(|e| (e.time, e.from, e.to, e.wire_len)).collect::<Vec<_>>();
        assert!(packets(&real) == packets(&prints), "{shards} shards, {dtype}");
    }
}

#[test]
fn one_seed_makes_one_trace() {
    let job = job(4, 16, 64);
    let run = || trace(Values::Elements, &job, |rank, op, elements| collective(rank, op, elements, true));
    assert!(run() == run());
}

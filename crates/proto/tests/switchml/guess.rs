//! Small tensors: one round trip where the last exponent fits, two where it does not, and the same bits either way.

use tributary_numeric::ReduceOp;
use tributary_proto::contract::host::HostEvent;

use crate::harness::Network;
use crate::harness::link::{LinkConfig, SplitMix};
use crate::setup::{at_ms, in_place, job, star};

const WORLD_SIZE: u16 = 3;

/// One collective on all ranks, to its end; the output's bits, the same on all ranks.
fn reduce(network: &mut Network, inputs: &[Vec<f32>]) -> Vec<u8> {
    for (rank, input) in inputs.iter().enumerate() {
        network.submit(rank, in_place(input.clone(), ReduceOp::Sum)).unwrap();
    }
    let limit = network.now + at_ms(10_000).since(at_ms(0));
    let mut outputs: Vec<Vec<u8>> = network
        .run_until_idle(limit)
        .into_iter()
        .map(|mut events| {
            let Some(HostEvent::Done { tensor, .. }) = events.pop() else { panic!("it is complete") };
            let mut bytes = vec![0; 4 * inputs[0].len()];
            tensor.read_output(0..inputs[0].len(), &mut bytes);
            bytes
        })
        .collect();
    assert!(outputs.windows(2).all(|pair| pair[0] == pair[1]), "bit-identical on all ranks");
    outputs.remove(0)
}

fn sent(network: &Network) -> u64 {
    network.hosts[0].machine.stats().packets_sent
}

#[test]
fn a_small_tensor_of_steady_magnitude_takes_one_round_trip() {
    let mut network = star(1, LinkConfig::default(), &job(WORLD_SIZE, 2, 360));
    let inputs = vec![vec![1.5; 256]; usize::from(WORLD_SIZE)];
    for op in 0..10 {
        let before = sent(&network);
        reduce(&mut network, &inputs);
        // Each of the two slots has to learn the exponent once.
        assert_eq!(sent(&network) - before, if op < 2 { 2 } else { 1 }, "collective {op}");
    }
    let before = sent(&network);
    reduce(&mut network, &vec![vec![100.0; 256]; usize::from(WORLD_SIZE)]);
    assert_eq!(sent(&network) - before, 2, "the guess was wrong");
}

#[test]
fn a_guess_never_changes_a_result() {
    for loss in [0.0, 0.1] {
        let mut rng = SplitMix(1);
        let mut network = star(1, LinkConfig { loss, ..LinkConfig::default() }, &job(WORLD_SIZE, 4, 64));
        for _ in 0..60 {
            let elements = 1 + rng.below(250) as usize;
            let scale = [1e-30, 0.1, 1.0, 1.0, 1.0, 7e8, 0.0, f32::INFINITY][rng.below(8) as usize];
            let inputs: Vec<Vec<f32>> = (0..WORLD_SIZE)
                .map(|_| (0..elements).map(|_| (rng.below(2001) as f32 - 1000.0) * scale).collect())
                .collect();
            // A network that has no last exponent must ask.
            let mut fresh = star(1, LinkConfig::default(), &job(WORLD_SIZE, 4, 64));
            assert!(reduce(&mut network, &inputs) == reduce(&mut fresh, &inputs), "{elements} elements by {scale}");
        }
    }
}

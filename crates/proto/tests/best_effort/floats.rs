//! Floats: scaled by a guess, so that nobody waits for others' exponents, with the same bits on every rank and a bound.

use tributary_numeric::{BlockExponent, ReduceOp};
use tributary_proto::aggregation::best_effort::wire::{Flags, Kind};
use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::metric::{Metric, MetricValue};
use tributary_proto::contract::time::Span;

use crate::fabric::{Choice, Fabric, Fate, bad_cables};
use crate::setup::{acknowledging, at_us, collective, family, output};

const PATIENCE: Span = Span::from_millis(5);

fn value(rank: usize, i: usize, magnitude: f32) -> f32 {
    ((rank * 31 + i * 17) % 101) as f32 * 1.7e-3 * magnitude - 0.05 * magnitude
}

/// Sums on all ranks the same, and each within four times the bound of SwitchML's theorem 1.
fn check(fabric: &mut Fabric, inputs: &[Vec<f32>], what: &str) {
    let world_size = inputs.len();
    let outputs: Vec<Vec<f32>> = fabric.events.iter_mut().map(output::<f32>).collect();
    assert!(
        outputs.windows(2).all(|pair| pair[0].iter().zip(&pair[1]).all(|(a, b)| a.to_bits() == b.to_bits())),
        "{what}"
    );
    for start in (0..inputs[0].len()).step_by(8) {
        let block = start..(start + 8).min(inputs[0].len());
        let exponent = |input: &Vec<f32>| tributary_numeric::codec::exponent(&input[block.clone()]);
        let agreed = inputs.iter().map(exponent).fold(BlockExponent::ZERO, BlockExponent::join);
        for i in block.clone() {
            let exact: f64 = inputs.iter().map(|input| f64::from(input[i])).sum();
            let error = (f64::from(outputs[0][i]) - exact).abs();
            let bound = 4.0 * agreed.paper_bound(world_size as u16) + exact.abs() * 2f64.powi(-24);
            assert!(error <= bound, "{what}: element {i}: {error} > {bound}");
        }
    }
}

#[test]
fn sums_keep_four_times_the_bound_of_theorem_1_while_magnitudes_drift_and_a_rank_is_late() {
    for protocol in family() {
        for aggregators in ["1024", "7"] {
            let choice = Choice { switch: &[("aggregators", aggregators)], ..Choice::of(protocol) };
            let mut fabric = Fabric::leaf_spine(2, 1, 2, &choice);
            let mut reissues = 0;
            for round in 0..200 {
                // It drifts by half a bit a round, and jumps by six bits in every twentieth.
                let magnitude = 2f32.powf((round as f32 / 15.0).sin() * 8.0 + (round / 20 % 2 * 6) as f32);
                let inputs: Vec<Vec<f32>> =
                    (0..4).map(|rank| (0..300).map(|i| value(rank, i, magnitude)).collect()).collect();
                for (rank, input) in inputs.iter().enumerate() {
                    let late = if rank == round % 4 { Span::from_micros(30) } else { Span::ZERO };
                    fabric.submit_at(fabric.now + late, rank, collective(input.clone(), ReduceOp::Sum));
                }
                fabric.run(PATIENCE);
                check(&mut fabric, &inputs, &format!("{protocol}: round {round}"));
                reissues = fabric.hosts.iter().map(|host| host.stats().reissues).sum();
            }
            let blocks = 200 * 38;
            assert!(reissues > 16 && reissues < blocks / 5, "{protocol}: {reissues} of {blocks} were sent twice");
        }
    }
}

#[test]
fn a_guess_is_wrong_by_any_number_of_bits_and_the_block_is_sent_once_more() {
    for protocol in family() {
        for magnitude in [1e-38, 1e-20, 0.125, 0.5, 1.0, 2.0, 4.0, 1e20, 1e37] {
            let mut fabric = Fabric::star(3, &Choice::of(protocol));
            for magnitude in [1.0, magnitude, 1.0] {
                let inputs: Vec<Vec<f32>> =
                    (0..3).map(|rank| (0..200).map(|i| value(rank, i, magnitude)).collect()).collect();
                (0..3).for_each(|rank| fabric.submit(rank, collective(inputs[rank].clone(), ReduceOp::Sum)));
                fabric.run(PATIENCE);
                check(&mut fabric, &inputs, &format!("{protocol}: {magnitude}"));
            }
            assert_eq!(fabric.in_use(), 0);
        }
    }
}

#[test]
fn what_is_not_finite_comes_out_so_on_every_rank_and_zeros_stay_zeros() {
    for protocol in family() {
        let mut fabric = Fabric::leaf_spine(2, 1, 2, &Choice::of(protocol));
        for _ in 0..2 {
            for rank in 0..4 {
                let mut values = vec![1.0f32; 100];
                values[64..72].fill(0.0);
                match rank {
                    1 => values[10] = f32::INFINITY,
                    2 => values[50] = f32::NAN,
                    3 => values[99] = f32::NEG_INFINITY,
                    _ => {}
                }
                fabric.submit(rank, collective(values, ReduceOp::Sum));
            }
            fabric.run(PATIENCE);
            for events in &mut fabric.events {
                let output = output::<f32>(events);
                assert_eq!((output[10], output[99]), (f32::INFINITY, f32::NEG_INFINITY), "{protocol}");
                assert!(output[50].is_nan());
                let rest = |(i, &value): (usize, &f32)| {
                    [10, 50, 99].contains(&i) || value == if (64..72).contains(&i) { 0.0 } else { 4.0 }
                };
                assert!(output.iter().enumerate().all(rest), "{protocol}");
            }
        }
    }
}

#[test]
fn halves_and_brains_travel_in_two_bytes_and_come_out_right() {
    for protocol in family() {
        for aggregators in ["0", "64"] {
            let choice = Choice { switch: &[("aggregators", aggregators)], ..Choice::of(protocol) };
            let mut fabric = Fabric::leaf_spine(2, 1, 2, &choice);
            for _ in 0..2 {
                let values =
                    |rank: usize| (0..50).map(|i| half::bf16::from_f32((rank * 8 + i) as f32)).collect::<Vec<_>>();
                (0..4).for_each(|rank| fabric.submit(rank, collective(values(rank), ReduceOp::Avg)));
                fabric.run(PATIENCE);
                for events in &mut fabric.events {
                    let expected: Vec<half::bf16> = (0..50).map(|i| half::bf16::from_f32(12.0 + i as f32)).collect();
                    assert_eq!(output::<half::bf16>(events), expected, "{protocol}");
                }
            }
            let brings = |sent: &&crate::fabric::Sent| sent.kind == Kind::Gradient && sent.header.has_vector();
            let longest = fabric.sent.iter().filter(brings).map(|sent| sent.len).max();
            assert_eq!(longest, Some(52 + 8 * 2), "as many elements as of four bytes, in two bytes each");
        }
    }
}

#[test]
fn floats_survive_bad_cables() {
    for protocol in family() {
        for seed in 0..30 {
            let mut fabric =
                Fabric::leaf_spine(2, 2, 2, &Choice { switch: &[("aggregators", "6")], ..Choice::of(protocol) });
            fabric.fate = bad_cables(seed);
            for round in 0..3 {
                let magnitude = [1.0, 1e-6, 3.0][round];
                let inputs: Vec<Vec<f32>> =
                    (0..4).map(|rank| (0..200).map(|i| value(rank, i, magnitude)).collect()).collect();
                (0..4).for_each(|rank| fabric.submit(rank, collective(inputs[rank].clone(), ReduceOp::Sum)));
                fabric.run_until_notified();
                check(&mut fabric, &inputs, &format!("{protocol}: seed {seed}, round {round}"));
            }
        }
    }
}

/// The point of going ahead would be lost for floats if ranks agreed on exponents before they send.
#[test]
fn a_leader_with_floats_leads() {
    let choice = Choice { slots: 64, job: &[("initial_window", "4")], ..Choice::of(acknowledging()) };
    let mut fabric = Fabric::star(4, &choice);
    let input = |rank: usize| (0..8 * 200).map(|i| value(rank, i, 1.0)).collect::<Vec<f32>>();
    (0..4).for_each(|rank| fabric.submit(rank, collective(input(rank), ReduceOp::Sum)));
    fabric.run(PATIENCE);
    fabric.events.iter_mut().for_each(|events| drop(output::<f32>(events)));
    let before = fabric.sent.len();
    (0..3).for_each(|rank| fabric.submit(rank, collective(input(rank), ReduceOp::Sum)));
    fabric.run_until(fabric.now + Span::from_micros(40));
    let ahead = |rank: u32| {
        let own = fabric.sent[before..].iter().filter(|sent| sent.kind == Kind::Gradient && sent.from == NodeId(rank));
        own.filter(|sent| !sent.header.flags.has(Flags::PROBE)).count()
    };
    for rank in 0..3 {
        assert!(ahead(rank) > 40, "{} blocks, with vectors, beyond the last result", ahead(rank));
    }
    assert!(fabric.now > at_us(40));
}

/// Each gradient is marked, so that CWD is small: what has arrived beyond the last result (p_l) is more than CWD has
/// room for.
#[test]
fn a_leader_with_floats_is_further_ahead_than_its_first_window() {
    let choice = Choice { slots: 64, ..Choice::of(acknowledging()) };
    let mut fabric = Fabric::star(4, &choice);
    fabric.fate = Box::new(|sent| if sent.kind == Kind::Gradient { Fate::IsMarked } else { Fate::Arrives });
    let input = |rank: usize| (0..8 * 200).map(|i| value(rank, i, 1.0)).collect::<Vec<f32>>();
    (0..4).for_each(|rank| fabric.submit(rank, collective(input(rank), ReduceOp::Sum)));
    fabric.run(PATIENCE);
    fabric.events.iter_mut().for_each(|events| drop(output::<f32>(events)));
    (0..3).for_each(|rank| fabric.submit(rank, collective(input(rank), ReduceOp::Sum)));
    fabric.run_until(fabric.now + Span::from_micros(100));
    for rank in 0..3 {
        let metrics: Vec<Metric> = fabric.hosts[rank].metrics();
        let of = |name: &str| match metrics.iter().find(|metric| metric.name == name).expect("a figure").value {
            MetricValue::Gauge(value) => value,
            MetricValue::Counter(value) => value as f64,
        };
        let (leads, window) = (of("leads_blocks"), of("window_packets"));
        assert!(leads > 2.0 * window && window >= 2.0, "rank {rank}: p_l {leads}, CWD {window}");
    }
}

/// Block 2 of the second collective does not fit its scale, and its second attempt is long on its way. Blocks behind
/// it, which were sent before that attempt, are complete sooner, and that does not show that anything of the attempt
/// was lost.
#[test]
fn a_block_that_is_ordered_again_is_not_taken_for_lost_when_later_blocks_are_complete_sooner() {
    for protocol in family() {
        let choice = Choice { job: &[("served_by", "last_rank")], ..Choice::of(protocol) };
        let mut fabric = Fabric::star(4, &choice);
        for round in 0..2 {
            let magnitude = move |i: usize| if round == 1 && i / 8 == 2 { 1e9 } else { 1.0 };
            let inputs: Vec<Vec<f32>> =
                (0..4).map(|rank| (0..8 * 16).map(|i| value(rank, i, magnitude(i))).collect()).collect();
            fabric.fate = Box::new(|sent| match (sent.kind, sent.header.attempt) {
                (Kind::Gradient, 1) => Fate::IsLate(Span::from_micros(20)),
                _ => Fate::Arrives,
            });
            (0..4).for_each(|rank| fabric.submit(rank, collective(inputs[rank].clone(), ReduceOp::Sum)));
            fabric.run(PATIENCE);
            check(&mut fabric, &inputs, &format!("{protocol}: round {round}"));
        }
        let needless =
            fabric.sent.iter().filter(|sent| sent.kind == Kind::Need || sent.header.flags.has(Flags::RESEND));
        assert_eq!(needless.count(), 0, "{protocol}");
    }
}

//! Worlds drawn from seeds: first faults, in which nothing wrong may come out; then healing, and everything finishes.

use tributary_proto::contract::time::Span;

use crate::harness::hosts::{check_sums, collective};
use crate::harness::link::{LinkConfig, SplitMix};
use crate::harness::reduction::{at_ms, star};
use crate::setup::{ALGORITHMS, dense_job};

fn run_scenario(seed: u64) {
    let mut random = SplitMix(seed);
    let world_size = 1 + random.below(12) as u16;
    let job = dense_job(world_size, 16 + random.below(350) as u16, ALGORITHMS[random.below(4) as usize]);
    let sizes: Vec<usize> =
        (0..1 + random.below(12)).map(|_| random.below(20_000) as usize >> random.below(15)).collect();
    let mut share = |most: u64| if random.below(2) == 0 { 0.0 } else { random.below(most) as f64 / 100.0 };
    let (loss, duplicate, reorder, corrupt) = (share(30), share(30), share(50), share(5));
    let delay = Span(random.below(100_000_000));
    let queue_bytes = [u64::MAX, 15_000, 200_000][random.below(3) as usize];
    let link = LinkConfig { loss, duplicate, reorder, corrupt, delay, queue_bytes, ..LinkConfig::default() };
    let mut net = star(seed, link, &job);
    net.timer_grain = Span(random.below(2) * random.below(1_000_000_000));
    for rank in 0..world_size {
        let start = at_ms(random.below(3) * random.below(200));
        for (op, &elements) in sizes.iter().enumerate() {
            net.submit_at(start, usize::from(rank), collective(rank, op as u64, elements, None));
        }
    }
    net.run_until(at_ms(100 + random.below(500)));
    net.set_links(|link| *link = LinkConfig::default());
    check_sums(net.run_until_idle(at_ms(60_000)), &sizes);
}

#[test]
fn everything_finishes_after_faults_end() {
    for seed in 0..150 {
        println!("seed {seed}");
        run_scenario(seed);
    }
}

//! Job after job under loss: nothing grows, and no slot is left behind. 20 seconds; `TRIBUTARY_SOAK_SECONDS=3600` for an
//! hour.

use std::time::{Duration, Instant};

use tributary_testbed::Faults;

use crate::namespaces::network::Network;

/// Jobs until every buffer has its size.
const WARM_UP_JOBS: u32 = 6;
/// What a process may grow by without a leak: the allocator's own ups and downs.
const SLACK_KIB: u64 = 2048;

#[test]
fn an_endless_row_of_jobs_under_loss_leaves_nothing_behind() {
    let Some(network) = Network::build(4, Faults::loss(0.5)) else { return };
    let seconds = std::env::var("TRIBUTARY_SOAK_SECONDS").map_or(20, |text| text.parse().expect("a number of seconds"));
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut warm_rss = None;
    let mut job = 0u32;
    while job <= WARM_UP_JOBS || Instant::now() < end {
        if job == WARM_UP_JOBS {
            warm_rss = Some(network.switch_rss_kib());
        }
        let world_size = [4, 2, 3][job as usize % 3];
        let dtype = ["f32", "i32", "bf16", "f16"][job as usize % 4];
        // All sizes from less than a packet to some hundreds of them, in an order without a pattern.
        let elements = (1 + u64::from(job) * 48_271 % 200_003).to_string();
        let words = ["--elements", &elements, "--iters", "10", "--dtype", dtype, "--timeout", "60s"];
        network.sum(&format!("soak-{job}"), world_size, &words);
        network.until("an empty switch", |status| {
            (status.jobs.is_empty() && status.switch.memory_used_bytes == 0).then_some(())
        });
        job += 1;
    }
    let warm = warm_rss.expect("it was warm");
    // A job is out of the books before its shard has freed its slots, on a busy machine by milliseconds.
    let now = network.until(&format!("a switch of {warm} KiB, as after {WARM_UP_JOBS} jobs, after {job}"), |_| {
        Some(network.switch_rss_kib()).filter(|&now| now <= warm + SLACK_KIB)
    });
    eprintln!("{job} jobs; the switch holds {now} KiB, {warm} KiB when warm");
}

//! Whether a switch's link is wide enough for the workers whose sums it is to make.

use tributary_control::LargeSums;
use tributary_control::aggregation_plan::{AggregationPlan, HostLink, least_link_of_a_switch};
use tributary_net::status::SwitchStatus;

use super::Check;

const NAME: &str = "switch's link";

/// The links of a worker and of a switch, in Gbit/s.
#[derive(Clone, Copy)]
struct Links {
    worker: f64,
    switch: f64,
}

/// Judges the link for this many workers with a rank each, by default for those of the switch's largest job. A job that
/// has measured its links knows better than the kernel, which a slower network behind the first link does not concern.
pub fn check(status: &SwitchStatus, own_bits_per_s: Option<u64>, world_size: Option<u16>) -> Check {
    let measured = status.jobs.iter().filter_map(|job| measured(job.large_sums.as_ref()?, job.world_size)).next();
    let gbps = |bits: Option<u64>| bits.map(|bits| bits as f64 / 1e9);
    let kernels = gbps(own_bits_per_s).zip(gbps(status.switch.link_bits_per_s));
    let kernels = kernels.map(|(worker, switch)| Links { worker, switch });
    let Some(links) = measured.or(kernels) else {
        let found = "neither the drivers nor a job know its rate; the first large sum of a job measures it \
                     (tributary status)";
        return Check::ok(NAME, found);
    };
    let running = status.jobs.iter().filter(|job| job.state == "running").map(|job| job.world_size);
    match world_size.or_else(|| running.max()).filter(|&workers| workers > 1) {
        Some(workers) => for_workers(links, workers),
        None => for_any(links),
    }
}

/// The links that a job has measured, if its large sums have this switch alone to go to.
fn measured(sums: &LargeSums, world_size: u16) -> Option<Links> {
    let mut switches = sums.ways.iter().filter(|way| way.at.is_some());
    let (only, None) = (switches.next()?, switches.next()) else { return None };
    Some(Links { worker: sums.host_link_gbps, switch: only.alone_gbps * f64::from(world_size) })
}

fn for_workers(Links { worker, switch }: Links, workers: u16) -> Check {
    let n = f64::from(workers);
    let alone = (switch / worker / n).min(1.0);
    let carries = format!("{switch:.2} Gbit/s carry {workers} workers at {alone:.2} of their {worker:.2} Gbit/s");
    let least = least_link_of_a_switch(workers.into()) * worker;
    if switch >= least {
        return Check::ok(NAME, carries);
    }
    let hosts = std::iter::repeat_n(HostLink::new(worker, 1), workers.into());
    let hosts: Vec<HostLink> = hosts.chain([HostLink::new(switch, 0)]).collect();
    let together = AggregationPlan::new(&hosts).map_or(0.0, |plan| 1.0 / plan.seconds_per_bit() / worker);
    Check::warn(
        NAME,
        format!("{carries}, where without it they have {:.2}", (n / (2.0 * (n - 1.0))).min(1.0)),
        format!(
            "give it {least:.1} Gbit/s; or leave PyTorch's protocol at auto: with the workers' own hosts beside it they \
             have {together:.2}"
        ),
    )
}

/// What holds for any number of workers.
fn for_any(Links { worker, switch }: Links) -> Check {
    let ratio = switch / worker;
    let faster = (2..=u16::MAX).take_while(|&workers| least_link_of_a_switch(workers.into()) <= ratio).last();
    let links = format!("{switch:.2} Gbit/s, and this host's {worker:.2}");
    Check::ok(
        NAME,
        match faster {
            None => format!("{links}: alone it is slower than the workers' hosts, for any number of such workers"),
            Some(most) => format!(
                "{links}: alone it is at least as fast as the workers' hosts are, for up to {most} such workers"
            ),
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::doctor::Level;
    use crate::commands::status::testing;
    use serde_json::{Value, json};
    use tributary_net::status::JobStatus;

    fn status(link_gbps: Option<u64>, jobs: &[JobStatus]) -> SwitchStatus {
        let mut status = testing::status(jobs.to_vec());
        status.switch.link_bits_per_s = link_gbps.map(|gbps| gbps * 1_000_000_000);
        status
    }

    /// A job of four workers that has measured the ways by which it sums.
    fn job(ways: &[Value]) -> JobStatus {
        let sums = json!({"expected_gbps": 0.5, "host_link_gbps": 1.0, "ways": ways});
        JobStatus { large_sums: serde_json::from_value(sums).expect("large sums"), ..testing::job("a", 4) }
    }

    fn way(switch: Option<&str>) -> Value {
        json!({"at": switch, "share": 0.5, "alone_gbps": 0.37, "busy": 1.0})
    }

    #[test]
    fn a_link_that_is_too_narrow_is_named_with_the_one_that_would_do() {
        let check = check(&status(Some(1), &[]), Some(1_000_000_000), Some(4));
        assert_eq!(check.level, Level::Warn);
        assert_eq!(
            check.found,
            "1.00 Gbit/s carry 4 workers at 0.25 of their 1.00 Gbit/s, where without it they have 0.67"
        );
        let remedy = check.remedy.unwrap();
        assert!(remedy.starts_with("give it 2.7 Gbit/s; or") && remedy.ends_with("they have 0.75"), "{remedy}");
    }

    #[test]
    fn a_link_that_is_wide_enough_causes_no_warning() {
        let check = check(&status(Some(10), &[]), Some(1_000_000_000), Some(8));
        let found = "10.00 Gbit/s carry 8 workers at 1.00 of their 1.00 Gbit/s";
        assert_eq!((check.level, check.found.as_str()), (Level::Ok, found));
    }

    #[test]
    fn without_a_number_of_workers_the_most_are_named_for_which_the_switch_suffices_alone() {
        let found = |gbps| check(&status(Some(gbps), &[]), Some(1_000_000_000), None).found;
        assert!(found(1).ends_with("for any number of such workers"), "{}", found(1));
        // 8 workers would need 4.6 Gbit/s, and 9 of them 5.1.
        assert!(found(5).ends_with("for up to 8 such workers"), "{}", found(5));
    }

    #[test]
    fn what_a_job_has_measured_at_this_switch_alone_comes_before_what_drivers_say() {
        let of = |ways: &[Value]| check(&status(Some(10), &[job(ways)]), Some(10_000_000_000), None).found;
        assert!(of(&[way(Some("s:1")), way(None)]).starts_with("1.48 Gbit/s carry 4 workers at 0.37 of their 1.00"));
        // Nobody knows which of two switches this one is.
        let two = of(&[way(Some("s:1")), way(Some("t:1")), way(None)]);
        assert!(two.starts_with("10.00 Gbit/s carry 4 workers at 0.25 of their 10.00"), "{two}");
    }

    #[test]
    fn a_rate_that_nobody_knows_causes_no_warning() {
        let check = check(&status(None, &[]), Some(1_000_000_000), Some(4));
        assert!(check.level == Level::Ok && check.found.contains("the first large sum of a job measures it"));
    }
}

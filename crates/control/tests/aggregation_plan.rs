//! Where to sum: the plan against the papers' formulas, the ring, and what each link really carries.

use proptest::prelude::*;
use tributary_control::aggregation_plan::{AggregationPlan, HostLink, least_link_of_a_switch};

/// A plan that has hosts sum: its shares and its time.
fn shares(hosts: &[HostLink]) -> (Vec<f64>, f64) {
    match AggregationPlan::new(hosts).unwrap() {
        AggregationPlan::Shares { shares, seconds_per_bit } => (shares, seconds_per_bit),
        around @ AggregationPlan::Around { .. } => panic!("{around:?}"),
    }
}

/// Workers with a rank each, then hosts without ranks.
fn star(workers: usize, rate: f64, others: &[f64]) -> Vec<HostLink> {
    let workers = std::iter::repeat_n(HostLink::new(rate, 1), workers);
    workers.chain(others.iter().map(|&rate| HostLink::new(rate, 0))).collect()
}

/// The time for a bit with these shares, counted contribution by contribution and result by result.
fn time_of(hosts: &[HostLink], shares: &[f64]) -> f64 {
    let (mut up, mut down) = (vec![0.0; hosts.len()], vec![0.0; hosts.len()]);
    for (worker, host) in hosts.iter().enumerate() {
        for (summing, share) in shares.iter().enumerate().filter(|&(summing, _)| summing != worker) {
            let tensors = share * f64::from(host.ranks);
            up[worker] += tensors;
            down[summing] += tensors;
            up[summing] += tensors;
            down[worker] += tensors;
        }
    }
    let links = hosts.iter().zip(up).zip(down);
    let link = |((host, up), down): ((&HostLink, f64), f64)| (up / host.up_bits_per_s).max(down / host.down_bits_per_s);
    let ranks: f64 = hosts.iter().map(|host| f64::from(host.ranks)).sum();
    let sums = hosts.iter().zip(shares).filter(|(_, share)| **share > 0.0);
    let sums = sums.map(|(host, share)| share * ranks / host.sum_bits_per_s);
    links.map(link).chain(sums).fold(0.0, f64::max)
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9
}

#[test]
fn equal_links_have_the_time_of_byteps() {
    for n in 3..20 {
        for k in 0..=n {
            let (shares, time) = shares(&star(n, 1.0, &vec![1.0; k]));
            let (n, k) = (n as f64, k as f64);
            let divisor = n * n + k * n - 2.0 * k;
            assert!(close(time, 2.0 * n * (n - 1.0) / divisor), "{n} workers, {k} others: {time}");
            assert!(close(shares[0], (n - k) / divisor), "a worker of {n} beside {k} others: {}", shares[0]);
        }
    }
}

#[test]
fn a_switch_alone_is_worth_it_only_on_a_link_that_is_wide_enough() {
    for n in 2..20 {
        let closed = HostLink { sum_bits_per_s: 0.0, ..HostLink::new(1.0, 1) };
        let least = least_link_of_a_switch(n);
        let with_switch = |link| {
            let hosts = std::iter::repeat_n(closed, n as usize).chain([HostLink::new(link, 0)]).collect::<Vec<_>>();
            matches!(AggregationPlan::new(&hosts), Some(AggregationPlan::Shares { .. }))
        };
        assert!(with_switch(least * 1.01) && !with_switch(least * 0.99), "{n}: {least}");
    }
    assert!(close(least_link_of_a_switch(4), 8.0 / 3.0) && close(least_link_of_a_switch(8), 32.0 / 7.0));
}

#[test]
fn two_ranks_need_nobody_else() {
    assert_eq!(shares(&star(2, 1.0, &[])).1, 1.0);
    assert!(close(shares(&star(2, 1.0, &[1.0])).1, 1.0));
}

#[test]
fn a_switch_whose_link_suffices_sums_everything() {
    for n in 3..12u16 {
        let (shares, time) = shares(&star(n.into(), 1.0, &[n.into()]));
        assert!(close(time, 1.0) && close(shares[usize::from(n)], 1.0), "{n}: {shares:?}");
    }
}

#[test]
fn a_switch_on_twice_the_link_is_better_than_either_alone() {
    let (shares, time) = shares(&star(4, 1.0, &[2.0]));
    // All hosts without it take 1.5, and it alone 2.
    assert!(time < 1.5, "{time}");
    assert!(shares[4] > 0.5 && shares[0] > 0.0, "{shares:?}");
}

#[test]
fn a_slow_switch_sums_nothing() {
    let (shares, time) = shares(&star(4, 1.0, &[0.01]));
    assert_eq!(shares[4], 0.0);
    assert!(close(time, 1.5));
}

#[test]
fn a_switch_that_sums_slowly_gets_what_it_can_sum() {
    let mut hosts = star(4, 1.0, &[100.0]);
    hosts[4].sum_bits_per_s = 2.0;
    assert_eq!(shares(&hosts), shares(&star(4, 1.0, &[2.0])));
}

#[test]
fn where_many_ranks_share_each_link_the_way_around_carries_less() {
    let hosts = vec![HostLink::new(1.0, 4); 4];
    assert_eq!(AggregationPlan::new(&hosts), Some(AggregationPlan::Around { seconds_per_bit: 2.0 * 15.0 / 16.0 }));
    // But a switch that is near enough carries less than either.
    let with_switch: Vec<HostLink> = hosts.into_iter().chain([HostLink::new(100.0, 0)]).collect();
    assert!(matches!(AggregationPlan::new(&with_switch), Some(AggregationPlan::Around { .. })), "4 tensors a link");
}

#[test]
fn a_way_around_that_leaves_a_host_several_times_is_no_better() {
    let ranks_in_turn = HostLink { exits: 2, ..HostLink::new(1.0, 2) };
    assert!(close(shares(&[ranks_in_turn; 4]).1, 2.0 * 2.0 * 6.0 / 8.0));
    assert!(matches!(AggregationPlan::new(&[HostLink::new(1.0, 2); 4]), Some(AggregationPlan::Around { .. })));
}

#[test]
fn ranks_of_one_host_need_no_link() {
    assert_eq!(shares(&[HostLink::new(1.0, 4), HostLink::new(1.0, 0)]).0, [1.0, 0.0]);
}

#[test]
fn without_a_host_that_may_sum_there_is_the_way_around_and_without_ranks_nothing() {
    let closed = HostLink { sum_bits_per_s: 0.0, ..HostLink::new(1.0, 1) };
    assert_eq!(AggregationPlan::new(&[closed; 4]), Some(AggregationPlan::Around { seconds_per_bit: 1.5 }));
    assert_eq!(AggregationPlan::new(&[HostLink::new(1.0, 0)]), None);
    assert_eq!(AggregationPlan::new(&[]), None);
}

fn any_host() -> impl Strategy<Value = HostLink> {
    let rate = || prop_oneof![Just(1.0), Just(10.0), 0.01..100.0f64];
    let sums = prop_oneof![3 => Just(f64::INFINITY), 1 => Just(0.0), 1 => 0.01..100.0f64];
    (rate(), rate(), 0..4u32, sums).prop_map(|(up_bits_per_s, down_bits_per_s, ranks, sum_bits_per_s)| HostLink {
        up_bits_per_s,
        down_bits_per_s,
        ranks,
        exits: ranks.min(1),
        sum_bits_per_s,
    })
}

proptest! {
    #[test]
    fn the_time_is_that_of_the_slowest_link(hosts in prop::collection::vec(any_host(), 1..10)) {
        if let Some(AggregationPlan::Shares { shares, seconds_per_bit }) = AggregationPlan::new(&hosts) {
            prop_assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
            prop_assert!(shares.iter().all(|&share| share >= 0.0));
            let counted = time_of(&hosts, &shares);
            prop_assert!(counted <= seconds_per_bit * (1.0 + 1e-9) + 1e-12, "{counted} {seconds_per_bit}");
        }
    }

    #[test]
    fn no_plan_is_worse_than_the_way_around_or_than_all_at_one_host(hosts in prop::collection::vec(any_host(), 1..10)) {
        let Some(plan) = AggregationPlan::new(&hosts) else { return Ok(()) };
        let ranks: u32 = hosts.iter().map(|host| host.ranks).sum();
        let linked = || hosts.iter().filter(|host| host.ranks > 0);
        let slowest = linked().map(|host| host.up_bits_per_s.min(host.down_bits_per_s)).fold(f64::INFINITY, f64::min);
        let around = 2.0 * f64::from(ranks - 1) / f64::from(ranks) / slowest;
        if linked().count() > 1 {
            prop_assert!(plan.seconds_per_bit() <= around * (1.0 + 1e-9));
        }
        for host in (0..hosts.len()).filter(|&host| hosts[host].sum_bits_per_s > 0.0) {
            let mut all_here = vec![0.0; hosts.len()];
            all_here[host] = 1.0;
            prop_assert!(plan.seconds_per_bit() <= time_of(&hosts, &all_here) * 1.021);
        }
    }

    #[test]
    fn moving_a_little_from_one_host_to_another_is_no_better(
        hosts in prop::collection::vec(any_host(), 2..8),
        from in any::<prop::sample::Index>(),
        to in any::<prop::sample::Index>(),
    ) {
        if let Some(AggregationPlan::Shares { mut shares, seconds_per_bit }) = AggregationPlan::new(&hosts) {
            let (from, to) = (from.index(hosts.len()), to.index(hosts.len()));
            let moved = shares[from] * 0.1;
            shares[from] -= moved;
            shares[to] += moved;
            if hosts[to].sum_bits_per_s > 0.0 {
                prop_assert!(time_of(&hosts, &shares) * 1.021 >= seconds_per_bit);
            }
        }
    }
}

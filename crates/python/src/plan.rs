//! The package's question where to sum.

use pyo3::prelude::*;
use tributary_control::aggregation_plan::{AggregationPlan, HostLink};

/// Which share of a tensor each host sums, and the seconds that a bit takes; no shares where a ring is faster. A host is
/// the rate of its link in bits per second, its ranks, those whose next rank is on another host, and whether it may sum.
/// `None` if there is nothing to plan.
#[pyfunction]
pub(crate) fn plan_sums(hosts: Vec<(f64, u32, u32, bool)>) -> Option<(Vec<f64>, f64)> {
    let hosts: Vec<HostLink> = hosts
        .into_iter()
        .map(|(rate, ranks, exits, sums)| {
            let host = HostLink { exits, ..HostLink::new(rate, ranks) };
            if sums { host } else { HostLink { sum_bits_per_s: 0.0, ..host } }
        })
        .collect();
    Some(match AggregationPlan::new(&hosts)? {
        AggregationPlan::Shares { shares, seconds_per_bit } => (shares, seconds_per_bit),
        AggregationPlan::Around { seconds_per_bit } => (Vec::new(), seconds_per_bit),
    })
}

//! The package's question where to sum, and what it says of the answer.

use pyo3::prelude::*;
use tributary_control::aggregation_plan::{self, AggregationPlan, HostLink};
use tributary_control::{LargeSums, SumShare};

use crate::group::Group;

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

/// Where a tensor is cut, between whole blocks, if it is large enough: a range of each share.
#[pyfunction]
#[pyo3(signature = (elements, shares, block=1))]
pub(crate) fn cuts(elements: usize, shares: Vec<f64>, block: usize) -> Vec<(usize, usize)> {
    let ranges = aggregation_plan::cuts(elements, &shares, block);
    ranges.into_iter().map(|range| (range.start, range.end)).collect()
}

/// Where, or none for the ranks' own hosts; its share, Gbit/s alone, and the share of the time for which its link is
/// busy.
type Way = (Option<String>, f64, f64, f64);

/// Where large sums are made, as the switch is told: the Gbit/s that the plan promises and that a host's link carries, and
/// who sums.
fn large_sums(expected_gbps: f64, host_link_gbps: f64, ways: Vec<Way>) -> LargeSums {
    let share = |(at, share, alone_gbps, busy)| SumShare { at, share, alone_gbps, busy };
    LargeSums { expected_gbps, host_link_gbps, ways: ways.into_iter().map(share).collect() }
}

/// The same as a sentence.
#[pyfunction]
pub(crate) fn large_sums_sentence(expected_gbps: f64, host_link_gbps: f64, ways: Vec<Way>) -> String {
    large_sums(expected_gbps, host_link_gbps, ways).sentence()
}

/// Says the same to the switch of the group's job.
#[pyfunction]
pub(crate) fn report_large_sums(
    py: Python<'_>,
    group: &Group,
    expected_gbps: f64,
    host_link_gbps: f64,
    ways: Vec<Way>,
) -> PyResult<()> {
    let sums = large_sums(expected_gbps, host_link_gbps, ways);
    group.with_group(py, |group| {
        group.report_sums(sums);
        Ok(())
    })
}

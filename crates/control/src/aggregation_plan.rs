//! Where to sum: which share of a tensor each host sums, so that no link carries more than it must.
//!
//! A host that sums a share `x` of the blocks receives it from all `n` ranks but those that are on the host itself, and
//! sends them as many results. With `g` ranks on a host, its link carries `g * (1 - x) + (n - g) * x` tensors each way:
//! what its ranks bring to other hosts, and what it sums for ranks elsewhere. The plan has the shares for which the
//! slowest link is done first. For equal links with a rank each, and `k` equal hosts without ranks, these are the shares
//! of BytePS (Jiang et al., OSDI 2020, section 4). Where several ranks share links, a ring over hosts may carry less.

use std::ops::Range;

/// A host that has ranks, may sum, or both, with its link to the network.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HostLink {
    /// What the link carries from the host.
    pub up_bits_per_s: f64,
    /// What the link carries to the host.
    pub down_bits_per_s: f64,
    /// The ranks that share the link.
    pub ranks: u32,
    /// The ranks whose next rank, around the ring of all ranks, is on another host.
    pub exits: u32,
    /// How fast the host can receive contributions and sum them; 0 if it may not sum.
    pub sum_bits_per_s: f64,
}

/// How a job's tensors are summed.
#[derive(Clone, Debug, PartialEq)]
pub enum AggregationPlan {
    /// Hosts sum these shares, in the order of the hosts.
    Shares {
        /// From 0 to 1, together 1.
        shares: Vec<f64>,
        /// The time that a bit of the tensor takes at the slowest link.
        seconds_per_bit: f64,
    },
    /// A ring over the ranks in their order, which carries less.
    Around {
        /// As above.
        seconds_per_bit: f64,
    },
}

/// A tensor of fewer elements than this for each share is not cut: it goes whole to one of those who sum.
pub const LEAST_CUT_ELEMENTS: usize = 1 << 16;

/// Where a tensor is cut, between whole blocks, if it is large enough: a range of elements for each share.
pub fn cuts(elements: usize, shares: &[f64], block: usize) -> Vec<Range<usize>> {
    if shares.len() < 2 || elements < shares.len() * LEAST_CUT_ELEMENTS {
        return std::iter::once(0..elements).collect();
    }
    let (whole, block, mut start, mut sum) = (shares.iter().sum::<f64>(), block.max(1), 0, 0.0);
    let end = |share: &f64| {
        sum += share;
        let end = ((elements as f64 * sum / whole / block as f64).round() as usize * block).clamp(start, elements);
        std::mem::replace(&mut start, end)..end
    };
    let mut ranges: Vec<Range<usize>> = shares.iter().map(end).collect();
    if let Some(last) = ranges.last_mut() {
        last.end = elements;
    }
    ranges
}

/// The slowest link, in links of a worker, on which a switch that sums everything is as fast as a ring over this many
/// workers with a rank each: the switch's link carries `n` tensors, and a worker's `2(n-1)/n`.
pub fn least_link_of_a_switch(workers: u32) -> f64 {
    let n = f64::from(workers);
    n / (2.0 * (n - 1.0) / n).max(1.0)
}

/// A host without ranks must shorten a sum by this share to take part in it: rates of links are estimated no better.
const LEAST_GAIN: f64 = 0.02;
/// Halvings of the interval in which the time lies: as many as make a double exact.
const HALVINGS: u32 = 128;

impl HostLink {
    /// A host with a link of one rate in both directions, which sums as fast as the link brings, and whose ranks follow
    /// each other.
    pub fn new(bits_per_s: f64, ranks: u32) -> HostLink {
        HostLink {
            up_bits_per_s: bits_per_s,
            down_bits_per_s: bits_per_s,
            ranks,
            exits: ranks.min(1),
            sum_bits_per_s: f64::INFINITY,
        }
    }

    /// As many bits leave as arrive, so the slower direction counts.
    fn bits_per_s(&self) -> f64 {
        self.up_bits_per_s.min(self.down_bits_per_s)
    }

    /// The least and the largest share that the host can sum in this time for each bit; `None` if its own ranks take
    /// longer, whoever sums.
    fn bounds(&self, seconds_per_bit: f64, ranks: f64) -> Option<(f64, f64)> {
        let own = f64::from(self.ranks);
        // The tensors that the link carries in this time.
        let carried = self.bits_per_s() * seconds_per_bit;
        let most = (self.sum_bits_per_s * seconds_per_bit / ranks).min(1.0);
        // A tensor that is summed here is carried `own` times less and `ranks - own` times more.
        let more = ranks - 2.0 * own;
        let (least, most) = match more {
            more if more > 0.0 => (0.0, ((carried - own) / more).min(most)),
            more if more < 0.0 => (((own - carried) / -more).max(0.0), most),
            _ if carried < own => return None,
            _ => (0.0, most),
        };
        (least <= most).then_some((least, most))
    }
}

impl AggregationPlan {
    /// The plan for ranks on these hosts; `None` without ranks.
    pub fn new(hosts: &[HostLink]) -> Option<AggregationPlan> {
        let around = AggregationPlan::around(hosts)?;
        let Some(best) = fewest_seconds(hosts) else { return Some(around) };
        let hosts = without_the_useless(hosts, best);
        let seconds_per_bit = fewest_seconds(&hosts)?;
        let shares = AggregationPlan::Shares { shares: shares_in(&hosts, seconds_per_bit), seconds_per_bit };
        // For the same time the shares: a block takes one round trip, and around a ring as many as there are ranks.
        Some(if around.seconds_per_bit() < seconds_per_bit * (1.0 - f64::EPSILON.sqrt()) { around } else { shares })
    }

    /// A ring over the ranks: each sends all tensors but its own part to the next rank, twice.
    fn around(hosts: &[HostLink]) -> Option<AggregationPlan> {
        let ranks = ranks_of(hosts);
        let with_ranks = || hosts.iter().filter(|host| host.ranks > 0);
        let needs_links = with_ranks().count() > 1;
        let carried = |host: &HostLink| 2.0 * (ranks - 1.0) / ranks * f64::from(host.exits) / host.bits_per_s();
        let slowest = with_ranks().map(carried).max_by(f64::total_cmp)?;
        Some(AggregationPlan::Around { seconds_per_bit: if needs_links { slowest } else { 0.0 } })
    }

    /// The predicted time for a bit of a tensor.
    pub fn seconds_per_bit(&self) -> f64 {
        match self {
            AggregationPlan::Shares { seconds_per_bit, .. } | AggregationPlan::Around { seconds_per_bit } => {
                *seconds_per_bit
            }
        }
    }
}

/// Ranks of all hosts.
fn ranks_of(hosts: &[HostLink]) -> f64 {
    hosts.iter().map(|host| f64::from(host.ranks)).sum()
}

/// The bounds of all hosts' shares; `None` if no shares within them make up the whole.
fn bounds_of(hosts: &[HostLink], seconds_per_bit: f64) -> Option<Vec<(f64, f64)>> {
    let ranks = ranks_of(hosts);
    let bounds: Vec<(f64, f64)> =
        hosts.iter().map(|host| host.bounds(seconds_per_bit, ranks)).collect::<Option<_>>()?;
    let least: f64 = bounds.iter().map(|bounds| bounds.0).sum();
    let most: f64 = bounds.iter().map(|bounds| bounds.1).sum();
    (least <= 1.0 && most >= 1.0).then_some(bounds)
}

/// The least time for a bit in which hosts can sum all of a tensor; `None` if no host may sum. Longer times never allow
/// less, so halving finds it.
fn fewest_seconds(hosts: &[HostLink]) -> Option<f64> {
    let slowest = hosts.iter().map(HostLink::bits_per_s).chain(rates(hosts)).min_by(f64::total_cmp)?;
    // In half of this time every link carries all ranks' tensors.
    let most = 2.0 * ranks_of(hosts) / slowest;
    let (mut too_short, mut enough) = (0.0, most);
    bounds_of(hosts, enough)?;
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(too_short, enough);
        match bounds_of(hosts, middle) {
            Some(_) => enough = middle,
            None => too_short = middle,
        }
    }
    // All ranks are on the host that sums.
    Some(if enough < most * f64::EPSILON { 0.0 } else { enough })
}

fn rates(hosts: &[HostLink]) -> impl Iterator<Item = f64> {
    hosts.iter().map(|host| host.sum_bits_per_s).filter(|&rate| rate > 0.0)
}

/// The hosts, of which those without ranks that would gain next to nothing may not sum.
fn without_the_useless(hosts: &[HostLink], best: f64) -> Vec<HostLink> {
    let mut hosts = hosts.to_vec();
    let mut spare: Vec<usize> = (0..hosts.len()).filter(|&host| hosts[host].ranks == 0).collect();
    spare.sort_by(|&a, &b| hosts[a].bits_per_s().total_cmp(&hosts[b].bits_per_s()));
    for host in spare {
        let rate = std::mem::replace(&mut hosts[host].sum_bits_per_s, 0.0);
        if fewest_seconds(&hosts).is_none_or(|seconds| seconds > best * (1.0 + LEAST_GAIN)) {
            hosts[host].sum_bits_per_s = rate;
        }
    }
    hosts
}

/// Shares within the bounds. If there is a choice, hosts without ranks sum: what they sum is carried the fewest times.
fn shares_in(hosts: &[HostLink], seconds_per_bit: f64) -> Vec<f64> {
    let bounds = bounds_of(hosts, seconds_per_bit).expect("the time is enough");
    let mut shares: Vec<f64> = bounds.iter().map(|bounds| bounds.0).collect();
    let mut left = 1.0 - shares.iter().sum::<f64>();
    for has_ranks in [false, true] {
        let these = || (0..hosts.len()).filter(|&host| (hosts[host].ranks > 0) == has_ranks);
        let more: f64 = these().map(|host| bounds[host].1 - bounds[host].0).sum();
        let taken = if more > 0.0 { (left / more).min(1.0) } else { 0.0 };
        these().for_each(|host| shares[host] += taken * (bounds[host].1 - bounds[host].0));
        left -= taken * more;
    }
    shares
}

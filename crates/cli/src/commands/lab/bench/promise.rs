//! What the plan of where to sum promises PyTorch's ranks on a star: it knows the links' rates, and of processors nothing.

use tributary_control::aggregation_plan::{AggregationPlan, HostLink};
use tributary_net::pool_size;
use tributary_proto::contract::wire::IPV4_AND_UDP_LEN;

use super::contender::{Beside, Contender};
use super::plan::Rate;
use crate::cluster::job;

/// Bytes of an Ethernet header, which the links' token buckets count.
const ETHERNET_LEN: usize = 14;

/// The bytes of a full packet's frame, for each byte of float32 in it.
fn frames_per_byte(mtu: u16) -> f64 {
    let protocol = job::protocols().next().expect("there are protocols");
    let elements = pool_size::elements_in(protocol, usize::from(mtu) - IPV4_AND_UDP_LEN);
    let packet = pool_size::packet_bytes(protocol, elements) + IPV4_AND_UDP_LEN;
    (packet + ETHERNET_LEN) as f64 / (4.0 * f64::from(elements))
}

/// The seconds that the plan of where to sum promises for this many elements of float32 among hosts with such links, of
/// which the spare ones have their own rate; `None` if the contender follows no plan, or a link has no rate.
pub fn planned_seconds(
    who: Contender,
    (hosts, rate): (u16, Rate),
    spare_rate: Option<Rate>,
    elements: usize,
    mtu: u16,
) -> Option<f64> {
    let Contender::OneWord(beside) = who else { return None };
    let (own, of_spare) = (rate.bits_per_s()?, spare_rate.unwrap_or(rate).bits_per_s()?);
    let at_spare = |spare: u16| {
        let links: Vec<HostLink> = [(own, 1, hosts), (of_spare, 0, spare)]
            .iter()
            .flat_map(|&(rate, ranks, count)| vec![HostLink::new(rate, ranks); count.into()])
            .collect();
        Some(AggregationPlan::new(&links)?.seconds_per_bit())
    };
    let seconds_per_bit = match beside {
        Beside::Nothing => at_spare(0)?,
        Beside::Spare(spare) => at_spare(spare)?,
        // It has a link to each host, so that each of these carries a tensor once each way.
        Beside::Switch => 1.0 / own,
    };
    Some(seconds_per_bit * 32.0 * elements as f64 * frames_per_byte(mtu))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn promised(hosts: u16, beside: Beside, spare_rate: Option<Rate>) -> f64 {
        let who = Contender::OneWord(beside);
        planned_seconds(who, (hosts, Rate::Gbps(1.0)), spare_rate, 1_000_000, 1500).expect("the links have a rate")
    }

    #[test]
    fn the_plan_promises_what_equal_and_wider_links_carry() {
        // A tensor in packets of 358 elements, which are frames of 1,510 bytes.
        let tensor = 0.032 * 1510.0 / 1432.0;
        let tensors = [
            (2, Beside::Nothing, None, 1.0),
            (4, Beside::Nothing, None, 1.5),
            (8, Beside::Nothing, None, 1.75),
            (4, Beside::Spare(1), None, 4.0 / 3.0),
            (4, Beside::Spare(4), None, 1.0),
            (4, Beside::Spare(1), Some(Rate::Gbps(2.0)), 1.2),
            (4, Beside::Switch, None, 1.0),
            (8, Beside::Switch, None, 1.0),
        ];
        for (hosts, beside, spare_rate, tensors) in tensors {
            let found = promised(hosts, beside, spare_rate) / tensor;
            assert!(
                (found - tensors).abs() < 1e-6,
                "{found} tensors of {hosts} hosts and {beside:?} at {spare_rate:?}"
            );
        }
    }

    #[test]
    fn it_promises_nothing_of_links_without_a_rate_and_to_gloo() {
        let unshaped = planned_seconds(Contender::OneWord(Beside::Nothing), (4, Rate::Unshaped), None, 1_000_000, 1500);
        let gloo = planned_seconds(Contender::Gloo(None), (4, Rate::Gbps(1.0)), None, 1_000_000, 1500);
        assert_eq!((unshaped, gloo), (None, None));
    }
}

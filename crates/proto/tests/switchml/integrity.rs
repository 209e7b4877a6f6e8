//! Packets with a checksum of their own (`integrity=crc32c`): bits that change behind UDP's checksum change no sum.

use std::collections::BTreeMap;

use tributary_proto::contract::config::JobConfig;
use tributary_proto::contract::drop_reason::DropReason;
use tributary_proto::contract::options::OptionSet;
use tributary_proto::contract::protocol::Placement;
use tributary_proto::contract::seal;
use tributary_proto::protocols;
use tributary_proto::switchml::PROTOCOL;
use tributary_proto::switchml::wire::HEADER_LEN;

use crate::harness::link::{Flips, LinkConfig};
use crate::setup::{at_ms, job, reduce, star};

const SIZES: [(usize, bool); 5] = [(1, true), (64, false), (10_003, true), (0, false), (361, true)];

fn given(integrity: &str) -> BTreeMap<String, String> {
    [("integrity", integrity), ("numbers", "fixed")].map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

fn job_with(integrity: &str, world_size: u16) -> JobConfig {
    JobConfig { options: PROTOCOL.options.read(&given(integrity)).unwrap(), ..job(world_size, 16, 64) }
}

#[test]
fn a_bit_that_changes_anywhere_in_a_packet_is_noticed_at_both_ends_and_changes_no_sum() {
    for world_size in [1, 2, 3, 8] {
        let job = job_with("crc32c", world_size);
        let link = LinkConfig { flips: Some(Flips { every: 20, from: 0 }), ..LinkConfig::default() };
        let mut network = star(1, link, &job);
        reduce(&mut network, &SIZES, at_ms(1_000_000));
        let up: u64 = network.hosts.iter().map(|host| host.port.link.counts.flipped).sum();
        let switch = network.switches[0].pipelines[0].report(job.job).unwrap().drops.get(DropReason::Corrupt);
        let hosts: u64 = network.hosts.iter().map(|host| host.machine.stats().drops.get(DropReason::Corrupt)).sum();
        // Bits of the first bytes make the packet another job's, or none of ours.
        assert!(switch > 0 && hosts > 0 && switch <= up, "{world_size} ranks: {switch} of {up}, and {hosts} at hosts");
    }
}

#[test]
#[should_panic(expected = "elements, rank")]
fn without_the_checksum_the_same_bits_change_sums() {
    let link = LinkConfig { flips: Some(Flips { every: 20, from: HEADER_LEN }), ..LinkConfig::default() };
    reduce(&mut star(1, link, &job_with("none", 2)), &SIZES[2..3], at_ms(1_000_000));
}

#[test]
fn loss_and_copies_beside_changed_bits_cost_no_sum() {
    let flips = Some(Flips { every: 10, from: 0 });
    let link = LinkConfig { loss: 0.05, duplicate: 0.05, flips, ..LinkConfig::default() };
    reduce(&mut star(7, link, &job_with("crc32c", 4)), &SIZES, at_ms(1_000_000));
}

#[test]
fn a_protocol_that_cannot_says_so() {
    for protocol in protocols::ALL {
        let OptionSet { specs, .. } = protocol.options;
        let read = protocol.options.read(&[("integrity".to_owned(), "crc32c".to_owned())].into());
        match read {
            Ok(options) => {
                assert_eq!(protocol.placement, Placement::Trees, "{protocol}: the pipeline of a switch checks packets");
                assert!(specs.contains(&seal::OPTION) && seal::is_chosen(&options), "{protocol}");
                assert!(!seal::is_chosen(&protocol.options.defaults()), "{protocol}");
            }
            Err(error) => assert!(error.to_string().contains("has no option \"integrity\""), "{error}"),
        }
    }
}

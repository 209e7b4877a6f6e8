//! Completion times that follow from rates and delays alone: within 1 %. (DCTCP's are in tests/dctcp.rs.)

use tributary_proto::contract::protocol::Protocol;
use tributary_proto::protocols;
use tributary_sim::config::Config;
use tributary_sim::run;

const RATE: f64 = 100e9;

/// What all cases have in common: 100 Gbit/s, 1 us a link.
fn seconds(network: &str, protocol: &str, tensor_bytes: u64, more: &str) -> f64 {
    let file = format!(
        "[network]\n{network}\nqueue = '16 MiB'\n[[job]]\nprotocol = '{protocol}'\nhosts = 'all'\n\
         placement = 'packed'\ntensor = {tensor_bytes}\n{more}"
    );
    let report = run(&Config::parse(&file).unwrap()).unwrap();
    assert_eq!(report.failure(), None, "{file}");
    report.jobs[0].seconds.unwrap()
}

/// Time that a full packet takes on a link, with the protocol's header and Ethernet's, IP's and UDP's 66 bytes.
fn packet(protocol: &'static Protocol, elements: u64) -> f64 {
    (4 * elements + protocol.header_len as u64 + 66) as f64 * 8.0 / RATE
}

fn agree(ours: f64, expected: f64, what: &str) {
    assert!((ours / expected - 1.0).abs() < 0.01, "{what}: {ours:e} s, expected {expected:e} s");
}

/// The shortest packet on a link, such as an acknowledgement.
const SHORTEST: f64 = 84.0 * 8.0 / RATE;

/// Everybody's share of the tensor goes round twice, less one: 2 (n - 1) / n of it over each link, in packets. They are
/// passed on as they come, so that only the last one has its way to go when the link falls silent, and its
/// acknowledgement comes back. One acknowledgement of eight packets goes over the same link the other way round.
#[test]
fn a_ring_takes_twice_the_tensor_less_two_shares() {
    for (hosts, elements) in [(2, 256), (4, 256), (16, 256), (4, 1024), (16, 1024)] {
        let tensor = 32 << 20;
        let network = format!("star = {{ hosts = {hosts} }}");
        let ours = seconds(&network, "ring", tensor, &format!("elements_per_packet = {elements}"));
        let packets = (2 * (hosts - 1) * (tensor / (4 * elements) / hosts)) as f64;
        let packet = packet(protocols::named("ring").unwrap(), elements);
        let latency = 2.0 * (1e-6 + 1e-6) + packet + SHORTEST;
        agree(ours, packets * (packet + SHORTEST / 8.0) + latency, &format!("{hosts} hosts"));
        // Where packets are long, the acknowledgements do not count.
        if elements == 1024 {
            agree(ours, packets * packet + latency, &format!("{hosts} hosts, without acknowledgements"));
        }
    }
}

/// Where a share is a single packet, the way is all there is: a step is a packet on two links and their delays. In the
/// end the last packet's acknowledgement comes back.
#[test]
fn a_ring_of_single_packets_takes_its_latencies() {
    for hosts in [2, 4, 8, 16] {
        let ours = seconds(&format!("star = {{ hosts = {hosts} }}"), "ring", 1024 * hosts, "");
        let step = 2.0 * (packet(protocols::named("ring").unwrap(), 256) + 1e-6);
        agree(ours, 2.0 * (hosts - 1) as f64 * step + 2.0 * (SHORTEST + 1e-6), &format!("{hosts} hosts"));
    }
}

/// The tensor once over each link, whatever the number of hosts, and the way up to the top of the tree and down again:
/// once for whole numbers and for floats that are summed as floats, once more for the look-ahead at the first exponents of a
/// tensor in fixed point.
#[test]
fn a_sum_in_the_network_takes_the_tensor_once() {
    let shapes = [
        ("star = { hosts = 2 }", 1),
        ("star = { hosts = 32 }", 1),
        ("leaf_spine = { leaves = 4, spines = 2, hosts_per_leaf = 4 }", 2),
        ("clos = { ports = 4 }", 3),
    ];
    for (network, levels) in shapes {
        let (packets, hops) = (4096.0, 2.0 * f64::from(levels));
        let expected = (packets + hops - 1.0) * packet(protocols::named("switchml").unwrap(), 256) + hops * 1e-6;
        let whole = seconds(network, "switchml", 4 << 20, "slots = 128\ntype = 'i32'");
        agree(whole, expected, network);
        agree(seconds(network, "switchml", 4 << 20, "slots = 128"), whole, network);
        let real = seconds(network, "switchml", 4 << 20, "slots = 128\noptions = { numbers = 'fixed' }");
        let exponents = hops * (packet(protocols::named("switchml").unwrap(), 0) + 1e-6);
        agree(real, expected + exponents, network);
        assert!(((real - whole) / exponents - 1.0).abs() < 0.01, "{network}: {} s", real - whole);
    }
}

/// A pool below the product of bandwidth and delay sends a pool's packets in each round trip (SwitchML, appendix C).
#[test]
fn a_small_pool_takes_a_round_trip_for_each_of_its_slots() {
    let slots = 8;
    let ours = seconds("star = { hosts = 4 }", "switchml", 4 << 20, &format!("slots = {slots}"));
    let round_trip = 2.0 * (packet(protocols::named("switchml").unwrap(), 256) + 1e-6);
    agree(ours, 4096.0 / f64::from(slots) * round_trip, "8 slots");
}

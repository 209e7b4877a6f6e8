//! The leaf of a small fabric: which packets it takes, and where it sends them.

use super::*;
use crate::fabric::testing::{self, LEAF};
use crate::fabric::wire::Hello;
use tributary_control::fabric::Advert;
use tributary_proto::contract::switch::PortView;

const JOB: JobId = JobId(7);
const HEADER: Common = Common { protocol: 1, kind: 0, job: JOB, key: tributary_proto::contract::ids::JobKey(5) };
const PACKET: [u8; 1_000] = [1; 1_000];
const OTHER_LEAF: NodeId = NodeId(5);
const SPINES: [NodeId; 2] = [NodeId(6), NodeId(7)];
/// The ports of the leaf that lead to the spines. Its first two ports lead to its hosts.
const UP: [PortId; 2] = [PortId(2), PortId(3)];
/// A host of the other leaf. Its default port is that of the first spine.
const FAR: NodeId = NodeId(2);

fn fabric(balancing: &str) -> Arc<FabricLayout> {
    testing::leaf_spine(&format!("balancing = \"{balancing}\"\nqueue = \"8 KiB\"\nrate = \"1 Mbit/s\""))
}

/// The first leaf before it has heard any neighbour, and its socket, with which destinations are made.
fn leaf(balancing: &str) -> (Crossbar, UdpPort) {
    let udp = UdpPort::open(([127, 0, 0, 1], 0).into(), 1 << 16, 1 << 16).unwrap();
    (Crossbar::new(fabric(balancing), LEAF, &udp), udp)
}

fn hello(node: NodeId, adverts: Vec<Advert>) -> Hello {
    Hello { node, ready: true, adverts }
}

fn greeted(balancing: &str) -> (Crossbar, UdpPort) {
    let (mut crossbar, udp) = leaf(balancing);
    for (spine, port) in SPINES.into_iter().zip(UP) {
        crossbar.on_hello(Time::ZERO, port, &hello(spine, Vec::new()));
    }
    (crossbar, udp)
}

fn route(crossbar: &mut Crossbar, to: NodeId, packets: usize) {
    (0..packets).for_each(|_| crossbar.carry_out(Verdict::Route(to), &PACKET, Ecn::NotCapable, Origin::Switch, JOB));
}

fn queued(crossbar: &Crossbar) -> [u64; 2] {
    UP.map(|port| crossbar.queued_bytes(port) / 1_042)
}

#[test]
fn a_packet_takes_its_own_port_until_that_is_half_full() {
    let (mut crossbar, _udp) = greeted("default-unless-half-full");
    route(&mut crossbar, FAR, 4);
    assert_eq!(queued(&crossbar), [4, 0]);
    // Half of the queue is 4 KiB. The fifth packet finds 4,168 bytes.
    route(&mut crossbar, FAR, 4);
    assert_eq!(queued(&crossbar), [4, 4]);
    route(&mut crossbar, FAR, 2);
    assert_eq!(queued(&crossbar), [5, 5]);
}

#[test]
fn other_rules_take_the_shortest_queue_or_always_the_same() {
    let (mut crossbar, _udp) = greeted("least-queued");
    route(&mut crossbar, FAR, 6);
    assert_eq!(queued(&crossbar), [3, 3]);
    let (mut crossbar, _udp) = greeted("ecmp");
    route(&mut crossbar, FAR, 6);
    assert_eq!(queued(&crossbar), [6, 0]);
}

#[test]
fn a_silent_spine_is_avoided_and_what_waits_for_it_is_dropped() {
    let (mut crossbar, _udp) = leaf("default-unless-half-full");
    route(&mut crossbar, FAR, 1);
    assert_eq!((queued(&crossbar), crossbar.unroutable()), ([0, 0], 1), "nobody has spoken yet");
    let (mut crossbar, _udp) = greeted("default-unless-half-full");
    route(&mut crossbar, FAR, 2);
    let later = Time::ZERO + Span::from_millis(400);
    crossbar.on_hello(later, UP[1], &hello(SPINES[1], Vec::new()));
    crossbar.update_links(later, false);
    route(&mut crossbar, FAR, 3);
    assert_eq!(queued(&crossbar), [0, 3]);
    crossbar.on_hello(later, UP[0], &hello(SPINES[0], Vec::new()));
    crossbar.update_links(later, false);
    route(&mut crossbar, FAR, 1);
    assert_eq!(queued(&crossbar), [1, 3], "it is back");
}

#[test]
fn a_spine_that_has_lost_the_other_leaf_is_not_used_for_its_hosts() {
    let (mut crossbar, _udp) = greeted("default-unless-half-full");
    let mut down = PortSet::EMPTY;
    assert!(down.insert(PortId(1)));
    // Switch 2 is the first spine. Its second port leads to the second leaf.
    let lost = Advert { switch: 2, seq: 9, down };
    crossbar.on_hello(Time::ZERO, UP[0], &hello(SPINES[0], vec![lost]));
    route(&mut crossbar, FAR, 2);
    route(&mut crossbar, OTHER_LEAF, 1);
    assert_eq!(queued(&crossbar), [0, 3]);
    route(&mut crossbar, SPINES[0], 1);
    assert_eq!(queued(&crossbar), [1, 3], "the spine itself is still there");
}

#[test]
fn a_spine_that_does_not_know_the_jobs_or_speaks_for_another_is_not_alive() {
    let (mut crossbar, _udp) = leaf("default-unless-half-full");
    crossbar.on_hello(Time::ZERO, UP[0], &Hello { ready: false, ..hello(SPINES[0], Vec::new()) });
    crossbar.on_hello(Time::ZERO, UP[1], &hello(SPINES[0], Vec::new()));
    crossbar.update_links(Time::ZERO, false);
    assert!(crossbar.report(Time::ZERO).iter().filter(|port| SPINES.contains(&port.peer)).all(|port| !port.up));
}

#[test]
fn only_the_members_own_socket_may_speak_for_a_host() {
    let (mut crossbar, udp) = greeted("ecmp");
    let member: SocketAddr = "127.77.0.1:4000".parse().unwrap();
    crossbar.add_job(HEADER, &[(NodeId(0), member), (FAR, "127.77.0.3:4000".parse().unwrap())], &udp);
    let port = crossbar.ingress(member, 1, 100);
    assert_eq!(port, PortId(0));
    assert!(crossbar.accepts(Time(5), port, member, JOB));
    assert_eq!((crossbar.last_seen(JOB, NodeId(0)), crossbar.last_seen(JOB, FAR)), (Some(Time(5)), None));
    assert!(!crossbar.accepts(Time(6), port, "127.77.0.1:4001".parse().unwrap(), JOB), "another socket there");
    assert!(!crossbar.accepts(Time(6), port, member, JobId(8)), "another job");
    assert_eq!(crossbar.ingress("127.77.0.3:4000".parse().unwrap(), 1, 1), PortId::UNKNOWN, "no host of this leaf");
    crossbar.remove_job(JOB);
    assert!(!crossbar.accepts(Time(7), port, member, JOB));
}

#[test]
fn a_group_of_nodes_gets_a_copy_each_and_ends_with_its_job() {
    let (mut crossbar, udp) = greeted("default-unless-half-full");
    crossbar.add_job(HEADER, &[(NodeId(0), "127.77.0.1:4000".parse().unwrap())], &udp);
    // A spine is a neighbour. The other leaf's host is behind either spine, and its default port is that of the first.
    let group = crossbar.add_group(JOB, [NodeId(0), SPINES[1], FAR].into_iter()).unwrap();
    let other = crossbar.add_group(JobId(8), std::iter::once(SPINES[1])).unwrap();
    assert_ne!(group, other);
    crossbar.carry_out(Verdict::Group(group), &PACKET, Ecn::NotCapable, Origin::Switch, JOB);
    assert_eq!((queued(&crossbar), crossbar.queued_bytes(PortId(0)) / 1_042), ([1, 1], 1));
    crossbar.remove_job(JOB);
    crossbar.carry_out(Verdict::Group(group), &PACKET, Ecn::NotCapable, Origin::Switch, JOB);
    crossbar.carry_out(Verdict::Group(other), &PACKET, Ecn::NotCapable, Origin::Switch, JobId(8));
    assert_eq!((queued(&crossbar), crossbar.unroutable()), ([1, 2], 1));
}

#[test]
fn what_names_no_node_or_ourselves_goes_nowhere() {
    let (mut crossbar, _udp) = greeted("ecmp");
    for to in [LEAF, NodeId(8), NodeId(u32::MAX)] {
        route(&mut crossbar, to, 1);
    }
    crossbar.carry_out(Verdict::Port(PortId(77)), &PACKET, Ecn::NotCapable, Origin::Switch, JOB);
    assert_eq!(crossbar.unroutable(), 4);
}

/// A cable with a smaller MTU would pass short signs of life and lose every sum.
#[test]
fn a_switch_says_that_it_lives_by_packets_as_long_as_those_of_jobs() {
    let (crossbar, mut udp) = leaf("ecmp");
    let neighbour = std::net::UdpSocket::bind(crossbar.fabric().udp(SPINES[0])).unwrap();
    neighbour.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
    crossbar.greet(true, &mut udp);
    let mut bytes = [0; 2048];
    let len = neighbour.recv(&mut bytes).unwrap();
    let headers =
        protocols::ALL.iter().filter(|protocol| protocol.sums_in_network()).map(|protocol| protocol.header_len);
    assert_eq!(len, headers.max().unwrap() + 4 * usize::from(crossbar.fabric().elements_per_packet));
    let hello = crate::fabric::wire::read_hello(&bytes[..len]).unwrap();
    assert_eq!((hello.node, hello.ready), (LEAF, true));
}

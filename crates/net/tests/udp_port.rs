//! Runs of packets through real sockets: cut and joined, on IPv4 and IPv6, whatever peers do.

use std::io::IoSlice;
use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use tributary_net::udp::{Inbox, MAX_RUN, UdpPort};
use tributary_proto::contract::packet::Ecn;

const BUFFER: usize = 1 << 20;

fn port(address: &str) -> UdpPort {
    UdpPort::open(address.parse::<SocketAddr>().unwrap(), BUFFER, BUFFER).unwrap()
}

struct Packet {
    from: SocketAddr,
    bytes: Vec<u8>,
    ecn: Ecn,
}

/// Receives until `count` packets are there.
fn receive(port: &mut UdpPort, count: usize) -> Vec<Packet> {
    let (mut inbox, mut packets, start) = (Inbox::new(), Vec::new(), Instant::now());
    while packets.len() < count {
        assert!(start.elapsed() < Duration::from_secs(20), "{} of {count} packets came", packets.len());
        port.receive(&mut inbox);
        if inbox.messages.is_empty() {
            thread::sleep(Duration::from_micros(100));
        }
        for message in &inbox.messages {
            for range in message.segments() {
                packets.push(Packet { from: message.from, bytes: inbox.memory[range].to_vec(), ecn: message.ecn });
            }
        }
    }
    packets
}

/// Packets of `len` bytes, each of its own value, and a shorter one.
fn run(len: usize, packets: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..packets).flat_map(|i| vec![i as u8; len]).collect();
    bytes.extend(vec![0xee; len / 2]);
    bytes
}

fn check_run(packets: &[Packet], len: usize, from: SocketAddr, ecn: Ecn) {
    let (last, equal) = packets.split_last().expect("packets");
    for (i, packet) in equal.iter().enumerate() {
        assert_eq!(packet.bytes, vec![i as u8; len], "packet {i}");
    }
    assert_eq!(last.bytes, vec![0xee; len / 2]);
    for packet in packets {
        assert_eq!((packet.from.port(), packet.from.ip().to_canonical()), (from.port(), from.ip().to_canonical()));
        assert_eq!(packet.ecn, ecn);
    }
}

/// Some containers have no IPv6 at all; what can be shown without is shown.
fn has_ipv6() -> bool {
    UdpSocket::bind("[::1]:0").is_ok()
}

#[test]
fn a_run_arrives_packet_by_packet_with_its_marks_on_ipv4_and_ipv6_and_from_one_to_the_other() {
    let pairs = [("127.0.0.1:0", "127.0.0.1:0"), ("[::1]:0", "[::1]:0"), ("127.0.0.1:0", "[::]:0")];
    for (from, to) in pairs.into_iter().take(if has_ipv6() { 3 } else { 1 }) {
        for ecn in [Ecn::NotCapable, Ecn::Capable, Ecn::CongestionExperienced] {
            let (mut sender, mut receiver) = (port(from), port(to));
            let target = SocketAddr::new(sender.local_addr().ip(), receiver.local_addr().port());
            let bytes = run(1000, MAX_RUN - 1);
            // In two pieces whose border is inside a packet.
            let slices = [IoSlice::new(&bytes[..2500]), IoSlice::new(&bytes[2500..])];
            sender.send(&sender.destination(target), &slices, 1000, ecn);
            check_run(&receive(&mut receiver, MAX_RUN), 1000, sender.local_addr(), ecn);
            assert_eq!(sender.counters().tx_packets, MAX_RUN as u64);
            assert_eq!(receiver.counters().rx_packets, MAX_RUN as u64);
            assert_eq!(receiver.counters().rx_bytes, bytes.len() as u64);
        }
    }
}

#[test]
fn an_answer_goes_back_through_a_socket_that_serves_both_families() {
    if !has_ipv6() {
        return;
    }
    let mut switch = port("[::]:0");
    for ip in ["127.0.0.1", "::1"] {
        let mut worker = UdpPort::open((ip.parse::<std::net::IpAddr>().unwrap(), 0).into(), BUFFER, BUFFER).unwrap();
        let to = worker.destination(SocketAddr::new(worker.local_addr().ip(), switch.local_addr().port()));
        worker.send(&to, &[IoSlice::new(b"question")], 8, Ecn::NotCapable);
        let question = receive(&mut switch, 1);
        // The address as the rendezvous tells it, not as the socket saw it.
        let back = switch.destination(worker.local_addr());
        switch.send(&back, &[IoSlice::new(&question[0].bytes)], 8, Ecn::Capable);
        let answer = receive(&mut worker, 1);
        assert_eq!((&answer[0].bytes[..], answer[0].ecn), (&b"question"[..], Ecn::Capable));
    }
}

#[test]
fn a_socket_at_every_address_sends_from_the_requested_one_on_ipv4_and_ipv6() {
    let cases =
        [("0.0.0.0:0", "127.0.0.2", "127.0.0.1"), ("[::]:0", "127.0.0.2", "127.0.0.1"), ("[::]:0", "::1", "::1")];
    for (everywhere, ours, theirs) in cases.into_iter().take(if has_ipv6() { 3 } else { 1 }) {
        let ip = |text: &str| text.parse::<std::net::IpAddr>().unwrap();
        let (mut sender, mut receiver) = (port(everywhere), port(&SocketAddr::new(ip(theirs), 0).to_string()));
        let to = sender.destination_from(ip(ours), receiver.local_addr());
        let bytes = run(1000, MAX_RUN - 1);
        // With every control message at once: address, segments and marks.
        sender.send(&to, &[IoSlice::new(&bytes)], 1000, Ecn::Capable);
        let from = SocketAddr::new(ip(ours), sender.local_addr().port());
        check_run(&receive(&mut receiver, MAX_RUN), 1000, from, Ecn::Capable);
        sender.send(&to, &[IoSlice::new(b"alone")], 5, Ecn::NotCapable);
        assert_eq!(receive(&mut receiver, 1)[0].from, from);
    }
}

#[test]
fn a_socket_at_one_address_sends_from_that_whatever_is_requested() {
    // As a switch behind an address translation is.
    let (mut sender, mut receiver) = (port("127.0.0.1:0"), port("127.0.0.1:0"));
    let to = sender.destination_from("192.0.2.1".parse().unwrap(), receiver.local_addr());
    sender.send(&to, &[IoSlice::new(b"alone")], 5, Ecn::NotCapable);
    assert_eq!(receive(&mut receiver, 1)[0].from, sender.local_addr());
}

#[test]
fn packets_without_a_run_of_their_own_are_distinguished_by_their_senders() {
    let mut receiver = port("127.0.0.1:0");
    let senders = [UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap()];
    for round in 0..50u8 {
        for sender in &senders {
            sender.send_to(&[round; 100], receiver.local_addr()).unwrap();
        }
    }
    let packets = receive(&mut receiver, 100);
    for sender in &senders {
        let address = sender.local_addr().unwrap();
        let from: Vec<_> = packets.iter().filter(|packet| packet.from == address).map(|p| p.bytes[0]).collect();
        assert!(from.iter().copied().eq(0..50), "{from:?}");
    }
}

#[test]
fn an_empty_datagram_is_a_packet_and_disturbs_none() {
    let mut receiver = port("127.0.0.1:0");
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    for bytes in [&b""[..], b"x", b""] {
        sender.send_to(bytes, receiver.local_addr()).unwrap();
    }
    let lens: Vec<_> = receive(&mut receiver, 3).iter().map(|packet| packet.bytes.len()).collect();
    assert_eq!(lens, [0, 1, 0]);
}

#[test]
fn a_dead_peer_does_not_keep_packets_from_the_living() {
    let (mut sender, mut alive) = (port("127.0.0.1:0"), port("127.0.0.1:0"));
    let dead = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (dead, target) = (sender.destination(dead), sender.destination(alive.local_addr()));
    for i in 0..100u8 {
        sender.send(&dead, &[IoSlice::new(&[i; 64])], 64, Ecn::NotCapable);
        sender.send(&target, &[IoSlice::new(&[i; 64])], 64, Ecn::NotCapable);
    }
    let came = receive(&mut alive, 100);
    assert!(came.iter().map(|packet| packet.bytes[0]).eq(0..100));
}

#[test]
fn a_packet_that_no_path_carries_is_counted_and_segmentation_stays_on() {
    let mut sender = port("127.0.0.1:0");
    let nobody = sender.destination("127.0.0.1:9".parse().unwrap());
    let long = vec![0; 65_530];
    sender.send(&nobody, &[IoSlice::new(&long)], long.len(), Ecn::NotCapable);
    assert_eq!(sender.counters().tx_too_long, 1);
    assert_eq!(sender.counters().tx_packets, 0);
    assert!(sender.counters().segmentation_offload);
}

#[test]
fn what_the_buffer_cannot_hold_is_counted_by_the_receiver() {
    let mut receiver = UdpPort::open("127.0.0.1:0".parse().unwrap(), 8 << 10, BUFFER).unwrap();
    let mut sender = port("127.0.0.1:0");
    let to = sender.destination(receiver.local_addr());
    for _ in 0..100 {
        sender.send(&to, &[IoSlice::new(&[1; 1000])], 1000, Ecn::NotCapable);
    }
    let mut inbox = Inbox::new();
    while receiver.receive(&mut inbox) {}
    // The kernel tells of losses with the next packet that it has room for.
    sender.send(&to, &[IoSlice::new(&[2; 1000])], 1000, Ecn::NotCapable);
    let last = receive(&mut receiver, 1);
    assert_eq!(last[0].bytes, [2; 1000]);
    let counters = receiver.counters();
    assert!(counters.rx_overflows > 0);
    assert_eq!(counters.rx_packets + counters.rx_overflows, 101);
}

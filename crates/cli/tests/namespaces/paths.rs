//! What a way holds is what passes: messages about its MTU are not believed, and a way that becomes narrower in the middle
//! of a job costs a pause.

use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tributary_testbed::{Faults, Namespace};

use crate::namespaces::network::{Network, checked, end, ended, error_of, goes_on};

/// Sums in the switch, and sums of hosts alone.
const PROTOCOLS: [&str; 2] = ["switchml", "ring"];

/// Longer than any test lives, and so is the timeout.
const ENDLESS: [&str; 6] = ["--elements", "1000000", "--iters", "1000000", "--timeout", "600s"];

fn ip(namespace: &Namespace, words: &[&str]) {
    assert!(namespace.command("ip").unwrap().args(words).status().unwrap().success(), "ip {words:?}");
}

/// "Fragmentation needed, MTU 552": what a router would say of a packet from `from` to `to` (RFC 792, RFC 1191).
fn fragmentation_needed(from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    let (SocketAddr::V4(from), SocketAddr::V4(to)) = (from, to) else { panic!("IPv4 here") };
    let mut message = vec![3, 4, 0, 0, 0, 0, 2, 40];
    // The packet that did not fit: IPv4 and UDP headers.
    message.extend([0x45, 0, 5, 220, 0, 1, 0x40, 0, 64, 17, 0, 0]);
    message.extend(from.ip().octets());
    message.extend(to.ip().octets());
    message.extend(from.port().to_be_bytes());
    message.extend(to.port().to_be_bytes());
    message.extend([5, 200, 0, 0]);
    let words = message.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum::<u32>();
    let folded = (words & 0xffff) + (words >> 16);
    message[2..4].copy_from_slice(&(!((folded & 0xffff) + (folded >> 16)) as u16).to_be_bytes());
    message
}

fn send_icmp(receiver: Ipv4Addr, message: &[u8]) {
    let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4)).unwrap();
    for _ in 0..20 {
        socket.send_to(message, &SocketAddr::from((receiver, 0)).into()).unwrap();
        thread::sleep(Duration::from_millis(50));
    }
    // What came back is of no interest.
    socket.set_nonblocking(true).unwrap();
    let _ = socket.recv(&mut [MaybeUninit::uninit(); 1]);
}

#[test]
fn a_forged_message_about_the_mtu_ends_no_job_and_no_later_join() {
    let Some(network) = Network::build(3, Faults::default()) else { return };
    let workers = network.workers("forged", 2, &ENDLESS);
    let job = network.until_busy("forged", 1_000);
    let (switch, switch_ip) = (network.switch_addr(), network.star.switch_addr());
    for member in &job.members {
        let addr = member.addr;
        let std::net::IpAddr::V4(worker) = addr.ip() else { panic!("IPv4 here") };
        network.star.host(2).inside(|| send_icmp(worker, &fragmentation_needed(addr, switch))).unwrap();
        network.star.host(2).inside(|| send_icmp(switch_ip, &fragmentation_needed(switch, addr))).unwrap();
        goes_on(&network, "forged");
    }
    let later = network.workers("later", 2, &["--elements", "100000"]);
    later.into_iter().for_each(|worker| drop(checked(worker)));
    end(workers);
}

#[test]
fn a_way_that_becomes_narrower_in_the_middle_costs_a_pause_and_no_job() {
    for protocol in PROTOCOLS {
        let Some(network) = Network::build(2, Faults::default()) else { return };
        // Some seconds of work, of which each link takes 8 Mbit a time: most is left when the way becomes narrow.
        let words = ["--elements", "250000", "--iters", "600", "--timeout", "60s", "--protocol", protocol];
        let workers = network.workers("narrow", 2, &words);
        thread::sleep(Duration::from_secs(2));
        let (device, there) = (network.star.host_device(), network.star.host(1));
        ip(there, &["link", "set", device, "mtu", "1000"]);
        ip(network.star.switch_box(), &["link", "set", "br0", "mtu", "1000"]);
        workers.into_iter().for_each(|worker| drop(checked(worker)));
        // Now no worker's own link tells: only what the switch sends back does.
        ip(there, &["link", "set", device, "mtu", "1500"]);
        network.sum("narrow-from-the-start", 2, &["--elements", "100000", "--protocol", protocol]);
    }
}

/// 272 bytes of payload: less than the shortest fragments have.
const NARROWEST: &str = "300";

#[test]
fn a_path_that_holds_no_fragment_is_named_with_the_peer_that_packets_do_not_reach() {
    for protocol in PROTOCOLS {
        let Some(network) = Network::build(2, Faults::default()) else { return };
        let words = ["--elements", "250000", "--iters", "100000", "--timeout", "6s", "--protocol", protocol];
        let mut workers = network.workers("cut", 2, &words);
        network.until("everybody joined", |status| {
            status.jobs.iter().any(|job| job.name == "cut" && job.state == "running").then_some(())
        });
        thread::sleep(Duration::from_secs(2));
        // Both ends lose what is longer, and tell nobody.
        ip(network.star.switch_box(), &["link", "set", &network.star.port_device(0), "mtu", NARROWEST]);
        let error = error_of(workers.remove(0));
        let peer = match protocol == PROTOCOLS[0] {
            true => format!("the switch {}", network.switch_addr()),
            false => format!("rank 1 at {}:", network.star.host_addr(1)),
        };
        assert!(error.contains("packets of 504 bytes do not come back from") && error.contains(&peer), "{error}");
        assert!(!error.contains("rank 0 did not contribute"), "{error}");
        workers.into_iter().for_each(|worker| drop(ended(worker)));
    }
}

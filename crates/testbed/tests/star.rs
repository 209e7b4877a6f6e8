//! The star does to packets what it was told to, and leaves nothing behind. Needs root; says so and passes without.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd;
use std::process::Stdio;
use std::time::Duration;

use tributary_testbed::{Faults, Shaping, Star, StarOptions, requirements};

const PORT: u16 = 7000;
/// Segments in one GSO send.
const TRAIN: u32 = 20;
/// Bytes of one segment.
const DATAGRAM: usize = 1000;

/// A star, or `None` with the reason on stderr where none can be built.
fn star(options: StarOptions) -> Option<Star> {
    if let Err(reason) = requirements() {
        eprintln!("skipped: {reason}");
        return None;
    }
    Some(Star::build(options).expect("a star"))
}

fn two_hosts(faults: Faults) -> StarOptions {
    let shaping = Shaping::gbps(1.0).expect("a rate");
    StarOptions { faults, ..StarOptions::new(2, shaping) }
}

/// A socket on host 0 that is connected to one on host 1, which waits half a second for a datagram.
fn sockets(star: &Star) -> (UdpSocket, UdpSocket) {
    let bind = |host: usize, port: u16| {
        let any = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port);
        star.host(host).inside(|| UdpSocket::bind(any).expect("a socket")).expect("a host")
    };
    let (sender, receiver) = (bind(0, 0), bind(1, PORT));
    receiver.set_read_timeout(Some(Duration::from_millis(500))).expect("a timeout");
    sender.connect(SocketAddrV4::new(star.host_addr(1), PORT)).expect("connected");
    set_option(&sender, libc::SOL_UDP, libc::UDP_SEGMENT, DATAGRAM as libc::c_int);
    // Room for a reader that others keep from running; without FORCE the kernel's limit would hold.
    set_option(&receiver, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 16 << 20);
    (sender, receiver)
}

fn set_option(socket: &UdpSocket, level: libc::c_int, option: libc::c_int, value: libc::c_int) {
    let len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the option's value is a c_int that lives through the call, and its length is given.
    let set = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), len) };
    assert_eq!(set, 0, "socket option {option}");
}

/// The numbers of the datagrams of 1,000 bytes that arrive, in the order of arrival, when `count` are sent, each train
/// of [`TRAIN`] in one GSO send.
fn datagrams_through(star: &Star, count: u32) -> Vec<u32> {
    let (sender, receiver) = sockets(star);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for train in 0..count / TRAIN {
                let mut bytes = vec![0; DATAGRAM * TRAIN as usize];
                for (segment, datagram) in bytes.chunks_mut(DATAGRAM).enumerate() {
                    datagram[..4].copy_from_slice(&(train * TRAIN + segment as u32).to_be_bytes());
                }
                sender.send(&bytes).expect("sent");
            }
        });
        let mut arrived = Vec::new();
        let mut buffer = [0; 2 * DATAGRAM];
        while let Ok(len) = receiver.recv(&mut buffer) {
            assert_eq!(len, DATAGRAM);
            arrived.push(u32::from_be_bytes(buffer[..4].try_into().expect("4 bytes")));
        }
        arrived
    })
}

#[test]
fn without_faults_everything_arrives_once_and_in_order() {
    let Some(star) = star(two_hosts(Faults::default())) else { return };
    let arrived = datagrams_through(&star, 2000);
    assert_eq!(arrived, (0..2000).collect::<Vec<_>>());
}

#[test]
fn loss_takes_its_share_of_single_packets_on_each_of_two_links() {
    let Some(star) = star(two_hosts(Faults::loss(10.0))) else { return };
    let arrived = datagrams_through(&star, 4000);
    // Two links: 81 % arrive, 3,240 of 4,000 with a standard deviation of 25; ten of those leave room for no flake.
    assert!((2990..3490).contains(&arrived.len()), "{} of 4000 arrived", arrived.len());
    assert!(arrived.is_sorted());
}

#[test]
fn loss_takes_single_packets_out_of_trains_of_segments() {
    let Some(star) = star(two_hosts(Faults::loss(10.0))) else { return };
    let arrived: BTreeSet<u32> = datagrams_through(&star, 100 * TRAIN).into_iter().collect();
    let whole = (0..100).filter(|train| (0..TRAIN).all(|segment| arrived.contains(&(train * TRAIN + segment)))).count();
    let touched = arrived.iter().map(|number| number / TRAIN).collect::<BTreeSet<_>>().len();
    // A train of 20 comes through whole with a probability of 1.5 %, and not at all with one of 4e-15.
    assert!(touched == 100 && whole < 20, "{touched} trains arrived in part, {whole} of them whole");
}

#[test]
fn loss_can_be_switched_off_again() {
    let Some(mut star) = star(two_hosts(Faults::loss(50.0))) else { return };
    star.set_faults(Faults::default()).expect("no faults");
    assert_eq!(datagrams_through(&star, 500).len(), 500);
}

#[test]
fn duplicates_come_beside_what_was_sent() {
    let Some(star) = star(two_hosts(Faults { duplicate_percent: 20.0, ..Faults::default() })) else { return };
    let arrived = datagrams_through(&star, 2000);
    let distinct: BTreeSet<u32> = arrived.iter().copied().collect();
    assert_eq!(distinct.len(), 2000);
    assert!(arrived.len() > 2400, "{} arrived", arrived.len());
}

#[test]
fn reordered_packets_all_arrive() {
    let Some(star) = star(two_hosts(Faults { reorder_percent: 20.0, ..Faults::default() })) else { return };
    let arrived = datagrams_through(&star, 2000);
    assert!(!arrived.is_sorted());
    assert_eq!(arrived.iter().copied().collect::<BTreeSet<u32>>().len(), 2000);
}

#[test]
fn a_star_leaves_nothing_behind() {
    let Some(star) = star(two_hosts(Faults::default())) else { return };
    let name = star.host(0).name().to_string();
    let mut child = star.host(0).command("sleep").expect("a command").arg("1000").spawn().expect("sleep");
    drop(star);
    assert!(!std::path::Path::new("/run/netns").join(name).exists());
    let status = child.wait().expect("the child has ended");
    assert!(!status.success());
}

#[test]
fn a_program_runs_inside() {
    let Some(star) = star(two_hosts(Faults::default())) else { return };
    let mut command = star.host(1).command("ip").expect("a command");
    let output = command.args(["-o", "-4", "addr"]).stderr(Stdio::inherit()).output().expect("ip");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("10.77.0.11/24"), "{text}");
}

#[test]
fn what_no_network_has_is_refused_with_a_sentence() {
    let Err(error) = Star::build(StarOptions::new(0, Shaping::Unshaped)) else { panic!("a star of nothing") };
    assert_eq!(error.to_string(), "a star has 1 to 200 hosts, not 0");
    let Err(error) = Star::build(two_hosts(Faults::loss(100.0))) else { panic!("a star that loses everything") };
    assert_eq!(error.to_string(), "100 % of loss is not possible; give 0 to below 100");
}

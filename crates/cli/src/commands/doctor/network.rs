//! The network: buffers and offloads of sockets here, and the path to a switch.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use tributary_net::client;
use tributary_net::udp::UdpPort;
use tributary_net::udp::path::Path;

use super::machine::read;
use super::{Check, link};
use crate::flags::resolve;

/// The receive buffer that a worker or a shard asks for: it holds a burst of a pool's results while the thread does not
/// run.
const BUFFER_BYTES: usize = 8 << 20;
/// Below this a burst of one pool on a 10 Gbit/s link may overflow the socket.
const ENOUGH_BYTES: usize = 2 << 20;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// What this kernel gives to a socket.
pub fn local() -> Vec<Check> {
    let port = match UdpPort::open((Ipv4Addr::UNSPECIFIED, 0).into(), BUFFER_BYTES, BUFFER_BYTES) {
        Ok(port) => port,
        Err(error) => {
            let remedy = "allow this process to open UDP sockets (container profile, seccomp)";
            return vec![Check::fail("UDP", format!("a socket cannot be opened: {error}"), remedy)];
        }
    };
    let counters = port.counters();
    let segmentation = match counters.segmentation_offload {
        true => Check::ok("GSO", "the kernel takes runs of UDP segments in one call"),
        false => Check::warn("GSO", "no UDP_SEGMENT: one system call for each packet", "use Linux 4.18 or newer"),
    };
    let coalescing = match counters.receive_coalescing {
        true => Check::ok("GRO", "the kernel hands over runs of UDP segments in one call"),
        false => Check::warn("GRO", "no UDP_GRO: packets arrive one by one", "use Linux 5.0 or newer"),
    };
    vec![
        buffer("receive buffer", "rmem_max", counters.receive_buffer),
        buffer("send buffer", "wmem_max", counters.send_buffer),
        segmentation,
        coalescing,
    ]
}

fn buffer(name: &'static str, limit: &str, granted: usize) -> Check {
    let system = read(&format!("/proc/sys/net/core/{limit}"));
    let found = format!("{} KiB granted (net.core.{limit} = {system})", granted >> 10);
    match granted {
        ENOUGH_BYTES.. => Check::ok(name, found),
        _ => Check::warn(
            name,
            format!("{found}; bursts may be lost"),
            format!("sysctl -w net.core.{limit}={BUFFER_BYTES}"),
        ),
    }
}

/// Checks name, route, MTU, TCP, control API and link of a switch. The smoke test checks UDP.
pub fn way_to(switch: &str, world_size: Option<u16>) -> Vec<Check> {
    let Ok(address) = resolve(switch) else {
        let remedy = "write the address as numbers, or add the name to DNS or /etc/hosts";
        return vec![Check::fail("switch", format!("the name in '{switch}' is unknown"), remedy)];
    };
    let path = Path::to(address);
    let own_link = path.as_ref().ok().and_then(|path| path.link_bits_per_s);
    let mut checks = vec![path_check(address, path)];
    checks.extend(control(address, own_link, world_size));
    checks
}

fn path_check(address: SocketAddr, path: io::Result<Path>) -> Check {
    match path {
        Err(error) => {
            Check::fail("path", format!("no way to {address}: {error}"), format!("ip route get {}", address.ip()))
        }
        Ok(path) => {
            let speed = path.link_bits_per_s.map(|bits| format!(", first link {} Mbit/s", bits / 1_000_000));
            let speed = speed.unwrap_or_default();
            let found = format!("from {} to {address}, MTU {}{speed}", path.local, path.mtu);
            match path.mtu {
                1500.. => Check::ok("path", found),
                _ => Check::warn("path", found, "raise the MTU of the links on the way: ip link set dev NAME mtu 1500"),
            }
        }
    }
}

fn control(address: SocketAddr, own_link: Option<u64>, world_size: Option<u16>) -> Vec<Check> {
    let start = Instant::now();
    if let Err(error) = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
        let (port, all) = (address.port(), if address.is_ipv4() { "0.0.0.0" } else { "[::]" });
        let remedy = match error.kind() {
            io::ErrorKind::ConnectionRefused => {
                format!("the host answers: start `tributary switch --listen {all}:{port}` there, or name its port")
            }
            _ => format!("the host is down or TCP is dropped: let TCP and UDP port {port} through the firewalls"),
        };
        return vec![Check::fail("TCP", format!("{address} does not answer: {error}"), remedy)];
    }
    let tcp = Check::ok("TCP", format!("connected in {:.2} ms", start.elapsed().as_secs_f64() * 1e3));
    match client::status(address) {
        Ok(status) => {
            let theirs = &status.switch.version;
            let found = format!("tributary {theirs}, {} jobs", status.jobs.len());
            let ours = env!("CARGO_PKG_VERSION");
            let same = match theirs == ours {
                true => Check::ok("switch", found),
                false => Check::warn("switch", found, format!("run the same version on both sides; this is {ours}")),
            };
            let link = link::check(&status, own_link, world_size);
            let parent = status.switch.parent_failure.map(|why| {
                let parent = status.switch.parent.map_or_else(String::new, |parent| parent.to_string());
                let remedy = format!("start the switch at {parent} again: jobs are formed there");
                Check::fail("parent switch", format!("{parent} is down: {why}"), remedy)
            });
            [tcp, same, link].into_iter().chain(parent).collect()
        }
        Err(error) => {
            vec![tcp, Check::fail("switch", error.to_string(), "is it a tributary switch that listens there?")]
        }
    }
}

//! The kernel's knowledge of the way to a peer: our own address on it, its MTU, and the speed of its first link.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;

use tributary_proto::contract::wire::IPV4_AND_UDP_LEN;

use super::sys;

/// Bytes of the headers of IPv6, without extensions, and of UDP.
const IPV6_AND_UDP_LEN: usize = 40 + 8;

/// The way to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// The source address of our packets.
    pub local: IpAddr,
    /// Bytes of the longest IP packet that the first link holds. Pings test whether the rest of the way holds it too.
    /// The kernel has a number for the whole way, but that number comes from messages that can be forged, and stays for
    /// ten minutes.
    pub mtu: u32,
    /// Speed of the first link in bits per second, if its driver tells it.
    pub link_bits_per_s: Option<u64>,
}

impl Path {
    /// Looks the way up. No packet is sent.
    pub fn to(peer: SocketAddr) -> io::Result<Path> {
        let any: SocketAddr = if peer.is_ipv4() { ([0; 4], 0).into() } else { ([0; 16], 0).into() };
        let probe = UdpSocket::bind(any)?;
        probe.connect(peer)?;
        let local = probe.local_addr()?.ip();
        let interface = sys::interface_with(local.to_canonical());
        let mtu = match &interface {
            Some(name) => sys::interface_mtu(probe.as_raw_fd(), name)?,
            // No interface lists 127.0.0.2, for example.
            None => kernels_mtu(&probe, peer)?,
        };
        Ok(Path { local, mtu, link_bits_per_s: interface.and_then(|name| speed_of(&name)) })
    }

    /// Bytes of the longest UDP payload that needs no fragments.
    pub fn max_payload(&self) -> usize {
        let headers = if self.local.is_ipv4() { IPV4_AND_UDP_LEN } else { IPV6_AND_UDP_LEN };
        (self.mtu as usize).saturating_sub(headers)
    }
}

fn kernels_mtu(connected: &UdpSocket, peer: SocketAddr) -> io::Result<u32> {
    let (level, option) = match peer {
        SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU),
        SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_MTU),
    };
    sys::get_option(connected.as_raw_fd(), level, option).map(|mtu| mtu.max(0) as u32)
}

fn speed_of(interface: &str) -> Option<u64> {
    // The file has Mbit/s. It has -1, or reading fails, if there is no link or no speed, as on the loopback interface.
    let text = std::fs::read_to_string(format!("/sys/class/net/{interface}/speed")).ok()?;
    let mbit: i64 = text.trim().parse().ok()?;
    u64::try_from(mbit).ok().filter(|&mbit| mbit > 0).map(|mbit| mbit * 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_to_ourselves_is_the_loopback_interface() {
        let path = Path::to("127.0.0.1:9".parse().unwrap()).unwrap();
        assert_eq!(path.local, IpAddr::from([127, 0, 0, 1]));
        assert_eq!(path.max_payload(), path.mtu as usize - 28);
        assert!(path.mtu >= 1500, "{path:?}");
    }
}

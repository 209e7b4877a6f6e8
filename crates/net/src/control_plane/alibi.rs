//! Asks a member's host whether the member has died or only stands still. A stopped process keeps its sockets, and its
//! kernel takes packets for them. A dead process has no sockets, and its kernel says so (ICMP: port unreachable),
//! unless a firewall drops that message. So the host is also asked about a port that no process has. The host gives an
//! alibi only if it refuses that port and does not refuse the member's port. A refusal of the member's port proves
//! less: firewalls refuse too, and a refusal can be forged. So two sockets ask, and a forger would have to guess the
//! ports of both. The control plane believes a refusal only from a host that has vouched for the member before, and
//! only once the member's connection is closed.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::net::UdpSocket;
use tributary_control::ProbeResult;

/// A port at which no process listens (tcpmux, RFC 1078, which was never used with UDP).
const NOBODYS: u16 = 1;
/// The number of questions to one port. One of them may be lost.
const QUESTIONS: usize = 3;
/// Time for the answer to each question.
const PATIENCE: Duration = Duration::from_millis(60);

/// What the host at this address says about the member's socket.
pub async fn testimony(addr: SocketAddr) -> ProbeResult {
    // An error means that there is no way to the host. That proves nothing.
    let refuses = async |port| refuses(SocketAddr::new(addr.ip(), port)).await.ok();
    match refuses(addr.port()).await {
        Some(true) if refuses(addr.port()).await == Some(true) => ProbeResult::SocketClosed,
        Some(false) if refuses(NOBODYS).await == Some(true) => ProbeResult::SocketOpen,
        _ => ProbeResult::Inconclusive,
    }
}

/// True if the host says that no process has this port. False if the host says nothing.
async fn refuses(addr: SocketAddr) -> io::Result<bool> {
    let any: SocketAddr =
        if addr.is_ipv4() { (Ipv4Addr::UNSPECIFIED, 0).into() } else { (Ipv6Addr::UNSPECIFIED, 0).into() };
    let socket = UdpSocket::bind(any).await?;
    socket.connect(addr).await?;
    for _ in 0..QUESTIONS {
        match socket.send(&[0]).await {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Ok(true),
            sent => sent?,
        };
        match tokio::time::timeout(PATIENCE, socket.recv(&mut [0; 1])).await {
            Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => return Ok(true),
            Ok(heard) => drop(heard?),
            Err(_) => {}
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_that_nobody_reads_is_held_and_a_closed_one_is_refused() {
        let stalled = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let addr = stalled.local_addr().unwrap();
        assert_eq!(testimony(addr).await, ProbeResult::SocketOpen);
        drop(stalled);
        assert_eq!(testimony(addr).await, ProbeResult::SocketClosed);
    }

    #[tokio::test]
    async fn a_host_that_nobody_has_vouches_for_nobody() {
        // This is an address of documentation (RFC 5737). Some networks drop packets to such addresses, and some refuse
        // them.
        assert_ne!(testimony("192.0.2.1:4000".parse().unwrap()).await, ProbeResult::SocketOpen);
    }
}

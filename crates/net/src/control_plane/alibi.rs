//! Whether a process has died or only stands still, as its host tells. A stopped process keeps its sockets, and its kernel
//! takes what comes for them. A dead one has none, and its kernel says so (ICMP: port unreachable), unless a firewall
//! swallows that; so the host is asked about a port that nobody has, too. Only "I would say so, and I do not" is an alibi.
//! It can save a member from being called lost, and never condemns one: such messages can be forged.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::net::UdpSocket;

/// A port that nobody listens at (tcpmux, RFC 1078, which was never used with UDP).
const NOBODYS: u16 = 1;
/// Questions to one port: one may be lost.
const QUESTIONS: usize = 3;
/// Time for an answer to each.
const PATIENCE: Duration = Duration::from_millis(60);

/// True if the host at this address has the socket, and would say so if it had not.
pub async fn holds_socket(addr: SocketAddr) -> bool {
    // An error means that there is no way to the host, which is no alibi.
    let refuses = async |port| refuses(SocketAddr::new(addr.ip(), port)).await;
    matches!(refuses(addr.port()).await, Ok(false)) && matches!(refuses(NOBODYS).await, Ok(true))
}

/// True if the host says that nobody has this port; false if it says nothing.
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
    async fn a_socket_that_nobody_reads_is_an_alibi_and_a_closed_one_is_none() {
        let stalled = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let addr = stalled.local_addr().unwrap();
        assert!(holds_socket(addr).await);
        drop(stalled);
        assert!(!holds_socket(addr).await);
    }

    #[tokio::test]
    async fn a_host_that_never_answers_gives_no_alibi() {
        // An address of documentation (RFC 5737), which nobody has.
        assert!(!holds_socket("192.0.2.1:4000".parse().unwrap()).await);
    }
}

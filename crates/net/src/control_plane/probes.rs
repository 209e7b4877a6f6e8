//! What the control plane asks hosts over UDP: whether a process that joins is at its address, and whether a silent member is
//! alive.
//!
//! The liveness probe distinguishes a stopped process from a dead one. A stopped process keeps its sockets, and its kernel
//! takes packets for them. A dead process has no sockets, and its kernel says so (ICMP: port unreachable), unless a firewall
//! drops that message. So the host is also asked about a port that no process has. Only a host that refuses that port and not
//! the member's port shows that the member is alive. A refusal of the member's port proves less: firewalls refuse too, and a
//! refusal can be forged. So two sockets ask, and a forger would have to guess the ports of both. The control plane accepts a
//! refusal only from a host that has vouched for the member before, and only once the member's connection is closed.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::net::UdpSocket;
use tributary_control::levels::SwitchJoin;
use tributary_control::{JobName, JoinRequest, ProbeResult, Refusal};

use super::ControlPlane;
use crate::challenge::{LEN, MAX_ATTEMPTS};

impl ControlPlane {
    /// Validates the addresses of a worker: of each core one, which is the same for all shards. Shards challenge them in
    /// turn.
    pub(super) async fn validate_worker(
        &self,
        name: &JobName,
        request: &JoinRequest,
        own_ip: Option<IpAddr>,
    ) -> Result<(), Refusal> {
        let JoinRequest { addr, joined_at, incarnation, .. } = *request;
        let addrs: Vec<SocketAddr> = request.addrs().collect();
        let refusal = self.validate(name, &addrs, joined_at, incarnation, attempts(addrs.len(), 3)).await;
        refusal.map_err(|refusal| {
            match own_ip.map(|own| own.to_canonical()).filter(|own| *own != addr.ip().to_canonical()) {
                Some(own) => Refusal::AddressTranslated { job: name.clone(), own, seen: addr.ip() },
                None => refusal,
            }
        })
    }

    /// Each shard challenges the switch's shard of the same number. A switch that withdraws its join needs no validation.
    pub(super) async fn validate_switch(&self, name: &JobName, join: &SwitchJoin) -> Result<(), Refusal> {
        if join.ranks.is_empty() {
            return Ok(());
        }
        let attempts = attempts(join.shards.len(), 16);
        self.validate(name, &join.shards, join.joined_at, join.incarnation, attempts).await
    }

    async fn validate(
        &self,
        name: &JobName,
        addrs: &[SocketAddr],
        local_ip: IpAddr,
        incarnation: u64,
        attempts: u32,
    ) -> Result<(), Refusal> {
        match self.first_silent(addrs, local_ip, incarnation, attempts).await {
            Ok(None) => Ok(()),
            Ok(Some(addr)) => Err(Refusal::AddressUnproven { job: name.clone(), addr }),
            Err(why) => Err(Refusal::NotInstalled { job: name.clone(), why }),
        }
    }

    /// The first of these addresses at which no process with this incarnation answers. The result is an error if a
    /// shard has stopped.
    pub(super) async fn first_silent(
        &self,
        addrs: &[SocketAddr],
        local_ip: IpAddr,
        incarnation: u64,
        attempts: u32,
    ) -> Result<Option<SocketAddr>, String> {
        let attempts = attempts.min(MAX_ATTEMPTS);
        let pairs = self.shards.iter().cycle().zip(addrs);
        let calls: Vec<_> =
            pairs.map(|(shard, &addr)| (addr, shard.challenge(addr, local_ip, incarnation, attempts))).collect();
        for (addr, answer) in calls {
            if !answer.receive().await.map_err(|error| error.to_string())? {
                return Ok(Some(addr));
            }
        }
        Ok(None)
    }
}

/// How often each of this many addresses may be challenged, so that all challenges together are not three times as long as
/// the shortest real request: each address takes some bytes of it, and a rank 200.
fn attempts(addrs: usize, bytes: usize) -> u32 {
    (3 * (200 + bytes * addrs) / (LEN * addrs.max(1))) as u32
}

/// A port at which no process listens (tcpmux, RFC 1078, which was never used with UDP).
const UNUSED_PORT: u16 = 1;
/// The number of packets to one port, of which one may be lost.
const ATTEMPTS: usize = 3;
/// Time for the answer to each question.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(60);

/// What the host at this address says about the member's socket.
pub async fn liveness_probe(addr: SocketAddr) -> ProbeResult {
    // An error means that there is no route to the host. That proves nothing.
    let refuses = async |port| refuses(SocketAddr::new(addr.ip(), port)).await.ok();
    match refuses(addr.port()).await {
        Some(true) if refuses(addr.port()).await == Some(true) => ProbeResult::SocketClosed,
        Some(false) if refuses(UNUSED_PORT).await == Some(true) => ProbeResult::SocketOpen,
        _ => ProbeResult::Inconclusive,
    }
}

/// True if the host says that no process has this port. False if the host says nothing.
async fn refuses(addr: SocketAddr) -> io::Result<bool> {
    let any: SocketAddr =
        if addr.is_ipv4() { (Ipv4Addr::UNSPECIFIED, 0).into() } else { (Ipv6Addr::UNSPECIFIED, 0).into() };
    let socket = UdpSocket::bind(any).await?;
    socket.connect(addr).await?;
    for _ in 0..ATTEMPTS {
        match socket.send(&[0]).await {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Ok(true),
            sent => sent?,
        };
        match tokio::time::timeout(ANSWER_TIMEOUT, socket.recv(&mut [0; 1])).await {
            Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => return Ok(true),
            Ok(received) => drop(received?),
            Err(_) => {}
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_unread_socket_counts_as_open_and_a_closed_one_is_refused() {
        let stalled = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let addr = stalled.local_addr().unwrap();
        assert_eq!(liveness_probe(addr).await, ProbeResult::SocketOpen);
        drop(stalled);
        assert_eq!(liveness_probe(addr).await, ProbeResult::SocketClosed);
    }

    #[tokio::test]
    async fn an_unused_address_vouches_for_no_member() {
        // This is an address of documentation (RFC 5737). Some networks drop packets to such addresses, and some refuse
        // them.
        assert_ne!(liveness_probe("192.0.2.1:4000".parse().unwrap()).await, ProbeResult::SocketOpen);
    }
}

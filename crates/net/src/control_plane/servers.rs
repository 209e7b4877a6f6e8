//! Servers that wait for jobs. As with members' watches, a server's connection shows that the server is alive until the
//! server closes it.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tributary_control::servers::ServerOffer;
use tributary_control::{Client, Plan, Refusal};
use tributary_proto::contract::ids::ServerId;
use tributary_proto::contract::protocol::Protocol;

use super::ControlPlane;
use crate::os::to_duration;

/// The number of times that a server is answered within a lease even if nothing is new. Each new question of the server
/// is a sign of life.
const SIGNS_IN_A_LEASE: u32 = 4;

impl ControlPlane {
    /// Asks a server that this switch does not know yet, at the address that the server names.
    pub async fn validate_server(&self, offer: &ServerOffer, local_ip: IpAddr) -> Result<(), Refusal> {
        /// An offer has more than 130 bytes. This number of questions has fewer than three times as many.
        const QUESTIONS: u32 = 5;
        if self.with_control(|control| control.knows_server(offer)) {
            return Ok(());
        }
        match self.first_silent(&[offer.addr], local_ip, offer.incarnation, QUESTIONS).await {
            Ok(None) => Ok(()),
            // A shard that has stopped cannot ask.
            Ok(Some(addr)) => Err(Refusal::ServerUnproven { addr }),
            Err(_) => Err(Refusal::Stopping),
        }
    }

    /// Takes the offer of a server. Returns its jobs as soon as their number is not `known`, or after a while. Dropping
    /// the future, or the value that it returns, means that the server's connection is closed.
    pub async fn serve(
        self: &Arc<Self>,
        offer: ServerOffer,
        known: Option<u64>,
    ) -> Result<(u64, Vec<(Arc<Plan>, ServerId)>, OpenOffer), Refusal> {
        let mut changed = self.departures.subscribe();
        let (incarnation, addr) = (offer.incarnation, offer.addr);
        let longest = {
            let mut state = self.state();
            if state.control.server_changes(incarnation).is_none() {
                tracing::info!(%addr, "a server offers itself");
            }
            state.control.offer(self.now(), offer)?;
            state.control.server_knows(incarnation, known);
            to_duration(state.control.limits().timers.lease) / SIGNS_IN_A_LEASE
        };
        let open = OpenOffer { plane: Arc::clone(self), incarnation };
        self.changed.notify_one();
        let wait = async {
            loop {
                changed.mark_unchanged();
                let changes = self.with_control(|control| control.server_changes(incarnation));
                if changes.is_none() || changes != known {
                    return;
                }
                // The call fails only if the control plane is gone. Then this future is dropped too.
                let _ = changed.changed().await;
            }
        };
        // The newest jobs are the answer, whatever has ended the wait.
        let _ = tokio::time::timeout(longest, wait).await;
        let served = self.with_control(|control| {
            control.server_changes(incarnation).map(|changes| (changes, control.served_by(incarnation)))
        });
        served.map(|(changes, jobs)| (changes, jobs, open)).ok_or(Refusal::OfferOver)
    }

    /// Returns when all servers of a job that are there have said that they know of it, or after a while.
    pub async fn until_served(&self, plan: &Plan) {
        const PATIENCE: Duration = Duration::from_millis(1_000);
        let mut changed = self.departures.subscribe();
        let wait = async {
            loop {
                changed.mark_unchanged();
                if self.with_control(|control| control.is_known_to_servers(plan.config.job)) {
                    return;
                }
                // Fails only if the control plane is gone, and then this future is too.
                let _ = changed.changed().await;
            }
        };
        // A server that does not ask any more is lost soon, and then the members are told.
        let _ = tokio::time::timeout(PATIENCE, wait).await;
    }

    /// A server ends in good order.
    pub fn retire(&self, incarnation: u64) {
        self.state().control.retire(self.now(), incarnation);
        self.changed.notify_one();
    }

    /// The smallest receive buffer of the servers that a job of this client would get, and the number of these servers;
    /// `None` if each worker is a server too.
    pub(super) fn server_buffers(&self, protocol: &Protocol, client: &Client) -> Option<(usize, usize)> {
        let (servers, buffer) = self.with_control(|control| control.servers_for(protocol, client));
        Some((buffer? as usize, servers.dedicated().len()))
    }
}

/// Reports to the state machine that a server has closed its end of a connection.
pub(crate) struct OpenOffer {
    plane: Arc<ControlPlane>,
    incarnation: u64,
}

impl Drop for OpenOffer {
    fn drop(&mut self) {
        self.plane.state().control.close_offer(self.plane.now(), self.incarnation);
        self.plane.changed.notify_one();
    }
}

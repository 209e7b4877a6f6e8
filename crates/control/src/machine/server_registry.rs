//! Servers that offer themselves: which are there, which jobs they serve, and which are gone.
//!
//! A server keeps a connection to the control plane while it is alive, and asks again as soon as it is answered. A
//! server whose connection is closed is lost soon; a server that vanishes with its host is lost when its lease ends.

use std::net::IpAddr;
use std::sync::Arc;

use tributary_proto::contract::ids::{JobId, ServerId};
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::contract::time::Time;

use super::Control;
use crate::admission::Refusal;
use crate::admission::Timers;
use crate::effect::Plan;
use crate::membership::MemberState;
use crate::membership::running_job::RunningJob;
use crate::membership::watch::Watch;
use crate::names::Client;
use crate::report::ServerView;
use crate::servers::{JobServer, ServerOffer, Servers};

/// A server that has offered itself.
pub(super) struct RegisteredServer {
    offer: ServerOffer,
    state: MemberState,
    /// When the server last opened a connection.
    last_seen: Time,
    watch: Watch,
    /// Changes whenever the server's jobs change.
    changes: u64,
    /// The number of the newest list of jobs that it has received, as it says.
    known: Option<u64>,
    /// The server has registered here. Otherwise it is known from a job that outlived a former control plane.
    registered: bool,
}

impl RegisteredServer {
    fn is_present(&self) -> bool {
        self.state == MemberState::Present
    }

    /// When the server is lost unless it asks again.
    fn due(&self, timers: &Timers) -> Option<Time> {
        let lease = self.last_seen + timers.lease;
        let closed = self.watch.closed().map(|closed| closed + timers.closed_silence());
        self.is_present().then(|| closed.map_or(lease, |closed| closed.min(lease)))
    }
}

impl Control {
    /// The most servers that one switch knows.
    pub const MAX_SERVERS: usize = 1_024;

    /// The most servers of one client.
    pub const MAX_SERVERS_OF_A_CLIENT: usize = 256;

    /// Checks that a process may offer itself. Its request came from the address `from`, to our address `to`. A server
    /// reads the tensors of the jobs that it serves, and can end these jobs. So a tenant's servers serve that tenant
    /// alone. Without tokens, servers serve everybody, and must be on the switch's own machine or where the operator
    /// has said.
    pub fn may_serve(&self, offer: &ServerOffer, from: IpAddr, to: IpAddr) -> Result<(), Refusal> {
        let is_own = |address: IpAddr| address == to || address.is_loopback();
        let is_named = |address| self.limits.servers.iter().any(|network| network.contains(address));
        let trusted = |address: IpAddr| is_own(address.to_canonical()) || is_named(address);
        match offer.client {
            Client::Tenant(_) => Ok(()),
            Client::Address(_) if trusted(from) && trusted(offer.addr.ip()) => Ok(()),
            Client::Address(_) => {
                let at = if trusted(from) { offer.addr.ip() } else { from };
                Err(Refusal::NotAServer { at })
            }
        }
    }

    /// A server has opened a connection: it is there, for later jobs and for the jobs that it serves.
    pub fn offer(&mut self, now: Time, offer: ServerOffer) -> Result<(), Refusal> {
        if self.stopping {
            return Err(Refusal::Stopping);
        }
        if self.has_parent {
            return Err(Refusal::OfferBelow);
        }
        if self.retired.contains(&offer.incarnation) {
            return Err(Refusal::OfferOver);
        }
        self.check_host(now, &offer)?;
        // One socket belongs to one process: a process that offered this address before is gone.
        let former = |other: &&RegisteredServer| other.is_present() && other.offer.addr == offer.addr;
        let formers = self.servers.values().filter(former).map(|other| other.offer.incarnation);
        for former in formers.filter(|&former| former != offer.incarnation).collect::<Vec<_>>() {
            self.lose_server(now, former, MemberState::Lost);
        }
        if !self.servers.contains_key(&offer.incarnation) {
            self.check_server_count(&offer.client)?;
        }
        let server = self.servers.entry(offer.incarnation).or_insert_with(|| {
            let (state, watch) = (MemberState::Present, Watch::default());
            RegisteredServer {
                offer: offer.clone(),
                state,
                last_seen: now,
                watch,
                changes: 0,
                known: None,
                registered: true,
            }
        });
        let incarnation = offer.incarnation;
        (server.offer, server.last_seen, server.registered) = (offer, now, true);
        if !server.watch.open() {
            return Err(Refusal::OfferOver);
        }
        if !server.is_present() {
            server.state = MemberState::Present;
            self.mark_server(now, incarnation, MemberState::Present);
        }
        Ok(())
    }

    /// A host of a fabric has one cable, and one socket in a job: it has one server at most. A server whose connection is
    /// closed makes way for the next, unless it may just be about to ask again.
    fn check_host(&mut self, now: Time, offer: &ServerOffer) -> Result<(), Refusal> {
        if self.limits.planned_trees.is_none() {
            return Ok(());
        }
        let is_beside = |other: &&RegisteredServer| {
            let (own, theirs) = (offer.addr, other.offer.addr);
            other.is_present()
                && theirs != own
                && theirs.ip() == own.ip()
                && other.offer.incarnation != offer.incarnation
        };
        let Some(beside) = self.servers.values().find(is_beside) else { return Ok(()) };
        let patience = self.limits.timers.confirmed_silence();
        if beside.watch.closed().is_none_or(|closed| now < closed + patience) {
            return Err(Refusal::HostServes { at: beside.offer.addr });
        }
        let incarnation = beside.offer.incarnation;
        self.lose_server(now, incarnation, MemberState::Lost);
        Ok(())
    }

    /// Notes the servers of a job that outlived a former control plane. They have a lease to ask.
    pub(super) fn expect_servers(&mut self, now: Time, servers: &[JobServer]) {
        for &JobServer { addr, incarnation } in servers {
            let Some(incarnation) = incarnation else { continue };
            let client = Client::at(addr.ip());
            let offer = ServerOffer { incarnation, addr, receive_buffer: 0, client };
            let (state, watch) = (MemberState::Present, Watch::default());
            let expected =
                RegisteredServer { offer, state, last_seen: now, watch, changes: 0, known: None, registered: false };
            self.servers.entry(incarnation).or_insert(expected);
        }
    }

    fn check_server_count(&self, client: &Client) -> Result<(), Refusal> {
        let own = self.servers.values().filter(|server| server.offer.client == *client).count();
        if own >= Control::MAX_SERVERS_OF_A_CLIENT {
            return Err(Refusal::TooManyServers { most: Control::MAX_SERVERS_OF_A_CLIENT, of: Some(client.clone()) });
        }
        if self.servers.len() >= Control::MAX_SERVERS {
            return Err(Refusal::TooManyServers { most: Control::MAX_SERVERS, of: None });
        }
        Ok(())
    }

    /// A server's connection is closed, by either end.
    pub fn close_offer(&mut self, now: Time, incarnation: u64) {
        if let Some(server) = self.servers.get_mut(&incarnation) {
            server.watch.close(now);
        }
    }

    /// A server ends in good order. Its last request may have been on the way when it said so, over another connection:
    /// such a request is not a new offer.
    pub fn retire(&mut self, now: Time, incarnation: u64) {
        if self.server_changes(incarnation).is_some() {
            self.retired.push_back(incarnation);
            let too_many = self.retired.len().saturating_sub(Control::MAX_SERVERS);
            self.retired.drain(..too_many);
        }
        self.lose_server(now, incarnation, MemberState::Left);
    }

    /// A number that changes whenever a server's jobs change; `None` if the server is not known.
    pub fn server_changes(&self, incarnation: u64) -> Option<u64> {
        self.servers.get(&incarnation).filter(|server| server.is_present()).map(|server| server.changes)
    }

    /// A server says which list of its jobs it has received last.
    pub fn server_knows(&mut self, incarnation: u64, known: Option<u64>) {
        if let Some(server) = self.servers.get_mut(&incarnation) {
            server.known = known;
        }
    }

    /// True if every server of a job that is there has said that it knows of all of its jobs.
    pub fn is_known_to_servers(&self, id: JobId) -> bool {
        let servers = self.running.get(&id).map_or(&[][..], |job| job.plan.servers.dedicated());
        let mut offered = servers.iter().filter_map(|server| self.servers.get(&server.incarnation?));
        offered.all(|server| !server.is_present() || server.known == Some(server.changes))
    }

    /// The jobs that a process serves, each with the server's number in the job.
    pub fn served_by(&self, incarnation: u64) -> Vec<(Arc<Plan>, ServerId)> {
        let number = |job: &RunningJob| {
            let mut servers = job.plan.servers.dedicated().iter();
            servers.position(|server| server.incarnation == Some(incarnation))
        };
        let jobs = self.running.values();
        jobs.filter_map(|job| Some((Arc::clone(&job.plan), ServerId(number(job)? as u16)))).collect()
    }

    /// All servers that are there, or serve a job that is not over yet, by address.
    pub fn server_views(&self) -> Vec<ServerView> {
        let view = |server: &RegisteredServer| ServerView {
            addr: server.offer.addr,
            state: server.state,
            last_seen: server.last_seen,
            jobs: self.served_by(server.offer.incarnation).iter().map(|(plan, _)| plan.name.clone()).collect(),
        };
        // Of a server that has not registered yet it is not known whether it is there.
        let is_known = |server: &&RegisteredServer| server.registered || !server.is_present();
        let mut views: Vec<ServerView> = self.servers.values().filter(is_known).map(view).collect();
        views.sort_by_key(|view| view.addr);
        views
    }

    /// True if the server that makes this offer is known.
    pub fn knows_server(&self, offer: &ServerOffer) -> bool {
        let server = self.servers.get(&offer.incarnation).filter(|server| server.is_present());
        server.is_some_and(|server| server.offer.addr == offer.addr && server.offer.client == offer.client)
    }

    /// The servers that a job of this protocol and client would get now, and the smallest of their receive buffers.
    pub fn servers_for(&self, protocol: &Protocol, client: &Client) -> (Servers, Option<u64>) {
        if protocol.server_machine().is_none() {
            return (Servers::None, None);
        }
        let own = |server: &&RegisteredServer| {
            server.is_present() && server.registered && !server.offer.client.excludes(client)
        };
        let present = || self.servers.values().filter(own).map(|server| &server.offer);
        let of = |offer: &ServerOffer| JobServer { addr: offer.addr, incarnation: Some(offer.incarnation) };
        let mut servers: Vec<JobServer> = present().map(of).collect();
        servers.sort_by_key(|server| server.addr);
        let buffer = present().map(|offer| offer.receive_buffer).min();
        let servers = match servers.is_empty() {
            false => Servers::Dedicated(servers),
            true if protocol.server.is_some() => Servers::Colocated,
            // The job's ranks serve by themselves.
            true => Servers::None,
        };
        (servers, buffer)
    }

    /// Calls every server lost that has not asked again in time.
    pub(super) fn expire_servers(&mut self, now: Time) {
        let timers = self.limits.timers;
        let over = self.servers.values().filter(|server| server.due(&timers).is_some_and(|due| due <= now));
        for incarnation in over.map(|server| server.offer.incarnation).collect::<Vec<_>>() {
            self.lose_server(now, incarnation, MemberState::Lost);
        }
    }

    /// When [`Control::expire_servers`] has something to do.
    pub(super) fn servers_due(&self) -> Option<Time> {
        self.servers.values().filter_map(|server| server.due(&self.limits.timers)).min()
    }

    fn lose_server(&mut self, now: Time, incarnation: u64, state: MemberState) {
        if let Some(server) = self.servers.get_mut(&incarnation).filter(|server| server.is_present()) {
            server.state = state;
            self.mark_server(now, incarnation, state);
            self.forget_idle_servers();
        }
    }

    fn mark_server(&mut self, now: Time, incarnation: u64, state: MemberState) {
        for job in self.running.values_mut() {
            job.set_server_state(now, incarnation, state);
        }
        self.urgent |= self.awaits_reports();
    }

    /// A job came or went, so its servers' jobs have changed.
    pub(super) fn servers_changed(&mut self, plan: &Plan) {
        for incarnation in plan.servers.dedicated().iter().filter_map(|server| server.incarnation) {
            if let Some(server) = self.servers.get_mut(&incarnation) {
                server.changes += 1;
            }
        }
        self.forget_idle_servers();
    }

    /// Forgets servers that are gone and serve no job. A server that is gone may come back to a job that it served.
    fn forget_idle_servers(&mut self) {
        let idle =
            |server: &RegisteredServer| !server.is_present() && self.served_by(server.offer.incarnation).is_empty();
        let idle: Vec<u64> =
            self.servers.values().filter(|server| idle(server)).map(|server| server.offer.incarnation).collect();
        idle.iter().for_each(|incarnation| drop(self.servers.remove(incarnation)));
    }
}

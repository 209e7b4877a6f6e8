//! The servers of a running job, and which of them are gone.

use tributary_proto::contract::time::Time;

use crate::report::{JobServerView, MemberState};
use crate::running::{Running, ServerSeat};
use crate::servers::{JobServer, ServerPlace};
use crate::watch::Departed;

impl Running {
    pub(crate) fn mark_server(&mut self, now: Time, incarnation: u64, state: MemberState) {
        let servers = self.plan.servers.dedicated().iter().zip(&mut self.servers);
        for (_, seat) in servers.filter(|(server, _)| server.incarnation == Some(incarnation)) {
            if seat.state != state {
                *seat = ServerSeat { state, since: now };
                self.departures += 1;
            }
        }
    }

    pub(crate) fn server_views(&self) -> Vec<JobServerView> {
        let servers = (0..).zip(self.plan.servers.dedicated()).zip(&self.servers);
        let view = |((server, place), seat): ((u16, &JobServer), &ServerSeat)| JobServerView {
            place: ServerPlace { server, addr: place.addr },
            state: seat.state,
        };
        servers.map(view).collect()
    }

    /// Adds the servers that are gone.
    pub(crate) fn add_servers(&self, gone: &mut Departed) {
        let views = self.server_views().into_iter().filter(|view| view.state != MemberState::Present);
        gone.servers.extend(views.map(|view| view.place));
    }
}

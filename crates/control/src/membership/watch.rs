//! Members keep a connection open while they are alive: its end is the first hint that a process is gone.
//!
//! A closed connection alone proves nothing; firewalls close connections too. A member whose connection is gone *and*
//! that is silent for [`Timers::closed_silence`](crate::Timers::closed_silence) is lost, well before its lease ends. It is
//! not lost if its host says that the member's socket is still there ([`ProbeTarget`]): then its process has only stalled.
//! It is lost sooner, within [`Timers::confirmed_silence`](crate::Timers::confirmed_silence), if its host says that the socket is
//! gone and has said, while the connection stood, that the socket was there. A host that refuses every probe proves
//! nothing.
//!
//! Switches in levels watch each other in the same way, and pass on which members are gone: up what is gone below, and
//! down what is gone elsewhere. So every switch of a job knows of all members.

use std::net::SocketAddr;

use tributary_proto::contract::ids::{ChildId, JobId};
use tributary_proto::contract::time::Time;

use crate::admission::Timers;

/// A member's open connections.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Watch {
    open: u16,
    /// When the last connection was closed; `None` while one is open, and for members that never had one.
    closed: Option<Time>,
}

/// A member or neighbour whose host the driver must ask whether it has the socket at this address. The driver probes
/// while the member is alive, to learn whether the host answers such probes, and again once the member's connection
/// is closed. It calls [`Control::probe_answered`](crate::Control::probe_answered) with the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeTarget {
    /// The job.
    pub job: JobId,
    /// A child of this switch; `None` for its parent.
    pub child: Option<ChildId>,
    /// The source address of its packets.
    pub addr: SocketAddr,
}

/// What a host says of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeResult {
    /// The host has the socket, and refuses a port that it does not have.
    SocketOpen,
    /// The host refuses the socket's port.
    SocketClosed,
    /// The answer could also come from a firewall.
    Inconclusive,
}

/// When a member's host was probed, and what it has answered.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LivenessProbe {
    /// How often the host was probed while the connection stood.
    early_probes: u8,
    /// The answer to such a probe is under way.
    awaits_early: bool,
    /// The host has said, while the connection stood, that the socket was there: then it is also believed when it says that
    /// the socket is gone.
    trusted: bool,
    /// The closing of the connection soon after which the host was probed.
    probed_closing: Option<Time>,
    /// The deadline because of which the host was probed last, and when.
    probed_deadline: Option<(Time, Time)>,
    /// The end of the lease because of which the host was probed last, and when.
    probed_lease: Option<(Time, Time)>,
    /// When the host last said that the socket is there.
    open_at: Option<Time>,
    /// The closing of the connection for which the host has said that the socket is gone.
    confirmed: Option<Time>,
}

impl LivenessProbe {
    /// Hosts answer about one such probe a second, and there may be several members on one host.
    const MOST_EARLY: u8 = 8;

    /// True if the host must be probed now, while the member is alive.
    pub fn probes_early(&mut self) -> bool {
        let probes = !self.trusted && !self.awaits_early && self.early_probes < LivenessProbe::MOST_EARLY;
        if probes {
            (self.early_probes, self.awaits_early) = (self.early_probes + 1, true);
        }
        probes
    }

    /// Takes the host's answer. `closed`: since when the connection is closed, if it is.
    pub fn answered(&mut self, now: Time, closed: Option<Time>, result: ProbeResult) {
        self.awaits_early = false;
        match (result, closed) {
            (ProbeResult::SocketOpen, None) => {
                self.trusted = true;
                self.open_at = self.probed_lease.map(|_| now).or(self.open_at);
            }
            // A process that dies closes one socket after the other: soon after the first, a socket that is still there
            // proves nothing.
            (ProbeResult::SocketOpen, Some(_)) if self.probed_deadline.is_none() => {}
            (ProbeResult::SocketOpen, Some(_)) => self.open_at = Some(now),
            (ProbeResult::SocketClosed, Some(closed)) if self.trusted => self.confirmed = Some(closed),
            (ProbeResult::SocketClosed | ProbeResult::Inconclusive, _) => {}
        }
    }

    /// True if the host has confirmed that the member's end closed its connection at this time.
    pub fn is_confirmed(&self, closed: Time) -> bool {
        self.confirmed == Some(closed)
    }

    /// Until when the member counts as alive because its host has the socket.
    pub fn alive_until(&self, timers: &Timers) -> Time {
        self.open_at.map_or(Time::ZERO, |at| at + timers.probe_validity())
    }

    /// When a silent member is lost whose lease ends then; `None` before its host was probed. Its host has time for an
    /// answer: the switch itself may have stood still until after the end.
    pub fn lost_at(&self, end: Time, timers: &Timers) -> Option<Time> {
        let (_, probed) = self.probed_lease.filter(|&(because_of, _)| because_of == end)?;
        Some(end.max(probed + timers.keepalive))
    }

    /// When to probe a silent member whose lease ends then; `None` if that was done.
    pub fn lease_probe_at(&self, end: Time, timers: &Timers) -> Option<Time> {
        self.lost_at(end, timers).is_none().then(|| Time(end.0.saturating_sub(timers.keepalive.0)))
    }

    /// True if the host of a silent member must be probed now.
    pub fn probes_lease(&mut self, now: Time, end: Time, timers: &Timers) -> bool {
        let probes = self.lease_probe_at(end, timers).is_some_and(|at| at <= now);
        if probes {
            self.probed_lease = Some((end, now));
        }
        probes
    }

    /// When to probe a member whose connection closed at `closed`, and which is lost at `due` unless its host has the
    /// socket; `None` if that was done.
    pub fn probe_at(&self, closed: Time, due: Time, timers: &Timers) -> Option<Time> {
        if self.is_confirmed(closed) {
            return None;
        }
        if self.trusted && self.probed_closing != Some(closed) {
            return Some(closed + timers.socket_teardown());
        }
        let was_probed = self.probed_deadline.is_some_and(|(because_of, _)| because_of == due);
        (!was_probed).then(|| Time(due.0.saturating_sub(timers.keepalive.0)))
    }

    /// When a member is lost whose connection closed at `closed` and whose host was probed because of `due`; `None` before
    /// it was probed. As at the end of a lease, its host has time for an answer.
    pub fn disconnected_at(&self, closed: Time, due: Time, timers: &Timers) -> Option<Time> {
        if self.is_confirmed(closed) {
            return Some(due);
        }
        let (_, probed) = self.probed_deadline.filter(|&(because_of, _)| because_of == due)?;
        Some(due.max(probed + timers.keepalive))
    }

    /// True if the host must be probed now.
    pub fn probes(&mut self, now: Time, closed: Time, due: Time, timers: &Timers) -> bool {
        let probes = self.probe_at(closed, due, timers).is_some_and(|at| at <= now);
        if probes && self.trusted && self.probed_closing != Some(closed) {
            // A switch that has stood still probes once for both.
            let is_late = due <= now + timers.keepalive;
            (self.probed_closing, self.probed_deadline) = (Some(closed), is_late.then_some((due, now)));
        } else if probes {
            self.probed_deadline = Some((due, now));
        }
        probes
    }
}

impl Watch {
    /// The most connections: the kernel may give up an old connection long after the member has opened the next one.
    const MOST: u16 = 4;

    /// Counts a connection; false if the member has as many as it may have.
    pub fn open(&mut self) -> bool {
        let may = self.open < Watch::MOST;
        if may {
            *self = Watch { open: self.open + 1, closed: None };
        }
        may
    }

    pub fn close(&mut self, now: Time) {
        self.open = self.open.saturating_sub(1);
        self.closed = (self.open == 0).then_some(now);
    }

    /// True while a connection is open.
    pub fn is_open(&self) -> bool {
        self.open > 0
    }

    /// When the last connection was closed, if none is open.
    pub fn closed(&self) -> Option<Time> {
        self.closed
    }

    /// Sets whether the only possible connection is open.
    pub fn set_open(&mut self, now: Time, open: bool) {
        let closed = if open { None } else { self.closed.or(Some(now)) };
        *self = Watch { open: 0, closed };
    }

    /// Counts the connection as closed only now.
    pub fn restart(&mut self, now: Time) {
        self.closed = self.closed.map(|_| now);
    }
}

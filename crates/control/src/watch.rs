//! Members keep a connection open while they are alive: its end is the first hint that a process is gone.
//!
//! A closed connection alone proves nothing; firewalls close connections too. A member whose connection is gone *and*
//! that is silent for [`Timers::bereavement`](crate::Timers::bereavement) is lost, well before its lease ends. It is
//! not lost if its host says that the member's socket is still there ([`Suspect`]): then its process has only stalled.
//! It is lost sooner, within [`Timers::confirmation`](crate::Timers::confirmation), if its host says that the socket is
//! gone and has said, while the connection stood, that the socket was there. A host that refuses every question proves
//! nothing.
//!
//! Switches in levels watch each other in the same way, and pass on which members are gone: up what is gone below, and
//! down what is gone elsewhere. So every switch of a job knows of all members.

use std::net::SocketAddr;

use tributary_proto::contract::ids::{ChildId, JobId};
use tributary_proto::contract::time::Time;

use crate::levels::SwitchPlace;
use crate::servers::ServerPlace;
use crate::timers::Timers;

/// A member's open connections.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Watch {
    open: u16,
    /// When the last connection was closed; `None` while one is open, and for members that never had one.
    closed: Option<Time>,
}

/// A member or neighbour whose host the driver must ask whether it has the socket at this address. The driver asks
/// while the member is alive, to learn whether the host answers such questions, and again once the member's connection
/// is closed. It calls [`Control::testify`](crate::Control::testify) with the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suspect {
    /// The job.
    pub job: JobId,
    /// A child of this switch; `None` for the switch above.
    pub child: Option<ChildId>,
    /// The source address of its packets.
    pub addr: SocketAddr,
}

/// What a host says of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Testimony {
    /// The host has the socket, and refuses a port that it does not have.
    Held,
    /// The host refuses the socket's port.
    Refused,
    /// The answer could also come from a firewall.
    Nothing,
}

/// What was asked of a suspect's host, and what is known.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Suspicion {
    /// How often the host was asked while the connection stood.
    vettings: u8,
    /// An answer to such a question is under way.
    in_vetting: bool,
    /// The host has said, while the connection stood, that the socket was there: its word then also counts against the
    /// member.
    candid: bool,
    /// The closing of the connection soon after which the host was asked.
    asked_since: Option<Time>,
    /// The end of its time for which the host was asked last.
    asked_for: Option<Time>,
    /// When the host last said that the socket is there.
    alibi: Option<Time>,
    /// The closing of the connection for which the host has said that the socket is gone.
    refused: Option<Time>,
}

impl Suspicion {
    /// Hosts answer about one such question a second, and there may be several members on one host.
    const MOST_VETTINGS: u8 = 8;

    /// True if the host must be asked now, while the member is alive.
    pub fn vets(&mut self) -> bool {
        let vets = !self.candid && !self.in_vetting && self.vettings < Suspicion::MOST_VETTINGS;
        if vets {
            (self.vettings, self.in_vetting) = (self.vettings + 1, true);
        }
        vets
    }

    /// Takes what the host says. `closed`: since when the connection is closed, if it is.
    pub fn testify(&mut self, now: Time, closed: Option<Time>, said: Testimony) {
        self.in_vetting = false;
        match (said, closed) {
            (Testimony::Held, None) => self.candid = true,
            // A process that dies closes one socket after the other: soon after the first, a socket that is still there
            // proves nothing.
            (Testimony::Held, Some(_)) if self.asked_for.is_none() => {}
            (Testimony::Held, Some(_)) => self.alibi = Some(now),
            (Testimony::Refused, Some(closed)) if self.candid => self.refused = Some(closed),
            (Testimony::Refused | Testimony::Nothing, _) => {}
        }
    }

    /// True if the host has confirmed that the member's end closed its connection at this time.
    pub fn is_confirmed(&self, closed: Time) -> bool {
        self.refused == Some(closed)
    }

    pub fn alibi_ends(&self, timers: &Timers) -> Time {
        self.alibi.map_or(Time::ZERO, |at| at + timers.alibi())
    }

    /// When to ask about a member whose connection closed at `closed`, and which is lost at `due` unless it has an
    /// alibi; `None` if that was done.
    pub fn ask_at(&self, closed: Time, due: Time, timers: &Timers) -> Option<Time> {
        if self.is_confirmed(closed) {
            return None;
        }
        if self.candid && self.asked_since != Some(closed) {
            return Some(closed + timers.parting());
        }
        (self.asked_for != Some(due)).then(|| Time(due.0.saturating_sub(timers.keepalive.0)))
    }

    /// True if the host must be asked now.
    pub fn asks(&mut self, now: Time, closed: Time, due: Time, timers: &Timers) -> bool {
        let asks = self.ask_at(closed, due, timers).is_some_and(|at| at <= now);
        if asks && self.candid && self.asked_since != Some(closed) {
            (self.asked_since, self.asked_for) = (Some(closed), None);
        } else if asks {
            self.asked_for = Some(due);
        }
        asks
    }
}

/// A member that takes no part in the job any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Gone {
    /// The member's rank.
    pub rank: u16,
    /// The member said so; otherwise it fell silent without a word.
    pub left: bool,
}

/// The members, switches and servers of a job that are gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Departed {
    /// Members, by ascending rank.
    pub members: Vec<Gone>,
    /// Switches that are lost, each with the ranks below it, which are gone with it. A switch without ranks is the one
    /// above.
    pub switches: Vec<SwitchPlace>,
    /// Servers, by ascending number.
    pub servers: Vec<ServerPlace>,
}

impl Departed {
    /// True if no member, switch or server is gone.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty() && self.switches.is_empty() && self.servers.is_empty()
    }

    pub(crate) fn extend(&mut self, other: &Departed) {
        self.members.extend(&other.members);
        self.switches.extend(other.switches.iter().cloned());
        self.servers.extend(&other.servers);
    }
}

/// A neighbouring switch. It is told what others have reported, and not what it has reported itself.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Neighbour {
    Below(ChildId),
    Above,
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

    /// The only connection that there can be stands now, or does not.
    pub fn stands(&mut self, now: Time, stands: bool) {
        let closed = if stands { None } else { self.closed.or(Some(now)) };
        *self = Watch { open: 0, closed };
    }

    /// Counts the connection as closed only now.
    pub fn forgive(&mut self, now: Time) {
        self.closed = self.closed.map(|_| now);
    }
}

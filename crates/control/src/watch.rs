//! Members that keep a connection open while they live: its end is the first hint that a process is gone.
//!
//! A closed connection alone proves nothing; firewalls close them too. A member whose connection is gone *and* that is
//! silent for [`Timers::bereavement`](crate::Timers::bereavement) is lost, well before its lease ends. Not so if its host
//! says that the member's socket is there still ([`Suspect`]): then its process has only stalled. And sooner, within
//! [`Timers::confirmation`](crate::Timers::confirmation), if its host says that the socket is gone, and was heard to say that
//! it was there while the connection stood: a host that refuses whatever it is asked tells nothing.
//!
//! Switches in levels watch each other in the same way, and pass on who is gone: up what is gone below, down what is gone
//! elsewhere. So every switch of a job knows of everybody.

use std::net::SocketAddr;

use tributary_proto::contract::ids::{ChildId, JobId};
use tributary_proto::contract::time::Time;

use crate::admission::Timers;
use crate::levels::SwitchPlace;
use crate::servers::ServerPlace;

/// A member's open connections.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Watch {
    open: u16,
    /// When the last one was closed; `None` while one is open, and for members that never had one.
    closed: Option<Time>,
}

/// Someone whose host the driver is to ask whether it has the socket at this address: while it lives, to hear whether its
/// host can be asked, and once its connection is closed. The driver calls [`Control::testify`] with the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suspect {
    /// The job.
    pub job: JobId,
    /// A child of this switch; `None`: the switch above.
    pub child: Option<ChildId>,
    /// Where its packets come from.
    pub addr: SocketAddr,
}

/// What a host says of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Testimony {
    /// It has the socket, and refuses a port that it has not.
    Held,
    /// It refuses the socket's port.
    Refused,
    /// Nothing that could be told from a firewall's doing.
    Nothing,
}

/// What is asked and known of a suspect.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Suspicion {
    /// How often its host was asked while the connection stood.
    vettings: u8,
    /// An answer to that is under way.
    in_vetting: bool,
    /// Its host has said, while the connection stood, that the socket was there: its word counts against the member too.
    candid: bool,
    /// For which closing of the connection its host was asked soon after it.
    asked_since: Option<Time>,
    /// For which end of its time its host was asked last.
    asked_for: Option<Time>,
    /// When its host last said that the socket is there.
    alibi: Option<Time>,
    /// For which closing of the connection its host has said that the socket is gone.
    refused: Option<Time>,
}

impl Suspicion {
    /// Hosts answer about one such question a second, and there may be several members on one.
    const MOST_VETTINGS: u8 = 8;

    /// True if its host is to be asked now, while it lives.
    pub fn vets(&mut self) -> bool {
        let vets = !self.candid && !self.in_vetting && self.vettings < Suspicion::MOST_VETTINGS;
        if vets {
            (self.vettings, self.in_vetting) = (self.vettings + 1, true);
        }
        vets
    }

    /// Its host says this; the connection is closed since then, if it is.
    pub fn testify(&mut self, now: Time, closed: Option<Time>, said: Testimony) {
        self.in_vetting = false;
        match (said, closed) {
            (Testimony::Held, None) => self.candid = true,
            // A process that dies closes one socket after the other: soon after the first it proves nothing.
            (Testimony::Held, Some(_)) if self.asked_for.is_none() => {}
            (Testimony::Held, Some(_)) => self.alibi = Some(now),
            (Testimony::Refused, Some(closed)) if self.candid => self.refused = Some(closed),
            (Testimony::Refused | Testimony::Nothing, _) => {}
        }
    }

    /// True if its host says that what closed its connection at this time was its end.
    pub fn is_confirmed(&self, closed: Time) -> bool {
        self.refused == Some(closed)
    }

    pub fn alibi_ends(&self, timers: &Timers) -> Time {
        self.alibi.map_or(Time::ZERO, |at| at + timers.alibi())
    }

    /// When to ask about someone whose connection closed then and that is lost at `due` unless it has an alibi; `None` if that
    /// was done.
    pub fn ask_at(&self, closed: Time, due: Time, timers: &Timers) -> Option<Time> {
        if self.is_confirmed(closed) {
            return None;
        }
        if self.candid && self.asked_since != Some(closed) {
            return Some(closed + timers.parting());
        }
        (self.asked_for != Some(due)).then(|| Time(due.0.saturating_sub(timers.keepalive.0)))
    }

    /// True if its host is to be asked now.
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
    /// Who.
    pub rank: u16,
    /// It said so; otherwise it fell silent without a word.
    pub left: bool,
}

/// Who of a job is gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Departed {
    /// Members, by ascending rank.
    pub members: Vec<Gone>,
    /// Switches that are lost, each with the ranks below it, which are gone with it; one without ranks is above.
    pub switches: Vec<SwitchPlace>,
    /// Servers, by ascending number.
    pub servers: Vec<ServerPlace>,
}

impl Departed {
    /// True if nobody is gone.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty() && self.switches.is_empty() && self.servers.is_empty()
    }

    pub(crate) fn extend(&mut self, other: &Departed) {
        self.members.extend(&other.members);
        self.switches.extend(other.switches.iter().cloned());
        self.servers.extend(&other.servers);
    }
}

/// A switch next to this one, which is told what the others said and not what it said itself.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Neighbour {
    Below(ChildId),
    Above,
}

impl Watch {
    /// The kernel may give up an old connection long after the member has opened the next.
    const MOST: u16 = 4;

    /// False if there are as many as a member may have.
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

    /// The one connection there can be stands now, or does not.
    pub fn stands(&mut self, now: Time, stands: bool) {
        let closed = if stands { None } else { self.closed.or(Some(now)) };
        *self = Watch { open: 0, closed };
    }

    /// As if it had been closed only now.
    pub fn forgive(&mut self, now: Time) {
        self.closed = self.closed.map(|_| now);
    }
}

//! How long a switch waits for silent members, and for what else may come late.

use tributary_proto::contract::time::Span;

/// How long members may be silent, and what follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timers {
    /// How often a member that has nothing to send shows that it is alive.
    pub keepalive: Span,
    /// A member that is silent for this long is lost.
    pub lease: Span,
    /// A job with a lost member is removed this long after the loss.
    pub grace: Span,
    /// The longest time that a rank may wait for the others.
    pub max_wait: Span,
    /// How long collectives under way may take to end when the switch is asked to stop.
    pub finish: Span,
}

impl Timers {
    /// The period of signs of life, which members and switches of one version share.
    pub const KEEPALIVE: Span = Span::from_millis(500);

    /// The silence of a member after which another process may take over its rank.
    pub fn takeover_silence(&self) -> Span {
        self.keepalive.times(3)
    }

    /// The silence after which a member whose connection is closed is lost. Both are hints, so less of each is needed.
    pub fn closed_silence(&self) -> Span {
        self.keepalive.times(2)
    }

    /// The same silence, if the member's host says that its socket is gone. Its last packets may still be in queues.
    pub fn confirmed_silence(&self) -> Span {
        Span(self.keepalive.0 / 5)
    }

    /// The time that a dying process takes to close all its sockets, from the first to the last.
    pub fn socket_teardown(&self) -> Span {
        Span(self.keepalive.0 / 25)
    }

    /// How long a member counts as alive after its host has said that its socket is there. Hosts answer such probes
    /// about once a second.
    pub fn probe_validity(&self) -> Span {
        self.keepalive.times(6)
    }

    /// The silence after which a member whose connection is closed is lost while the switch that it is connected to cannot
    /// be reached: time to start that switch again.
    pub fn unreachable_silence(&self) -> Span {
        self.keepalive.times(3)
    }
}

impl Default for Timers {
    fn default() -> Timers {
        Timers {
            keepalive: Timers::KEEPALIVE,
            lease: Span::from_secs_f64(10.0),
            grace: Span::from_secs_f64(30.0),
            max_wait: Span::from_secs_f64(3_600.0),
            finish: Span::from_secs_f64(10.0),
        }
    }
}

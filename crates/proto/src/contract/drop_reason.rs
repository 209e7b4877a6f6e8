//! Every way in which a packet can be of no use. Nothing is dropped without a name.

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// Why a packet was not acted upon.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum DropReason {
            $($(#[$doc])* $name,)*
        }

        impl DropReason {
            /// Every reason, in the order of declaration.
            pub const ALL: [DropReason; [$($text),*].len()] = [$(DropReason::$name),*];

            /// The reason's name in metrics and tables.
            pub const fn name(self) -> &'static str {
                match self {
                    $(DropReason::$name => $text,)*
                }
            }
        }
    };
}

reasons! {
    /// Shorter than its headers.
    Truncated = "truncated",
    /// Not one of our packets.
    BadMagic = "bad_magic",
    /// Of a version of the wire format that this build does not speak.
    BadVersion = "bad_version",
    /// For a protocol that the job does not run.
    WrongProtocol = "wrong_protocol",
    /// Of a kind that the protocol does not know, or that never goes this way.
    BadKind = "bad_kind",
    /// For a job that is not installed here.
    UnknownJob = "unknown_job",
    /// Without the job's key.
    WrongKey = "wrong_key",
    /// From an address that is no member's.
    NotAMember = "not_a_member",
    /// From a member that claims to be another.
    WrongWorker = "wrong_worker",
    /// A field outside its range: a slot, a tree, an element type.
    BadField = "bad_field",
    /// A vector whose length does not fit its block.
    BadLength = "bad_length",
    /// From a phase of the slot that is over: a late or doubled packet.
    Stale = "stale",
    /// From a phase of the slot that cannot have begun.
    Ahead = "ahead",
    /// A contribution that was counted already and whose sum is not complete (Algorithm 3, line 23).
    Duplicate = "duplicate",
    /// A contribution that was counted already and that has crossed its result on the way.
    Crossed = "crossed",
    /// A contribution to a collective on which ranks disagree.
    Mismatch = "mismatch",
    /// For a destination that the driver cannot reach.
    NoRoute = "no_route",
    /// A question of a member that has asked too often of late.
    TooOften = "too_often",
    /// No collective of this host awaits it.
    Unexpected = "unexpected",
    /// A sum of a block that the switch holds no descriptor for (Canary §3.5).
    NoDescriptor = "no_descriptor",
    /// From before a tree went back (PANAMA).
    StaleEpoch = "stale_epoch",
    /// To a sum that did not wait for it (PANAMA §7).
    Late = "late",
    /// To a sum that another contribution is missing from for good (PANAMA §5).
    Incomplete = "incomplete",
    /// There is no room for it: more than its sender may have under way, which never happens in good order (PANAMA §4.2.2), or
    /// more than may collide in a full table, until what has collided before is where it should be (Flare §7).
    Overflow = "overflow",
    /// For an operator of a job's own that has had its part of the switch's time, where other jobs' packets come too.
    TooSlow = "too_slow",
    /// For a job that is over at this switch, because an operator of its own has failed.
    Faulty = "faulty",
}

/// How many packets were dropped, by reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropCounters([u64; DropReason::ALL.len()]);

impl Default for DropCounters {
    fn default() -> Self {
        DropCounters([0; DropReason::ALL.len()])
    }
}

impl DropCounters {
    /// Counts one packet.
    pub fn count(&mut self, reason: DropReason) {
        self.0[reason as usize] += 1;
    }

    /// Counts what another has counted too.
    pub fn add(&mut self, other: &DropCounters) {
        self.0.iter_mut().zip(other.0).for_each(|(count, more)| *count += more);
    }

    /// Packets dropped for this reason.
    pub fn get(&self, reason: DropReason) -> u64 {
        self.0[reason as usize]
    }

    /// Every reason with its count, zeros included.
    pub fn iter(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        DropReason::ALL.into_iter().map(|reason| (reason, self.get(reason)))
    }

    /// Packets dropped for any reason.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

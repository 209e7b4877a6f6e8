//! Every reason for which a packet may be dropped. No packet is dropped without a name.

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// Why a packet was not acted on.
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
    /// The packet is shorter than its headers.
    Truncated = "truncated",
    /// The packet does not begin with the magic number.
    BadMagic = "bad_magic",
    /// The packet's wire format has a version that this build does not speak.
    BadVersion = "bad_version",
    /// The packet is for a protocol that the job does not run.
    WrongProtocol = "wrong_protocol",
    /// The protocol does not know packets of this kind, or they never go this way.
    BadKind = "bad_kind",
    /// The packet is for a job that is not installed here.
    UnknownJob = "unknown_job",
    /// The packet does not have the job's key.
    WrongKey = "wrong_key",
    /// The packet's source address belongs to no member.
    NotAMember = "not_a_member",
    /// The packet comes from a member that claims to be another.
    WrongWorker = "wrong_worker",
    /// A field is outside its range: a slot, a tree, an element type.
    BadField = "bad_field",
    /// The vector has a length that does not fit its block.
    BadLength = "bad_length",
    /// The packet is from a phase of the slot that is over: it is late or a duplicate.
    Stale = "stale",
    /// The packet is from a phase of the slot that cannot have begun.
    Ahead = "ahead",
    /// The contribution was counted already, and its sum is not complete (Algorithm 3, line 23).
    Duplicate = "duplicate",
    /// The contribution was counted already, and has crossed its result on the way.
    Crossed = "crossed",
    /// The contribution is to a collective on which ranks disagree.
    Mismatch = "mismatch",
    /// The driver cannot reach the destination.
    NoRoute = "no_route",
    /// The member has sent too many queries recently.
    TooOften = "too_often",
    /// No collective of this host awaits the packet.
    Unexpected = "unexpected",
    /// The packet is the sum of a block for which the switch holds no descriptor (Canary §3.5).
    NoDescriptor = "no_descriptor",
    /// The packet was sent before its tree was rewound (PANAMA).
    StaleEpoch = "stale_epoch",
    /// The contribution is to a sum that did not wait for it (PANAMA §7).
    Late = "late",
    /// The contribution is to a sum that lacks another contribution permanently (PANAMA §5).
    Incomplete = "incomplete",
    /// A buffer is full. The sender has more packets in flight than its window allows, which correct senders never do
    /// (PANAMA §4.2.2); or a hash table can spill no more collisions until earlier ones have been sent (Flare §7).
    Overflow = "overflow",
    /// The job's custom operators have used up their share of the switch's time, and other jobs' packets wait.
    TooSlow = "too_slow",
    /// The job is over at this switch, because one of its custom operators has failed.
    Faulty = "faulty",
    /// A bit of the packet has changed on its way, behind UDP's checksum: see [`seal`](crate::contract::seal).
    Corrupt = "corrupt",
}

/// How many packets were dropped, by reason. Boxed: what holds it is touched by every packet, and drops are rare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropCounters(Box<[u64; DropReason::ALL.len()]>);

impl Default for DropCounters {
    fn default() -> Self {
        DropCounters(Box::new([0; DropReason::ALL.len()]))
    }
}

impl DropCounters {
    /// Counts one packet.
    pub fn count(&mut self, reason: DropReason) {
        self.0[reason as usize] += 1;
    }

    /// Adds another machine's counts.
    pub fn add(&mut self, other: &DropCounters) {
        self.0.iter_mut().zip(*other.0).for_each(|(count, more)| *count += more);
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

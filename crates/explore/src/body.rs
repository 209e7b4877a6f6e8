//! The machines of a world: those of ranks and those of switches, to be copied and told apart.

use tributary_proto::contract::host::Host;
use tributary_proto::contract::switch::{SharedSwitch, Switch};
use tributary_proto::contract::time::Time;

use crate::fingerprint::{Fingerprint, StateHasher};

/// A machine, and what its driver knows about it.
pub enum Body {
    /// The machine of a rank, which may also be a server.
    Host {
        /// The machine.
        machine: Box<dyn Host>,
        /// How many collectives were submitted.
        submitted: u8,
        /// How many of them are complete.
        completed: u8,
        /// Hashes of their results if results may lack ranks, else 0.
        digests: Vec<u64>,
    },
    /// The machine of a switch for one job.
    Switch(Box<dyn Switch>),
    /// The machine of a switch that jobs share.
    Shared(Box<dyn SharedSwitch>),
}

impl Body {
    /// A rank's machine before its first collective.
    pub fn host(machine: Box<dyn Host>) -> Body {
        Body::Host { machine, submitted: 0, completed: 0, digests: Vec::new() }
    }

    /// A copy in the same state; `None` if the machine cannot be copied.
    pub fn fork(&self) -> Option<Body> {
        Some(match self {
            Body::Host { machine, submitted, completed, digests } => Body::Host {
                machine: machine.state()?.fork(),
                submitted: *submitted,
                completed: *completed,
                digests: digests.clone(),
            },
            Body::Switch(machine) => Body::Switch(machine.state()?.fork()),
            Body::Shared(machine) => Body::Shared(machine.shared_state()?.fork()),
        })
    }

    /// When its timer runs out.
    pub fn due(&self) -> Option<Time> {
        match self {
            Body::Host { machine, .. } => machine.poll_timeout(),
            Body::Switch(machine) => machine.poll_timeout(),
            Body::Shared(machine) => machine.poll_timeout(),
        }
    }

    /// The fingerprint of its state at a time; `None` if the machine has none.
    pub fn fingerprint(&self, now: Time) -> Option<Fingerprint> {
        let mut hasher = StateHasher::default();
        match self {
            Body::Host { machine, submitted, completed, digests } => {
                digests.iter().for_each(|&digest| hasher.word(digest));
                hasher.word(u64::from(*submitted) << 8 | u64::from(*completed));
                machine.state()?.hash_state(&mut hasher);
            }
            Body::Switch(machine) => machine.state()?.hash_state(&mut hasher),
            Body::Shared(machine) => machine.shared_state()?.hash_state(&mut hasher),
        }
        Some(hasher.fingerprint(now))
    }
}

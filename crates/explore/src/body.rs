//! The machines of a world: those of ranks and those of switches, to be copied and told apart.

use tributary_proto::contract::host::Host;
use tributary_proto::contract::switch::{SharedSwitch, Switch};
use tributary_proto::contract::time::Time;

use crate::fingerprint::{Fingerprint, StateHasher};

/// A machine and what its driver knows of it.
pub enum Body {
    /// A rank's, which may be a server besides.
    Host {
        /// The machine.
        machine: Box<dyn Host>,
        /// Collectives submitted.
        submitted: u8,
        /// Those of them that are complete.
        completed: u8,
        /// Hashes of their results, where those may lack ranks; 0 where not.
        digests: Vec<u64>,
    },
    /// A switch's for one job.
    Switch(Box<dyn Switch>),
    /// One that jobs share.
    Shared(Box<dyn SharedSwitch>),
}

impl Body {
    /// A rank's machine before its first collective.
    pub fn host(machine: Box<dyn Host>) -> Body {
        Body::Host { machine, submitted: 0, completed: 0, digests: Vec::new() }
    }

    /// The same in the same state; `None` of a machine that cannot be copied.
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

    /// What its state is known by at a time; `None` of a machine that has none.
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

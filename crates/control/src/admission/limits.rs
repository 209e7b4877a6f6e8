//! The limits that an operator sets: of a switch, of jobs by their names, of each client, and how long members may be
//! silent.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::sync::Arc;

use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::time::Span;

use crate::admission::charge::SharedMemory;
use crate::ip_network::IpNetwork;
use crate::names::{Client, JobName};
use crate::quantity::Bytes;

/// The limits of a switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes for all jobs over all shards, including the memory that jobs share.
    pub memory_bytes: u64,
    /// Bytes of single switches of a fabric that have more or less than the others.
    pub memory_at: BTreeMap<NodeId, u64>,
    /// The memory that the jobs of a protocol share.
    pub shared: SharedMemory,
    /// The shards of the switch.
    pub shards: u16,
    /// The most jobs at a time, including jobs whose ranks are still coming.
    pub max_jobs: u16,
    /// The operator's limits for jobs by their names; the first quota whose pattern fits counts.
    pub quotas: Vec<Quota>,
    /// The limits of each client.
    pub each_client: ClientLimits,
    /// The limits of tenants that differ from those of each client, by name.
    pub tenants: BTreeMap<Arc<str>, ClientLimits>,
    /// Where servers for everybody's jobs may be, besides the switch's own host. Tenants have servers of their own.
    pub servers: Vec<IpNetwork>,
    /// How long members may be silent.
    pub timers: Timers,
    /// In a fabric, where trees are planned: the most trees that a job may have. `None` if each shard is a tree.
    pub planned_trees: Option<u16>,
}

impl Limits {
    /// The fewest slots that a job is given; with fewer, hardly any packet is in flight.
    pub const MIN_SLOTS: u16 = 8;
    /// The most slots that a job is given: slot numbers in packets have 15 bits.
    pub const MAX_SLOTS: u16 = 1 << 14;

    /// The memory of a switch for which nobody has chosen one: enough for 16,384 aggregators of two protocols, and jobs
    /// beside them.
    pub const DEFAULT_MEMORY: Bytes = Bytes(512 << 20);

    /// The most jobs at a time: ids in packets have 16 bits and are not used again soon.
    pub const MAX_JOBS: u16 = 1 << 12;

    /// The limits of a switch with this memory and these shards; everything else has its default.
    pub fn new(memory_bytes: u64, shards: u16) -> Limits {
        Limits {
            memory_bytes,
            memory_at: BTreeMap::new(),
            shared: SharedMemory::default(),
            shards,
            max_jobs: 256,
            quotas: Vec::new(),
            each_client: ClientLimits::default(),
            tenants: BTreeMap::new(),
            servers: Vec::new(),
            timers: Timers::default(),
            planned_trees: None,
        }
    }

    /// The most slots of one job.
    pub fn max_slots(&self) -> u16 {
        max_slots(self.shards)
    }

    /// The fewest slots of one job.
    pub fn min_slots(&self) -> u16 {
        min_slots(self.shards)
    }

    /// Bytes for jobs on a switch of a fabric.
    pub fn memory_of(&self, switch: NodeId) -> u64 {
        self.memory_at.get(&switch).copied().unwrap_or(self.memory_bytes)
    }

    /// True if a switch of a fabric has less than jobs divide: trees of resizable jobs avoid it.
    pub fn is_small(&self, switch: NodeId) -> bool {
        self.memory_of(switch) < self.memory_bytes
    }

    pub(crate) fn quota(&self, name: &JobName) -> Option<&Quota> {
        self.quotas.iter().find(|quota| name.matches(&quota.jobs))
    }

    /// The limits of a client. A tenant's own limits count first.
    pub(crate) fn of_client(&self, client: &Client) -> ClientLimits {
        let own = match client {
            Client::Tenant(name) => self.tenants.get(name).copied().unwrap_or_default(),
            Client::Address(_) => ClientLimits::default(),
        };
        ClientLimits {
            jobs: own.jobs.or(self.each_client.jobs),
            memory_bytes: own.memory_bytes.or(self.share_of(client)).or(self.each_client.memory_bytes),
            max_slots: own.max_slots.or(self.each_client.max_slots),
            max_world_size: own.max_world_size.or(self.each_client.max_world_size),
            weight: own.weight,
        }
    }

    /// The weight of a client; `None` if no tenant has one.
    pub(crate) fn weight_of(&self, client: &Client) -> Option<u64> {
        let own = match client {
            Client::Tenant(name) => self.tenants.get(name).and_then(|limits| limits.weight),
            Client::Address(_) => None,
        };
        let are_weighed = self.tenants.values().any(|limits| limits.weight.is_some());
        are_weighed.then(|| own.map_or(1, |weight| weight.get().into()))
    }

    /// A tenant's share of the memory by its weight.
    fn share_of(&self, client: &Client) -> Option<u64> {
        let own = self.weight_of(client).filter(|_| matches!(client, Client::Tenant(_)))?;
        let all = self.tenants.values().map(|limits| limits.weight.map_or(1, |weight| u64::from(weight.get())));
        let bytes = u128::from(self.memory_bytes) * u128::from(own) / u128::from(all.sum::<u64>());
        Some(bytes as u64)
    }
}

/// The limits of one client at a switch, so that no client takes all of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientLimits {
    /// The most jobs at a time, including jobs whose ranks are still coming.
    pub jobs: Option<u16>,
    /// Bytes for all of the client's jobs together.
    pub memory_bytes: Option<u64>,
    /// The most slots of each job.
    pub max_slots: Option<u16>,
    /// The most ranks of each job.
    pub max_world_size: Option<u16>,
    /// The client's weight where clients compete for memory. 1 if only others have one.
    pub weight: Option<NonZeroU16>,
}

impl ClientLimits {
    /// Half of the jobs and of the memory of a switch, so that the first client cannot take everything.
    pub fn half_of(max_jobs: u16, memory_bytes: u64) -> ClientLimits {
        ClientLimits {
            jobs: Some(max_jobs.div_ceil(2)),
            memory_bytes: Some(memory_bytes / 2),
            ..ClientLimits::default()
        }
    }
}

/// The operator's limits for jobs whose names fit a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quota {
    /// The pattern; `*` stands for any characters.
    pub jobs: String,
    /// Bytes for all of these jobs together.
    pub memory_bytes: Option<u64>,
    /// The most slots of each job.
    pub max_slots: Option<u16>,
    /// The most ranks of each job.
    pub max_world_size: Option<u16>,
}

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

/// The most slots of a job that divides them among this many owners: the shards of a switch, or servers.
fn max_slots(owners: u16) -> u16 {
    slots_of(Limits::MAX_SLOTS / owners.next_power_of_two(), owners)
}

/// The fewest slots of such a job.
pub(crate) fn min_slots(owners: u16) -> u16 {
    slots_of(Limits::MIN_SLOTS.div_ceil(owners), owners)
}

/// The requested slots, rounded up to a power of two for each owner, and within the bounds of every job.
pub(crate) fn round_slots(requested: u16, owners: u16) -> u16 {
    slots_of(requested.min(Limits::MAX_SLOTS).div_ceil(owners), owners).clamp(min_slots(owners), max_slots(owners))
}

fn slots_of(per_owner: u16, owners: u16) -> u16 {
    per_owner.next_power_of_two() * owners
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_a_power_of_two_for_every_owner() {
        let cases =
            [(1, 1, 8), (1, 100, 128), (2, 100, 128), (2, 1, 8), (3, 100, 192), (16, 1, 16), (1, 65_535, 16_384)];
        for (owners, requested, slots) in cases {
            assert_eq!(round_slots(requested, owners), slots, "{requested} over {owners}");
        }
    }

    #[test]
    fn a_tenant_s_own_limits_count_first() {
        let own = ClientLimits { max_slots: Some(32), ..ClientLimits::default() };
        let each_client = ClientLimits { max_slots: Some(16), jobs: Some(2), ..ClientLimits::default() };
        let limits = Limits { each_client, tenants: [("a".into(), own)].into(), ..Limits::new(1 << 20, 2) };
        let of = |name: &str| limits.of_client(&Client::Tenant(name.into()));
        assert_eq!(of("a"), ClientLimits { max_slots: Some(32), ..each_client });
        assert_eq!(of("b"), each_client);
    }
}

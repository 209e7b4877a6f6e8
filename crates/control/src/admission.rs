//! How much of the switch a job gets: slots in powers of two, halved until they fit.

use std::collections::BTreeMap;
use std::sync::Arc;

use tributary_proto::contract::ids::NodeId;

use crate::client::{Client, Share};
use crate::memory::{Bytes, JobShape};
use crate::name::JobName;
use crate::network::Network;
use crate::quantity;
use crate::refusal::Refusal;
use crate::shared_memory::SharedMemory;
use crate::timers::Timers;

/// The limits of a switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes for all jobs over all shards, and for what they share.
    pub memory_bytes: u64,
    /// The same of single switches of a fabric that have more or less than the others.
    pub memory_at: BTreeMap<NodeId, u64>,
    /// What jobs share.
    pub shared: SharedMemory,
    /// Independent parts of the switch.
    pub shards: u16,
    /// The most jobs at a time, including jobs that still form.
    pub max_jobs: u16,
    /// The operator's limits for jobs by their names; the first quota whose pattern fits counts.
    pub quotas: Vec<Quota>,
    /// The limits of each client.
    pub share: Share,
    /// The limits of tenants whose own share differs, by name.
    pub tenants: BTreeMap<Arc<str>, Share>,
    /// Where servers for everybody's jobs may be, besides the switch's own machine. Tenants have servers of their own.
    pub servers: Vec<Network>,
    /// How long members may be silent.
    pub timers: Timers,
    /// In a fabric, where trees are planned: the most trees that a job may have. `None` if each part of the switch is a
    /// tree.
    pub planned_trees: Option<u16>,
}

impl Limits {
    /// The fewest slots that a job is given; with fewer, hardly any packet is in flight.
    pub const MIN_SLOTS: u16 = 8;
    /// The most slots that a job is given: slot numbers in packets have 15 bits.
    pub const MAX_SLOTS: u16 = 1 << 14;

    /// The memory of a switch for which nobody has chosen one: enough for 16,384 aggregators of two protocols, and jobs
    /// beside them.
    pub const DEFAULT_MEMORY: quantity::Bytes = quantity::Bytes(512 << 20);

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
            share: Share::default(),
            tenants: BTreeMap::new(),
            servers: Vec::new(),
            timers: Timers::default(),
            planned_trees: None,
        }
    }

    /// The most slots of one job.
    pub fn max_slots(&self) -> u16 {
        most_slots(self.shards)
    }

    /// The fewest slots of one job.
    pub fn min_slots(&self) -> u16 {
        least_slots(self.shards)
    }

    pub(crate) fn quota(&self, name: &JobName) -> Option<&Quota> {
        self.quotas.iter().find(|quota| name.matches(&quota.jobs))
    }

    /// The limits of a client.
    pub(crate) fn share_of(&self, client: &Client) -> Share {
        let own = match client {
            Client::Tenant(name) => self.tenants.get(name).copied().unwrap_or_default(),
            Client::Address(_) => Share::default(),
        };
        Share {
            jobs: own.jobs.or(self.share.jobs),
            memory_bytes: own.memory_bytes.or(self.share.memory_bytes),
            max_slots: own.max_slots.or(self.share.max_slots),
            max_world: own.max_world.or(self.share.max_world),
        }
    }
}

/// The most slots of a job that are divided into so many parts: shards of a switch, or servers.
fn most_slots(parts: u16) -> u16 {
    slots_of(Limits::MAX_SLOTS / parts.next_power_of_two(), parts)
}

/// The fewest slots of such a job.
pub(crate) fn least_slots(parts: u16) -> u16 {
    slots_of(Limits::MIN_SLOTS.div_ceil(parts), parts)
}

/// A wish rounded up to a number that can be divided: a power of two in every part.
pub(crate) fn round(wish: u16, parts: u16) -> u16 {
    slots_of(wish.min(Limits::MAX_SLOTS).div_ceil(parts), parts).clamp(least_slots(parts), most_slots(parts))
}

fn slots_of(per_part: u16, parts: u16) -> u16 {
    per_part.next_power_of_two() * parts
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
    pub max_world: Option<u16>,
}

/// Free memory at the time of an admission, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Free {
    /// Free in the whole switch; in a fabric, in the one with the least room.
    pub switch: u64,
    /// Bytes that this switch has for jobs.
    pub total: u64,
    /// Free within the job's quota, if the quota limits memory.
    pub quota: Option<u64>,
    /// Free within the client's share, if the share limits memory.
    pub share: Option<u64>,
}

/// A rule that bounds a job, and the refusal that names it.
pub(crate) struct Rule<'a> {
    pub max_slots: Option<u16>,
    pub max_world: Option<u16>,
    left: Option<u64>,
    pub over: Box<dyn Fn(String, String) -> Refusal + 'a>,
}

/// The rules that bound a job of this name and client.
pub(crate) fn rules<'a>(limits: &'a Limits, name: &'a JobName, client: &'a Client, free: Free) -> Vec<Rule<'a>> {
    let share = limits.share_of(client);
    let of_client =
        move |allowed, needed| Refusal::OverShare { job: name.clone(), client: client.clone(), allowed, needed };
    let mut rules = vec![Rule {
        max_slots: share.max_slots,
        max_world: share.max_world,
        left: free.share,
        over: Box::new(of_client),
    }];
    if let Some(quota) = limits.quota(name) {
        let pattern = &quota.jobs;
        let of_name =
            move |allowed, needed| Refusal::OverQuota { job: name.clone(), pattern: pattern.clone(), allowed, needed };
        let Quota { max_slots, max_world, .. } = *quota;
        rules.push(Rule { max_slots, max_world, left: free.quota, over: Box::new(of_name) });
    }
    rules
}

/// The job's shape with as many slots as fit: the wish is rounded up to a power of two per shard, and halved until it
/// fits.
pub(crate) fn grant(
    limits: &Limits,
    name: &JobName,
    client: &Client,
    wish: JobShape,
    free: Free,
) -> Result<JobShape, Refusal> {
    let rules = rules(limits, name, client, free);
    let smallest = JobShape { slots: least_slots(wish.parts()), ..wish.clone() };
    let mut shape = JobShape { slots: round(wish.slots, wish.parts()), ..wish };
    for rule in &rules {
        if let Some(most) = rule.max_world.filter(|&most| shape.world > most) {
            return Err((rule.over)(format!("{most} ranks"), shape.world.to_string()));
        }
        if let Some(most) = rule.max_slots {
            if most < smallest.slots {
                return Err((rule.over)(format!("{most} slots"), format!("at least {}", smallest.slots)));
            }
            while shape.slots > most {
                shape.slots /= 2;
            }
        }
    }
    let most = rules.iter().filter_map(|rule| rule.left).fold(free.switch, u64::min);
    while shape.bytes() > most && shape.slots > smallest.slots {
        shape.slots /= 2;
    }
    let need = shape.bytes();
    if need > free.switch {
        return Err(Refusal::Full {
            job: name.clone(),
            free: free.switch,
            total: free.total,
            need,
            slots: shape.slots,
            elements: shape.elements_per_packet,
            world: shape.world,
            less: shape.savings(),
        });
    }
    match rules.iter().find_map(|rule| Some((rule, rule.left.filter(|&left| need > left)?))) {
        Some((rule, left)) => Err((rule.over)(format!("{} more", Bytes(left)), format!("at least {}", Bytes(need)))),
        None => Ok(shape),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tributary_proto::contract::ids::JobKey;
    use tributary_proto::protocols;

    fn in_fixed_point() -> tributary_proto::contract::options::Options {
        let given = [("numbers", "fixed"), ("narrow_blocks", "half")];
        let given = given.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        protocols::named("switchml").unwrap().options.read(&given).unwrap()
    }

    fn wish(slots: u16) -> JobShape {
        JobShape {
            protocol: protocols::named("switchml").unwrap(),
            slots,
            elements_per_packet: 360,
            world: 4,
            children: 4,
            neighbours: 0,
            shards: 2,
            trees: 1,
            servers: 0,
            options: in_fixed_point(),
        }
    }

    fn client() -> Client {
        Client::Tenant("a".into())
    }

    fn name() -> JobName {
        JobName::new("team-a-1").unwrap()
    }

    fn slots(limits: &Limits, wished: u16, free: u64) -> Result<u16, Refusal> {
        let free = Free { switch: free, total: limits.memory_bytes, quota: None, share: None };
        grant(limits, &name(), &client(), JobShape { shards: limits.shards, ..wish(wished) }, free)
            .map(|shape| shape.slots)
    }

    #[test]
    fn slots_are_a_power_of_two_in_every_shard() {
        let cases =
            [(1, 1, 8), (1, 100, 128), (2, 100, 128), (2, 1, 8), (3, 100, 192), (16, 1, 16), (1, 65_535, 16_384)];
        for (shards, wished, granted) in cases {
            assert_eq!(slots(&Limits::new(0, shards), wished, u64::MAX), Ok(granted), "{wished} over {shards}");
        }
    }

    #[test]
    fn servers_share_the_slots_in_place_of_the_shards() {
        let limits = Limits::new(1 << 20, 2);
        for (servers, wished, granted) in [(1, 100, 128), (3, 100, 192), (5, 1, 10), (1_023, 1, 1_023)] {
            let wish = JobShape { servers, protocol: protocols::named("ps").unwrap(), ..wish(wished) };
            let free = Free { switch: 1 << 20, total: limits.memory_bytes, quota: None, share: None };
            let shape = grant(&limits, &name(), &client(), wish, free).unwrap();
            assert_eq!(shape.slots, granted, "{wished} over {servers}");
            assert_eq!(shape.config(Default::default(), JobKey(1)).trees, servers);
        }
    }

    #[test]
    fn the_wish_is_halved_until_it_fits() {
        let limits = Limits::new(1 << 20, 2);
        let bytes = |slots| wish(slots).bytes();
        assert_eq!(slots(&limits, 256, bytes(256)), Ok(256));
        assert_eq!(slots(&limits, 256, bytes(256) - 1), Ok(128));
        assert_eq!(slots(&limits, 256, bytes(8)), Ok(8));
        let refused = slots(&limits, 256, bytes(8) - 1).unwrap_err();
        assert_eq!(refused.code(), "full");
        let sentence = refused.to_string();
        assert!(sentence.contains("of 1.0 MiB are free") && sentence.contains("8 slots of 360"), "{sentence}");
    }

    #[test]
    fn a_quota_bounds_ranks_slots_and_memory_of_the_jobs_that_it_names() {
        let quota = Quota { jobs: "team-a*".into(), memory_bytes: None, max_slots: None, max_world: None };
        let ask = |quota: Quota, left| {
            let limits = Limits { quotas: vec![quota], ..Limits::new(1 << 20, 2) };
            grant(
                &limits,
                &name(),
                &client(),
                wish(64),
                Free { switch: u64::MAX, total: limits.memory_bytes, quota: left, share: None },
            )
            .map(|shape| shape.slots)
        };
        assert_eq!(ask(quota.clone(), None), Ok(64));
        assert_eq!(ask(Quota { max_slots: Some(40), ..quota.clone() }, None), Ok(32));
        assert_eq!(ask(quota.clone(), Some(wish(16).bytes())), Ok(16));
        for refused in [
            ask(Quota { max_slots: Some(4), ..quota.clone() }, None),
            ask(Quota { max_world: Some(3), ..quota.clone() }, None),
            ask(quota.clone(), Some(100)),
        ] {
            assert_eq!(refused.unwrap_err().code(), "over_quota");
        }
        let other = Quota { jobs: "team-b*".into(), max_world: Some(1), ..quota };
        assert_eq!(ask(other, None), Ok(64));
    }

    #[test]
    fn a_share_bounds_a_client_s_jobs_whatever_their_names_and_a_tenant_s_own_share_counts_first() {
        let ask = |share, own, left| {
            let tenants = BTreeMap::from([("a".into(), own)]);
            let limits = Limits { share, tenants, ..Limits::new(1 << 20, 2) };
            let free = Free { switch: u64::MAX, total: limits.memory_bytes, quota: None, share: left };
            grant(&limits, &name(), &client(), wish(64), free).map(|shape| shape.slots)
        };
        let (none, few) = (Share::default(), Share { max_slots: Some(16), ..Share::default() });
        assert_eq!(ask(none, none, None), Ok(64));
        assert_eq!(ask(few, none, None), Ok(16));
        assert_eq!(ask(few, Share { max_slots: Some(32), ..none }, None), Ok(32));
        assert_eq!(ask(none, none, Some(wish(16).bytes())), Ok(16));
        for refused in [
            ask(Share { max_world: Some(3), ..none }, none, None),
            ask(none, Share { max_slots: Some(4), ..none }, None),
            ask(none, none, Some(100)),
        ] {
            let refused = refused.unwrap_err();
            assert_eq!(refused.code(), "over_share");
            assert!(refused.to_string().contains("tenant 'a'"), "{refused}");
        }
    }
}

//! How much of the switch a job gets: slots in powers of two, halved until they fit.

use tributary_proto::contract::ids::JobId;

use crate::admission::job_shape::JobShape;
use crate::admission::ledger::{Applicant, Free, Ledger};
use crate::admission::limits::{Limits, Quota, min_slots, round_slots};
use crate::admission::refusal::Refusal;
use crate::wording::HumanBytes;

/// What a job is granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    /// The job's shape, with its slots now.
    pub shape: JobShape,
    /// How resizable jobs divide the memory from now on; `None` if the job's slots never change.
    pub division: Option<Division>,
}

/// The result of a division of the memory: what the newcomer gets, and what the other jobs keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Division {
    /// The newcomer's shape, with the most slots that it may ever have.
    pub most: JobShape,
    /// The newcomer's slots now.
    pub slots: u16,
    /// The slots of the other jobs from now on.
    pub others: Vec<(JobId, u16)>,
}

impl Grant {
    /// The shape on which all members agree: with the most slots that the job may ever have.
    pub fn most(&self) -> &JobShape {
        self.division.as_ref().map_or(&self.shape, |division| &division.most)
    }
}

/// A rule that bounds a job, and the refusal that names it.
struct Rule<'a> {
    max_slots: Option<u16>,
    max_world_size: Option<u16>,
    left: Option<u64>,
    refuse: Box<dyn Fn(String, String) -> Refusal + 'a>,
}

/// The rules that bound a job of this name and client. `left`: what the client's limits and the quota leave.
fn rules<'a>(limits: &'a Limits, who: Applicant<'a>, left: (Option<u64>, Option<u64>)) -> Vec<Rule<'a>> {
    let Applicant { name, client } = who;
    let own = limits.of_client(client);
    let of_client =
        move |allowed, needed| Refusal::OverClientLimit { job: name.clone(), client: client.clone(), allowed, needed };
    let mut rules = vec![Rule {
        max_slots: own.max_slots,
        max_world_size: own.max_world_size,
        left: left.0,
        refuse: Box::new(of_client),
    }];
    if let Some(quota) = limits.quota(name) {
        let pattern = &quota.jobs;
        let of_name =
            move |allowed, needed| Refusal::OverQuota { job: name.clone(), pattern: pattern.clone(), allowed, needed };
        let Quota { max_slots, max_world_size, .. } = *quota;
        rules.push(Rule { max_slots, max_world_size, left: left.1, refuse: Box::new(of_name) });
    }
    rules
}

/// The wished shape within the rules that do not depend on other jobs: its slots are rounded up to a power of two for each
/// shard, and halved until the rules allow them.
fn bounded(rules: &[Rule<'_>], wish: JobShape) -> Result<JobShape, Refusal> {
    let fewest = min_slots(wish.slot_owners());
    let mut shape = wish.with_slots(round_slots(wish.slots, wish.slot_owners()));
    for rule in rules {
        if let Some(most) = rule.max_world_size.filter(|&most| shape.world_size > most) {
            return Err((rule.refuse)(format!("{most} ranks"), shape.world_size.to_string()));
        }
        if let Some(most) = rule.max_slots {
            if most < fewest {
                return Err((rule.refuse)(format!("{most} slots"), format!("at least {fewest}")));
            }
            while shape.slots > most {
                shape.slots /= 2;
            }
        }
    }
    Ok(shape)
}

/// The job's shape with as many slots as fit the free memory.
fn fit(limits: &Limits, who: Applicant<'_>, wish: JobShape, free: Free) -> Result<JobShape, Refusal> {
    let rules = rules(limits, who, (free.client, free.quota));
    let fewest = min_slots(wish.slot_owners());
    let mut shape = bounded(&rules, wish)?;
    let most = rules.iter().filter_map(|rule| rule.left).fold(free.switch, u64::min);
    while shape.bytes() > most && shape.slots > fewest {
        shape.slots /= 2;
    }
    let need = shape.bytes();
    if need > free.switch {
        return Err(Refusal::full(who.name, &shape, free.switch, free.total));
    }
    match rules.iter().find_map(|rule| Some((rule, rule.left.filter(|&left| need > left)?))) {
        Some((rule, left)) => {
            Err((rule.refuse)(format!("{} more", HumanBytes(left)), format!("at least {}", HumanBytes(need))))
        }
        None => Ok(shape),
    }
}

impl Ledger<'_> {
    /// What a job gets that wishes for this shape, or why it gets nothing.
    pub fn grant(&self, who: Applicant<'_>, wish: JobShape) -> Result<Grant, Refusal> {
        if wish.resizes() {
            let most = bounded(&rules(self.limits, who, (None, None)), wish)?;
            let division = self.division(who, most)?;
            let shape = division.most.with_slots(division.slots);
            return Ok(Grant { shape, division: Some(division) });
        }
        let mut free = self.free(who, wish.protocol);
        free.switch = self.free_beside_shared(who, wish.protocol, free)?;
        if self.is_charged_later(wish.protocol) {
            free.switch = u64::MAX;
        }
        Ok(Grant { shape: fit(self.limits, who, wish, free)?, division: None })
    }

    /// What a job would get if it were charged as if all its ranks met at one switch.
    pub fn grant_at_one_switch(&self, who: Applicant<'_>, wish: JobShape) -> Result<JobShape, Refusal> {
        let free = self.free(who, wish.protocol);
        fit(self.limits, who, wish, free)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tributary_proto::contract::ids::JobKey;
    use tributary_proto::protocols;

    use super::*;
    use crate::admission::limits::ClientLimits;
    use crate::names::{Client, JobName};

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
            world_size: 4,
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

    fn grant(limits: &Limits, wish: JobShape, free: Free) -> Result<JobShape, Refusal> {
        fit(limits, Applicant { name: &name(), client: &client() }, wish, free)
    }

    fn slots(limits: &Limits, requested: u16, free: u64) -> Result<u16, Refusal> {
        let free = Free { switch: free, total: limits.memory_bytes, quota: None, client: None };
        grant(limits, JobShape { shards: limits.shards, ..wish(requested) }, free).map(|shape| shape.slots)
    }

    #[test]
    fn slots_are_a_power_of_two_in_every_shard() {
        let cases =
            [(1, 1, 8), (1, 100, 128), (2, 100, 128), (2, 1, 8), (3, 100, 192), (16, 1, 16), (1, 65_535, 16_384)];
        for (shards, requested, granted) in cases {
            assert_eq!(slots(&Limits::new(0, shards), requested, u64::MAX), Ok(granted), "{requested} over {shards}");
        }
    }

    #[test]
    fn servers_divide_the_slots_in_place_of_the_shards() {
        let limits = Limits::new(1 << 20, 2);
        for (servers, requested, granted) in [(1, 100, 128), (3, 100, 192), (5, 1, 10), (1_023, 1, 1_023)] {
            let wish = JobShape { servers, protocol: protocols::named("ps").unwrap(), ..wish(requested) };
            let free = Free { switch: 1 << 20, total: limits.memory_bytes, quota: None, client: None };
            let shape = grant(&limits, wish, free).unwrap();
            assert_eq!(shape.slots, granted, "{requested} over {servers}");
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
        let quota = Quota { jobs: "team-a*".into(), memory_bytes: None, max_slots: None, max_world_size: None };
        let ask = |quota: Quota, left| {
            let limits = Limits { quotas: vec![quota], ..Limits::new(1 << 20, 2) };
            let free = Free { switch: u64::MAX, total: limits.memory_bytes, quota: left, client: None };
            grant(&limits, wish(64), free).map(|shape| shape.slots)
        };
        assert_eq!(ask(quota.clone(), None), Ok(64));
        assert_eq!(ask(Quota { max_slots: Some(40), ..quota.clone() }, None), Ok(32));
        assert_eq!(ask(quota.clone(), Some(wish(16).bytes())), Ok(16));
        for refused in [
            ask(Quota { max_slots: Some(4), ..quota.clone() }, None),
            ask(Quota { max_world_size: Some(3), ..quota.clone() }, None),
            ask(quota.clone(), Some(100)),
        ] {
            assert_eq!(refused.unwrap_err().code(), "over_quota");
        }
        let other = Quota { jobs: "team-b*".into(), max_world_size: Some(1), ..quota };
        assert_eq!(ask(other, None), Ok(64));
    }

    #[test]
    fn limits_bound_a_client_s_jobs_whatever_their_names_and_a_tenant_s_own_count_first() {
        let ask = |each_client, own, left| {
            let tenants = BTreeMap::from([("a".into(), own)]);
            let limits = Limits { each_client, tenants, ..Limits::new(1 << 20, 2) };
            let free = Free { switch: u64::MAX, total: limits.memory_bytes, quota: None, client: left };
            grant(&limits, wish(64), free).map(|shape| shape.slots)
        };
        let (none, low) = (ClientLimits::default(), ClientLimits { max_slots: Some(16), ..ClientLimits::default() });
        assert_eq!(ask(none, none, None), Ok(64));
        assert_eq!(ask(low, none, None), Ok(16));
        assert_eq!(ask(low, ClientLimits { max_slots: Some(32), ..none }, None), Ok(32));
        assert_eq!(ask(none, none, Some(wish(16).bytes())), Ok(16));
        for refused in [
            ask(ClientLimits { max_world_size: Some(3), ..none }, none, None),
            ask(none, ClientLimits { max_slots: Some(4), ..none }, None),
            ask(none, none, Some(100)),
        ] {
            let refused = refused.unwrap_err();
            assert_eq!(refused.code(), "over_client_limit");
            assert!(refused.to_string().contains("tenant 'a'"), "{refused}");
        }
    }
}

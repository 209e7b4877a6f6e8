//! How resizable jobs divide a switch's memory: equally, as far as each job has use for its share, so that the first job
//! does not take all (PANAMA §4.2.2: `packet_memory / num_jobs`). Where tenants have weights, the jobs of a tenant together
//! count as its weight says.
//!
//! A newcomer gets its share at once: the other jobs shrink before it is installed. A job's members have agreed on the
//! most slots that the job may ever have; in each packet a switch says for how many it has memory now.

use tributary_proto::contract::ids::JobId;

use crate::admission::grant::Division;
use crate::admission::job_shape::JobShape;
use crate::admission::ledger::{Account, Applicant, Charge, Ledger, most_used};
use crate::admission::limits::{Limits, Quota};
use crate::admission::refusal::Refusal;
use crate::names::{Client, JobName};
use crate::wording::HumanBytes;

/// The fewest slots in one tree of a job: windows begin with two packets, before any result has said for how many there is
/// memory.
const FEWEST: u16 = 2;

/// The fewest slots that a resizable job is given.
fn fewest_slots(shape: &JobShape) -> u16 {
    FEWEST.saturating_mul(shape.slot_owners()).saturating_mul(shape.trees).min(shape.slots)
}

fn with_fewest(shape: &JobShape) -> JobShape {
    shape.with_slots(fewest_slots(shape))
}

/// The most slots, equal for every owner of slots, with which a job takes no more than `bytes`; never fewer than its
/// fewest.
fn slots_within(shape: &JobShape, bytes: u64) -> u16 {
    let owners = shape.slot_owners();
    let (mut fits, mut most) = (fewest_slots(shape) / owners, shape.slots / owners);
    while fits < most {
        let middle = (fits + most).div_ceil(2);
        match shape.with_slots(middle * owners).bytes() <= bytes {
            true => fits = middle,
            false => most = middle - 1,
        }
    }
    fits * owners
}

/// How much a job counts: the weight of its client, which this number of jobs divide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Weight {
    of_client: u64,
    jobs: u64,
}

impl Weight {
    const EQUAL: Weight = Weight { of_client: 1, jobs: 1 };

    /// A job's bytes where `bytes` is what a job of [`Weight::EQUAL`] has.
    fn share(self, bytes: u64) -> u64 {
        bytes.saturating_mul(self.of_client) / self.jobs
    }
}

/// The slots of each job, if they divide `memory`: as many as their weights' shares allow, or the most that the job may
/// have. `None` if not even the fewest slots fit.
fn divide(memory: u64, jobs: &[(JobShape, Weight)]) -> Option<Vec<u16>> {
    let within = |(shape, weight): &(JobShape, Weight), bytes| slots_within(shape, weight.share(bytes));
    let slots = |bytes: u64| -> Vec<u16> { jobs.iter().map(|job| within(job, bytes)).collect() };
    let bytes =
        |slots: &[u16]| jobs.iter().zip(slots).map(|((shape, _), &slots)| shape.with_slots(slots).bytes()).sum::<u64>();
    let fewest = slots(0);
    if bytes(&fewest) > memory {
        return None;
    }
    // The bytes that a job of equal weight may take, found bit by bit from the highest.
    let most = jobs.iter().map(|(_, weight)| memory.saturating_mul(weight.jobs)).max().unwrap_or(0);
    let mut level = 0;
    for bit in (0..u64::BITS - most.leading_zeros()).rev() {
        let higher = level | 1 << bit;
        if bytes(&slots(higher)) <= memory {
            level = higher;
        }
    }
    Some(slots(level))
}

/// The slots of resizable jobs beside jobs that take `fixed` bytes. The error is the memory that all of them need at least.
pub fn divide_beside(memory: u64, fixed: u64, jobs: &[JobShape]) -> Result<Vec<u16>, u64> {
    let left = memory.checked_sub(fixed);
    let fewest = || fixed + jobs.iter().map(|shape| with_fewest(shape).bytes()).sum::<u64>();
    let equal: Vec<(JobShape, Weight)> = jobs.iter().map(|shape| (shape.clone(), Weight::EQUAL)).collect();
    left.and_then(|left| divide(left, &equal)).ok_or_else(fewest)
}

/// True if a running job with `now` slots is resized to `then`. It shrinks at once, to make way for others. It grows only
/// by half as many slots again, since it starts again with a new epoch.
pub fn is_resized(now: u16, then: u16) -> bool {
    then < now || is_worth_growing(now, then)
}

fn is_worth_growing(now: u16, then: u16) -> bool {
    then >= now + now.div_ceil(2)
}

/// A job that takes part in a division.
struct Participant<'a> {
    /// `None` for the newcomer, which has no id yet.
    id: Option<JobId>,
    name: &'a JobName,
    client: &'a Client,
    /// The job's shape, with the most slots that it may have.
    shape: JobShape,
    /// Its slots so far.
    slots: u16,
}

/// Jobs that together may have no more than this many bytes.
enum Group<'a> {
    Client(&'a Client, u64),
    Quota(&'a Quota, u64),
}

impl Group<'_> {
    fn has(&self, name: &JobName, client: &Client) -> bool {
        match self {
            Group::Client(own, _) => *own == client,
            Group::Quota(quota, _) => name.matches(&quota.jobs),
        }
    }

    fn bytes(&self) -> u64 {
        match self {
            Group::Client(_, bytes) | Group::Quota(_, bytes) => *bytes,
        }
    }

    /// The refusal for a newcomer that does not fit beside the fewest slots of the other jobs.
    fn refusal(&self, job: &JobName, need: u64) -> Refusal {
        let (job, allowed) = (job.clone(), format!("{} for all of its jobs", HumanBytes(self.bytes())));
        let needed = format!("at least {} besides the others' least", HumanBytes(need));
        match self {
            Group::Client(client, _) => Refusal::OverClientLimit { job, client: (*client).clone(), allowed, needed },
            Group::Quota(quota, _) => Refusal::OverQuota { job, pattern: quota.jobs.clone(), allowed, needed },
        }
    }
}

/// The jobs among which memory is divided, and the jobs whose memory does not change.
struct Participants<'a> {
    limits: &'a Limits,
    jobs: Vec<Participant<'a>>,
    fixed: Vec<Account<'a>>,
    /// Bytes of the machines that some of all these jobs share.
    shared: u64,
}

impl<'a> Participants<'a> {
    fn of(ledger: &Ledger<'a>) -> Participants<'a> {
        let (mut jobs, mut fixed) = (Vec::new(), Vec::new());
        for &account in &ledger.jobs {
            let Account { id, name, client, .. } = account;
            match account.charge {
                Charge::Divided { most, slots } => {
                    jobs.push(Participant { id: Some(id), name, client, shape: most.clone(), slots });
                }
                _ => fixed.push(account),
            }
        }
        Participants { limits: ledger.limits, jobs, fixed, shared: ledger.shared_bytes() }
    }

    fn groups(&self) -> Vec<Group<'a>> {
        let mut clients: Vec<&Client> = self.jobs.iter().map(|job| job.client).collect();
        clients.sort_unstable();
        clients.dedup();
        let limited = |client| Some(Group::Client(client, self.limits.of_client(client).memory_bytes?));
        let quotas = self.limits.quotas.iter().filter_map(|quota| Some(Group::Quota(quota, quota.memory_bytes?)));
        clients.into_iter().filter_map(limited).chain(quotas).collect()
    }

    /// What the jobs that take no part leave of these bytes. Only jobs for which `is_of` is true count.
    fn left(&self, bytes: u64, is_of: impl Fn(&Account<'a>) -> bool) -> u64 {
        bytes.saturating_sub(most_used(self.fixed.iter().filter(|job| is_of(job))))
    }

    /// What the jobs that take no part, and the machines that jobs share, leave of the switch.
    fn left_of_switch(&self) -> u64 {
        self.left(self.limits.memory_bytes, |_| true).saturating_sub(self.shared)
    }

    /// The slots of each job. An error if the jobs do not fit even with the fewest slots: it names a group that has the
    /// newcomer; `None` means that the switch is full.
    fn divide(mut self) -> Result<Vec<u16>, Option<Group<'a>>> {
        for group in self.groups() {
            let is_in = |job: &Participant<'_>| group.has(job.name, job.client);
            let members: Vec<usize> = (0..self.jobs.len()).filter(|&at| is_in(&self.jobs[at])).collect();
            let shapes = self.weighed(members.iter().map(|&at| &self.jobs[at]));
            let left = self.left(group.bytes(), |job| group.has(job.name, job.client));
            match divide(left, &shapes) {
                Some(slots) => members.iter().zip(slots).for_each(|(&at, slots)| self.jobs[at].shape.slots = slots),
                None if members.iter().any(|&at| self.jobs[at].id.is_none()) => return Err(Some(group)),
                None => members.iter().for_each(|&at| self.jobs[at].shape = with_fewest(&self.jobs[at].shape)),
            }
        }
        divide(self.left_of_switch(), &self.weighed(self.jobs.iter())).ok_or(None)
    }

    /// Jobs with their weights.
    fn weighed<'b>(&self, jobs: impl Iterator<Item = &'b Participant<'a>>) -> Vec<(JobShape, Weight)>
    where
        'a: 'b,
    {
        let weight = |client: &Client| match self.limits.weight_of(client) {
            None => Weight::EQUAL,
            Some(of_client) => {
                Weight { of_client, jobs: self.jobs.iter().filter(|job| job.client == client).count() as u64 }
            }
        };
        jobs.map(|job| (job.shape.clone(), weight(job.client))).collect()
    }
}

impl Ledger<'_> {
    /// What a newcomer with this largest shape gets, and what the other jobs keep.
    pub(super) fn division(&self, who: Applicant<'_>, most: JobShape) -> Result<Division, Refusal> {
        let mut all = Participants::of(self);
        let fewest: u64 = all.jobs.iter().map(|job| with_fewest(&job.shape).bytes()).sum();
        let free = all.left_of_switch().saturating_sub(fewest);
        let others: Vec<JobId> = all.jobs.iter().filter_map(|job| job.id).collect();
        let Applicant { name, client } = who;
        all.jobs.push(Participant { id: None, name, client, shape: most.clone(), slots: 0 });
        let newcomer = with_fewest(&most);
        let slots = all.divide().map_err(|group| match group {
            Some(group) => group.refusal(name, newcomer.bytes()),
            None => Refusal::full(name, &newcomer, free, self.limits.memory_bytes),
        })?;
        let own = slots.last().copied().unwrap_or_default();
        Ok(Division { most, slots: own, others: others.into_iter().zip(slots).collect() })
    }

    /// The jobs that grow when another job has gone, with their new slots: those for which that is worth a new epoch. `None`
    /// if the jobs do not fit with the fewest slots.
    pub fn growth(&self) -> Option<Vec<(JobId, u16)>> {
        let all = Participants::of(self);
        let now: Vec<(JobId, u16)> = all.jobs.iter().filter_map(|job| Some((job.id?, job.slots))).collect();
        let slots = all.divide().ok()?;
        let grows = |((id, now), then)| is_worth_growing(now, then).then_some((id, then));
        Some(now.into_iter().zip(slots).filter_map(grows).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tributary_proto::protocols;

    fn job(slots: u16, shards: u16) -> JobShape {
        let protocol = protocols::ALL.iter().find(|protocol| protocol.resizes).expect("one of them does");
        JobShape {
            protocol,
            slots,
            elements_per_packet: 358,
            world_size: 4,
            children: 4,
            neighbours: 0,
            shards,
            trees: 1,
            servers: 0,
            options: protocol.options.defaults(),
        }
    }

    fn divide(memory: u64, jobs: &[JobShape]) -> Option<Vec<u16>> {
        divide_beside(memory, 0, jobs).ok()
    }

    fn bytes(jobs: &[JobShape], slots: &[u16]) -> u64 {
        jobs.iter().zip(slots).map(|(shape, &slots)| shape.with_slots(slots).bytes()).sum()
    }

    #[test]
    fn equal_jobs_have_equal_shares_which_add_up_to_the_memory() {
        for (count, shards) in [(1, 1), (2, 1), (8, 1), (8, 2), (3, 4)] {
            let jobs = vec![job(4_096, shards); count];
            let slots = divide(1 << 20, &jobs).unwrap();
            assert!(slots.iter().all(|&own| own == slots[0] && own.is_multiple_of(shards)), "{slots:?}");
            let (all, one_more) = (bytes(&jobs, &slots), vec![slots[0] + shards; count]);
            assert!(all <= 1 << 20 && bytes(&jobs, &one_more) > 1 << 20, "{all} of {} for {count}", 1 << 20);
        }
    }

    #[test]
    fn what_one_has_no_use_for_the_others_have() {
        let jobs = [job(8, 1), job(4_096, 1), job(4_096, 1)];
        let slots = divide(1 << 20, &jobs).unwrap();
        let two = divide((1 << 20) - jobs[0].bytes(), &jobs[1..]).unwrap();
        assert_eq!(slots, [8, two[0], two[1]]);
    }

    #[test]
    fn jobs_have_bytes_by_weight_as_far_as_they_have_use_for_them() {
        let of = |of_client, jobs| (job(16_384, 1), Weight { of_client, jobs });
        let jobs = [of(3, 1), of(1, 2), of(1, 2)];
        let slots = super::divide(4 << 20, &jobs).unwrap();
        let bytes: Vec<u64> = jobs.iter().zip(&slots).map(|((shape, _), &own)| shape.with_slots(own).bytes()).collect();
        let slot = job(2, 1).bytes() - job(1, 1).bytes();
        assert!(bytes[1] == bytes[2] && bytes.iter().sum::<u64>() <= 4 << 20);
        assert!(bytes[0].abs_diff(6 * bytes[1]) <= 6 * slot, "{bytes:?}");
        let small = [(job(8, 1), Weight { of_client: 3, jobs: 1 }), of(1, 1)];
        assert_eq!(super::divide(1 << 20, &small).unwrap()[0], 8, "more is of no use");
    }

    #[test]
    fn each_has_two_packets_in_every_tree_where_trees_divide_what_it_has() {
        let jobs = vec![JobShape { trees: 4, ..job(64, 1) }; 3];
        let fewest = bytes(&jobs, &[8; 3]);
        assert_eq!(divide(fewest, &jobs), Some(vec![8; 3]));
        assert_eq!(divide(fewest - 1, &jobs), None);
    }

    #[test]
    fn each_has_two_packets_in_every_shard_or_nobody_has_anything() {
        let jobs = vec![job(64, 2); 5];
        let fewest = bytes(&jobs, &[4; 5]);
        assert_eq!(divide(fewest, &jobs), Some(vec![4; 5]));
        assert_eq!(divide(fewest - 1, &jobs), None);
        assert_eq!(divide(0, &[]), Some(Vec::new()));
    }

    #[test]
    fn a_running_job_shrinks_at_once_and_grows_by_half() {
        for (now, then, resized) in [(8, 7, true), (8, 8, false), (8, 11, false), (8, 12, true), (7, 10, false)] {
            assert_eq!(is_resized(now, then), resized, "{now} to {then}");
        }
    }

    #[test]
    fn what_all_jobs_need_at_least_is_said_if_they_do_not_fit() {
        let jobs = [job(64, 1), job(64, 1)];
        let fewest = bytes(&jobs, &[2; 2]);
        assert_eq!(divide_beside(fewest + 7, 7, &jobs), Ok(vec![2; 2]));
        assert_eq!(divide_beside(fewest + 6, 7, &jobs), Err(fewest + 7));
        assert_eq!(divide_beside(0, 7, &[]), Err(7));
    }
}

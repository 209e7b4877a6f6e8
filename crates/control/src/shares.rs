//! How jobs divide a switch's memory if their machines can be resized: equally, as far as each job has use for its
//! part, so that the first job does not take all (PANAMA §4.2.2: `packet_memory / num_jobs`).

use crate::memory::JobShape;

/// The fewest slots in one tree of a job: windows begin with two packets, before any result has told for how many there
/// is room.
const FEWEST: u16 = 2;

/// The fewest slots that a job is given.
pub(crate) fn least(shape: &JobShape) -> u16 {
    FEWEST.saturating_mul(shape.parts()).saturating_mul(shape.trees).min(shape.slots)
}

/// The same job with another number of slots.
pub(crate) fn with(shape: &JobShape, slots: u16) -> JobShape {
    JobShape { slots, ..shape.clone() }
}

/// The most slots, equal in every part of the switch, with which a job takes no more than `bytes`; never fewer than its
/// least.
fn slots_within(shape: &JobShape, bytes: u64) -> u16 {
    let parts = shape.parts();
    let (mut fits, mut most) = (least(shape) / parts, shape.slots / parts);
    while fits < most {
        let middle = (fits + most).div_ceil(2);
        match with(shape, middle * parts).bytes() <= bytes {
            true => fits = middle,
            false => most = middle - 1,
        }
    }
    fits * parts
}

/// The slots of each job, if they divide `memory`: as many as an equal number of bytes for each job allows, or the most
/// that the job may have. `None` if not even the fewest slots fit.
pub fn divide(memory: u64, jobs: &[JobShape]) -> Option<Vec<u16>> {
    let slots = |bytes: u64| -> Vec<u16> { jobs.iter().map(|shape| slots_within(shape, bytes)).collect() };
    let taken = |slots: &[u16]| jobs.iter().zip(slots).map(|(shape, &slots)| with(shape, slots).bytes()).sum::<u64>();
    let fewest = slots(0);
    if taken(&fewest) > memory {
        return None;
    }
    // The bytes that each job may take, found bit by bit from above.
    let mut level = 0;
    for bit in (0..u64::BITS - memory.leading_zeros()).rev() {
        let higher = level | 1 << bit;
        if taken(&slots(higher)) <= memory {
            level = higher;
        }
    }
    Some(slots(level))
}

/// True if a job that has `now` slots should get `then`: half as many slots again are worth that the job begins anew
/// with them.
pub fn is_worth_growing(now: u16, then: u16) -> bool {
    then >= now + now.div_ceil(2)
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
            world: 4,
            children: 4,
            neighbours: 0,
            shards,
            trees: 1,
            servers: 0,
            options: protocol.options.defaults(),
        }
    }

    fn taken(jobs: &[JobShape], slots: &[u16]) -> u64 {
        jobs.iter().zip(slots).map(|(shape, &slots)| with(shape, slots).bytes()).sum()
    }

    #[test]
    fn equal_jobs_have_equal_shares_which_add_up_to_the_memory() {
        for (count, shards) in [(1, 1), (2, 1), (8, 1), (8, 2), (3, 4)] {
            let jobs = vec![job(4_096, shards); count];
            let slots = divide(1 << 20, &jobs).unwrap();
            assert!(slots.iter().all(|&own| own == slots[0] && own.is_multiple_of(shards)), "{slots:?}");
            let (all, one_more) = (taken(&jobs, &slots), vec![slots[0] + shards; count]);
            assert!(all <= 1 << 20 && taken(&jobs, &one_more) > 1 << 20, "{all} of {} for {count}", 1 << 20);
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
    fn each_has_two_packets_in_every_tree_where_trees_divide_what_it_has() {
        let jobs = vec![JobShape { trees: 4, ..job(64, 1) }; 3];
        let fewest = taken(&jobs, &[8; 3]);
        assert_eq!(divide(fewest, &jobs), Some(vec![8; 3]));
        assert_eq!(divide(fewest - 1, &jobs), None);
    }

    #[test]
    fn each_has_two_packets_in_every_part_or_nobody_has_anything() {
        let jobs = vec![job(64, 2); 5];
        let fewest = taken(&jobs, &[4; 5]);
        assert_eq!(divide(fewest, &jobs), Some(vec![4; 5]));
        assert_eq!(divide(fewest - 1, &jobs), None);
        assert_eq!(divide(0, &[]), Some(Vec::new()));
    }
}

//! Which of the equal-cost paths a packet takes. A sender puts an entropy into each packet, as into a UDP source port, and
//! switches that choose by flow hash it, too.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use tributary_proto::contract::time::{Span, Time};

/// How the packets of a flow are spread over equal-cost paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Spray {
    /// All take one path.
    #[default]
    Flow,
    /// Each takes another entropy, whatever happens to it.
    Packet,
    /// Entropies with which packets have come unmarked are taken again, and others where there are none (REPS: recycled
    /// entropy packet spraying; Bonato et al., 2024). After a timeout no others are tried for a while.
    Reps,
}

impl Spray {
    /// True if packets of a flow take several paths.
    pub fn takes_several_paths(self) -> bool {
        self != Spray::Flow
    }
}

/// How many entropies are kept to be taken again, as in REPS.
const CACHED: usize = 8;
/// For how long after a timeout only these are taken: ours, as long as the least timeout.
const FREEZE: Span = Span::from_millis(10);

/// The entropies of a flow.
#[derive(Debug)]
pub(super) struct Entropies {
    spray: Spray,
    /// The next one that is not taken again.
    fresh: u8,
    /// With which packets have come unmarked.
    cached: VecDeque<u8>,
    /// How many of these, the last ones, were not taken again.
    unused: usize,
    /// A timeout has frozen the cache until then.
    frozen_until: Option<Time>,
}

impl Entropies {
    pub fn new(spray: Spray) -> Entropies {
        Entropies { spray, fresh: 0, cached: VecDeque::new(), unused: 0, frozen_until: None }
    }

    /// That of the next packet.
    pub fn next(&self) -> u8 {
        let first = if self.is_frozen() { 0 } else { self.cached.len() - self.unused };
        self.cached.get(first).copied().unwrap_or(self.fresh)
    }

    /// That of a packet which is sent now.
    pub fn take(&mut self) -> u8 {
        let entropy = self.next();
        if self.unused > 0 {
            self.unused -= 1;
        } else if self.is_frozen() {
            self.cached.rotate_left(1);
        } else if self.spray.takes_several_paths() {
            self.fresh = entropy.wrapping_add(1);
        }
        entropy
    }

    /// True if all cached ones are taken in turns, although they were taken again before.
    fn is_frozen(&self) -> bool {
        self.unused == 0 && self.frozen_until.is_some() && !self.cached.is_empty()
    }

    /// A packet with this entropy has come, marked or not.
    pub fn acknowledged(&mut self, now: Time, entropy: u8, marked: bool) {
        self.frozen_until = self.frozen_until.filter(|until| now < *until);
        if self.spray == Spray::Reps && !marked {
            if self.cached.len() == CACHED {
                self.cached.pop_front();
            }
            self.cached.push_back(entropy);
            self.unused = self.cached.len().min(self.unused + 1);
        }
    }

    /// Packets were lost for so long that a path may have failed.
    pub fn timed_out(&mut self, now: Time) {
        self.frozen_until.get_or_insert(now + FREEZE);
    }
}

/// By what switches choose the path of a packet: the number of its flow, and its entropy in bits that numbers seldom reach.
pub(super) fn path(flow: u32, entropy: u8) -> u32 {
    flow ^ u32::from(entropy) << 21
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(entropies: &mut Entropies, packets: usize) -> Vec<u8> {
        let one = |_| {
            let next = entropies.next();
            assert_eq!(entropies.take(), next);
            next
        };
        (0..packets).map(one).collect()
    }

    #[test]
    fn all_packets_of_a_flow_have_one_entropy_or_each_has_another() {
        let mut one = Entropies::new(Spray::Flow);
        one.acknowledged(Time::ZERO, 3, false);
        assert_eq!(taken(&mut one, 3), [0; 3]);
        let mut each = Entropies::new(Spray::Packet);
        each.acknowledged(Time::ZERO, 3, false);
        assert_eq!(taken(&mut each, 300), (0..300).map(|packet| packet as u8).collect::<Vec<_>>());
    }

    #[test]
    fn entropies_of_packets_that_came_unmarked_are_taken_again_the_last_eight_of_them() {
        let mut reps = Entropies::new(Spray::Reps);
        assert_eq!(taken(&mut reps, 2), [0, 1]);
        reps.acknowledged(Time::ZERO, 0, true);
        reps.acknowledged(Time::ZERO, 1, false);
        assert_eq!(taken(&mut reps, 2), [1, 2]);
        (10..20).for_each(|entropy| reps.acknowledged(Time::ZERO, entropy, false));
        assert_eq!(taken(&mut reps, 9), [12, 13, 14, 15, 16, 17, 18, 19, 3]);
    }

    #[test]
    fn after_a_timeout_only_entropies_are_taken_with_which_packets_have_come() {
        let mut reps = Entropies::new(Spray::Reps);
        reps.timed_out(Time::ZERO);
        assert_eq!(taken(&mut reps, 3), [0, 1, 2], "none has come");
        (0..2).for_each(|entropy| reps.acknowledged(Time::ZERO, entropy, false));
        assert_eq!(taken(&mut reps, 5), [0, 1, 0, 1, 0]);
        reps.acknowledged(Time::ZERO + FREEZE, 0, true);
        assert_eq!(taken(&mut reps, 2), [3, 4]);
    }
}

//! Which of the equal-cost paths a packet takes. A sender puts an entropy into each packet, as into a UDP source port, and
//! switches that choose by flow hash it, too.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

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
    /// entropy packet spraying; Bonato et al., 2024). It does without their freezing of the cache after losses.
    Reps,
}

impl Spray {
    /// True if packets of a flow take several paths.
    pub fn takes_several_paths(self) -> bool {
        self != Spray::Flow
    }
}

/// How many entropies are kept to be taken again, as in REPS.
const RECYCLED: usize = 8;

/// The entropies of a flow.
#[derive(Debug)]
pub(super) struct Entropies {
    spray: Spray,
    /// The next one that is not taken again.
    fresh: u8,
    recycled: VecDeque<u8>,
}

impl Entropies {
    pub fn new(spray: Spray) -> Entropies {
        Entropies { spray, fresh: 0, recycled: VecDeque::new() }
    }

    /// That of the next packet.
    pub fn next(&self) -> u8 {
        self.recycled.front().copied().unwrap_or(self.fresh)
    }

    /// That of a packet which is sent now.
    pub fn take(&mut self) -> u8 {
        if let Some(entropy) = self.recycled.pop_front() {
            return entropy;
        }
        let entropy = self.fresh;
        if self.spray.takes_several_paths() {
            self.fresh = entropy.wrapping_add(1);
        }
        entropy
    }

    /// A packet with this entropy has come, marked or not.
    pub fn acknowledged(&mut self, entropy: u8, marked: bool) {
        if self.spray == Spray::Reps && !marked {
            if self.recycled.len() == RECYCLED {
                self.recycled.pop_front();
            }
            self.recycled.push_back(entropy);
        }
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
        one.acknowledged(3, false);
        assert_eq!(taken(&mut one, 3), [0; 3]);
        let mut each = Entropies::new(Spray::Packet);
        each.acknowledged(3, false);
        assert_eq!(taken(&mut each, 300), (0..300).map(|packet| packet as u8).collect::<Vec<_>>());
    }

    #[test]
    fn entropies_of_packets_that_came_unmarked_are_taken_again_the_last_eight_of_them() {
        let mut reps = Entropies::new(Spray::Reps);
        assert_eq!(taken(&mut reps, 2), [0, 1]);
        reps.acknowledged(0, true);
        reps.acknowledged(1, false);
        assert_eq!(taken(&mut reps, 2), [1, 2]);
        (10..20).for_each(|entropy| reps.acknowledged(entropy, false));
        assert_eq!(taken(&mut reps, 9), [12, 13, 14, 15, 16, 17, 18, 19, 3]);
    }
}

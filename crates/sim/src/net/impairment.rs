//! How a faulty link treats the packets that come out of it.

use tributary_proto::contract::time::Span;

use super::LossCause;
use crate::rng::{Purpose, Rng};

/// Probabilities for each packet, independent of other packets.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ImpairmentSpec {
    /// The packet is lost.
    pub loss: f64,
    /// Bits flip, and the frame check drops the packet.
    pub corruption: f64,
    /// The packet arrives twice, the second time up to `longest_delay` later.
    pub duplication: f64,
    /// The packet is delayed, so that others may overtake it.
    pub reordering: f64,
    /// Delays are drawn evenly from a picosecond to this.
    pub longest_delay: Span,
}

/// A faulty link's settings and random numbers.
pub struct LinkImpairment {
    spec: ImpairmentSpec,
    rng: Rng,
}

/// The fate of one packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fate {
    /// The packet is lost for this cause.
    pub lost: Option<LossCause>,
    /// A copy arrives this much later.
    pub copy_after: Option<Span>,
    /// The packet arrives this much later.
    pub delayed_by: Option<Span>,
}

impl LinkImpairment {
    /// The impairment of one link.
    pub fn new(spec: ImpairmentSpec, seed: u64, link: u32) -> LinkImpairment {
        LinkImpairment { spec, rng: Rng::new(seed, Purpose::LinkFaults, u64::from(link)) }
    }

    /// The fate of the next packet.
    pub fn draw(&mut self) -> Fate {
        let mut fate = Fate::default();
        if self.rng.chance(self.spec.loss) {
            fate.lost = Some(LossCause::Lost);
        } else if self.rng.chance(self.spec.corruption) {
            fate.lost = Some(LossCause::Corrupted);
        } else {
            fate.copy_after = self.rng.chance(self.spec.duplication).then(|| self.delay());
            fate.delayed_by = self.rng.chance(self.spec.reordering).then(|| self.delay());
        }
        fate
    }

    fn delay(&mut self) -> Span {
        Span(1 + (self.rng.unit() * self.spec.longest_delay.0 as f64) as u64)
    }
}

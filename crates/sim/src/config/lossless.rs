//! Networks that lose nothing: by PAUSE, or by credits.

use serde::{Deserialize, Serialize};
use tributary_proto::contract::time::Span;

use super::{Bytes, Config, ConfigError, invalid};
use crate::net::{Charges, LosslessSpec, MOST_CHANNELS, headroom};
use crate::topology::{Graph, LinkSpec};

/// The longest packet of Ethernet with preamble and gap.
pub(super) const FULL_PACKET: u64 = 1538;

/// `lossless`: when a switch orders the sender of a port's packets to PAUSE, or credits in its place. `queue` is the buffer
/// of each port for packets that came in there; with PAUSE it must also hold the packets that still arrive after the order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct LosslessSection {
    /// What keeps queues from overflowing.
    #[serde(skip_serializing_if = "LosslessKind::is_default")]
    pub kind: LosslessKind,
    /// With credits, the virtual channels of each link, which share `queue` evenly; one if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channels: Option<u8>,
    /// The sender must pause when more than this waits; half of the smallest queue if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xoff: Option<Bytes>,
    /// The sender goes on when no more than this waits; two packets of 1,538 bytes less than `xoff` if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xon: Option<Bytes>,
    /// Which packets are charged to a port's buffer; all if left out. The other choices show what PAUSE does to programs'
    /// sums.
    #[serde(skip_serializing_if = "Charges::is_default")]
    pub charges: Charges,
}

/// What keeps queues from overflowing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LosslessKind {
    /// A switch stops the sender of a port's packets.
    #[default]
    Pause,
    /// A sender has credits for what the far end can hold of each virtual channel.
    Credits,
}

impl LosslessKind {
    /// True for the default.
    pub fn is_default(&self) -> bool {
        *self == LosslessKind::default()
    }
}

impl LosslessSection {
    /// What keeps queues from overflowing.
    pub(super) fn spec(&self, graph: &Graph, switch_latency: Span) -> Result<LosslessSpec, ConfigError> {
        let links = || graph.edges().iter().flat_map(|edge| [edge.a_to_b, edge.b_to_a]);
        let smallest = links().map(|link| link.queue_bytes).min().unwrap_or(0);
        if self.kind == LosslessKind::Credits {
            let fastest = links().map(|link| link.delay).min().unwrap_or_default();
            return credits(self, smallest, fastest);
        }
        if self.channels.is_some() {
            return Err(invalid("lossless: channels are for kind = \"credits\"; PAUSE stops a whole cable"));
        }
        let xoff = self.xoff.map_or(smallest / 2, |xoff| xoff.0);
        let xon = self.xon.map_or(xoff.saturating_sub(2 * FULL_PACKET), |xon| xon.0);
        if xon > xoff {
            return Err(invalid(format!("lossless: xon = {} is more than xoff = {}", Bytes(xon), Bytes(xoff))));
        }
        for link in links() {
            // An order to pause also takes a switch's latency.
            let link = LinkSpec { delay: link.delay + switch_latency, ..link };
            let needed = xoff.saturating_add(headroom(&link, FULL_PACKET));
            if needed > link.queue_bytes {
                return Err(invalid(format!(
                    "lossless: with xoff = {} a queue needs {} for what still comes in, and has {}",
                    Bytes(xoff),
                    Bytes(needed),
                    Bytes(link.queue_bytes)
                )));
            }
        }
        Ok(LosslessSpec { xoff, xon, charges: self.charges, channels: None })
    }
}

/// Links with credits, where the smallest queue and the shortest delay are these.
fn credits(section: &LosslessSection, smallest: u64, fastest: Span) -> Result<LosslessSpec, ConfigError> {
    let channels = section.channels.unwrap_or(1);
    if section.xoff.is_some() || section.xon.is_some() {
        return Err(invalid(
            "lossless: xoff and xon are PAUSE's; with credits a sender knows what the far end can hold",
        ));
    }
    if !(1..=MOST_CHANNELS).contains(&channels) {
        return Err(invalid(format!("lossless: a link has 1 to {MOST_CHANNELS} channels, not {channels}")));
    }
    if smallest / u64::from(channels) < FULL_PACKET {
        return Err(invalid(format!(
            "lossless: a channel needs {} for a packet, and {channels} share a queue of {}",
            Bytes(FULL_PACKET),
            Bytes(smallest)
        )));
    }
    if fastest == Span::ZERO {
        return Err(invalid("lossless: a credit takes as long as a packet on the way back: links need a delay"));
    }
    Ok(LosslessSpec { xoff: u64::MAX, xon: u64::MAX, charges: section.charges, channels: Some(channels) })
}

/// Refuses what takes packets, or their charges, past the buffers whose bytes credits or classes count.
pub(crate) fn check_credits(config: &Config) -> Result<(), ConfigError> {
    let of_class = config.network.service.is_some();
    let has_credits = |section: LosslessSection| section.kind == LosslessKind::Credits || of_class;
    let has_credits = config.network.lossless.is_some_and(has_credits);
    let switches = &config.switches;
    let others = [
        ("a fault", !config.faults.is_empty()),
        ("switches.cores", switches.cores.is_some()),
        ("switches.accelerator", switches.accelerator.is_some()),
    ];
    match others.into_iter().find(|&(_, is_there)| has_credits && is_there) {
        Some((what, _)) => {
            Err(invalid(format!("lossless: with credits or classes no packet is lost or held back: leave {what} out")))
        }
        None => Ok(()),
    }
}

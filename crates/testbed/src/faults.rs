//! The faults of links: they lose, double and reorder packets.
//!
//! - *Loss* rolls for each packet, at the arriving end of each link, in both directions (`bpf.rs`).
//! - *Duplicates* are nft's: `dup` on the way out of each end of a link. A train of segments is doubled as a whole.
//! - *Reordering* needs a queue that some packets wait in while others pass: the link's shaper becomes two classes
//!   of `tc htb`, and nft sends a random fraction of the packets through the slow one. (Kernels often lack netem.)

use crate::bpf::{self, XdpLink};
use crate::error::TestbedError;
use crate::link::Shaping;
use crate::namespace::Namespace;
use crate::offload;
use crate::tool;

/// The slow class passes this many times what a full link sends through it: packets queue there, and the queue stays
/// short.
const SLOW_HEADROOM: f64 = 2.0;
/// The rate of an unshaped link: reordering needs a rate, so that its slow class can be slower.
const UNSHAPED_BITS_PER_SECOND: u64 = 10_000_000_000;

/// The probability, in percent, of each fault, for each packet or train of packets that passes one link one way.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// A packet vanishes.
    pub loss_percent: f64,
    /// A packet (or train) arrives twice.
    pub duplicate_percent: f64,
    /// A packet (or train) is delayed while others pass it.
    pub reorder_percent: f64,
}

impl Faults {
    /// Only loss.
    pub fn loss(percent: f64) -> Faults {
        Faults { loss_percent: percent, ..Faults::default() }
    }

    pub(crate) fn check(&self) -> Result<(), TestbedError> {
        for (name, percent) in
            [("loss", self.loss_percent), ("duplication", self.duplicate_percent), ("reordering", self.reorder_percent)]
        {
            if !(0.0..100.0).contains(&percent) {
                return Err(TestbedError::Options(format!(
                    "{percent} % of {name} is not possible; give 0 to below 100"
                )));
            }
        }
        Ok(())
    }
}

/// The faults of one end of one link; dropping it ends the loss.
#[derive(Debug)]
pub(crate) struct FaultyEnd {
    _loss: Option<XdpLink>,
}

/// Sets the queue and the faults of `device`; they replace those that it had.
pub(crate) fn apply(
    namespace: &Namespace,
    device: &str,
    shaping: Shaping,
    faults: &Faults,
) -> Result<FaultyEnd, TestbedError> {
    set_queue(namespace, device, shaping, faults)?;
    set_rules(namespace, device, faults)?;
    let loss = match faults.loss_percent {
        0.0 => None,
        percent => Some(namespace.inside(|| bpf::drop_at_random(device, percent / 100.0))??),
    };
    namespace.inside(|| offload::join_arriving(device, loss.is_some()))??;
    Ok(FaultyEnd { _loss: loss })
}

fn set_queue(namespace: &Namespace, device: &str, shaping: Shaping, faults: &Faults) -> Result<(), TestbedError> {
    let mut lines = Vec::new();
    if faults.reorder_percent > 0.0 {
        let rate = match shaping {
            Shaping::Unshaped => UNSHAPED_BITS_PER_SECOND,
            Shaping::BitsPerSecond(rate) => rate,
        };
        let burst = Shaping::BitsPerSecond(rate).burst_bytes().unwrap_or_default();
        lines.push(format!("qdisc replace dev {device} root handle 2: htb default 10"));
        lines.push(format!(
            "class add dev {device} parent 2: classid 2:10 htb rate {rate}bit burst {burst}b quantum 60000"
        ));
        lines.push(format!(
            "class add dev {device} parent 2: classid 2:20 htb rate {}bit burst 3000b quantum 60000",
            (rate as f64 * (faults.reorder_percent / 100.0 * SLOW_HEADROOM).min(1.0)).ceil()
        ));
    } else if let Some(tbf) = shaping.tbf() {
        lines.push(format!("qdisc replace dev {device} root handle 1: {tbf}"));
    } else {
        lines.push(format!("qdisc replace dev {device} root noqueue"));
    }
    tool::feed("tc", &["-n", namespace.name(), "-batch", "-"], &(lines.join("\n") + "\n")).map(drop)
}

fn set_rules(namespace: &Namespace, device: &str, faults: &Faults) -> Result<(), TestbedError> {
    let dice = |percent: f64| format!("numgen random mod 1000000 < {}", (percent * 10_000.0).round() as u64);
    // `add` before `delete` makes the deletion succeed even if there was no table.
    let mut text = format!("add table netdev {device}\ndelete table netdev {device}\n");
    if faults.duplicate_percent > 0.0 || faults.reorder_percent > 0.0 {
        text += &format!(
            "table netdev {device} {{\n chain out {{\n  type filter hook egress device {device} priority 0;\n"
        );
        if faults.reorder_percent > 0.0 {
            text += &format!("  {} meta priority set 2:20\n", dice(faults.reorder_percent));
        }
        if faults.duplicate_percent > 0.0 {
            text += &format!("  {} dup to {device}\n", dice(faults.duplicate_percent));
        }
        text += " }\n}\n";
    }
    namespace.inside(|| tool::feed("nft", &["-f", "-"], &text))?.map(drop)
}

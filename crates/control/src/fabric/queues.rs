//! The cables of a fabric and their queues: rate and length, which packets queues mark, and when a port pauses its sender.
//! The thresholds for pauses are the simulator's (docs/simulator-reference.md, *Lossless networks*); the headroom is for processes.

use tributary_proto::congestion::Marking;
use tributary_proto::contract::ids::{NodeId, PortId};

use super::file::{FabricFile, LinkFile};
use crate::quantity::{Bytes, DataRate};
use crate::routes::Cabling;

/// A cable between two nodes, the same both ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cable {
    /// Bits per second; `None` if nothing limits the rate.
    pub bits_per_s: Option<u64>,
    /// Bytes that may wait at each end.
    pub queue_bytes: u64,
}

/// The properties of each cable. `find` finds nodes by name.
pub(super) fn cables(
    file: &FabricFile,
    cabling: &Cabling,
    find: impl Fn(&String) -> Result<NodeId, String>,
) -> Result<Vec<Cable>, String> {
    let bits = |rate: DataRate| rate.0.0;
    let common = Cable { bits_per_s: file.rate.map(bits), queue_bytes: file.queue.0 };
    let mut cables = vec![common; cabling.cables.len()];
    for LinkFile { between: [a, b], rate, queue } in &file.links {
        let (from, to) = (find(a)?, find(b)?);
        let found = cabling.cables.iter().position(|&ends| ends == (from, to) || ends == (to, from));
        let cable = &mut cables[found.ok_or_else(|| format!("link: nothing joins '{a}' and '{b}'"))?];
        cable.bits_per_s = rate.map(bits).or(cable.bits_per_s);
        cable.queue_bytes = queue.map_or(cable.queue_bytes, |queue| queue.0);
    }
    Ok(cables)
}

/// Which packets a queue marks, by the bytes that they find waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks {
    /// No packet that finds no more than this.
    pub mark_above: u64,
    /// Every packet that finds more than this; of those between a share that rises with the queue.
    pub mark_all_above: u64,
}

impl Marks {
    /// What the file says. An error is one sentence.
    pub fn of(file: &FabricFile) -> Result<Option<Marks>, String> {
        match (file.mark_above, file.mark_all_above) {
            (None, None) => Ok(None),
            (None, Some(_)) => Err("mark_all_above is for fabrics with mark_above".into()),
            (Some(least), Some(all)) if all < least => {
                Err(format!("mark_all_above = {all}: it is at least mark_above, which is {least}"))
            }
            (Some(least), all) => Ok(Some(Marks { mark_above: least.0, mark_all_above: all.unwrap_or(least).0 })),
        }
    }

    /// The rule of the queue at one port of one switch. Each queue draws other packets.
    pub fn at(self, node: NodeId, port: PortId) -> Marking {
        Marking::new(self.mark_above, self.mark_all_above, u64::from(node.0) << 16 | u64::from(port.0))
    }
}

/// A full packet as queues count it: 1,500 bytes and Ethernet's framing.
const FULL_PACKET: u64 = 1_542;
/// How late the sender's process and the receiver's may be. The packets of this time, and three more, may still come in
/// after a port was told to pause.
const LATE_MS: u64 = 5;

/// When to stop senders, in bytes for each port by which packets come in. A port's whole buffer is its cable's
/// `queue_bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// More bytes than this stop the sender.
    pub pause_above: u64,
    /// This many bytes or fewer let the sender go on.
    pub go_on_at: u64,
}

impl Thresholds {
    /// The thresholds of the file; `None` if queues drop packets. The error is one sentence.
    pub fn of(file: &FabricFile, cables: &[Cable]) -> Result<Option<Thresholds>, String> {
        if !file.lossless {
            return match file.pause_above {
                Some(_) => Err("pause_above is for fabrics with lossless = true".into()),
                None => Ok(None),
            };
        }
        let smallest = cables.iter().map(|cable| cable.queue_bytes).min().unwrap_or(0);
        let pause_above = file.pause_above.map_or(smallest / 2, |pause| pause.0);
        if pause_above <= 2 * FULL_PACKET {
            return Err(format!(
                "pause_above = {}: that is less than two packets; take 4 KiB or more",
                Bytes(pause_above)
            ));
        }
        for cable in cables {
            let Some(rate) = cable.bits_per_s else {
                return Err(
                    "lossless = true: every link needs a rate, or nobody knows how much comes in after a PAUSE".into(),
                );
            };
            let needed = pause_above + headroom(rate);
            if cable.queue_bytes < needed {
                return Err(format!(
                    "lossless = true: a queue of {} KiB does not hold the {} KiB above which a port pauses and the {} KiB that \
                     may come in after that at {} Mbit/s; give queue = \"{} KiB\" or more",
                    cable.queue_bytes >> 10,
                    pause_above >> 10,
                    headroom(rate).div_ceil(1 << 10),
                    rate / 1_000_000,
                    match file.pause_above {
                        Some(_) => needed.div_ceil(1 << 10),
                        None => (2 * headroom(rate)).div_ceil(1 << 10),
                    },
                ));
            }
        }
        Ok(Some(Thresholds { pause_above, go_on_at: pause_above - 2 * FULL_PACKET }))
    }
}

/// Bytes that may still come in after a port was told to pause.
fn headroom(bits_per_s: u64) -> u64 {
    bits_per_s / 8 * LATE_MS / 1_000 + 3 * FULL_PACKET
}

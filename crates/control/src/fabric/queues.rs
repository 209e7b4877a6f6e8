//! The cables of a fabric and their queues: rate and length, which packets queues mark, and when a port pauses its sender.
//! The thresholds for pauses are the simulator's (docs/simulator.md, *Lossless networks*); the headroom is for processes.

use tributary_proto::contract::ids::{NodeId, PortId};
use tributary_proto::marking::Marking;

use super::file::{FabricFile, LinkFile};
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
    let bits = |mbps: u32| u64::from(mbps) * 1_000_000;
    let common = Cable { bits_per_s: file.rate_mbps.map(bits), queue_bytes: kib(file.queue_kib) };
    let mut cables = vec![common; cabling.cables.len()];
    for LinkFile { between: [a, b], rate_mbps, queue_kib } in &file.links {
        let (from, to) = (find(a)?, find(b)?);
        let found = cabling.cables.iter().position(|&ends| ends == (from, to) || ends == (to, from));
        let cable = &mut cables[found.ok_or_else(|| format!("link: nothing joins '{a}' and '{b}'"))?];
        cable.bits_per_s = rate_mbps.map(bits).or(cable.bits_per_s);
        cable.queue_bytes = queue_kib.map(kib).unwrap_or(cable.queue_bytes);
    }
    Ok(cables)
}

/// Which packets a queue marks, by the bytes that they find waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks {
    /// No packet that finds no more than this.
    pub above: u64,
    /// Every packet that finds more than this; of those between a share that rises with the queue.
    pub all_above: u64,
}

impl Marks {
    /// What the file says. An error is one sentence.
    pub fn of(file: &FabricFile) -> Result<Option<Marks>, String> {
        match (file.mark_above_kib, file.mark_all_above_kib) {
            (None, None) => Ok(None),
            (None, Some(_)) => Err("mark_all_above_kib is for fabrics with mark_above_kib".into()),
            (Some(above), Some(all)) if all < above => {
                Err(format!("mark_all_above_kib = {all}: it is at least mark_above_kib, which is {above}"))
            }
            (Some(above), all) => Ok(Some(Marks { above: kib(above), all_above: kib(all.unwrap_or(above)) })),
        }
    }

    /// The rule of the queue at one port of one switch. Each queue draws other packets.
    pub fn at(self, node: NodeId, port: PortId) -> Marking {
        Marking::new(self.above, self.all_above, u64::from(node.0) << 16 | u64::from(port.0))
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
            return match file.pause_above_kib {
                Some(_) => Err("pause_above_kib is for fabrics with lossless = true".into()),
                None => Ok(None),
            };
        }
        let smallest = cables.iter().map(|cable| cable.queue_bytes).min().unwrap_or(0);
        let pause_above = file.pause_above_kib.map_or(smallest / 2, |kib| u64::from(kib) << 10);
        if pause_above <= 2 * FULL_PACKET {
            return Err(format!("pause_above_kib: {pause_above} bytes are less than two packets; take 4 or more"));
        }
        for cable in cables {
            let Some(rate) = cable.bits_per_s else {
                return Err(
                    "lossless = true: every link needs a rate_mbps, or nobody knows how much comes in after a \
                     PAUSE"
                        .into(),
                );
            };
            let needed = pause_above + headroom(rate);
            if cable.queue_bytes < needed {
                return Err(format!(
                    "lossless = true: a queue of {} KiB has no room for the {} KiB above which a port pauses and {} KiB that \
                     may come in after that at {} Mbit/s; give queue_kib = {} or more",
                    cable.queue_bytes >> 10,
                    pause_above >> 10,
                    headroom(rate).div_ceil(1 << 10),
                    rate / 1_000_000,
                    match file.pause_above_kib {
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

fn kib(kib: u32) -> u64 {
    u64::from(kib) << 10
}

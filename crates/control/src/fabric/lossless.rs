//! When a switch of a lossless fabric tells the other end of a cable to pause: `lossless = true` in the fabric's file.
//! The thresholds are the simulator's (docs/simulator.md, *Lossless networks*); the headroom is for processes.

use super::file::FabricFile;
use super::plan::Cable;
use crate::quantity::Bytes;

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
    /// So many bytes or fewer let the sender go on.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::FabricLayout;

    fn parse(text: &str) -> Result<FabricLayout, String> {
        let shape = "[leaf_spine]\nleaves = 2\nspines = 2\nhosts_per_leaf = 2\n";
        let file = format!("secret = \"0123456789abcdef\"\n{text}\n{shape}");
        FabricFile::parse(&file).map_err(|error| error.to_string())
    }

    #[test]
    fn a_lossless_fabric_pauses_at_half_of_its_smallest_queue_unless_it_says_otherwise() {
        assert_eq!(parse("rate = \"200 Mbit/s\"").unwrap().lossless, None);
        let usual = parse("rate = \"200 Mbit/s\"\nlossless = true").unwrap().lossless.unwrap();
        assert_eq!((usual.pause_above, usual.go_on_at), (128 << 10, (128 << 10) - 3_084));
        let own = parse("rate = \"200 Mbit/s\"\nlossless = true\npause_above = \"32 KiB\"").unwrap().lossless.unwrap();
        assert_eq!(own.pause_above, 32 << 10);
    }

    #[test]
    fn a_file_whose_queues_would_drop_all_the_same_is_refused_with_a_sentence() {
        for (text, expected) in [
            ("lossless = true", "every link needs a rate"),
            ("pause_above = \"64 KiB\"", "is for fabrics with lossless = true"),
            ("lossless = true\nrate = \"200 Mbit/s\"\npause_above = \"3 KiB\"", "less than two packets"),
            ("lossless = true\nrate = \"1 Gbit/s\"", "give queue = \"1230 KiB\" or more"),
            ("lossless = true\nrate = \"200 Mbit/s\"\npause_above = \"200 KiB\"", "give queue = \"327 KiB\" or more"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
        assert!(parse("lossless = true\nrate = \"1 Gbit/s\"\nqueue = \"1230 KiB\"").is_ok());
    }
}

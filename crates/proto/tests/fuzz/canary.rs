//! Canary.

use proptest::prelude::*;

use super::collective;
use super::entries::canary as entries;

/// A plausible packet, without its vector.
fn header() -> impl Strategy<Value = Vec<u8>> {
    let flags = prop::sample::select(vec![0u8, 0x80, 0xC0, 0x40, 0x01, 0x20, 0xC2]);
    let addresses = (0..12u8, 0..12u8, prop::sample::select(vec![9u8, 255]));
    let numbers = (15..24u8, 0..20u8, 0..4u8, 0..4u8, 0..3u8, 0..4u8);
    (addresses, numbers, flags, collective(), any::<u32>()).prop_map(
        |((to, root, switch), (kind, id, counter, children, attempt, wid), flags, collective, proof)| {
            let mut bytes = vec![0x54, 0x42, 2, 3, kind, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 7];
            bytes.extend([0, 0, 0, to % 4 * 3, 0, 0, 0, id, 0, counter, 0, 3, 0, 0, 0, children]);
            bytes.extend([if switch == 9 { 0 } else { 255 }; 3]);
            bytes.extend([switch, 0, 0, 0, root, flags, 0, attempt, 0, 0, 1, 0, wid]);
            bytes.extend(proof.to_be_bytes());
            bytes.extend(collective);
            bytes
        },
    )
}

targets!(entries, header(), switch);

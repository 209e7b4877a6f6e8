//! Best-effort aggregation.

use proptest::prelude::*;

use super::collective;
use super::entries::best_effort as entries;

/// A plausible packet, without its vector.
fn header() -> impl Strategy<Value = Vec<u8>> {
    let flags = prop::sample::select(vec![0u16, 0, 0, 1, 2, 4, 0x14, 0x40, 0x50, 0x80, 0x200, 0x400, 8]);
    let scale = prop::sample::select(vec![i16::MIN, 0, 3]);
    (15..27u8, 0..12u8, 0..4u16, 0..4u16, 0..3u8, flags, scale, collective(), any::<u16>()).prop_map(
        |(kind, seq, wid, count, attempt, flags, scale, collective, prog)| {
            let mut bytes = vec![0x54, 0x42, 2, 6, kind, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 7];
            let is_gack = if kind == 18 { 0x80 } else { 0 };
            bytes.extend([0, 0, 0, seq, is_gack, 0]);
            bytes.extend(prog.to_be_bytes());
            bytes.extend([0, 0, 0, 0, 0, 0, 0, 0]);
            [flags, wid, count].iter().for_each(|field| bytes.extend(field.to_be_bytes()));
            bytes.extend([attempt, 0]);
            bytes.extend(scale.to_be_bytes());
            bytes.extend(scale.to_be_bytes());
            bytes.extend(collective);
            bytes
        },
    )
}

targets!(entries, header(), switch);

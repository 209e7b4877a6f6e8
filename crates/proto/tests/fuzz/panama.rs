//! PANAMA.

use proptest::prelude::*;

use super::collective;
use super::entries::panama as entries;

/// A plausible packet, without its vector.
fn header() -> impl Strategy<Value = Vec<u8>> {
    let low = prop::sample::select(vec![0u8, 0, 0, 1, 2, 255]);
    (any::<u8>(), 0..8u8, 0..20u8, 0..4u8, low, collective(), 0..4u8).prop_map(
        |(kind, vid, flags, wid, epoch, collective, contributors)| {
            let mut bytes = vec![0x54, 0x42, 2, 5, kind, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 7];
            bytes.extend([
                0,
                0,
                0,
                vid,
                0,
                u8::from(flags == 0),
                0,
                flags,
                if epoch == 255 { 255 } else { 0 },
                epoch,
                0,
                wid,
            ]);
            bytes.extend(collective);
            bytes.extend([0, contributors]);
            bytes
        },
    )
}

targets!(entries, header(), pipeline);

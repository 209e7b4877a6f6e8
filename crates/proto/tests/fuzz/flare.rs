//! Flare.

use proptest::prelude::*;

use super::collective;
use super::entries::flare as entries;

/// A plausible packet, without its vector.
fn header() -> impl Strategy<Value = Vec<u8>> {
    (any::<u8>(), 0..4u8, 0..5u8, collective(), any::<u32>(), 0..4u8).prop_map(
        |(kind, wid, idx, collective, order, phase)| {
            let mut bytes = vec![0x54, 0x42, 2, 8, kind, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 7];
            bytes.extend(collective);
            bytes.extend([0, wid, 0, idx, 0, 0, 0, phase, 0, 0, 0, 0]);
            bytes.extend(order.to_be_bytes());
            bytes
        },
    )
}

targets!(entries, header(), pipeline);

/// Sparse tensors.
mod sparse {
    use proptest::prelude::*;

    use super::collective;
    use super::entries::sparse as entries;

    /// A plausible packet, without its pairs: few shards, of which one is the last, with and without each flag.
    fn header() -> impl Strategy<Value = Vec<u8>> {
        let count = (0..5u8, 0..4u8).prop_map(|(count, flags)| [flags << 6, 0, 0, count]);
        (any::<u8>(), 0..4u8, 0..5u8, collective(), 0..5u8, count, 0..4u8).prop_map(
            |(kind, wid, idx, collective, shard, count, phase)| {
                let mut bytes = vec![0x54, 0x42, 2, 8, kind, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 7];
                bytes.extend(collective);
                bytes.extend([0, wid, 0, idx, 0, 0, 0, phase, 0, 0, 0, shard]);
                bytes.extend(count);
                bytes
            },
        )
    }

    targets!(entries, header(), pipeline);
}

//! What switches write into packets whose senders read it (in-band network telemetry). It stands at the end of a packet's
//! payload: a byte with the number of records, and space for those of the longest path.

use tributary_proto::congestion::{HopRecord, MAX_HOPS};
use tributary_proto::contract::time::Time;

/// Bytes of a record here: its queue, what was sent, the time, and the rate.
const RECORD_LEN: usize = 24;
/// Bytes of all records here.
pub(crate) const RECORDS_LEN: usize = 1 + MAX_HOPS * RECORD_LEN;
/// Bytes that records take on links, whatever the path: what HPCC has for five hops (§4.1).
pub(crate) const RECORDS_ON_LINKS: usize = 42;

/// The records of one packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Records {
    hops: [HopRecord; MAX_HOPS],
    len: usize,
}

impl Records {
    /// Those that these bytes hold; `None` if they are none.
    pub fn parse(bytes: &[u8]) -> Option<Records> {
        let (&count, bytes) = bytes.split_first()?;
        let mut records = Records { len: usize::from(count), ..Records::default() };
        if records.len > MAX_HOPS || bytes.len() != MAX_HOPS * RECORD_LEN {
            return None;
        }
        for (hop, bytes) in records.hops.iter_mut().zip(bytes.chunks_exact(RECORD_LEN)) {
            *hop = read(bytes)?;
        }
        Some(records)
    }

    /// Writes them to the beginning of `bytes`.
    pub fn write(&self, bytes: &mut [u8]) {
        bytes[0] = self.len as u8;
        for (hop, bytes) in self.hops.iter().zip(bytes[1..].chunks_exact_mut(RECORD_LEN)) {
            write(hop, bytes);
        }
    }

    /// In the order of the path.
    pub fn as_slice(&self) -> &[HopRecord] {
        &self.hops[..self.len]
    }
}

fn read(bytes: &[u8]) -> Option<HopRecord> {
    let (words, longs) = bytes.split_at_checked(8)?;
    let word = |at: usize| Some(u32::from_be_bytes(words.get(at..at + 4)?.try_into().ok()?));
    let long = |at: usize| Some(u64::from_be_bytes(longs.get(at..at + 8)?.try_into().ok()?));
    Some(HopRecord { queued_bytes: word(0)?, sent_bytes: word(4)?, left_at: Time(long(0)?), rate: long(8)? })
}

fn write(hop: &HopRecord, bytes: &mut [u8]) {
    bytes[..4].copy_from_slice(&hop.queued_bytes.to_be_bytes());
    bytes[4..8].copy_from_slice(&hop.sent_bytes.to_be_bytes());
    bytes[8..16].copy_from_slice(&hop.left_at.0.to_be_bytes());
    bytes[16..24].copy_from_slice(&hop.rate.to_be_bytes());
}

/// Adds a switch's record to a packet, unless it has as many as it can hold.
pub(super) fn stamp(payload: &mut [u8], hop: &HopRecord) {
    let Some((count, bytes)) = payload.last_chunk_mut::<RECORDS_LEN>().and_then(|it| it.split_first_mut()) else {
        return;
    };
    if let Some(slot) = bytes.chunks_exact_mut(RECORD_LEN).nth(usize::from(*count)) {
        write(hop, slot);
        *count += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_add_records_until_the_packet_is_full() {
        let mut payload = [0; 20 + RECORDS_LEN];
        let records = |payload: &[u8]| Records::parse(&payload[20..]);
        assert_eq!(records(&payload).unwrap().as_slice(), []);
        let hop = |n: u32| HopRecord { queued_bytes: n, sent_bytes: 7 + n, left_at: Time(1 << 40), rate: 1 << 37 };
        let hops: Vec<HopRecord> = (0..7).map(hop).collect();
        hops.iter().for_each(|hop| stamp(&mut payload, hop));
        let found = records(&payload).unwrap();
        assert_eq!(found.as_slice(), &hops[..MAX_HOPS]);
        let mut copy = [0; RECORDS_LEN];
        found.write(&mut copy);
        assert_eq!(copy, payload[20..]);
        assert_eq!(Records::parse(&payload[..20]), None);
        payload[20] = 6;
        assert_eq!(records(&payload), None, "more than there can be");
    }
}

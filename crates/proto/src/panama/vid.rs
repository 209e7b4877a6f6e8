//! VIDs and epochs are serial numbers on the wire: this file finds the full numbers that they mean.

use std::cmp::Ordering;

/// The full number nearest to `here` that the VID may stand for.
#[inline]
pub fn near(here: u64, vid: u32) -> u64 {
    let difference = vid.wrapping_sub(here as u32) as i32;
    here.wrapping_add_signed(difference.into())
}

/// The position of a VID among `slots` slots, as many as may be in use at a time.
#[inline]
pub fn slot(vid: u64, slots: usize) -> usize {
    (vid % slots as u64) as usize
}

/// The lesser of two VIDs.
pub fn least(a: u32, b: u32) -> u32 {
    if is_before(b, a) { b } else { a }
}

/// True if VID `a` is before VID `b`.
pub fn is_before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// How a packet's epoch relates to one's own.
#[inline]
pub fn epoch(of_packet: u16, own: u16) -> Ordering {
    (of_packet.wrapping_sub(own) as i16).cmp(&0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_on_where_32_bits_end() {
        let end = 1 << 32;
        for (here, vid, meant) in [(end - 1, 0, end), (end + 3, u32::MAX, end - 1), (7, 9, 9), (7, 5, 5)] {
            assert_eq!(near(here, vid), meant);
        }
        assert!(is_before(u32::MAX, 0) && !is_before(0, u32::MAX) && !is_before(4, 4));
        assert_eq!((least(u32::MAX, 1), least(1, u32::MAX), least(3, 8)), (u32::MAX, u32::MAX, 3));
    }

    #[test]
    fn epochs_go_on_where_16_bits_end() {
        assert_eq!(epoch(0, u16::MAX), Ordering::Greater);
        assert_eq!(epoch(u16::MAX, 0), Ordering::Less);
        assert_eq!(epoch(9, 9), Ordering::Equal);
    }
}

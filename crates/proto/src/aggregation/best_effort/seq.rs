//! Sequence numbers: 32 bits on the wire, for a stream that may be longer.

/// The sequence number of a block: blocks count from 0, sequence numbers from 1.
#[inline]
pub fn of_block(block: u64) -> u32 {
    (block + 1) as u32
}

/// The block nearest to `here` that a sequence number may mean; `None` if that lies before the first block.
#[inline]
pub fn block_near(here: u64, seq: u32) -> Option<u64> {
    let difference = seq.wrapping_sub(of_block(here)) as i32;
    here.checked_add_signed(difference.into())
}

/// True if a sequence number is after another, modulo 2^32.
#[inline]
pub fn is_after(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_on_where_32_bits_end() {
        let end = (1u64 << 32) - 1;
        assert_eq!((of_block(0), of_block(end), of_block(end + 1)), (1, 0, 1));
        for (here, seq, meant) in
            [(end, 1, Some(end + 1)), (end + 3, u32::MAX, Some(end - 1)), (7, 8, Some(7)), (0, 0, None)]
        {
            assert_eq!(block_near(here, seq), meant);
        }
        assert!(is_after(0, u32::MAX) && !is_after(u32::MAX, 0) && !is_after(4, 4));
    }
}

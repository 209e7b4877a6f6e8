//! CRC32C (Castagnoli; RFC 3720, appendix B.4). Where the processor multiplies polynomials of 512 bits, 64 bytes at a time
//! are folded into what follows them (Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ", 2009).
//! Otherwise eight bytes at a time with the instruction of SSE4.2, or by a table. That instruction takes three cycles, and
//! one may begin in each: the thirds of a run of bytes are worked on at once, and their remainders are then put together.

/// The polynomial 0x1EDC6F41, its bits reversed.
const POLYNOMIAL: u32 = 0x82F6_3B78;

/// The remainder of each byte.
const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut rest, mut bit) = (byte as u32, 0);
        while bit < 8 {
            rest = if rest & 1 == 1 { rest >> 1 ^ POLYNOMIAL } else { rest >> 1 };
            bit += 1;
        }
        table[byte] = rest;
        byte += 1;
    }
    table
};

/// Bytes of each third: a packet of a frame of 1,500 bytes has them three times.
const THIRD: usize = 160;

/// What becomes of each byte of a remainder when as many zeros follow as a third has bytes.
const BEHIND_A_THIRD: [[u32; 256]; 4] = {
    let mut bits = [0; 32];
    let mut bit = 0;
    while bit < 32 {
        let (mut rest, mut zeros) = (1 << bit, 0);
        while zeros < THIRD {
            rest = rest >> 8 ^ TABLE[(rest & 0xFF) as usize];
            zeros += 1;
        }
        bits[bit] = rest;
        bit += 1;
    }
    let mut table = [[0; 256]; 4];
    let mut at = 0;
    while at < 4 * 256 * 8 {
        let (byte, value, bit) = (at / 2_048, at / 8 % 256, at % 8);
        if value >> bit & 1 == 1 {
            table[byte][value] ^= bits[8 * byte + bit];
        }
        at += 1;
    }
    table
};

/// The checksum of bytes that follow others, whose checksum is `before`; 0 for the first bytes.
#[inline]
pub fn crc32c(before: u32, bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("sse4.2") {
        if bytes.len() >= FOLDED_TOGETHER * BLOCK && folds() {
            // SAFETY: the processor has SSE4.2 and what folding needs.
            return unsafe { by_folding(before, bytes) };
        }
        // SAFETY: the processor has SSE4.2.
        return unsafe { by_instruction(before, bytes) };
    }
    by_table(before, bytes)
}

fn by_table(before: u32, bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!before, |rest, &byte| rest >> 8 ^ TABLE[usize::from(rest as u8 ^ byte)])
}

#[cfg(target_arch = "x86_64")]
fn behind_a_third(rest: u32) -> u32 {
    let of = |byte: usize| BEHIND_A_THIRD[byte][(rest >> (8 * byte) & 0xFF) as usize];
    of(0) ^ of(1) ^ of(2) ^ of(3)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn by_instruction(before: u32, bytes: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u64};
    let step = |rest: u64, word: &[u8; 8]| _mm_crc32_u64(rest, u64::from_le_bytes(*word));
    let (rounds, left) = bytes.as_chunks::<{ 3 * THIRD }>();
    let mut rest = u64::from(!before);
    for round in rounds {
        let (words, _) = round.as_chunks::<8>();
        let (first, others) = words.split_at(THIRD / 8);
        let (second, third) = others.split_at(THIRD / 8);
        let mut rests = [rest, 0, 0];
        for ((first, second), third) in first.iter().zip(second).zip(third) {
            rests = [step(rests[0], first), step(rests[1], second), step(rests[2], third)];
        }
        let [first, second, third] = rests.map(|rest| rest as u32);
        rest = u64::from(behind_a_third(behind_a_third(first) ^ second) ^ third);
    }
    let (words, end) = left.as_chunks::<8>();
    let rest = words.iter().fold(rest, step);
    !end.iter().fold(rest as u32, |rest, &byte| _mm_crc32_u8(rest, byte))
}

/// Bytes that are folded at once.
#[cfg(target_arch = "x86_64")]
const BLOCK: usize = 64;
/// Blocks that are folded side by side, since a multiplication takes several cycles.
#[cfg(target_arch = "x86_64")]
const FOLDED_TOGETHER: usize = 4;

/// What the two halves of 16 bytes are multiplied with, so that they stand for the same remainder this many bits later:
/// powers of x, their bits reversed as those of the polynomial.
#[cfg(target_arch = "x86_64")]
const fn after(bits: usize) -> [i64; 2] {
    const fn power(exponent: usize) -> i64 {
        let (mut rest, mut done) = (1 << 31, 0);
        while done < exponent {
            rest = if rest & 1 == 1 { rest >> 1 ^ POLYNOMIAL } else { rest >> 1 };
            done += 1;
        }
        (rest as i64) << 1
    }
    [power(bits + 32), power(bits - 32)]
}

/// True if the processor has what [`by_folding`] needs beside SSE4.2.
#[cfg(target_arch = "x86_64")]
fn folds() -> bool {
    is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("vpclmulqdq")
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,vpclmulqdq,sse4.2")]
fn by_folding(before: u32, bytes: &[u8]) -> u32 {
    use std::arch::x86_64::*;
    const ONE: [i64; 2] = after(8 * BLOCK);
    const TOGETHER: [i64; 2] = after(8 * BLOCK * FOLDED_TOGETHER);
    let (blocks, end) = bytes.as_chunks::<BLOCK>();
    let Some((first, blocks)) = blocks.split_first_chunk::<FOLDED_TOGETHER>() else {
        return by_instruction(before, bytes);
    };
    // SAFETY: a block has the 64 bytes that are loaded.
    let load = |block: &[u8; BLOCK]| unsafe { _mm512_loadu_si512(block.as_ptr().cast()) };
    let four_times = |[low, high]: [i64; 2]| _mm512_set_epi64(high, low, high, low, high, low, high, low);
    let fold = |sum: __m512i, by: __m512i, next: __m512i| {
        let (low, high) = (_mm512_clmulepi64_epi128(sum, by, 0x00), _mm512_clmulepi64_epi128(sum, by, 0x11));
        _mm512_xor_si512(_mm512_xor_si512(low, high), next)
    };
    let mut sums = first.each_ref().map(load);
    sums[0] = _mm512_xor_si512(sums[0], _mm512_set_epi64(0, 0, 0, 0, 0, 0, 0, (!before).into()));
    let (together, blocks) = blocks.as_chunks::<FOLDED_TOGETHER>();
    for next in together {
        for (sum, block) in sums.iter_mut().zip(next) {
            *sum = fold(*sum, four_times(TOGETHER), load(block));
        }
    }
    let [first, others @ ..] = sums;
    let sum = others.into_iter().fold(first, |sum, next| fold(sum, four_times(ONE), next));
    let sum = blocks.iter().fold(sum, |sum, block| fold(sum, four_times(ONE), load(block)));
    let mut words = [0; BLOCK / 8];
    // SAFETY: the words have the 64 bytes that are stored.
    unsafe { _mm512_storeu_si512(words.as_mut_ptr().cast(), sum) };
    let rest = words.iter().fold(0, |rest, &word| _mm_crc32_u64(rest, word));
    by_instruction(!(rest as u32), end)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 3720, appendix B.4, and the check value of the catalogue of CRCs.
    #[test]
    fn the_checksums_are_those_of_rfc_3720() {
        let ascending: Vec<u8> = (0..32).collect();
        let descending: Vec<u8> = (0..32).rev().collect();
        // The iSCSI Read (10) command of the RFC.
        let mut read = [0; 48];
        (read[0], read[1], read[16]) = (0x01, 0xC0, 0x14);
        (read[22], read[27], read[31]) = (0x04, 0x14, 0x18);
        (read[32], read[40]) = (0x28, 0x02);
        for (bytes, expected) in [
            (&[0; 32][..], 0x8A91_36AA),
            (&[0xFF; 32], 0x62A8_AB43),
            (&ascending, 0x46DD_794E),
            (&descending, 0x113F_DB5C),
            (&read, 0xD996_3A56),
            (b"123456789", 0xE306_9283),
            (b"", 0),
        ] {
            assert_eq!((crc32c(0, bytes), by_table(0, bytes)), (expected, expected), "{bytes:?}");
        }
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn the_instruction_agrees_where_longer_runs_are_folded() {
        if !is_x86_feature_detected!("sse4.2") {
            return;
        }
        let bytes: Vec<u8> = (0..5 * 3 * THIRD as u32).map(|i| (i * 167 % 251) as u8).collect();
        for len in 0..bytes.len() {
            // SAFETY: the processor has SSE4.2.
            assert_eq!(unsafe { by_instruction(7, &bytes[..len]) }, by_table(7, &bytes[..len]), "{len} bytes");
        }
    }

    #[test]
    fn all_ways_agree_for_every_length_and_split() {
        let bytes: Vec<u8> = (0..4 * 3 * THIRD as u32).map(|i| (i * 167 % 251) as u8).collect();
        for len in 0..bytes.len() {
            let whole = by_table(0, &bytes[..len]);
            assert_eq!(crc32c(0, &bytes[..len]), whole, "{len} bytes");
            assert_eq!(crc32c(crc32c(0, &bytes[..len / 3]), &bytes[len / 3..len]), whole, "{len} bytes in two pieces");
        }
    }
}

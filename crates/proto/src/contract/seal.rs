//! The optional checksum of a job's packets (`integrity=crc32c`), against bits that flip where UDP's checksum does not see
//! it: in a network card, in memory, or in pairs. A packet with such a bit is dropped as [`DropReason::Corrupt`], and sent
//! again as a lost one.
//!
//! No byte is added. The low half of the key in the common header is the job's, exclusive-or the CRC32C of all other bytes,
//! and a bit of the header says so. A sender without the key guesses as many bits as before.

use tributary_numeric::kernels::crc32c;

use crate::contract::drop_reason::DropReason;
use crate::contract::ids::JobKey;
use crate::contract::options::{Kind, OptionSpec, Options};
use crate::contract::wire::{self, Common};

/// Offset of the byte that says which checksum a packet has ...
pub const AT: usize = 5;
/// ... and its value for CRC32C; 0: none.
pub const CRC32C: u8 = 1;

const KEY_AT: usize = 8;
const LOW_AT: usize = KEY_AT + 4;

/// The option, for protocols whose packets can have the checksum.
pub const OPTION: OptionSpec = OptionSpec {
    name: "integrity",
    kind: Kind::Choice(&["none", "crc32c"]),
    default: "none",
    help: "crc32c: packets carry a checksum, and one with a bit that flipped behind UDP's is dropped and sent again",
};

/// True if a job's packets have the checksum.
pub fn is_chosen(options: &Options) -> bool {
    options.has_choice(OPTION.name, "crc32c")
}

/// Completes a packet of the job that has this key. All its other bytes are written already.
pub fn seal(packet: &mut [u8], key: JobKey) {
    packet[AT] = CRC32C;
    packet[KEY_AT..wire::COMMON_LEN].copy_from_slice(&key.0.to_be_bytes());
    let low = key.0 as u32 ^ checksum(packet);
    packet[LOW_AT..wire::COMMON_LEN].copy_from_slice(&low.to_be_bytes());
}

/// Checks a packet whose common header was read, of a job that has this key and whose packets are sealed.
pub fn check(packet: &[u8], key: JobKey) -> Result<(), DropReason> {
    let (high, low) = (wire::u32(packet, KEY_AT), wire::u32(packet, LOW_AT));
    if high != (key.0 >> 32) as u32 {
        return Err(DropReason::WrongKey);
    }
    let is_whole = packet[AT] == CRC32C && low ^ checksum(packet) == key.0 as u32;
    if is_whole { Ok(()) } else { Err(DropReason::Corrupt) }
}

/// Reads the header of a sealed packet as [`Common::parse_kind`] reads that of others.
#[inline]
pub fn parse_kind(packet: &[u8], expected: &Common) -> Result<u8, DropReason> {
    let common = Common::parse(packet)?;
    if common.job != expected.job {
        return Err(DropReason::UnknownJob);
    }
    check(packet, expected.key)?;
    if common.protocol == expected.protocol { Ok(common.kind) } else { Err(DropReason::WrongProtocol) }
}

/// The common header with the key as it is, for a packet that is cut into fragments, each of which has a header of its own.
pub fn plain_header(packet: &[u8]) -> Option<[u8; wire::COMMON_LEN]> {
    let mut header: [u8; wire::COMMON_LEN] = *packet.first_chunk()?;
    if header[AT] == CRC32C {
        let low = wire::u32(packet, LOW_AT) ^ checksum(packet);
        header[LOW_AT..].copy_from_slice(&low.to_be_bytes());
        header[AT] = 0;
    }
    Some(header)
}

/// Of all bytes but the low half of the key.
#[inline]
fn checksum(packet: &[u8]) -> u32 {
    crc32c(crc32c(0, &packet[..LOW_AT]), &packet[wire::COMMON_LEN..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::ids::JobId;
    use crate::contract::wire::COMMON_LEN;

    const KEY: JobKey = JobKey(0x0123_4567_89AB_CDEF);

    fn packet(len: usize) -> Vec<u8> {
        let mut packet: Vec<u8> = (0..len).map(|at| at as u8).collect();
        Common { protocol: 1, kind: 17, job: JobId(3), key: KEY }.emit(&mut packet);
        packet
    }

    #[test]
    fn a_packet_with_any_bit_changed_is_not_used() {
        for len in [COMMON_LEN, 36, 101] {
            let mut sealed = packet(len);
            seal(&mut sealed, KEY);
            assert_eq!(check(&sealed, KEY), Ok(()));
            for bit in 0..8 * len {
                let mut changed = sealed.clone();
                changed[bit / 8] ^= 1 << (bit % 8);
                let is_high_half = (KEY_AT..LOW_AT).contains(&(bit / 8));
                let reason = if is_high_half { DropReason::WrongKey } else { DropReason::Corrupt };
                assert_eq!(check(&changed, KEY), Err(reason), "bit {bit} of {len} bytes");
            }
            // Two bits that UDP's sum of 16-bit words does not see: one rises and one falls at the same place of two words.
            let pair = (COMMON_LEN..len.saturating_sub(2)).find(|&at| (sealed[at] ^ sealed[at + 2]) & 1 == 1);
            if let Some(at) = pair {
                sealed[at] ^= 1;
                sealed[at + 2] ^= 1;
                assert_eq!(check(&sealed, KEY), Err(DropReason::Corrupt));
            }
        }
    }

    #[test]
    fn a_packet_without_the_checksum_or_with_another_key_is_not_used() {
        assert_eq!(check(&packet(50), KEY), Err(DropReason::Corrupt));
        let mut sealed = packet(50);
        seal(&mut sealed, KEY);
        for other in [JobKey(KEY.0 ^ 1), JobKey(KEY.0 ^ 1 << 31)] {
            assert_eq!(check(&sealed, other), Err(DropReason::Corrupt));
        }
        assert_eq!(check(&sealed, JobKey(KEY.0 ^ 1 << 63)), Err(DropReason::WrongKey));
    }

    #[test]
    fn a_fragment_s_header_has_the_job_s_key() {
        let mut sealed = packet(200);
        let plain = sealed[..COMMON_LEN].to_vec();
        assert_eq!(plain_header(&sealed).unwrap(), plain[..]);
        seal(&mut sealed, KEY);
        assert_ne!(sealed[..COMMON_LEN], plain);
        assert_eq!(plain_header(&sealed).unwrap(), plain[..]);
        assert_eq!(plain_header(&sealed[..COMMON_LEN - 1]), None);
    }

    #[test]
    fn sealing_again_changes_nothing() {
        let mut once = packet(80);
        seal(&mut once, KEY);
        let mut twice = once.clone();
        seal(&mut twice, KEY);
        assert_eq!(once, twice);
    }
}

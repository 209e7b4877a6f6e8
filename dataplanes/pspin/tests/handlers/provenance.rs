//! The committed programs are those of the committed sources: `SHA256SUMS` names both, and was written when they were built.

use std::collections::BTreeSet;
use std::fs;

use crate::bench::dataplane;

const SUMS: &str = "SHA256SUMS";

#[test]
fn sources_and_programs_have_the_hashes_that_were_noted_when_they_were_built() {
    let noted = fs::read_to_string(dataplane().join(SUMS)).unwrap();
    let mut named = BTreeSet::new();
    for line in noted.lines() {
        let (hash, name) = line.split_once("  ").expect("a hash and a name");
        let file = fs::read(dataplane().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(sha256(&file), hash, "{name} has changed since `make -C dataplanes/pspin/handlers`");
        named.insert(name.to_owned());
    }
    for folder in ["", "bin/", "operators/", "operators/include/", "operators/bin/"] {
        for entry in fs::read_dir(dataplane().join(folder)).unwrap() {
            let entry = entry.unwrap();
            let name = format!("{folder}{}", entry.file_name().to_string_lossy());
            let is_known = named.contains(&name) || name == SUMS || entry.path().is_dir();
            assert!(is_known, "{name} is not in {SUMS}: run `make -C dataplanes/pspin/handlers`");
        }
    }
}

/// The first bits of the fractional parts of the cube (or square) roots of the first primes.
fn fractional_roots<const N: usize>(root: impl Fn(f64) -> f64, power: u32) -> [u32; N] {
    let mut primes = (2u128..).filter(|n| (2..*n).take_while(|d| d * d <= *n).all(|d| n % d != 0));
    std::array::from_fn(|_| {
        let prime = primes.next().expect("there is always one more");
        // The root times 2^32, exactly: the double is near, and integers decide.
        let mut scaled = (root(prime as f64) * 2f64.powi(32)) as u128;
        let target = prime << (32 * power);
        while scaled.pow(power) > target {
            scaled -= 1;
        }
        while (scaled + 1).pow(power) <= target {
            scaled += 1;
        }
        scaled as u32
    })
}

/// The hash as 64 hexadecimal digits.
pub fn sha256(data: &[u8]) -> String {
    let constants: [u32; 64] = fractional_roots(f64::cbrt, 3);
    let mut state: [u32; 8] = fractional_roots(f64::sqrt, 2);
    let mut padded = data.to_vec();
    padded.push(0x80);
    padded.resize(padded.len() + (64 + 56 - padded.len() % 64) % 64, 0);
    padded.extend((8 * data.len() as u64).to_be_bytes());
    for chunk in padded.chunks(64) {
        compress(&mut state, chunk, &constants);
    }
    state.iter().map(|word| format!("{word:08x}")).collect()
}

fn compress(state: &mut [u32; 8], chunk: &[u8], constants: &[u32; 64]) {
    let mut schedule = [0u32; 64];
    for (word, bytes) in schedule.iter_mut().zip(chunk.chunks(4)) {
        *word = bytes.iter().fold(0, |word, &byte| word << 8 | u32::from(byte));
    }
    for at in 16..64 {
        let (a, b) = (schedule[at - 15], schedule[at - 2]);
        let low = a.rotate_right(7) ^ a.rotate_right(18) ^ a >> 3;
        let high = b.rotate_right(17) ^ b.rotate_right(19) ^ b >> 10;
        let sum = schedule[at - 16].wrapping_add(low).wrapping_add(schedule[at - 7]);
        schedule[at] = sum.wrapping_add(high);
    }
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *state;
    for (word, constant) in schedule.into_iter().zip(constants) {
        let mixed = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
        let chosen = (e & f) ^ (!e & g);
        let first = h.wrapping_add(mixed).wrapping_add(chosen).wrapping_add(*constant).wrapping_add(word);
        let mixed = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
        let second = mixed.wrapping_add((a & b) ^ (a & c) ^ (b & c));
        (h, g, f, e, d, c, b, a) = (g, f, e, d.wrapping_add(first), c, b, a, first.wrapping_add(second));
    }
    for (word, value) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
        *word = word.wrapping_add(value);
    }
}

#[test]
fn the_hashes_of_the_standard_come_out() {
    assert_eq!(sha256(b""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    assert_eq!(sha256(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    let two_chunks = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    assert_eq!(sha256(two_chunks), "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

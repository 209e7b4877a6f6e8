//! Every table of kernels gives the portable one's bits, on odd lengths and unaligned slices.

use proptest::collection::vec;
use proptest::prelude::*;
use tributary_numeric::kernels::{self, ElementKernels, Kernels, Unscale};
use tributary_numeric::{BlockExponent, Scale, bf16, f16};

/// The other tables, each with the portable one.
fn tables() -> impl Iterator<Item = (&'static Kernels, &'static Kernels)> {
    let mut available = kernels::available().into_iter();
    let portable = available.next().expect("the portable table comes first");
    assert_eq!(portable.name, "portable");
    available.map(move |other| (portable, other))
}

/// Bytes whose start is at any distance from a multiple of 64.
fn unaligned(bytes: &[u8], offset: usize) -> Vec<u8> {
    [&vec![0xee; offset], bytes].concat()
}

/// The same bits, or NaNs both: which of two NaNs an addition keeps is the compiler's choice.
trait SameBits: Copy + std::fmt::Debug {
    fn same_bits(self, other: Self) -> bool;
    /// Itself if it is finite.
    fn or_zero(self) -> Self;
}

macro_rules! same_bits {
    ($type:ty) => {
        impl SameBits for $type {
            fn same_bits(self, other: $type) -> bool {
                self.to_bits() == other.to_bits() || self.is_nan() && other.is_nan()
            }
            fn or_zero(self) -> $type {
                if self.is_finite() { self } else { <$type>::default() }
            }
        }
    };
}

same_bits!(f32);
same_bits!(f16);
same_bits!(bf16);

impl SameBits for i32 {
    fn same_bits(self, other: i32) -> bool {
        self == other
    }
    fn or_zero(self) -> i32 {
        self
    }
}

fn check<T: SameBits>(table: &str, what: &str, got: &[T], expected: &[T]) {
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        assert!(got.same_bits(*expected), "{table} {what}, element {i}: {got:?} is not {expected:?}");
    }
}

/// Native loops on any bits.
fn native_agrees<T: SameBits + Default>(
    name: &str,
    ours: &ElementKernels<T>,
    portable: &ElementKernels<T>,
    input: &[T],
    bytes: &[u8],
) {
    assert_eq!((ours.max_abs)(input), (portable.max_abs)(input), "{name} max_abs");
    let mut written = [vec![0xaa; bytes.len()], vec![0x55; bytes.len()]];
    (ours.write)(input, &mut written[0]);
    (portable.write)(input, &mut written[1]);
    assert_eq!(written[0], written[1], "{name} write");

    let mut read = [vec![T::default(); input.len()], vec![T::default(); input.len()]];
    (ours.read)(bytes, &mut read[0]);
    (portable.read)(bytes, &mut read[1]);
    check(name, "read", &read[0], &read[1]);

    (ours.add)(input, bytes, &mut read[0]);
    (portable.add)(input, bytes, &mut read[1]);
    check(name, "add", &read[0], &read[1]);

    let mut data = input.to_vec();
    (ours.add_in_place)(&mut data, bytes);
    check(name, "add_in_place", &data, &read[1]);

    for divisor in [1.0, 2.0, 3.0, 1023.0] {
        let mut quotients = [input.to_vec(), input.to_vec()];
        (ours.divide)(&mut quotients[0], divisor);
        (portable.divide)(&mut quotients[1], divisor);
        check(name, "divide", &quotients[0], &quotients[1]);
    }
}

/// A finite block through encode, and any words through decode.
fn fixed_point_agrees<T: SameBits + Default>(
    name: &str,
    ours: &ElementKernels<T>,
    portable: &ElementKernels<T>,
    finite: &[T],
    words: &[u8],
    world: u16,
) {
    let scale = match (portable.max_abs)(finite) {
        0 => Scale::integer(world),
        bits => Scale::new(BlockExponent::of_magnitude(bits), world),
    };
    let two = |m: i32| 2f64.powi(m) as f32;
    let first = scale.shift.clamp(-126, 127);
    let factors = [two(first), two(scale.shift - first)];
    let mut vectors = [vec![0xaa; words.len()], vec![0x55; words.len()]];
    (ours.encode)(finite, factors, &mut vectors[0]);
    (portable.encode)(finite, factors, &mut vectors[1]);
    assert_eq!(vectors[0], vectors[1], "{name} encode");

    for divisor in [1.0, f64::from(world)] {
        let unscale = Unscale { unit: 2f64.powi(-scale.shift), divisor };
        let mut output = [vec![T::default(); finite.len()], vec![T::default(); finite.len()]];
        (ours.decode)(words, unscale, &mut output[0]);
        (portable.decode)(words, unscale, &mut output[1]);
        check(name, "decode", &output[0], &output[1]);
    }
}

/// Elements at any distance from the alignment of a vector, as bits; and packet bytes likewise.
fn inputs() -> impl Strategy<Value = (usize, usize, Vec<u32>, Vec<u8>)> {
    (0usize..17, 0usize..65, 0usize..100, any::<bool>()).prop_flat_map(|(before, offset, len, wide)| {
        // Either all bit patterns, or magnitudes near each other, so that words use all their bits.
        let element = if wide {
            any::<u32>().boxed()
        } else {
            (any::<u32>(), 0u32..1 << 25).prop_map(|(sign, x)| (sign & 1 << 31) | (0x3f00_0000 + x)).boxed()
        };
        (Just(before), Just(offset), vec(element, before + len), vec(any::<u8>(), 4 * len))
    })
}

macro_rules! agree {
    ($name:ident, $type:ty, $field:ident, $from_bits:expr) => {
        proptest! {
            #[test]
            fn $name((before, offset, bits, words) in inputs(), world in 1..=Scale::MAX_WORLD) {
                let any: Vec<$type> = bits.iter().map(|&bits| $from_bits(bits)).collect();
                let finite: Vec<$type> = any.iter().map(|x| x.or_zero()).collect();
                let size = size_of::<$type>();
                let bytes = unaligned(&words[..size * (any.len() - before)], offset);
                let words = unaligned(&words, offset);
                for (portable, table) in tables() {
                    let (ours, portable) = (&table.$field, &portable.$field);
                    native_agrees(table.name, ours, portable, &any[before..], &bytes[offset..]);
                    fixed_point_agrees(table.name, ours, portable, &finite[before..], &words[offset..], world);
                }
            }
        }
    };
}

agree!(f32_agrees, f32, f32, f32::from_bits);
agree!(f16_agrees, f16, f16, |bits: u32| f16::from_bits((bits >> 16) as u16));
agree!(bf16_agrees, bf16, bf16, |bits: u32| bf16::from_bits((bits >> 16) as u16));
agree!(i32_agrees, i32, i32, |bits: u32| bits as i32);

proptest! {
    #[test]
    fn lanes_agree((before, offset, bits, words) in inputs()) {
        let vector = unaligned(&words, offset);
        for (portable, table) in tables() {
            let mut lanes = [bits.clone(), bits.clone()];
            (table.add_be)(&mut lanes[0][before..], &vector[offset..]);
            (portable.add_be)(&mut lanes[1][before..], &vector[offset..]);
            prop_assert_eq!(&lanes[0], &lanes[1], "{} add_be", table.name);
            let mut loaded = vec![0; vector.len()];
            (table.load_be)(&lanes[0][before..], &mut loaded[offset..]);
            let mut stored = bits.clone();
            (table.store_be)(&mut stored[before..], &loaded[offset..]);
            prop_assert_eq!(&stored, &lanes[1], "{} load_be, store_be", table.name);
        }
    }
}

/// All 2^16 elements, so that no rounding, denormal or NaN of the short types is left out.
#[test]
fn every_sixteen_bit_element_agrees() {
    let f16s: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).collect();
    let bf16s: Vec<bf16> = (0..=u16::MAX).map(bf16::from_bits).collect();
    let bytes: Vec<u8> = (0..=u16::MAX).map(|x| x.wrapping_mul(40_503)).flat_map(u16::to_be_bytes).collect();
    for (portable, table) in tables() {
        native_agrees(table.name, &table.f16, &portable.f16, &f16s, &bytes);
        native_agrees(table.name, &table.bf16, &portable.bf16, &bf16s, &bytes);
    }
}

/// Results around every tie of the short types, and in their denormals.
#[test]
fn decoding_around_ties_agrees() {
    let ties = (0..1i32 << 12).map(|i| i << 18).flat_map(|tie| [tie.wrapping_sub(1), tie, tie + 1]);
    let words: Vec<u8> = ties.flat_map(i32::to_be_bytes).collect();
    for (portable, table) in tables() {
        for shift in [30, 31, 44, 46, 100, 150, 156, 160, 165, 179] {
            for divisor in [1.0, 3.0, 1000.0] {
                let unscale = Unscale { unit: 2f64.powi(-shift), divisor };
                let (mut ours, mut expected) = (vec![f16::ZERO; words.len() / 4], vec![f16::ZERO; words.len() / 4]);
                (table.f16.decode)(&words, unscale, &mut ours);
                (portable.f16.decode)(&words, unscale, &mut expected);
                check(table.name, "f16 decode", &ours, &expected);
                let (mut ours, mut expected) = (vec![bf16::ZERO; words.len() / 4], vec![bf16::ZERO; words.len() / 4]);
                (table.bf16.decode)(&words, unscale, &mut ours);
                (portable.bf16.decode)(&words, unscale, &mut expected);
                check(table.name, "bf16 decode", &ours, &expected);
            }
        }
    }
}

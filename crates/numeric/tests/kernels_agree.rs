//! Every table of kernels gives the portable one's bits, on odd lengths and unaligned slices, whatever the elements.

mod common;

use common::AnyBits;
use proptest::collection::vec;
use proptest::prelude::*;
use tributary_numeric::kernels::{self, ElementKernels, Kernels, Unscale};
use tributary_numeric::{BlockExponent, Combine, Fixed16, ReduceOp, Scale, bf16, codec, f16};

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

fn check<T: AnyBits>(table: &str, what: &str, got: &[T], expected: &[T]) {
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        let bits = [got.bits(), expected.bits()];
        assert!(bits[0] == bits[1], "{table} {what}, element {i}: {got:?} is not {expected:?}, {bits:x?}");
    }
}

/// Native loops on any bits.
fn native_agrees<T: AnyBits>(
    name: &str,
    ours: &ElementKernels<T>,
    portable: &ElementKernels<T>,
    input: &[T],
    bytes: &[u8],
) {
    let mut written = [vec![0xaa; bytes.len()], vec![0x55; bytes.len()]];
    (ours.write)(input, &mut written[0]);
    (portable.write)(input, &mut written[1]);
    assert_eq!(written[0], written[1], "{name} write");

    let mut read = [vec![T::default(); input.len()], vec![T::default(); input.len()]];
    (ours.read)(bytes, &mut read[0]);
    (portable.read)(bytes, &mut read[1]);
    check(name, "read", &read[0], &read[1]);

    for op in ReduceOp::ALL.into_iter().filter(|op| op.takes(T::DTYPE)) {
        let what = format!("{op} of {}", T::DTYPE);
        let (ours, portable) = (ours.folds.of(op).unwrap(), portable.folds.of(op).unwrap());
        (ours.out_of_place)(input, bytes, &mut read[0]);
        (portable.out_of_place)(input, bytes, &mut read[1]);
        check(name, &what, &read[0], &read[1]);

        let mut data = input.to_vec();
        (ours.in_place)(&mut data, bytes);
        check(name, &what, &data, &read[1]);
    }
    for ranks in [1, 2, 3, 1023, u16::MAX] {
        let mut quotients = [input.to_vec(), input.to_vec()];
        (ours.divide)(&mut quotients[0], ranks);
        (portable.divide)(&mut quotients[1], ranks);
        check(name, "divide", &quotients[0], &quotients[1]);
    }
}

/// Accumulators of the type: one from a packet, another from any bits; unaligned, and of odd lengths.
fn combines_agree<T: AnyBits>(ours: &Kernels, portable: &Kernels, packet: &[u8], offset: usize, any: &[T]) {
    for op in ReduceOp::ALL.into_iter().filter(|op| op.takes(T::DTYPE)) {
        let (ours, portable) = (ours.combine(T::DTYPE, op).unwrap(), portable.combine(T::DTYPE, op).unwrap());
        assert_eq!(ours.name, portable.name);
        combine_agrees(ours, portable, packet, offset, any);
    }
}

fn combine_agrees<T: AnyBits>(ours: &Combine, portable: &Combine, packet: &[u8], offset: usize, any: &[T]) {
    let elements = any.len();
    let other: Vec<u8> = any.iter().flat_map(|x| x.be_bytes()).collect();
    let wide: Vec<u8> = other.iter().chain(packet).copied().cycle().take(elements * ours.partial_size).collect();
    let wide = unaligned(&wide, offset);
    let run = |combine: &Combine| {
        let mut seen: Vec<Vec<u8>> = Vec::new();
        let mut lanes = vec![0xaa; offset + elements * combine.lane_size];
        let mut vector = vec![0xaa; offset + elements * combine.result_size];
        let mut partial = vec![0xaa; offset + elements * combine.partial_size];
        let mut merged = lanes.clone();
        (combine.store)(&mut lanes[offset..], &other);
        seen.push(lanes.clone());
        (combine.load)(&lanes[offset..], &mut vector[offset..]);
        seen.push(vector.clone());
        (combine.add)(&mut lanes[offset..], packet);
        seen.push(lanes.clone());
        (combine.add_left)(&mut lanes[offset..], &other);
        seen.push(lanes.clone());
        (combine.load)(&lanes[offset..], &mut vector[offset..]);
        seen.push(vector.clone());
        (combine.store_partial)(&mut merged[offset..], &wide[offset..]);
        seen.push(merged.clone());
        (combine.load_partial)(&merged[offset..], &mut partial[offset..]);
        assert_eq!(partial[offset..], wide[offset..], "{combine:?} loses nothing of a partial result");
        (combine.load)(&merged[offset..], &mut vector[offset..]);
        seen.push(vector.clone());
        (combine.add_partial)(&mut merged[offset..], &partial[offset..]);
        seen.push(merged.clone());
        (combine.merge)(&mut merged[offset..], &lanes[offset..]);
        seen.push(merged.clone());
        (combine.add_left_partial)(&mut merged[offset..], &wide[offset..]);
        seen.push(merged.clone());
        for ranks in [1, 2, 3, 1023] {
            (combine.finish)(&mut merged[offset..], ranks);
            seen.push(merged.clone());
            (combine.load)(&merged[offset..], &mut vector[offset..]);
            seen.push(vector.clone());
        }
        seen
    };
    for (step, (ours, expected)) in run(ours).into_iter().zip(run(portable)).enumerate() {
        assert_eq!(ours, expected, "{portable:?}, step {step}");
    }
}

/// A finite block through encode, and any words through decode.
fn fixed_point_agrees<T: AnyBits>(
    name: &str,
    ours: &ElementKernels<T>,
    portable: &ElementKernels<T>,
    any: &[T],
    words: &[u8],
    world_size: u16,
) {
    let (Some(ours), Some(portable)) = (&ours.fixed, &portable.fixed) else {
        panic!("{} has fixed point", T::DTYPE);
    };
    assert_eq!((ours.max_abs)(any), (portable.max_abs)(any), "{name} max_abs");
    let finite: Vec<T> = any.iter().map(|x| x.or_zero()).collect();
    let finite = finite.as_slice();
    let scale = match (portable.max_abs)(finite) {
        0 => Scale::integer(world_size),
        bits => Scale::new(BlockExponent::of_magnitude(bits), world_size),
    };
    let two = |m: i32| 2f64.powi(m) as f32;
    let first = scale.shift.clamp(-126, 127);
    let factors = [two(first), two(scale.shift - first)];
    let mut vectors = [vec![0xaa; words.len()], vec![0x55; words.len()]];
    (ours.encode)(finite, factors, &mut vectors[0]);
    (portable.encode)(finite, factors, &mut vectors[1]);
    assert_eq!(vectors[0], vectors[1], "{name} encode");

    let mut codes = [vec![0xaa; any.len()], vec![0x55; any.len()]];
    (ours.encode_codes)(any, 127.0 * 2f64.powi(scale.shift - 24), &mut codes[0]);
    (portable.encode_codes)(any, 127.0 * 2f64.powi(scale.shift - 24), &mut codes[1]);
    assert_eq!(codes[0], codes[1], "{name} encode_codes");
    let mut losses = [vec![T::default(); any.len()], vec![T::default(); any.len()]];
    (ours.loss_of_codes)(any, 127.0 * 2f64.powi(scale.shift - 24), &mut losses[0]);
    (portable.loss_of_codes)(any, 127.0 * 2f64.powi(scale.shift - 24), &mut losses[1]);
    check(name, "loss_of_codes", &losses[0], &losses[1]);

    let decoders = [
        (ours.decode, portable.decode, 4),
        (ours.decode_codes_8, portable.decode_codes_8, 1),
        (ours.decode_codes_16, portable.decode_codes_16, 2),
    ];
    for ((ours, portable, size), divisor) in
        decoders.into_iter().flat_map(|each| [1.0, f64::from(world_size)].map(|divisor| (each, divisor)))
    {
        let unscale = Unscale { unit: 2f64.powi(-scale.shift), divisor };
        let mut output = [vec![T::default(); finite.len()], vec![T::default(); finite.len()]];
        let words = &words[..size * finite.len()];
        ours(words, unscale, &mut output[0]);
        portable(words, unscale, &mut output[1]);
        check(name, "decode", &output[0], &output[1]);
    }
}

/// Elements at any distance from the alignment of a vector, as bits; and packet bytes likewise.
fn inputs<T: AnyBits>() -> impl Strategy<Value = (usize, usize, Vec<T>, Vec<u8>)> {
    (0usize..17, 0usize..65, 0usize..100).prop_flat_map(|(before, offset, len)| {
        let words = prop_oneof![
            vec(any::<u8>(), 8 * len).boxed(),
            T::blocks(2 * len).prop_map(|block| block.iter().flat_map(|x| x.be_bytes()).collect()).boxed(),
        ];
        (Just(before), Just(offset), T::blocks(before + len), words)
    })
}

macro_rules! agree {
    ($name:ident, $field:ident, $has_fixed_point:literal) => {
        proptest! {
            #[test]
            fn $name((before, offset, elements, words) in inputs::<$field>(), world_size in 1..=Scale::MAX_WORLD_SIZE) {
                let any = &elements[before..];
                // The packet's elements may be as hard as the tensor's.
                let repeated: Vec<u8> = words.iter().copied().cycle().take(4 * any.len()).collect();
                let bytes = unaligned(&words[..size_of::<$field>() * any.len()], offset);
                let words = unaligned(&repeated, offset);
                for (portable, table) in tables() {
                    combines_agree(table, portable, &bytes[offset..], offset % 9, any);
                    let (ours, portable) = (&table.$field, &portable.$field);
                    native_agrees(table.name, ours, portable, any, &bytes[offset..]);
                    if $has_fixed_point {
                        fixed_point_agrees(table.name, ours, portable, any, &words[offset..], world_size);
                    }
                }
            }
        }
    };
}

agree!(f32_agrees, f32, true);
agree!(f16_agrees, f16, true);
agree!(bf16_agrees, bf16, true);
agree!(i32_agrees, i32, true);
agree!(f64_agrees, f64, false);
agree!(i8_agrees, i8, false);
agree!(i16_agrees, i16, false);
agree!(i64_agrees, i64, false);
agree!(u8_agrees, u8, false);

/// Blocks of 16-bit floats in fixed point, finite and not.
fn fixed_16_agrees<T: AnyBits>(ours: &Fixed16, portable: &Fixed16, any: &[T], finite: bool, world_size: u16) {
    let block: Vec<T> = any.iter().map(|&x| if finite { x.or_zero() } else { x }).collect();
    let packet: Vec<u8> = block.iter().flat_map(|x| x.be_bytes()).collect();
    let scale = Scale::new(codec::exponent(&block), world_size);
    let mut lanes = [vec![0xaa; 4 * block.len()], vec![0x55; 4 * block.len()]];
    let mut results = [packet.clone(), packet.clone()];
    for ((kernels, lanes), result) in [ours, portable].into_iter().zip(&mut lanes).zip(&mut results) {
        (kernels.store)(lanes, &packet, scale);
        (kernels.add)(lanes, &packet, scale);
        (kernels.load)(lanes, result, scale, if finite { ReduceOp::Avg } else { ReduceOp::Sum });
    }
    assert_eq!(lanes[0], lanes[1], "{} {scale:?}", T::DTYPE);
    assert_eq!(results[0], results[1], "{} {scale:?}", T::DTYPE);
}

proptest! {
    #[test]
    fn fixed_16_agrees_of_both_types(f16s in f16::blocks(77), bf16s in bf16::blocks(77), finite: bool, world_size in 2..=Scale::MAX_WORLD_SIZE) {
        for (portable, table) in tables() {
            fixed_16_agrees(&table.fixed_f16, &portable.fixed_f16, &f16s, finite, world_size);
            fixed_16_agrees(&table.fixed_bf16, &portable.fixed_bf16, &bf16s, finite, world_size);
        }
    }

    #[test]
    fn fixed_point_accumulators_agree((before, offset, elements, words) in inputs::<i32>()) {
        for (portable, table) in tables() {
            let any = &elements[before..];
            combine_agrees(&table.fixed, &portable.fixed, &words[..4 * any.len()], offset, any);
        }
    }

    #[test]
    fn accumulators_of_codes_agree((before, offset, elements, bytes) in inputs::<i8>()) {
        for (portable, table) in tables() {
            let any = &elements[before..];
            combine_agrees(&table.codes_8, &portable.codes_8, &bytes[..any.len()], offset, any);
            combine_agrees(&table.codes_16, &portable.codes_16, &bytes[..any.len()], offset, any);
        }
    }

    #[test]
    fn lanes_agree((before, offset, elements, words) in inputs::<i32>()) {
        let bits: Vec<u32> = elements.iter().map(|&x| x as u32).collect();
        let vector = unaligned(&words[..4 * (bits.len() - before)], offset);
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
        combines_agree(table, portable, &bytes, 0, &f16s);
        combines_agree(table, portable, &bytes, 0, &bf16s);
        native_agrees(table.name, &table.f16, &portable.f16, &f16s, &bytes);
        native_agrees(table.name, &table.bf16, &portable.bf16, &bf16s, &bytes);
    }
}

fn decode_of<T>(kernels: &ElementKernels<T>) -> fn(&[u8], Unscale, &mut [T]) {
    kernels.fixed.as_ref().expect("it has fixed point").decode
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
                decode_of(&table.f16)(&words, unscale, &mut ours);
                decode_of(&portable.f16)(&words, unscale, &mut expected);
                check(table.name, "f16 decode", &ours, &expected);
                let (mut ours, mut expected) = (vec![bf16::ZERO; words.len() / 4], vec![bf16::ZERO; words.len() / 4]);
                decode_of(&table.bf16)(&words, unscale, &mut ours);
                decode_of(&portable.bf16)(&words, unscale, &mut expected);
                check(table.name, "bf16 decode", &ours, &expected);
            }
        }
    }
}
